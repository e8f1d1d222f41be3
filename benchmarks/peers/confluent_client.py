"""confluent-kafka's part, run in an environment of its own: one measurement, printed as a line.

    python -m benchmarks.peers.confluent_client BROKER WORK COUNT

It has no batches with fields, so every way of reading is compared with `consume` and the same
fields read from its messages.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers.measures import (
    BODY_BYTES,
    PACED_TOPIC,
    QUEUES,
    READ_BODY_BYTES,
    READ_TOPIC,
    Measured,
    paced,
    percentiles,
    places,
    report,
    timed,
    topics,
    waited_ms,
)

CHUNK = 1000
SETTINGS = {"acks": 1, "linger.ms": 5, "batch.size": 65_536}


def make_topics(broker: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    wanted = [*topics(), READ_TOPIC, PACED_TOPIC]
    futures = admin.create_topics([NewTopic(name, QUEUES, 1) for name in wanted])
    for future in futures.values():
        future.result(60)


def _producer(broker: str, **settings: Any) -> Producer:
    most = {"queue.buffering.max.messages": 1_000_000}
    return Producer({"bootstrap.servers": broker, **most, **settings})


def _produce(producer: Producer, chosen: list[tuple[str, int]], body: bytes) -> None:
    produce = producer.produce
    for topic, queue in chosen:
        while True:
            try:
                produce(topic, body, partition=queue)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()


def send(broker: str, count: int) -> None:
    producer = _producer(broker, **SETTINGS)
    body = b"x" * BODY_BYTES
    _produce(producer, places(count // 5, seed=2), body)
    chosen = places(count)
    report(timed(count, lambda: _produce(producer, chosen, body)))


def send_heard(broker: str, count: int) -> None:
    """As `send`, with a callback for each message, as our client has a future."""
    producer = _producer(broker, **SETTINGS)
    body = b"x" * BODY_BYTES
    _produce(producer, places(count // 5, seed=2), body)
    chosen = places(count)
    failures: list[object] = []

    def heard(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    def work() -> None:
        produce = producer.produce
        for number, (topic, queue) in enumerate(chosen):
            while True:
                try:
                    produce(topic, body, partition=queue, on_delivery=heard)
                    break
                except BufferError:
                    producer.poll(0.01)
            if not number % CHUNK:
                producer.poll(0)
        producer.flush()

    measured = timed(count, work)
    if failures:
        raise KafkaException(failures[0])
    report(measured)


def fill(broker: str, count: int) -> None:
    """The messages to read: bodies of 1 KiB with a key, a tag and one property."""
    producer = _producer(broker, **SETTINGS)
    body = b"x" * READ_BODY_BYTES
    for number in range(count):
        while True:
            try:
                producer.produce(
                    READ_TOPIC,
                    body,
                    key=f"order-{number}",
                    partition=number % QUEUES,
                    headers=[("tag", f"tag-{number % 10}"), ("region", "north")],
                )
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()


def _read(broker: str, count: int, take: Callable[[list[Any]], object]) -> None:
    """Twice; the clock runs from the first message on. A consumer that goes back to the beginning
    would first wait for the fetch that it has open at the end, so each time has its own."""
    for _ in range(2):
        consumer = Consumer(
            {
                "bootstrap.servers": broker,
                "group.id": "peers",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                # as shipped it sleeps a second where a queue is full, on a busy machine for most
                # of the time
                "fetch.queue.backoff.ms": 5,
            }
        )
        consumer.assign([TopicPartition(READ_TOPIC, queue, 0) for queue in range(QUEUES)])
        take(consumer.consume(1, 20))

        def rest(consumer: Consumer = consumer) -> None:
            left = count - 1
            while left:
                # not more than are left: it would wait for them until its timeout
                messages = consumer.consume(min(CHUNK, left), 10)
                if not messages:
                    raise RuntimeError(f"{left} of {count} messages did not come")
                take(messages)
                left -= len(messages)

        measured = timed(count - 1, rest)
        consumer.close()
    report(measured)


def _bodies(messages: list[Any]) -> None:
    for message in messages:
        message.value()


def _fields(messages: list[Any]) -> None:
    for message in messages:
        message.value()
        message.key()
        headers = dict(message.headers())
        headers["tag"]
        headers["region"]


def read_batches(broker: str, count: int) -> None:
    _read(broker, count, len)


def read_bodies(broker: str, count: int) -> None:
    _read(broker, count, _bodies)


def read_fields(broker: str, count: int) -> None:
    _read(broker, count, _fields)


def paced_send(broker: str, count: int) -> None:
    """`count` a second with the client's own settings."""
    producer = _producer(broker)
    waits: list[float] = []

    def heard(_error: object, message: Any) -> None:
        waits.append(waited_ms(message.value(), time.monotonic()))

    turns = 0

    def send_one(body: bytes, sampled: bool) -> None:
        nonlocal turns
        turns += 1
        producer.produce(
            PACED_TOPIC,
            body,
            partition=turns % QUEUES,
            **({"on_delivery": heard} if sampled else {}),
        )
        if sampled:
            producer.poll(0)

    paced(count, 2, send_one)
    producer.flush()
    waits.clear()
    cpu, began = time.process_time(), time.perf_counter()
    sent = paced(count, 10, send_one)
    producer.flush()
    report(Measured(sent, time.perf_counter() - began, time.process_time() - cpu, ack_ms=waits))


def paced_read(broker: str, count: int) -> None:
    """Until nothing has come for two seconds; says `ready` when it reads."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "paced"})
    consumer.assign([TopicPartition(PACED_TOPIC, queue) for queue in range(QUEUES)])
    waits: list[float] = []
    seen = 0
    consumer.poll(1)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    wait = 20.0
    began = time.perf_counter()
    while messages := consumer.consume(CHUNK, 0.001) or consumer.consume(1, wait):
        wait = 2.0
        now = time.monotonic()
        for message in messages:
            seen += 1
            waits.append(waited_ms(message.value(), now))
    waits = waits[2 * count :]  # the first two seconds warm up
    sampled = percentiles(waits, 1_000)
    report(Measured(seen, time.perf_counter() - began, time.process_time(), hand_ms=sampled))
    consumer.close()


WORKS = {
    each.__name__: each
    for each in (
        make_topics, send, send_heard, fill, read_batches, read_bodies, read_fields, paced_send,
        paced_read,
    )
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker")
    parser.add_argument("work", choices=sorted(WORKS))
    parser.add_argument("count", type=int)
    given = parser.parse_args()
    WORKS[given.work](given.broker, given.count)
