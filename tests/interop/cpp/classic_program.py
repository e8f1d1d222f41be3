"""What a program does with RocketMQ's C++ client, by its Python package `rocketmq`.

    python classic_program.py HOST:PORT TOPIC GROUP

Sends of each kind, a pull of every queue, and a push consumer. It prints
one JSON object. This folder has nothing else: the package has the name of modules of this project.
"""

import importlib
import json
import sys
import threading
from collections import Counter
from typing import Any

# by name: an import of "rocketmq" is one of this project's folder everywhere else, and not allowed
client: Any = importlib.import_module("rocketmq.client")

MESSAGES = 20
WAIT_S = 90


def text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def a_message(topic: str, number: int) -> Any:
    message = client.Message(topic)
    message.set_keys(f"key{number:02}")
    message.set_tags("tag")
    message.set_property("number", str(number))
    message.set_body(f"body {number}")
    return message


def send(name_server: str, topic: str, group: str) -> dict[str, int]:
    """Ten in turn, nine by a key of order, one oneway. A batch of this package comes to nothing on
    RocketMQ's broker too."""
    statuses: Counter[str] = Counter()
    producer = client.Producer(f"{group}-producers")
    producer.set_namesrv_addr(name_server)
    producer.start()
    for number in range(10):
        statuses[f"sync {producer.send_sync(a_message(topic, number)).status.name}"] += 1
    for number in range(10, 19):
        result = producer.send_orderly(a_message(topic, number), number)
        statuses[f"orderly {result.status.name}"] += 1
    producer.send_oneway(a_message(topic, 19))
    producer.shutdown()
    return dict(statuses)


def pull(name_server: str, topic: str, group: str) -> list[str]:
    consumer = client.PullConsumer(f"{group}-pulls")
    consumer.set_namesrv_addr(name_server)
    consumer.start()
    found = sorted(f"{text(each.keys)} {text(each.body)}" for each in consumer.pull(topic))
    consumer.shutdown()
    return found


def receive(name_server: str, topic: str, group: str) -> dict[str, Any]:
    keys: set[str] = set()
    times: Counter[str] = Counter()
    lock, done = threading.Lock(), threading.Event()

    def take(message: Any) -> None:
        with lock:
            times[f"delivery {message.reconsume_times}"] += 1
            keys.add(f"{text(message.keys)} {text(message['number'])} {text(message.tags)}")
            if len(keys) == MESSAGES:
                done.set()

    consumer = client.PushConsumer(group)
    consumer.set_namesrv_addr(name_server)
    consumer.subscribe(topic, take, "tag || other")
    consumer.start()
    done.wait(WAIT_S)
    consumer.shutdown()
    return {"keys": sorted(keys), "times": dict(times)}


if __name__ == "__main__":
    where = sys.argv[1:4]
    seen = {"sent": send(*where), "pulled": pull(*where)}
    print(json.dumps(seen | {"received": receive(*where)}), flush=True)
