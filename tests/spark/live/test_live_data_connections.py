"""Who reads goes by data connections where a node offers them: counted at the node."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fakes.secured_node import running, settings
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.spark.cluster.live_cluster import Cluster
from tandemlog.spark.cluster.live_options import ClusterOptions, ReadOptions, Selection
from tandemlog.spark.live.partition_read import read_spans
from tandemlog_server.node.services.broker_service import BrokerService
from tandemlog_server.storage.metadata.topics import TopicConfig

ROWS = 300
PULL_BYTES = 1_000


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many pulls the nodes of this process were asked for in which way."""
    count: Counter[str] = Counter()
    for name, way in (("pull_parts", "data"), ("pull_bytes", "grpc")):
        plain = getattr(BrokerService, name)

        def counted(self: BrokerService, *given: Any, plain: Any = plain, way: str = way) -> Any:
            count[way] += 1
            return plain(self, *given)

        monkeypatch.setattr(BrokerService, name, counted)
    return count


async def by_consumer(endpoint: str) -> None:
    options = FollowOptions(max_bytes=PULL_BYTES)
    async with AsyncConsumer(endpoint, options=options) as consumer:
        assert (await (await consumer.scan("t", columns=["body"])).read_all()).num_rows == ROWS
        await consumer.pull("t", 0, 7)


async def by_stream(endpoint: str) -> None:
    options = FollowOptions(max_bytes=PULL_BYTES, auto_commit_ms=None)
    async with AsyncConsumer(endpoint, options=options) as consumer:
        stream = await consumer.follow("t", until_end=True)
        async with stream:
            assert sum([1 async for _ in stream]) == ROWS


async def by_spark(endpoint: str) -> None:
    await asyncio.to_thread(_read_in_small_pulls, ClusterOptions((endpoint,)))


@pytest.mark.parametrize("offered", [True, False])
@pytest.mark.parametrize("reader", [by_consumer, by_stream, by_spark])
async def test_pulls_go_by_data_connections(
    tmp_path: Path, ways: Counter[str], reader: Any, offered: bool
) -> None:
    fields: dict[str, Any] = {} if offered else {"data_listen": ""}
    async with running(settings(tmp_path, **fields)) as node:
        node.store.create_topic(TopicConfig("t", 1, 1))
        endpoint = node.endpoints.listen
        async with AsyncProducer(endpoint) as producer:
            for each in range(ROWS):
                await producer.send(Message("t", b"%d" % each * 100, queue_id=0))
        await reader(endpoint)
    if offered:
        # The first answer comes by gRPC, and while a connection opens others may.
        assert ways["data"] > ways["grpc"] > 0
    else:
        assert ways["grpc"] > 20
        assert ways["data"] == 0


def _read_in_small_pulls(options: ClusterOptions) -> None:
    """All rows of the topic, then two questions of the driver that are pulls too."""
    given = ReadOptions(options, Selection(topics=("t",)), pull_bytes=PULL_BYTES)
    found = read_spans(given, {"body": "binary"}, [QueueSpan("t", 0, 0, ROWS)])
    assert sum(batch.num_rows for batch in found) == ROWS
    cluster = Cluster(options, Selection(topics=("t",)))
    assert cluster.mean_sizes({("t", 0): 0})["t", 0] > 100
    assert cluster.store_times([("t", 0, 7)])["t", 0, 7] > 0
