"""A consumer of a work queue against the rules of FakeWork: deliveries and their outcomes."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import Message, errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.work.async_work import AsyncWork
from tandemlog.consume.work.delivery import AsyncDelivery
from tandemlog.consume.work.work_options import WorkOptions
from tandemlog.format.lease.policy import AckResult, Backoff, GroupPolicy
from tandemlog.produce.producer import AsyncProducer

QUICK = ConnectionOptions(retry_timeout_ms=2_000, discovery_timeout_ms=300)
OPTIONS = WorkOptions(linger_ms=0, wait_ms=2_000, stop_timeout_ms=5_000)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Topic orders with two queues."""
    async with FakeCluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 2)
        yield cluster


@pytest.fixture
async def consumer(cluster: FakeCluster) -> AsyncIterator[AsyncConsumer]:
    async with AsyncConsumer(cluster.endpoints, group="billing", connection=QUICK) as consumer:
        yield consumer


async def fill(cluster: FakeCluster, count: int, **fields: Any) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send_many(
            None, [Message("orders", b"%d" % n, queue_id=n % 2, **fields) for n in range(count)]
        )


def working(consumer: AsyncConsumer, **settings: Any) -> AsyncWork:
    return consumer.work("orders", **{"options": OPTIONS, **settings})


async def next_of(work: AsyncWork) -> AsyncDelivery:
    delivery = await work.poll(10_000)
    assert delivery is not None
    return delivery


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - of a thread or a task that tells no one
            await asyncio.sleep(0.002)


def methods(cluster: FakeCluster) -> list[str]:
    return [method for method, _ in cluster.work.requests]


async def test_each_message_comes_once_and_is_acknowledged(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 100)
    seen = []
    async with working(consumer) as work:
        async for delivery in work.deliveries(timeout_ms=200):
            assert (delivery.attempt, delivery.last_error) == (1, None)
            assert delivery.body == delivery.message.body
            seen.append(int(delivery.body))
            await delivery.ack()
    assert sorted(seen) == list(range(100))
    assert len(cluster.work.group("billing").done) == 100
    assert cluster.work.in_progress("billing") == 0
    statistics = work.statistics()
    assert (statistics.received, statistics.acked, statistics.unconfirmed) == (100, 100, 0)


async def test_acknowledgements_are_gathered(cluster: FakeCluster, consumer: AsyncConsumer) -> None:
    await fill(cluster, 100)
    options = WorkOptions(linger_ms=20)
    async with working(consumer, prefetch=100, options=options) as work:
        for _ in range(100):
            await (await next_of(work)).ack()
    assert methods(cluster).count("Acknowledge") <= 5


async def test_more_consumers_than_queues_share_a_topic(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 8)
    works = [working(consumer, prefetch=1) for _ in range(4)]
    first = [await next_of(work) for work in works]
    assert len({each.body for each in first}) == 4
    for work in works:
        await work.close()


async def test_a_retry_comes_again_with_its_attempt_and_its_error(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 1)
    async with working(consumer, backoff=60) as work:
        first = await next_of(work)
        await first.retry(error=ValueError("no such sku"))
        assert first.settled
        assert await work.poll(100) is None
        cluster.work.skip(61)
        second = await next_of(work)
        assert (second.body, second.attempt) == (b"0", 2)
        assert second.last_error == "ValueError: no such sku"
        await second.retry(after=5)
        cluster.work.skip(6)
        third = await next_of(work)
        assert third.attempt == 3
        await third.ack()
    assert work.statistics().retried == 2
    assert work.statistics().redelivered == 2


