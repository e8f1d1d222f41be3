"""A program that forks while its clients are at work; see tests/tandemlog/test_forked_clients.py.

forked_clients.py SCENARIO ENDPOINT     ends with 0, and prints what its children found
"""

import asyncio
import atexit
import concurrent.futures
import contextlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tandemlog import (
    LATEST,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Message,
    Producer,
    ProducerOptions,
)
from tandemlog.errors import ClientClosedError, ForkedClientError

TOPIC = "forks"
CHILD_S = 30.0
AT_ONCE_S = 2.0
"""A call that asks nobody takes less than a millisecond; a loaded machine may stop a process."""


def in_child(work: Callable[[], object], end: Callable[[int], object] = sys.exit) -> None:
    """`work` in a fork that then ends by sys.exit, as programs do. Raises if it fails or hangs."""
    child = os.fork()
    if not child:
        work()
        end(0)
    deadline = time.monotonic() + CHILD_S
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise AssertionError(f"the child did not end within {CHILD_S} s")
        time.sleep(0.01)
    assert ended[1] == 0, f"the child ended with {ended[1]}"


def refused(call: Callable[[], object]) -> None:
    started = time.monotonic()
    try:
        call()
    except ForkedClientError as error:
        text = str(error)
    else:
        raise AssertionError("a client of the parent worked in the child")
    assert "make a new one in the child" in text, text
    assert time.monotonic() - started < AT_ONCE_S


def round_trip(endpoint: str, body: bytes) -> None:
    """New clients of every kind: a message sent, and received."""
    with (
        Consumer(endpoint) as consumer,
        Producer(endpoint) as producer,
        Admin(endpoint) as admin,
        consumer.follow(TOPIC, start=LATEST) as stream,
    ):
        sent = producer.send(Message(TOPIC, body)).result(20)
        assert sent.queue_offset >= 0
        while (batch := stream.next_batch(20_000)) is not None:
            if body in [message.body for message in batch]:
                break
        assert TOPIC in [topic.name for topic in admin.topics()]


