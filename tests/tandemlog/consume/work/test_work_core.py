"""Orders that several threads take from, leases that end in the middle of one, and outcomes that
nobody sends any more."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import Message, errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.work.async_work import AsyncWork
from tandemlog.consume.work.leased_batch import WAITING, Taken
from tandemlog.consume.work.work_calls import WorkCalls
from tandemlog.consume.work.work_core import WorkCore
from tandemlog.consume.work.work_options import WorkOptions
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import work_pb2

QUICK = ConnectionOptions(retry_timeout_ms=2_000, discovery_timeout_ms=300)
OPTIONS = WorkOptions(linger_ms=0, wait_ms=2_000, stop_timeout_ms=5_000)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Topic orders with one queue of four messages."""
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints) as producer:
            await producer.send_many(None, [Message("orders", b"%d" % n) for n in range(4)])
        yield cluster


@pytest.fixture
async def work(cluster: FakeCluster) -> AsyncIterator[AsyncWork]:
    """In the order of the queue."""
    async with (
        AsyncConsumer(cluster.endpoints, group="billing", connection=QUICK) as consumer,
        consumer.work("orders", ordered=True, prefetch=4, lease=1, options=OPTIONS) as work,
    ):
        yield work


class Interrupted:
    """Rows of a lane; another thread takes while this one is between its steps."""

    def __init__(self, rows: Iterator[int], core: WorkCore, others: list[Taken | None]) -> None:
        self._rows, self._core, self._others = rows, core, others

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        row = next(self._rows)
        if not self._others:
            self._others.append(None)
            self._others[0] = self._core.take()
        return row


async def test_two_threads_take_one_message_of_an_order(work: AsyncWork) -> None:
    core = work.core
    await core.ready(10)
    others: list[Taken | None] = []
    [lane] = core._lanes
    lane.rows = Interrupted(lane.rows, core, others)
    mine = core.take()
    assert mine is not None
    assert others == [None]
    assert mine[1] == 0


async def test_those_behind_a_lost_message_are_not_delivered(
    cluster: FakeCluster, work: AsyncWork
) -> None:
    """Its lease ended before a caller took it: another consumer has it now, and comes to the later
    ones afterwards."""
    core = work.core
    await core.ready(10)
    [batch] = core._leases.batches
    core._leases._lose(batch, 0)
    assert core.take() is None
    assert batch.rows_in(WAITING) == []
    async with asyncio.timeout(10):
        while "Release" not in [each for each, _ in cluster.work.requests]:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


async def test_an_outcome_after_a_failure_does_not_wait_for_ever(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(method: str, request: object) -> tuple[bytes, bool]:
        raise errors.PermissionDeniedError("this caller may not consume")

    async with (
        AsyncConsumer(cluster.endpoints, group="billing", connection=QUICK) as consumer,
        consumer.work("orders", prefetch=4, options=OPTIONS) as work,
    ):
        first, second = await work.poll(10_000), await work.poll(10_000)
        assert first is not None
        assert second is not None
        monkeypatch.setattr(work.core.calls, "settle", refused)
        async with asyncio.timeout(10):
            with pytest.raises(errors.PermissionDeniedError):
                await first.ack(sync=True)
            await work.core.stopped.wait()
            with pytest.raises(errors.OutcomeUnknownError, match="may come again"):
                await second.ack(sync=True)


async def test_an_outcome_that_is_not_known_ends_no_consumer(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new master has not told the others of the group yet, and one of them is slow."""
    asked: set[str] = set()
    settle, receive = WorkCalls.settle, WorkCalls.receive

    def not_known_at_first(method: str) -> None:
        if method not in asked:
            asked.add(method)
            raise errors.OutcomeUnknownError("not every in-sync replica has the table of groups")

    async def settled(calls: WorkCalls, method: str, request: Any) -> tuple[bytes, bool]:
        not_known_at_first(method)
        return await settle(calls, method, request)

    async def received(calls: WorkCalls, request: Any) -> work_pb2.ReceiveResponse:
        not_known_at_first("Receive")
        return await receive(calls, request)

    monkeypatch.setattr(WorkCalls, "settle", settled)
    monkeypatch.setattr(WorkCalls, "receive", received)
    async with (
        AsyncConsumer(cluster.endpoints, group="billing", connection=QUICK) as consumer,
        consumer.work("orders", lease=1, options=OPTIONS) as work,
    ):
        delivery = await work.poll(10_000)
        assert delivery is not None
        await until(lambda: "Extend" in [each for each, _ in cluster.work.requests])
        await delivery.ack(sync=True)
        assert await work.poll(10_000) is not None
    assert asked >= {"Receive", "Extend", "Acknowledge"}


async def acknowledged_by_the_next_master(cluster: FakeCluster, work: AsyncWork) -> None:
    """The first message was leased by the last master; the next one has leased it once more, and
    its answer waits here or is under way."""
    delivery = await work.poll(10_000)
    assert delivery is not None
    cluster.promote("n0")
    (row,) = [row for row in cluster.work.group("billing").rows.values() if row.handle]
    row.handle, row.free_at = b"", 0.0  # and the first handle is still good
    cluster.work.wake()
    await until(lambda: len(cluster.work.group("billing").by_handle) == 2)
    await until(lambda: work.statistics().waiting == 1 or cluster.work.kept_back.is_set())
    assert delivery.attempt == 1
    await delivery.ack(sync=True)


@pytest.fixture
async def one(cluster: FakeCluster) -> AsyncIterator[AsyncWork]:
    """Not in an order; the topic single has one message."""
    cluster.log.create_topic("single", 1)
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send(Message("single", b"0"))
    async with (
        AsyncConsumer(cluster.endpoints, group="billing", connection=QUICK) as consumer,
        consumer.work("single", prefetch=4, options=OPTIONS) as work,
    ):
        yield work


async def test_what_waits_here_does_not_come_after_it_was_acknowledged(
    cluster: FakeCluster, one: AsyncWork
) -> None:
    """The acknowledgement was sent once: it did not have to look for the next master."""
    await acknowledged_by_the_next_master(cluster, one)
    assert await one.poll(100) is None
    assert one.statistics().received == 2


async def test_what_is_under_way_does_not_come_after_it_was_acknowledged(
    cluster: FakeCluster, one: AsyncWork
) -> None:
    cluster.work.keep_back_second = True
    await acknowledged_by_the_next_master(cluster, one)
    assert one.statistics().received == 1
    cluster.work.go_on.set()
    await until(lambda: one.statistics().received == 2)
    assert await one.poll(100) is None


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