async def test_the_policy_is_set_once_and_only_where_it_is_another_one(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    for _ in range(2):
        async with working(consumer, max_attempts=5, backoff=(1, 2.5)) as work:
            assert await work.poll(30) is None
    assert cluster.work.policies_set == 1
    assert cluster.work.group("billing").policy == GroupPolicy(5, Backoff((1_000, 2_500)))
    async with working(consumer) as work:
        assert await work.poll(30) is None
    assert cluster.work.policies_set == 1
    async with working(consumer, ordered="key") as work:
        assert await work.poll(30) is None
    assert cluster.work.policies_set == 2
    assert cluster.work.group("billing").policy.max_attempts == 5


async def test_a_rejected_message_and_one_that_came_too_often_are_dead_letters(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 2)
    async with working(consumer, max_attempts=2, backoff=0) as work:
        first = await next_of(work)
        await first.reject("malformed", sync=True)
        for attempt in (1, 2):
            other = await next_of(work)
            assert other.attempt == attempt
            await other.retry(error="timed out", sync=True)
        assert await work.poll(50) is None
    dead = cluster.work.group("billing").dead
    assert {(each.error, each.attempts) for each in dead} == {("malformed", 1), ("timed out", 2)}


async def test_a_lease_is_renewed_while_its_message_is_handled_or_waits(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 3)
    async with working(consumer, lease=1, prefetch=3) as work:
        delivery = await next_of(work)
        await until(lambda: "Extend" in methods(cluster))
        assert not delivery.settled
        [(_, request)] = [each for each in cluster.work.requests if each[0] == "Extend"]
        assert len(request.handles) == 3 * 64


async def test_a_longer_lease_is_not_shortened_by_the_renewal(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 1)
    async with working(consumer, lease=1, prefetch=1) as work:
        delivery = await next_of(work)
        await delivery.extend(600)
        await fill(cluster, 1)
        other = await next_of(work)
        await until(lambda: methods(cluster).count("Extend") == 2)
        assert [delivery.settled, other.settled] == [False, False]
        extended = [each.lease_ms for method, each in cluster.work.requests if method == "Extend"]
        assert extended == [600_000, 1_000]
        assert len(cluster.work.requests[-1][1].handles) == 64


async def test_a_lost_lease_is_told_to_the_delivery(
    cluster: FakeCluster, consumer: AsyncConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, 2)
    async with working(consumer, lease=1, prefetch=2) as work:
        delivery = await next_of(work)
        cluster.work.lose_leases()
        await until(lambda: delivery.lost)
        with pytest.raises(errors.LeaseLostError, match=r"orders/. 0: .* delivered again"):
            await delivery.ack()
        with pytest.raises(errors.LeaseLostError):
            await delivery.extend(10)
        assert work.statistics().lost == 2  # the other one waited
        assert work.statistics().waiting == 0
    assert "ended while it was handled" in caplog.text


async def test_an_outcome_that_comes_too_late_is_counted_or_raised(
    cluster: FakeCluster, consumer: AsyncConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, 2)
    async with working(consumer) as work:
        first, second = await next_of(work), await next_of(work)
        cluster.work.result = AckResult.INVALID_RECEIPT_HANDLE
        await first.ack()
        await until(lambda: work.statistics().lost == 1)
        assert "settled too late" in caplog.text
        cluster.work.result = AckResult.OTHER_GROUP
        with pytest.raises(errors.LeaseLostError, match="another consumer group"):
            await second.ack(sync=True)
        assert work.statistics().acked == 0


async def test_a_second_outcome_is_refused_and_the_same_one_is_not(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 1)
    async with working(consumer) as work:
        delivery = await next_of(work)
        await delivery.ack()
        await delivery.ack()
        with pytest.raises(
            errors.DeliverySettledError, match="acknowledged already, and cannot be rejected"
        ):
            await delivery.reject()
    assert work.statistics().acked == 1


async def test_a_released_message_does_not_count_as_an_attempt(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 1)
    async with working(consumer) as work:
        await (await next_of(work)).release()
        again = await next_of(work)
        assert again.attempt == 1
        await again.ack()


async def test_a_stop_gives_back_what_no_caller_has_seen(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 10)
    async with working(consumer, prefetch=10) as work:
        delivery = await next_of(work)
        work.stop()
        assert await work.poll() is None
        await delivery.ack(sync=True)
    assert work.statistics().released == 9
    rows = cluster.work.group("billing").rows
    assert {(row.attempts, row.handle) for row in rows.values()} == {(0, b"")}
    async with working(consumer) as work:
        assert (await next_of(work)).attempt == 1


async def test_a_loop_that_was_left_gives_everything_back(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 10)
    async for delivery in working(consumer, prefetch=10):
        await delivery.ack()
        break
    gc.collect()
    await until(lambda: cluster.work.in_progress("billing") == 0)
    await until(lambda: len(cluster.work.group("billing").done) == 1)


async def fail_in_a_loop(work: AsyncWork) -> None:
    async with work:
        async for delivery in work:
            _ = delivery.attempt / 0


async def test_an_error_in_the_loop_is_kept_with_the_message(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 1)
    with pytest.raises(ZeroDivisionError):
        await fail_in_a_loop(working(consumer, backoff=0))
    [row] = cluster.work.group("billing").rows.values()
    assert (row.error, row.attempts) == ("ZeroDivisionError: division by zero", 1)


async def test_a_forgotten_delivery_is_counted(
    cluster: FakeCluster, consumer: AsyncConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, 2)
    async with working(consumer, prefetch=1, lease=1) as work:
        await next_of(work)
        await next_of(work)
        gc.collect()
        assert work.statistics().dropped >= 1
        await until(lambda: work.statistics().in_progress == 0)
    assert "neither acknowledged nor given back" in caplog.text


async def test_a_caller_that_does_not_come_back_keeps_nothing_from_the_others(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 10)
    options = WorkOptions(max_poll_interval_ms=300, wait_ms=2_000)
    async with working(consumer, prefetch=5, lease=1, options=options) as work:
        held = await next_of(work)
        await until(lambda: cluster.work.in_progress("billing") == 1)
        assert not held.settled
        assert (await next_of(work)).attempt == 1


async def test_work_continues_with_the_next_master(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 4)
    async with working(consumer, prefetch=2) as work:
        before = await next_of(work)
        await cluster.master.stop()
        cluster.promote("n1")
        await before.ack(sync=True)
        rest = [await next_of(work) for _ in range(3)]
        for delivery in rest:
            await delivery.ack(sync=True)
    assert len(cluster.work.group("billing").done) == 4


async def test_acknowledgements_wait_for_a_master(
    cluster: FakeCluster, consumer: AsyncConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(cluster, 1)
    caplog.set_level(logging.WARNING)
    options = ConnectionOptions(retry_timeout_ms=100, discovery_timeout_ms=100)
    async with (
        AsyncConsumer(cluster.endpoints, group="billing", connection=options) as impatient,
        impatient.work("orders", options=OPTIONS) as work,
    ):
        delivery = await next_of(work)
        cluster.promote("")
        await delivery.ack()
        await until(lambda: "wait for a master" in caplog.text)
        cluster.promote("n1")
        await until(lambda: work.statistics().acked == 1)


async def test_what_was_acknowledged_is_not_handed_out_from_what_waits_here(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The next master delivers a message once more while its acknowledgement looks for a master."""
    await fill(cluster, 1)
    caplog.set_level(logging.WARNING)
    options = ConnectionOptions(retry_timeout_ms=100, discovery_timeout_ms=100)
    async with (
        AsyncConsumer(cluster.endpoints, group="billing", connection=options) as impatient,
        impatient.work("orders", options=OPTIONS, prefetch=10) as work,
    ):
        delivery = await next_of(work)
        (row,) = cluster.work.group("billing").rows.values()
        row.handle, row.free_at = b"", 0.0  # and the first handle is still good
        cluster.work.wake()
        await until(lambda: work.statistics().waiting == 1)
        cluster.promote("")
        await delivery.ack()
        await until(lambda: "wait for a master" in caplog.text)
        cluster.promote("n1")
        await until(lambda: work.statistics().acked == 1)
        assert await work.poll(50) is None
        assert work.statistics().waiting == 0


async def test_one_message_of_a_queue_at_a_time(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 6)
    async with working(consumer, ordered=True, prefetch=10, backoff=0) as work:
        first, other = await next_of(work), await next_of(work)
        assert {first.queue_id, other.queue_id} == {0, 1}
        assert await work.poll(50) is None
        await first.ack()
        second = await next_of(work)
        assert (second.queue_id, second.queue_offset) == (first.queue_id, 1)
        await second.retry(sync=True)
        again = await next_of(work)
        assert (again.queue_offset, again.attempt) == (1, 2)
        await again.ack()
        third = await next_of(work)
        assert (third.queue_offset, third.attempt) == (2, 1)
        await third.ack()
        await other.reject()
        assert (await next_of(work)).queue_offset == 1


async def test_one_message_of_a_sharding_key_at_a_time(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    cluster.log.create_topic("single", 1)
    async with AsyncProducer(cluster.endpoints) as producer:
        keys = ["a", "b", "a", None, None]
        await producer.send_many(
            None,
            [
                Message("single", b"%d" % n, queue_id=0, sharding_key=key)
                for n, key in enumerate(keys)
            ],
        )
    async with consumer.work("single", ordered="key", prefetch=10, options=OPTIONS) as work:
        found = [await next_of(work) for _ in range(4)]
        assert sorted(each.body for each in found) == [b"0", b"1", b"3", b"4"]
        assert await work.poll(50) is None
        await next(each for each in found if each.body == b"0").ack()
        assert (await next_of(work)).body == b"2"


async def test_a_filter_and_tags_select(cluster: FakeCluster, consumer: AsyncConsumer) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        # "Aa" and "BB" have the same hash
        for tag in ("Aa", "BB", "paid"):
            message = Message("orders", tag.encode(), tags=tag, properties={"n": str(len(tag))})
            await (await producer.send(message))
    async with working(consumer, tags="Aa") as work:
        delivery = await next_of(work)
        assert delivery.body == b"Aa"
        await delivery.ack()
        assert await work.poll(50) is None
    assert len(cluster.work.group("billing").done) == 3
    async with working(consumer, group="other", where="n > 3") as work:
        assert (await next_of(work)).body == b"paid"


async def test_what_the_node_refuses_is_raised(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    work = consumer.work("missing", options=OPTIONS)
    with pytest.raises(errors.UnknownTopicError, match="missing"):
        await work.poll(10_000)
    await work.close()


async def test_an_older_node_is_named() -> None:
    async with FakeCluster() as cluster:
        await cluster.master.stop()
        cluster.master.old = True
        await cluster.master.start()
        async with AsyncConsumer(cluster.endpoints, group="billing", connection=QUICK) as consumer:
            with pytest.raises(errors.InvalidArgumentError, match="too old for work queues"):
                await consumer.work("orders", options=OPTIONS).poll(10_000)


async def test_too_many_that_are_not_done_hold_back(
    cluster: FakeCluster, consumer: AsyncConsumer
) -> None:
    await fill(cluster, 1)
    cluster.work.throttled = True
    async with working(consumer) as work:
        assert await work.poll(100) is None
        cluster.work.throttled = False
        await (await next_of(work)).ack()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lease": 0.5}, "a lease lasts 1 to 43200 seconds"),
        ({"max_attempts": 0}, "max_attempts must be 1"),
        ({"backoff": -1}, "backoff=-1: a retry waits 0 to"),
        ({"backoff": float("nan")}, "backoff=nan"),
        ({"lease": "30"}, "lease='30': it is seconds, or a timedelta"),
        ({"backoff": "1"}, "backoff='1': it is seconds, or a timedelta"),
        ({"max_attempts": "5"}, "max_attempts='5': it is a whole number"),
        ({"where": 5}, "where=5: a filter is a text"),
        ({"handler": 5}, "handler=5: it cannot be called"),
        ({"ordered": "topic"}, "'queue' or 'key'"),
        ({"start": "middle"}, "EARLIEST or LATEST"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"concurrency": 0}, "at least one handler"),
        ({"tags": "a", "where": " "}, "the filter is empty"),
        ({"group": "no spaces"}, "no spaces"),
    ],
)
async def test_wrong_settings_are_refused_before_anything_is_asked(
    settings: dict[str, Any], text: str
) -> None:
    async with AsyncConsumer("127.0.0.1:1", group="billing") as consumer:
        with pytest.raises(errors.InvalidArgumentError, match=text):
            working(consumer, **settings)
        with pytest.raises(errors.InvalidArgumentError, match="needs a topic"):
            consumer.work([])
    async with AsyncConsumer("127.0.0.1:1") as consumer:
        with pytest.raises(errors.InvalidArgumentError, match="no group"):
            working(consumer)
