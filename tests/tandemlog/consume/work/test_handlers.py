"""Handlers of a work queue: what they return or raise, how many run, and how they end."""

import asyncio
import concurrent.futures.thread
import contextvars
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster, running_cluster
from tandemlog import Consumer, Message, Producer, errors
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.work.async_work import AsyncWork
from tandemlog.consume.work.delivery import AsyncDelivery, Delivery
from tandemlog.consume.work.signals import Reject, RetryAfter
from tandemlog.consume.work.work_options import WorkOptions
from tandemlog.produce.producer import AsyncProducer

OPTIONS = WorkOptions(linger_ms=0, wait_ms=2_000, stop_timeout_ms=5_000)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 2)
        yield cluster


@pytest.fixture
async def consumer(cluster: FakeCluster) -> AsyncIterator[AsyncConsumer]:
    async with AsyncConsumer(cluster.endpoints, group="billing") as consumer:
        yield consumer


async def fill(cluster: FakeCluster, *bodies: bytes) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send_many("orders", list(bodies))


def working(consumer: AsyncConsumer, **settings: Any) -> AsyncWork:
    return consumer.work("orders", **{"options": OPTIONS, "backoff": 60, **settings})


async def test_how_a_handler_ends_decides(cluster: FakeCluster, consumer: AsyncConsumer) -> None:
    await fill(cluster, b"fine", b"reject", b"later", b"fails", b"own")
    seen: list[bytes] = []

    async def handle(delivery: AsyncDelivery) -> str:
        seen.append(delivery.body)
        match delivery.body:
            case b"reject":
                raise Reject("no such customer")
            case b"later":
                raise RetryAfter(30, "not yet")
            case b"fails":
                raise ValueError("broken")
            case b"own":
                await delivery.retry(after=5)
        if len(seen) == 5:
            work.stop()
        return "is not used"

    work = working(consumer, handler=handle)
    await work
    statistics = work.statistics()
    assert (statistics.acked, statistics.rejected) == (1, 1)
    assert (statistics.retried, statistics.failed) == (3, 1)
    group = cluster.work.group("billing")
    assert [each.error for each in group.dead] == ["no such customer"]
    waits = {round(row.free_at - cluster.work.now()): row.error for row in group.rows.values()}
    assert waits == {30: "not yet", 60: "ValueError: broken", 5: ""}


