"""What one node's scrub asks another one, over the wire."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.inner_node import config, running, until
from tandemlog.transport.security import Security
from tandemlog.transport.security_files import SecurityFiles
from tandemlog_server.node.node import Node
from tandemlog_server.node.scrub.node_peer import NodePeer
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.scrub.block_answers import BlockQuestion
from tandemlog_server.storage.scrub.block_check import BLOCK, checksum_of
from tandemlog_server.storage.scrub.scrubber import PeerError
from tandemlog_server.storage.scrub.verdicts import CopyState

LARGE = b"." * (BLOCK + 500_000)
"""A record of more than one piece."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    store = {"commit_log_file_size": 4 << 20, "max_message_size": 4_000_000}
    async with running(config(tmp_path / "n0", store=store)) as node:
        node.store.topics.create(TopicConfig("T", 1, 1), 1)
        for body in (b"a", LARGE, b"b"):
            node.store.put(batch_of([Put("T", 0, body)]))
        node.store.flush()
        end = node.store.log.wrote.value
        await until(lambda: node.store.reputed.value == end)
        yield node


def peer_of(node: Node, cluster_id: str = "") -> NodePeer:
    files = SecurityFiles(Security())
    cluster_id = cluster_id or node.config.cluster_id
    return NodePeer("n0", node.endpoints.listen, cluster_id, "n1", files)


def question_of(node: Node) -> BlockQuestion:
    store = node.store
    end = store.log.wrote.value
    data = bytes(store.log.view(0, end))
    return BlockQuestion(0, end, end, checksum_of(data), store.log_identity.history)


async def test_a_block_is_compared_and_fetched(node: Node) -> None:
    peer, asked = peer_of(node), question_of(node)
    data = bytes(node.store.log.view(0, asked.end))
    same = await asyncio.to_thread(peer.ask, asked)
    assert (same.state, same.end, same.checksum) == (CopyState.WHOLE, asked.end, asked.checksum)
    differs = await asyncio.to_thread(peer.ask, replace(asked, checksum=b"x" * 32))
    assert differs.checksum == asked.checksum
    unknown = await asyncio.to_thread(peer.ask, replace(asked, end=0, checksum=b""))
    assert unknown.state is CopyState.WHOLE
    assert 0 < unknown.end < asked.end
    assert await asyncio.to_thread(peer.fetch, 0, asked.end) == data
    beyond = await asyncio.to_thread(peer.ask, replace(asked, end=asked.end + 1))
    assert beyond.state is CopyState.ABSENT
    with pytest.raises(PeerError, match="refuses"):
        await asyncio.to_thread(peer.fetch, 0, asked.end + 10)
    with pytest.raises(PeerError, match="refuses"):
        await asyncio.to_thread(peer.fetch, 0, 1 << 40)
    peer.close()


async def test_a_node_of_another_cluster_is_told_nothing(node: Node) -> None:
    peer = peer_of(node, "another")
    with pytest.raises(PeerError, match="not of 'another'"):
        await asyncio.to_thread(peer.ask, question_of(node))
    peer.close()


async def test_a_node_that_is_gone_has_no_copy(node: Node) -> None:
    files = SecurityFiles(Security())
    peer = NodePeer("n9", "127.0.0.1:1", node.config.cluster_id, "n1", files)
    with pytest.raises(PeerError, match="n9 at"):
        await asyncio.to_thread(peer.ask, question_of(node))
    peer.close()


async def test_a_node_without_others_scrubs_by_itself(node: Node) -> None:
    node.scrub.begin()
    await until(lambda: node.scrub.scrubber.plan.progress.rounds > 0)
    found = node.scrub.description()
    assert found.checked_bytes >= node.store.log.wrote.value
    assert found.compared_blocks == 0
    assert node.scrub.faults() == []
    assert node.statistics()["scrub_bytes_total"] == found.checked_bytes


async def test_what_cannot_be_settled_is_said_of_the_node(node: Node) -> None:
    path = node.store.directory / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(BLOCK)
        file.write(b"!")
    node.scrub.begin()
    await until(lambda: node.scrub.scrubber.plan.open)
    assert "no whole copy was found: no other node" in " ".join(node.status().faults)
    assert node.statistics()["scrub_lost_blocks"] == 1
