"""Hooks of a program: what they see and may change, and that their faults stay their own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from fakes.fake_cluster import FakeCluster, running_cluster
from fakes.fake_log import RefusedError
from tandemlog import (
    AsyncConsumer,
    AsyncProducer,
    ClientHook,
    Consumer,
    FollowOptions,
    Message,
    Producer,
    ProducerOptions,
    ReceivedBatch,
)
from tandemlog.errors import InvalidArgumentError, UnknownTopicError
from tandemlog.hooks import Hooks
from tandemlog.v1 import common_pb2


class Witness(ClientHook):
    """Notes everything, adds "!" to each body, and refuses the body "bad"."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.acknowledged: list[tuple[list[tuple[str, int]], int, float]] = []
        self.failed: list[tuple[int, Exception]] = []
        self.batches: list[ReceivedBatch] = []

    def on_send(self, message: Message) -> Message | None:
        self.threads.add(threading.get_ident())
        if message.body == b"bad":
            raise ValueError("a bad body")
        return None if message.body == b"as it is" else replace(message, body=message.body + b"!")

    def on_acknowledged(
        self, queues: Sequence[tuple[str, int]], count: int, latency_ms: float
    ) -> None:
        self.acknowledged.append((list(queues), count, latency_ms))

    def on_failed(self, count: int, error: Exception) -> None:
        self.failed.append((count, error))

    def on_receive(self, batch: ReceivedBatch) -> None:
        self.threads.add(threading.get_ident())
        self.batches.append(batch)


class Broken(ClientHook):
    def on_acknowledged(
        self, queues: Sequence[tuple[str, int]], count: int, latency_ms: float
    ) -> None:
        raise RuntimeError("acknowledged")

    def on_failed(self, count: int, error: Exception) -> None:
        raise RuntimeError("failed")

    def on_receive(self, batch: ReceivedBatch) -> None:
        raise RuntimeError("received")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(slaves=0) as cluster:
        cluster.log.create_topic("orders", 2)
        yield cluster


def options(*hooks: ClientHook) -> ProducerOptions:
    return ProducerOptions(hooks=hooks, linger_ms=0)


async def bodies(cluster: FakeCluster) -> list[bytes]:
    async with AsyncConsumer(cluster.endpoints) as consumer:
        stream = await consumer.follow("orders", until_end=True)
        return sorted([message.body async for message in stream])


async def test_a_message_is_sent_as_the_hooks_return_it(cluster: FakeCluster) -> None:
    first, second = Witness(), Witness()
    async with AsyncProducer(cluster.endpoints, options(first, second)) as producer:
        await (await producer.send(Message("orders", b"one", queue_id=1)))
        await (await producer.send(Message("orders", b"as it is")))
        await producer.send_many(None, [Message("orders", b"many", queue_id=0)] * 2)
        await producer.send_many("orders", [b"column"], queues=0)
        with pytest.raises(ValueError, match="a bad body"):
            await producer.send(Message("orders", b"bad"))
        with pytest.raises(ValueError, match="a bad body"):
            await producer.send_many(None, [Message("orders", b"bad")])
    assert await bodies(cluster) == [b"as it is", b"column", b"many!!", b"many!!", b"one!!"]
    assert first.threads == {threading.get_ident()}
    counts = [count for _, count, _ in first.acknowledged]
    assert counts == [1, 1, 2, 1]
    assert first.acknowledged[0][0] == [("orders", 1)]
    assert all(latency_ms > 0 for *_, latency_ms in first.acknowledged)
    assert not first.failed


async def test_a_request_that_fails_is_told(cluster: FakeCluster) -> None:
    witness = Witness()
    async with AsyncProducer(cluster.endpoints, options(witness)) as producer:
        await (await producer.send(Message("orders", b"x")))
        cluster.master.faults.append(RefusedError(common_pb2.INVALID_ARGUMENT, "not this one"))
        with pytest.raises(Exception, match="not this one"):
            await (await producer.send(Message("orders", b"x")))
    [(count, error)] = witness.failed
    assert count == 1
    assert "not this one" in str(error)


async def test_a_batch_is_seen_once_before_its_messages(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send_many("orders", [b"%d" % n for n in range(10)], queues=0)
    witness = Witness()
    async with (
        AsyncConsumer(cluster.endpoints, options=FollowOptions(hooks=[witness])) as consumer,
        await consumer.follow("orders", until_end=True) as stream,
    ):
        assert await stream.poll() is not None  # the rest of the batch comes later
        assert [len(batch) for batch in witness.batches] == [10]
        part = await stream.next_batch(max_messages=4)
        assert part is not None
        assert len(part) == 4
        assert len([message async for message in stream]) == 5
    assert [len(batch) for batch in witness.batches] == [10]


def test_hooks_run_in_the_thread_that_sends_or_reads() -> None:
    witness = Witness()
    with running_cluster(slaves=0) as cluster:
        with Producer(cluster.endpoints, options(witness)) as producer:
            with pytest.raises(UnknownTopicError):
                producer.send(Message("nothing", b"x"))
            cluster.log.create_topic("orders", 1)
            producer.send(Message("orders", b"x")).result(30)
            producer.send_many(None, [Message("orders", b"y")])
            producer.send_many("orders", np.array([b"z"]))
        with Consumer(cluster.endpoints, options=FollowOptions(hooks=[witness])) as consumer:
            found = [each.body for each in consumer.follow("orders", until_end=True)]
    assert found == [b"x!", b"y!", b"z"]
    assert witness.threads == {threading.get_ident()}
    assert sum(count for _, count, _ in witness.acknowledged) == 3
    assert sum(len(batch) for batch in witness.batches) == 3


async def test_what_a_hook_raises_is_logged_once_and_breaks_nothing(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    witness = Witness()
    async with AsyncProducer(cluster.endpoints, options(Broken(), witness)) as producer:
        for _ in range(3):
            await (await producer.send(Message("orders", b"x", queue_id=0)))
        cluster.master.faults.append(RefusedError(common_pb2.INVALID_ARGUMENT, "not this one"))
        results = await asyncio.gather(
            await producer.send(Message("orders", b"x")), return_exceptions=True
        )
        assert isinstance(results[0], Exception)
    follow = FollowOptions(hooks=[Broken(), witness])
    async with AsyncConsumer(cluster.endpoints, options=follow) as consumer:
        stream = await consumer.follow("orders", until_end=True)
        assert len([message async for message in stream]) == 3
    assert len(witness.acknowledged) == 3
    assert len(witness.failed) == 1
    assert sum(len(batch) for batch in witness.batches) == 3
    said = [each.getMessage() for each in caplog.records if "Broken" in each.getMessage()]
    assert [text.split()[0] for text in said] == ["on_acknowledged", "on_failed", "on_receive"]


def test_only_methods_of_its_own_are_called() -> None:
    nothing = Hooks([ClientHook()])
    assert (nothing.on_send, nothing.on_receive, nothing.hear_of_requests) == (None, None, False)
    some = Hooks([Witness()])
    assert some.on_send is not None
    assert some.on_receive is not None
    assert some.hear_of_requests


def test_a_class_is_no_hook() -> None:
    for kind in (ProducerOptions, FollowOptions):
        with pytest.raises(InvalidArgumentError, match="objects of subclasses of ClientHook"):
            kind(hooks=[Witness])  # type: ignore[list-item]