async def test_no_attempt_fails_because_the_interpreter_ends(
    cluster: FakeCluster, consumer: AsyncConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads end before others do that are no daemons: they must not use up all attempts."""
    await fill(cluster, *[b"x"] * 20)
    seen: list[bytes] = []

    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        monkeypatch.setattr(concurrent.futures.thread, "_shutdown", True)

    work = working(consumer, handler=handle, max_attempts=1)
    async with asyncio.timeout(10):
        await work
    statistics = work.statistics()
    assert (len(seen), statistics.acked, statistics.failed, statistics.retried) == (1, 1, 0, 0)
    group = cluster.work.group("billing")
    assert not group.dead
    assert {row.attempts for row in group.rows.values()} <= {0}


async def test_coroutines_run_side_by_side(cluster: FakeCluster, consumer: AsyncConsumer) -> None:
    await fill(cluster, *[b"x"] * 8)
    barrier, runs = asyncio.Barrier(4), []

    async def handle(delivery: AsyncDelivery) -> None:
        runs.append(delivery)
        await barrier.wait()
        if len(runs) == 8:
            work.stop()

    work = working(consumer, handler=handle, concurrency=4)
    async with asyncio.timeout(10):
        await work
    assert work.statistics().acked == 8


async def test_functions_run_in_threads_with_the_context_of_the_caller(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, *[b"x"] * 6)
    barrier, threads = threading.Barrier(3), []
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")
    name.set("of the caller")

    def handle(more: str, delivery: Delivery) -> None:
        assert (more, name.get()) == ("more", "of the caller")
        threads.append(threading.current_thread().name)
        if len(threads) <= 3:
            barrier.wait(10)
            delivery.ack(sync=True)
        if len(threads) == 6:
            work.stop()

    work = working(consumer, handler=partial(handle, "more"), concurrency=3)
    async with asyncio.timeout(10):
        await work
    assert len(set(threads)) == 3
    assert all(each.startswith("tandemlog-handler") for each in threads)
    assert work.statistics().acked == 6


async def test_a_stop_lets_handlers_end_and_gives_back_the_rest(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, *[b"x"] * 10)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(delivery: AsyncDelivery) -> None:
        begun.set()
        await may_end.wait()

    work = working(consumer, handler=handle, concurrency=2, prefetch=10)
    running = asyncio.create_task(work.run())
    await begun.wait()
    work.stop()
    await asyncio.sleep(0)
    assert not running.done()
    may_end.set()
    await running
    statistics = work.statistics()
    assert statistics.acked + statistics.released == 10
    assert 1 <= statistics.acked <= 2
    rows = cluster.work.group("billing").rows.values()
    assert {row.attempts for row in rows} == {0}


async def test_who_is_cancelled_ends_its_handlers_first(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, b"x")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handle(delivery: AsyncDelivery) -> None:
        begun.set()
        await may_end.wait()

    work = working(consumer, handler=handle)
    running = asyncio.create_task(work.run())
    await begun.wait()
    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.statistics().acked == 1


async def test_a_handler_that_does_not_end_is_given_up(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, b"x")
    begun = asyncio.Event()

    async def handle(delivery: AsyncDelivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    work = working(consumer, handler=handle, options=WorkOptions(stop_timeout_ms=50))
    running = asyncio.create_task(work.run())
    await begun.wait()
    work.stop()
    await running
    [row] = cluster.work.group("billing").rows.values()
    assert "was stopped while this message was handled" in row.error
    assert row.attempts == 1


async def test_a_lease_that_ends_while_a_handler_runs_is_no_acknowledgement(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, b"x")

    async def handle(delivery: AsyncDelivery) -> None:
        cluster.work.lose_leases()
        while not delivery.lost:  # noqa: ASYNC110 - a delivery tells no one
            await asyncio.sleep(0.01)
        work.stop()

    work = working(consumer, handler=handle, lease=1)
    async with asyncio.timeout(10):
        await work
    statistics = work.statistics()
    assert (statistics.acked, statistics.lost, statistics.failed) == (0, 1, 0)


async def test_what_ends_the_reading_ends_the_run(consumer: AsyncConsumer) -> None:
    async def handle(delivery: AsyncDelivery) -> None:
        raise AssertionError("there is nothing")

    with pytest.raises(errors.UnknownTopicError):
        await consumer.work("missing", handler=handle, concurrency=3)


async def test_a_handler_and_a_loop_are_two_ways(consumer: AsyncConsumer) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="await it"):
        working(consumer, handler=print).deliveries()
    with pytest.raises(errors.InvalidArgumentError, match="nothing to run"):
        await working(consumer)


@pytest.mark.parametrize("seconds", [-1, float("nan"), 1e9])
def test_no_retry_waits_so_long(seconds: float) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="a retry waits 0 to"):
        RetryAfter(seconds)


def test_the_plain_face_has_the_same_handlers_and_loops() -> None:
    with running_cluster() as cluster:
        cluster.log.create_topic("orders", 2)
        with Producer(cluster.endpoints) as producer:
            producer.send_many("orders", [b"%d" % n for n in range(50)])
        done: set[bytes] = set()

        def handle(delivery: Delivery) -> None:
            if delivery.body == b"7" and delivery.attempt == 1:
                raise RetryAfter(0)
            done.add(delivery.body)
            if len(done) == 50:
                work.stop()

        with Consumer(cluster.endpoints, group="billing") as consumer:
            work = consumer.work("orders", handler=handle, concurrency=4, options=OPTIONS)
            work.run()
            assert len(done) == 50
            assert work.statistics().acked == 50

            with Producer(cluster.endpoints) as producer:
                producer.send(Message("orders", b"one more"))
            with consumer.work("orders", options=OPTIONS) as loop:
                for delivery in loop:
                    assert delivery.body == b"one more"
                    delivery.extend(60)
                    delivery.ack(sync=True)
                    break
                assert loop.poll(30) is None
                assert list(loop.deliveries(timeout_ms=30)) == []
            assert loop.statistics().acked == 1

            async def never(delivery: AsyncDelivery) -> None: ...

            with pytest.raises(errors.InvalidArgumentError, match="needs AsyncConsumer"):
                consumer.work("orders", handler=never)


def test_many_threads_take_each_message_once() -> None:
    with running_cluster() as cluster:
        cluster.log.create_topic("orders", 2)
        with Producer(cluster.endpoints) as producer:
            producer.send_many("orders", [b"%d" % n for n in range(400)])
        seen: list[bytes] = []
        with Consumer(cluster.endpoints, group="billing") as consumer:
            work = consumer.work("orders", prefetch=100, options=OPTIONS)

            def take() -> None:
                for delivery in work.deliveries(timeout_ms=300):
                    seen.append(delivery.body)
                    delivery.ack()

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            work.close()
            assert work.statistics().acked == 400
    assert len(seen) == len(set(seen)) == 400
