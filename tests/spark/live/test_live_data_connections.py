"""Live reads go by data connections where a node offers them, as the client's do."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fakes.secured_node import running, settings
from tandemlog.cluster.data_path import DataPath
from tandemlog.cluster.node import Node
from tandemlog.cluster.topology import ReadFrom
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.spark.cluster.cluster import Cluster
from tandemlog.spark.cluster.offsets import QueueSpan
from tandemlog.spark.cluster.options import ClusterOptions, Selection
from tandemlog.spark.live.pull import Pulling, read_spans
from tandemlog_server.storage.metadata.topics import TopicConfig

ROWS = 300


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many pulls went by which way, of every client in this process."""
    count: Counter[str] = Counter()
    by_data, call = DataPath.pull, Node.call

    async def counted_data(self: DataPath, *given: Any) -> bytes | None:
        answer = await by_data(self, *given)
        count["data"] += answer is not None
        return answer

    async def counted_call(self: Node, method: Any, request: Any, timeout_ms: int) -> Any:
        count["grpc"] += type(request).__name__ == "PullRequest"
        return await call(self, method, request, timeout_ms)

    monkeypatch.setattr(DataPath, "pull", counted_data)
    monkeypatch.setattr(Node, "call", counted_call)
    return count


@pytest.mark.parametrize("offered", [True, False])
async def test_pulls_go_by_data_connections(
    tmp_path: Path, ways: Counter[str], offered: bool
) -> None:
    fields: dict[str, Any] = {} if offered else {"data_listen": ""}
    async with running(settings(tmp_path, **fields)) as node:
        node.store.create_topic(TopicConfig("t", 1, 1))
        endpoint = node.endpoints.listen
        async with AsyncProducer(endpoint) as producer:
            for each in range(ROWS):
                await producer.send(Message("t", b"%d" % each * 100, queue_id=0))
        await asyncio.to_thread(read_in_small_pulls, ClusterOptions((endpoint,)))
    if offered:
        # The first answer comes by gRPC, and while a connection opens others may.
        assert ways["data"] > ways["grpc"] > 0
    else:
        assert ways["grpc"] > 20
        assert ways["data"] == 0


def read_in_small_pulls(options: ClusterOptions) -> None:
    """All rows of the topic, then two questions of the driver that are pulls too."""
    pulling = Pulling(
        cluster=options,
        columns={"body": "binary"},
        read_from=ReadFrom.SLAVE,
        tags=None,
        fail_on_data_loss=True,
        pull_bytes=1_000,
        pull_timeout_ms=30_000,
        verify_crc=True,
        group="",
    )
    found = read_spans(pulling, [QueueSpan("t", 0, 0, ROWS)], 0)
    assert sum(batch.num_rows for batch in found) == ROWS
    cluster = Cluster(options, Selection(topics=("t",)))
    assert cluster.mean_sizes({("t", 0): 0})["t", 0] > 100
    assert cluster.store_times([("t", 0, 7)])["t", 0, 7] > 0
