"""Our part: one measurement in a process of its own, printed as a line.

    python -m benchmarks.peers.tandemlog_client ENDPOINT WORK COUNT

Each work is what a peer's client does under the same name, with the clock in the same places.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.peers.measures import (
    BODY_BYTES,
    PACED_TOPIC,
    QUEUES,
    READ_BODY_BYTES,
    READ_TOPIC,
    Measured,
    cpu_seconds,
    paced,
    percentiles,
    places,
    report,
    timed,
    topics,
    waited_ms,
)
from tandemlog import EARLIEST, LATEST, Admin, Consumer, Message, Producer, Stream
from tandemlog.memory import keep_freed_memory


def make_topics(endpoint: str, count: int) -> None:
    with Admin(endpoint) as admin:
        for name in (*topics(), READ_TOPIC, PACED_TOPIC):
            admin.create_topic(name, queues=QUEUES)


def send(endpoint: str, count: int) -> None:
    body = b"x" * BODY_BYTES
    with Producer(endpoint) as producer:

        def work(chosen: list[tuple[str, int]]) -> None:
            give = producer.send
            last = None
            for topic, queue in chosen:
                last = give(Message(topic, body, queue_id=queue))
            producer.flush()
            if last is not None:
                last.result(60)

        work(places(count // 5, seed=2))
        chosen = places(count)
        report(timed(count, lambda: work(chosen)))


def send_messages(endpoint: str, count: int) -> None:
    """An object for each message, created and sent. An iterator, as in a program with more than a
    few thousand messages: Python's garbage collector would examine a list of half a million objects
    again and again."""
    body = b"x" * BODY_BYTES
    with Producer(endpoint) as producer:

        def work(chosen: list[tuple[str, int]]) -> None:
            producer.send_many(
                None, (Message(topic, body, queue_id=queue) for topic, queue in chosen)
            )

        work(places(count // 5, seed=2))
        chosen = places(count)
        report(timed(count, lambda: work(chosen)))


def send_columns(endpoint: str, count: int) -> None:
    """A topic and a queue for each row, as text and numbers."""
    data = np.random.default_rng(1).integers(0, 256, count * BODY_BYTES, np.uint8)
    bodies = (data, np.arange(count + 1, dtype=np.int64) * BODY_BYTES)
    chosen = places(count)
    names = np.array([topic for topic, _ in chosen])
    queues = np.array([queue for _, queue in chosen], np.int32)
    with Producer(endpoint) as producer:
        part = count // 5
        producer.send_many(
            None, (data, bodies[1][: part + 1]), topics=names[:part], queues=queues[:part]
        )
        report(timed(count, lambda: producer.send_many(None, bodies, topics=names, queues=queues)))


def fill(endpoint: str, count: int) -> None:
    data = np.random.default_rng(1).integers(0, 256, count * READ_BODY_BYTES, np.uint8)
    bodies = (data, np.arange(count + 1, dtype=np.int64) * READ_BODY_BYTES)
    with Producer(endpoint) as producer:
        producer.send_many(
            READ_TOPIC,
            bodies,
            keys=[f"order-{number}" for number in range(count)],
            tags=[f"tag-{number % 10}" for number in range(count)],
            queues=np.arange(count, dtype=np.int32) % QUEUES,
            properties={"region": "north"},
        )
    time.sleep(1)


Way = Callable[[Stream], Iterator[int]]
"""How a stream is read: yields how many messages came, again and again."""


def _read(endpoint: str, count: int, way: Way) -> None:
    """Twice; the clock runs from the first messages on."""
    with Consumer(endpoint) as consumer:
        for _ in range(2):
            with consumer.follow(READ_TOPIC, start=EARLIEST, until_end=True) as stream:
                numbers = way(stream)
                left = count - next(numbers)

                def rest(numbers: Iterator[int] = numbers, left: int = left) -> None:
                    if sum(numbers) != left:
                        raise RuntimeError(f"not all of the last {left} messages came")

                measured = timed(left, rest)
        report(measured)


def _batches(stream: Stream) -> Iterator[int]:
    for batch in stream.batches():
        yield len(batch)


def _bodies(stream: Stream) -> Iterator[int]:
    seen = 0
    for message in stream:
        message.body  # noqa: B018
        seen += 1
        if seen == 1:
            yield 1
    yield seen - 1


def _fields(stream: Stream) -> Iterator[int]:
    seen = 0
    for message in stream:
        message.body, message.keys, message.tags  # noqa: B018
        message.properties["region"]
        seen += 1
        if seen == 1:
            yield 1
    yield seen - 1


def read_batches(endpoint: str, count: int) -> None:
    _read(endpoint, count, _batches)


def read_bodies(endpoint: str, count: int) -> None:
    _read(endpoint, count, _bodies)


def read_fields(endpoint: str, count: int) -> None:
    _read(endpoint, count, _fields)


def paced_send(endpoint: str, count: int) -> None:
    """`count` a second with default options."""
    waits: list[float] = []
    with Producer(endpoint) as producer:
        turns = 0

        def send_one(body: bytes, sampled: bool) -> None:
            nonlocal turns
            turns += 1
            future = producer.send(Message(PACED_TOPIC, body, queue_id=turns % QUEUES))
            if sampled:

                def heard(_done: object, body: bytes = body) -> None:
                    waits.append(waited_ms(body, time.monotonic()))

                future.add_done_callback(heard)

        paced(count, 2, send_one)
        producer.flush()
        waits.clear()
        cpu, began = cpu_seconds(), time.perf_counter()
        sent = paced(count, 10, send_one)
        producer.flush()
        report(Measured(sent, time.perf_counter() - began, cpu_seconds() - cpu, ack_ms=waits))


def paced_read(endpoint: str, count: int) -> None:
    """Until nothing has come for two seconds; says `ready` when it reads."""
    waits: list[float] = []
    seen = 0
    with Consumer(endpoint) as consumer, consumer.follow(PACED_TOPIC, start=LATEST) as stream:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        wait = 20_000.0
        began = time.perf_counter()
        while True:
            try:
                batch = stream.next_batch(timeout_ms=wait)
            except TimeoutError:
                break
            if batch is None:
                break
            wait = 2_000.0
            now = time.monotonic()
            for message in batch:
                seen += 1
                waits.append(waited_ms(message.body, now))
    waits = waits[2 * count :]  # the first two seconds warm up
    sampled = percentiles(waits, 1_000)
    report(Measured(seen, time.perf_counter() - began, cpu_seconds(), hand_ms=sampled))


WORKS = {
    each.__name__: each
    for each in (
        make_topics, send, send_messages, send_columns, fill, read_batches, read_bodies,
        read_fields, paced_send, paced_read,
    )
}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("work", choices=sorted(WORKS))
    parser.add_argument("count", type=int)
    given = parser.parse_args()
    # as docs/client.md tells a program that reads fast
    keep_freed_memory()
    WORKS[given.work](given.endpoint, given.count)
