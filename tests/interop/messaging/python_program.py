"""What RocketMQ's Python client of the 5.x API does and sees; run by the Python that has it.

python_program.py ENDPOINTS scenes              one line of JSON
python_program.py ENDPOINTS failover TOPIC GROUP  as interop/failover_clients.py has it
python_program.py ENDPOINTS secured KEY SECRET  by TLS, with what is refused; one line of JSON
"""

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

client: Any = importlib.import_module("rocketmq")  # another package has this name too

TOPIC = "Scenes"


def configuration() -> Any:
    return client.ClientConfiguration(sys.argv[1], client.Credentials())


def everything(topic: str) -> dict[str, Any]:
    return {topic: client.FilterExpression()}


def message(body: str, topic: str = TOPIC, **fields: Any) -> Any:
    made = client.Message()
    made.topic, made.body, made.tag, made.keys = topic, body.encode(), "tag", "key"
    made.add_property("colour", "red")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class Checker(client.TransactionChecker):  # type: ignore[misc]
    def check(self, message: Any) -> Any:
        return client.TransactionResolution.COMMIT


class Listener(client.MessageListener):  # type: ignore[misc]
    """Fails the message `fails` at its first deliveries."""

    def __init__(self, fails: str = "", times: int = 0) -> None:
        self.fails, self.times = fails, times
        self.seen: list[tuple[str, int]] = []

    def consume(self, message: Any) -> Any:
        body = message.body.decode()
        self.seen.append((body, message.delivery_attempt))
        if body == self.fails and sum(each == body for each, _ in self.seen) <= self.times:
            return client.ConsumeResult.FAILURE
        return client.ConsumeResult.SUCCESS


def wait(condition: Callable[[], bool], seconds: float = 40) -> None:
    end = time.time() + seconds
    while not condition() and time.time() < end:
        time.sleep(0.1)


def receive(
    group: str, count: int, topic: str = TOPIC, again: str = "", seconds: float = 40
) -> list[list[Any]]:
    """Bodies and attempts of `count` messages; `again` is not acknowledged at first."""
    consumer = client.SimpleConsumer(configuration(), group, {topic: client.FilterExpression()}, 3)
    consumer.startup()
    seen: list[list[Any]] = []
    end = time.time() + seconds
    while len(seen) < count and time.time() < end:
        for each in consumer.receive(32, 15):
            body = each.body.decode()
            seen.append([body, each.delivery_attempt])
            if body == again and each.delivery_attempt == 1:
                consumer.change_invisible_duration(each, 1)
            else:
                consumer.ack(each)
    consumer.shutdown()
    return sorted(seen)


def push(group: str, listener: Listener, count: int, topic: str = TOPIC) -> list[tuple[str, int]]:
    consumer = client.PushConsumer(
        configuration(), group, listener, {topic: client.FilterExpression()}
    )
    consumer.startup()
    wait(lambda: len(listener.seen) >= count)
    consumer.shutdown()
    return sorted(listener.seen)


def scenes() -> dict[str, Any]:
    seen: dict[str, Any] = {}
    producer = client.Producer(configuration(), (TOPIC,), checker=Checker())
    producer.startup()
    producer.send(message("normal"))
    for number in range(3):
        producer.send(message(f"fifo{number}", message_group="g"))
    producer.send(message("delay", delivery_timestamp=int(time.time()) + 3))
    later = producer.send(message("never", delivery_timestamp=int(time.time()) + 8))
    producer.recall_message(TOPIC, later.recall_handle)
    for what in ("commit", "rollback", "check"):
        transaction = producer.begin_transaction()
        producer.send(message(what), transaction)
        if what == "commit":
            transaction.commit()
        elif what == "rollback":
            transaction.rollback()
    seen["simple"] = receive("simple", 8, again="normal")
    seen["push"] = push("push", Listener("normal", 1), 8)
    ordered = Listener("fifo1", 2)
    seen["ordered"] = [each for each in push("ordered", ordered, 9) if each[0].startswith("fifo")]
    seen["order"] = [body for body, _ in ordered.seen if body.startswith("fifo")]
    buried = Listener("fifo0", 99)
    push("buried", buried, 9)
    seen["dead"] = receive("inspectors", 1, topic="%DLQ%buried")
    producer.shutdown()
    return seen


class DeliveryListener(client.MessageListener):  # type: ignore[misc]
    def consume(self, message: Any) -> Any:
        tell("delivered", message.body.decode())
        return client.ConsumeResult.SUCCESS


def tell(word: str, what: str = "") -> None:
    line = f"{word} {int(1000 * time.time())} {what[:200]}".replace("\n", " ")
    sys.stdout.write(line + "\n")  # at once: threads tell too
    sys.stdout.flush()


def failover(topic: str, group: str) -> None:
    producer = client.Producer(configuration(), (topic,))
    producer.startup()
    consumer = client.PushConsumer(
        configuration(), group, DeliveryListener(), {topic: client.FilterExpression()}
    )
    consumer.startup()
    ended = threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            ended.set()
        os._exit(0)

    threading.Thread(target=listen).start()
    number = 0
    while not ended.wait(0.005):
        try:
            producer.send(message(str(number), topic))
        except Exception as error:
            tell("failed", str(error))
        else:
            tell("acknowledged", str(number))
        number += 1
    tell("stopped")
    threading.Event().wait()


def secured(key: str, secret: str) -> dict[str, Any]:
    proven = client.ClientConfiguration(sys.argv[1], client.Credentials(key, secret))
    producer = client.Producer(proven, (), tls_enable=True)
    producer.startup()
    seen: dict[str, Any] = {"sent": 0, "refused": []}
    for topic in (TOPIC, "Theirs"):
        try:
            producer.send(message("secured", topic))
        except Exception as error:
            seen["refused"].append(str(error))
        else:
            seen["sent"] += 1
    producer.shutdown()
    consumer = client.SimpleConsumer(
        proven, "readers", {TOPIC: client.FilterExpression()}, 3, tls_enable=True
    )
    consumer.startup()
    got: list[Any] = []
    end = time.time() + 40
    while not got and time.time() < end:
        got += consumer.receive(32, 15)
    for each in got:
        consumer.ack(each)
    consumer.shutdown()
    return {**seen, "received": [each.body.decode() for each in got]}


PLAYS: dict[str, Callable[..., Any]] = {
    "scenes": scenes,
    "failover": failover,
    "secured": secured,
}


def main() -> None:
    result = PLAYS[sys.argv[2]](*sys.argv[3:])
    print(json.dumps(result), flush=True)


main()
