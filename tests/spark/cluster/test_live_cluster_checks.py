"""Offsets compared with the log of a real node: the same one, one that has only grown, another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fakes.secured_node import running, settings
from tandemlog.cluster import histories
from tandemlog.format.files.log_history import LogHistory
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.spark.cluster import live_cluster as module
from tandemlog.spark.cluster.live_cluster import Cluster
from tandemlog.spark.cluster.live_options import ClusterOptions, Selection
from tandemlog_server.storage.metadata.topics import TopicConfig

QUEUE = ("t", 0)


@asynccontextmanager
async def node(folder: Path, messages: int) -> AsyncIterator[Cluster]:
    """A cluster of one node, after so many messages more."""
    async with running(settings(folder)) as started:
        if "t" not in started.store.topics.table:
            started.store.create_topic(TopicConfig("t", 2, 2))
        endpoint = started.endpoints.listen
        async with AsyncProducer(endpoint) as producer:
            for number in range(messages):
                await producer.send(Message("t", b"%d" % number, queue_id=0))
        yield Cluster(ClusterOptions((endpoint,)), Selection(topics=("t",)))


async def compared(
    cluster: Cluster, offset: int, history: LogHistory | None
) -> histories.PositionCheck:
    found = await asyncio.to_thread(cluster.check, {QUEUE: offset}, history)
    assert found is not None
    return found


async def test_offsets_are_compared_with_the_log(tmp_path: Path) -> None:
    async with node(tmp_path / "a", 5) as cluster:
        known = (await compared(cluster, 5, None)).history
        assert known.terms
        assert (await compared(cluster, 5, known)).cut == {}
        assert await asyncio.to_thread(cluster.is_of, known)
    async with node(tmp_path / "a", 3) as cluster:
        grown = await compared(cluster, 5, known)
        assert (grown.history.terms[0], grown.cut) == (known.terms[0], {})
        assert len(grown.history.terms) > len(known.terms)
        assert (await compared(cluster, 8, known)).cut == {QUEUE: 5}
        assert not await asyncio.to_thread(cluster.is_of, known)
    async with node(tmp_path / "b", 2) as cluster:
        assert (await compared(cluster, 5, known)).cut == {QUEUE: 0}
        assert (await compared(cluster, 0, known)).cut == {}


async def test_what_a_node_holds_is_measured_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUEUES_OF_PULL", 1)
    async with node(tmp_path, 5) as cluster:
        found = await asyncio.to_thread(cluster.mean_sizes, {QUEUE: 0, ("t", 1): 0})
        assert found.keys() == {QUEUE}


async def test_a_topic_that_is_gone_is_named(tmp_path: Path) -> None:
    async with node(tmp_path, 1) as cluster:
        assert await asyncio.to_thread(cluster.missing_topic, ["t"]) is None
        assert "'s'" in (await asyncio.to_thread(cluster.missing_topic, ["t", "s"]) or "")
