"""Statistics and events of clients, over a cluster in this process."""

import asyncio

from fakes.fake_cluster import FakeCluster
from fakes.fake_node import Fault
from tandemlog import (
    AsyncAdmin,
    AsyncProducer,
    ConnectionOptions,
    Message,
    ProducerOptions,
    ProducerStatistics,
)


async def test_a_producer_counts_what_it_sends_and_repeats() -> None:
    told: list[ProducerStatistics] = []
    first = asyncio.Event()

    def on_statistics(found: ProducerStatistics) -> None:
        told.append(found)
        first.set()

    options = ProducerOptions(on_statistics=on_statistics, statistics_interval_ms=1)
    async with FakeCluster(slaves=0) as cluster:
        async with AsyncAdmin(cluster.endpoints) as admin:
            await admin.create_topic("orders", queues=1)
        async with AsyncProducer(cluster.endpoints, options) as producer:
            await (await producer.send(Message("orders", b"x")))
            cluster.master.faults.append(Fault.DROP_AFTER)
            for each in [await producer.send(Message("orders", b"x")) for _ in range(9)]:
                await each
            found = producer.statistics()
            await first.wait()
        assert (found.messages, found.requests, found.duplicates) == (10, 2, 9)
        assert (found.retries, found.reconnects, found.failed) == (1, 1, 0)
        assert found.latency.count == 10
        assert 0 < found.latency.p50_ms <= found.latency.p999_ms
        assert found.bytes > 10
        assert found.waiting_bytes == found.waiting_requests == 0
        assert told


async def test_a_client_hears_that_its_cluster_is_away_and_back() -> None:
    away: list[str] = []
    back = asyncio.Event()
    options = ConnectionOptions(
        on_cluster_away=lambda reason, since: away.append(reason),
        on_cluster_back=lambda outage_ms: back.set(),
    )
    async with (
        FakeCluster(slaves=0) as cluster,
        AsyncAdmin(cluster.endpoints, connection=options) as admin,
    ):
        await admin.cluster()
        master = cluster.master_id
        cluster.master_id = ""
        await admin.cluster()
        await admin.cluster()
        assert len(away) == 1
        assert not back.is_set()
        cluster.master_id = master
        await asyncio.wait_for(back.wait(), 20)  # nothing is asked by the program