@contextmanager
def load(producer: Producer) -> Iterator[None]:
    """Messages in flight all the time, from another thread."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.001):
            for _ in range(100):
                producer.send(Message(TOPIC, b"x" * 100))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def at_work(endpoint: str) -> None:
    """A parent whose producer, follower and admin are all busy while it forks again and again."""
    producer, consumer, admin = Producer(endpoint), Consumer(endpoint), Admin(endpoint)
    stream = consumer.follow(TOPIC)
    reading = iter(stream)
    # What a caller has at hand already must fail too, not only what it looks up.
    send, within = producer.send, stream.__iter__()

    def child() -> None:
        sent: list[concurrent.futures.Future[Any]] = [waiting]
        calls: list[Callable[[], Any]] = [
            lambda: producer.send(Message(TOPIC, b"no")),
            lambda: producer.send_many(TOPIC, [b"no"]),
            lambda: send(Message(TOPIC, b"no")),
            lambda: producer.producer_id,
            producer_call("flush"),
            producer_call("__enter__"),
            lambda: consumer.pull(TOPIC, 0, 0),
            lambda: consumer.follow(TOPIC),
            lambda: consumer.ranges(TOPIC),
            lambda: consumer.committed(TOPIC),
            lambda: consumer.commit({(TOPIC, 0): 0}),
            lambda: stream.next_batch(),
            lambda: stream.commit(),
            lambda: stream.positions,
            lambda: next(iter(stream)),
            lambda: next(stream.batches()),
            lambda: next(reading),
            lambda: next(within),
            lambda: admin.topics(),
            lambda: admin.cluster(),
            lambda: admin.create_topic("no"),
            lambda: waiting.result(),
            lambda: waiting.result(20),
            lambda: raised(waiting.exception()),
            lambda: raised(next(concurrent.futures.as_completed(sent)).exception()),
        ]
        for call in calls:
            refused(call)
        seen: list[object] = []
        waiting.add_done_callback(seen.append)
        assert seen == [waiting]
        assert acknowledged.result().queue_offset >= 0  # what was known is known
        assert isinstance(ForkedClientError("x"), ClientClosedError)
        for each in (stream, consumer, producer, admin):
            each.close()
        round_trip(endpoint, b"of a child")
        in_child(lambda: round_trip(endpoint, b"of a grandchild"))

    def producer_call(name: str) -> Callable[[], object]:
        return lambda: getattr(producer, name)()

    def raised(error: BaseException | None) -> None:
        assert error is not None
        raise error

    acknowledged = producer.send(Message(TOPIC, b"x"))
    acknowledged.result()
    next(reading)
    with load(producer):
        for _ in range(3):
            waiting = producer.send(Message(TOPIC, b"x"))
            in_child(child)
            waiting.result(20)
    assert producer.send(Message(TOPIC, b"x")).result(20).queue_offset >= 0
    next(reading)
    assert next(within)
    for each in (stream, consumer, producer, admin):
        each.close()


def closed(endpoint: str) -> None:
    """A parent that has used clients, and closed them."""
    round_trip(endpoint, b"of the parent")
    in_child(lambda: round_trip(endpoint, b"of a child"))


def unsent(endpoint: str) -> None:
    """A child that ends must not send what the parent has collected: that would be there twice."""
    producer = Producer(endpoint, ProducerOptions(linger_ms=600_000, producer_id="of-the-parent"))
    atexit.register(producer.close)  # as programs do that know of no other way
    waiting = [producer.send(Message(TOPIC, b"once", keys="once")) for _ in range(3)]
    with producer:
        for _ in range(3):
            in_child(lambda: None)
        assert not any(future.done() for future in waiting)
    assert len({(each.result().queue_id, each.result().queue_offset) for each in waiting}) == 3
    with Admin(endpoint) as admin:
        assert len(admin.query_by_key(TOPIC, "once")) == 3
        known = admin.producer("of-the-parent")
        assert known is not None
        assert known.last_sequence == 0


def in_a_loop(endpoint: str) -> None:
    """Clients of a loop of the parent, which is still running there when the child ends."""
    asyncio.run(_in_a_loop(endpoint))


async def _in_a_loop(endpoint: str) -> None:
    producer, consumer = AsyncProducer(endpoint), AsyncConsumer(endpoint)
    admin = AsyncAdmin(endpoint)
    await producer.open()
    acknowledged = await producer.send(Message(TOPIC, b"x"))
    await acknowledged
    stream = await consumer.follow(TOPIC)
    await stream.next_batch()
    await admin.topics()
    waiting = await producer.send(Message(TOPIC, b"x"))

    async def use() -> None:
        calls: list[Callable[[], Any]] = [
            lambda: producer.send(Message(TOPIC, b"no")),
            lambda: producer.send_many(TOPIC, [b"no"]),
            lambda: producer.flush(),
            lambda: producer.open(),
            lambda: consumer.ranges(TOPIC),
            lambda: consumer.follow(TOPIC),
            lambda: stream.next_batch(),
            lambda: stream.commit(),
            lambda: admin.topics(),
            lambda: waiting,
        ]
        for call in calls:
            try:
                await call()
            except ForkedClientError:
                continue
            raise AssertionError("a client of the parent worked in the child")
        for each in (stream, consumer, producer, admin):
            await each.close()
        async with AsyncProducer(endpoint) as own:
            assert (await (await own.send(Message(TOPIC, b"own")))).queue_offset >= 0

    def child() -> None:
        found: list[BaseException] = []

        def run() -> None:  # a loop of its own: the parent's is running in the other thread
            try:
                asyncio.run(use())
            except BaseException as error:
                found.append(error)

        runner = threading.Thread(target=run)
        runner.start()
        runner.join(20)
        assert not runner.is_alive()
        if found:
            raise found[0]

    in_child(child, os._exit)  # as multiprocessing ends its children
    await waiting
    assert (await (await producer.send(Message(TOPIC, b"x")))).queue_offset >= 0


def pool(endpoint: str) -> None:
    """multiprocessing's pool and executor with the start method that forks."""
    forking = multiprocessing.get_context("fork")
    with Producer(endpoint) as producer, load(producer):
        with forking.Pool(2) as workers:
            places = workers.starmap(send_one, [(endpoint, number) for number in range(6)])
        assert len(set(places)) == 6
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=forking) as executor:
            list(executor.map(send_one, [endpoint] * 2, range(2)))


def send_one(endpoint: str, number: int) -> tuple[int, int]:
    """What a worker does for each task, with one producer for all its tasks."""
    global _worker
    if _worker is None:
        _worker = Producer(endpoint)
    result = _worker.send(Message(TOPIC, b"%d" % number)).result(20)
    return result.queue_id, result.queue_offset


_worker: Producer | None = None

SCENARIOS = {each.__name__: each for each in (at_work, closed, unsent, in_a_loop, pool)}

if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        SCENARIOS[sys.argv[1]](sys.argv[2])
