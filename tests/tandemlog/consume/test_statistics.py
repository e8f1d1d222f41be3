"""What a stream and a consumer tell about themselves, over a cluster in this process."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fakes.fake_cluster import FakeCluster, running_cluster
from tandemlog import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerStatistics,
    FollowOptions,
    Producer,
)
from tandemlog.consume.statistics import ConsumerCounters, together, totals_of
from tandemlog.telemetry.measures import Latencies

ZERO = ("orders", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Topic orders with 10 messages of 100 bytes in its one queue."""
    async with FakeCluster(slaves=0) as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints) as producer:
            await producer.send_many("orders", [b"x" * 100] * 10)
        yield cluster


async def test_a_stream_counts_the_messages_that_its_caller_has_had(cluster: FakeCluster) -> None:
    async with (
        AsyncConsumer(cluster.endpoints, group="billing") as consumer,
        await consumer.follow("orders", queues=[0]) as stream,
    ):
        for _ in range(3):
            assert await stream.poll(30_000) is not None
        found = stream.statistics()
        assert (found.messages, found.queues) == (3, 1)
        assert 300 < found.bytes < 3_000
        waits = found.lag[ZERO]
        assert (waits.committed, waits.end, waits.messages) == (3, 10, 7)
        batch = await stream.next_batch(max_messages=2)
        assert batch is not None
        assert stream.statistics().messages == 5
        assert [each async for each in stream.messages(timeout_ms=50)]
        found = stream.statistics()
        assert (found.messages, found.lag[ZERO].messages, found.lag[ZERO].seconds) == (10, 0, 0.0)
        assert found.prefetched_batches == found.prefetched_bytes == 0
        assert found.pulls >= 1
        assert found.pull_latency.count == 1
        await stream.commit()
        await stream.commit()  # nothing new
        assert (stream.statistics().commits, stream.statistics().failed_commits) == (1, 0)


async def test_a_consumer_adds_its_streams_up(cluster: FakeCluster) -> None:
    told: list[ConsumerStatistics] = []
    first = asyncio.Event()

    def on_statistics(found: ConsumerStatistics) -> None:
        told.append(found)
        first.set()

    options = FollowOptions(on_statistics=on_statistics, statistics_interval_ms=1)
    async with AsyncConsumer(cluster.endpoints, options=options) as consumer:
        assert consumer.statistics() == ConsumerStatistics()
        async with await consumer.follow("orders", until_end=True) as stream:
            assert len([each async for each in stream]) == 10
        second = await consumer.follow("orders")
        assert await second.poll(30_000) is not None
        found = consumer.statistics()
        assert (found.messages, found.queues) == (11, 1)
        assert found.lag[ZERO].messages == 9
        await first.wait()
        assert told
    closed = consumer.statistics()
    assert (closed.messages, closed.queues, closed.lag) == (11, 0, {})


def test_batches_that_wait_in_the_caller_s_thread_are_counted() -> None:
    with running_cluster(slaves=0) as cluster:
        cluster.log.create_topic("orders", 3)
        with Producer(cluster.endpoints) as producer:
            for queue_id in range(3):
                producer.send_many("orders", [b"x"] * 5, queues=queue_id)
        options = FollowOptions(parallel_pulls=1)
        with Consumer(cluster.endpoints, options=options) as consumer:
            with consumer.follow("orders", until_end=True) as stream:
                assert stream.poll() is not None
                found = stream.statistics()
                assert (found.messages, found.prefetched_batches) == (1, 2)
                assert found.prefetched_bytes > 0
                assert consumer.statistics().lag.keys() == found.lag.keys()
                assert sorted(each.messages for each in found.lag.values()) == [4, 5, 5]
                assert len(list(stream)) == 14
                assert stream.statistics().prefetched_batches == 0
            assert consumer.statistics().messages == 15


def test_another_node_and_a_repetition_are_counted() -> None:
    now = 100.0
    counters = ConsumerCounters(lambda: now, lambda: 0)
    asked_at = counters.now()
    now = 100.2
    counters.pulled(asked_at, ["a"], messages=True)
    counters.pulled(asked_at, ["a", "b"], messages=False)
    counters.pulled(asked_at, ["b"], messages=False)
    found = counters.statistics({}, [])
    assert (found.pulls, found.retries, found.reconnects) == (3, 1, 1)
    assert found.pull_latency.count == 1
    assert 200 <= found.pull_latency.p50_ms <= 211


def test_streams_together_are_their_sum() -> None:
    one = ConsumerStatistics(messages=3, commits=1, queues=2, prefetched_bytes=7)
    two = ConsumerStatistics(messages=4, failed_commits=2, queues=1, bytes_per_second=5.0)
    fast, slow = Latencies(0.0), Latencies(0.0)
    fast.note(0.001, 1, 0.0)
    slow.note(1.0, 1, 0.0)
    both = together([one, two], fast.percentiles(0.0, slow))
    assert (both.messages, both.commits, both.failed_commits, both.queues) == (7, 1, 2, 3)
    assert (both.prefetched_bytes, both.bytes_per_second) == (7, 5.0)
    assert both.pull_latency.p50_ms < 2 < 1_000 <= both.pull_latency.max_ms * 1.0001
    assert totals_of(both) == ConsumerStatistics(messages=7, commits=1, failed_commits=2)
