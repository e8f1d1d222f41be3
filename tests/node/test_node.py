"""Whole nodes in one process: a master, a pair, what they refuse, how they start and stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from grpc import aio

from fakes.inner_node import QUICK, append, config, put_request, running, stubs, until
from helpers.running import free_ports
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import (
    NotInSyncError,
)
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import admin_pb2, broker_pb2, common_pb2
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.node.node import Node
from tandemlog_server.node.roles.elected_roles import ElectedRoles
from tandemlog_server.node.settings.listen_endpoints import ListenError
from tandemlog_server.node.settings.sections import PutSection, ReplicationSection
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.errors import FlushFailedError, StoreLockedError
from tandemlog_server.storage.metadata.topics import TopicConfig


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(config(tmp_path / "n0")) as node:
        yield node


async def test_a_stop_is_clean_and_the_next_start_goes_on_in_a_new_epoch(tmp_path: Path) -> None:
    settings = config(tmp_path / "n0")
    async with running(settings) as node:
        async with AsyncAdmin(node.endpoints.listen) as admin:
            await admin.create_topic("t", 1)
        async with AsyncProducer(node.endpoints.listen) as producer:
            await (await producer.send(Message("t", b"one")))
        assert node.status().epoch == 1
        assert (tmp_path / "n0" / "abort").exists()
    assert not (tmp_path / "n0" / "abort").exists()
    async with running(settings) as node:
        assert node.status().epoch == 2
        async with AsyncConsumer(node.endpoints.listen) as consumer:
            assert [each.body for each in await consumer.pull("t", 0, 0)] == [b"one"]


async def test_a_store_belongs_to_one_node(tmp_path: Path) -> None:
    async with running(config(tmp_path / "n0")):
        with pytest.raises(StoreLockedError, match="open in this process"):
            await Node(config(tmp_path / "n0")).start()


async def test_a_node_that_fails_after_it_has_begun_leaves_the_cluster_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is given back by the connection to the coordinator."""
    order = []

    def noting(owner: type, name: str) -> None:
        close = owner.close  # type: ignore[attr-defined]

        async def closing(self: Any) -> None:
            order.append(name)
            await close(self)

        monkeypatch.setattr(owner, "close", closing)

    noting(ElectedRoles, "roles")
    noting(EtcdCoordinator, "coordinator")
    node = Node(config(tmp_path, coordinator={"endpoints": ["127.0.0.1:1"]}))
    monkeypatch.setattr(node, "_watch_files_and_memory", Mock(side_effect=OSError("a fault")))
    with pytest.raises(OSError, match="a fault"):
        await node.start()
    assert order == ["roles", "coordinator"]
    assert not [each for each in asyncio.all_tasks() if each.get_name().startswith("election")]


async def test_a_taken_port_is_told_before_the_store_is_opened(
    master: Node, tmp_path: Path
) -> None:
    second = Node(config(tmp_path / "n1", listen=master.endpoints.listen))
    with pytest.raises(ListenError, match="another process uses the port"):
        await second.start()
    assert not (tmp_path / "n1").exists()


async def test_a_stopping_node_answers_what_came_in(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(
            running(config(tmp_path / "n0", store={"flush": FlushMode.SYNC}))
        )
        async with AsyncAdmin(node.endpoints.listen) as admin:
            await admin.create_topic("t", 1)
        channel = await stack.enter_async_context(stubs(node))
        call = channel.broker.Append()
        await call.write(put_request())
        await until(lambda: node.store.log.wrote.value > 0)
        await node.stop()
        answer = await call.read()
        assert answer.status == broker_pb2.PUT_OK
        assert await call.read() is aio.EOF
        with pytest.raises(aio.AioRpcError) as raised:
            await channel.admin.ListTopics(admin_pb2.ListTopicsRequest())
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_node_on_ipv6(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    async with running(config(tmp_path / "n0", listen=f"[::1]:{port}")) as node:
        endpoint = node.endpoints.listen
        assert endpoint.startswith("[::1]:")
        async with AsyncAdmin(endpoint) as admin:
            await admin.create_topic("t", 1)
            async with AsyncProducer(endpoint) as producer:
                result = await (await producer.send(Message("t", b"six")))
            message = await admin.query_by_id(result.msg_id)
        assert message is not None
        assert message.store_host == f"[0:0:0:0:0:0:0:1]:{endpoint.rsplit(':', 1)[1]}"
        assert len(result.msg_id) == 56


async def test_a_failed_fsync_is_told_everywhere(tmp_path: Path) -> None:
    settings = config(tmp_path / "n0", store={"flush": FlushMode.SYNC})
    async with running(settings) as node, stubs(node) as channel:
        async with AsyncAdmin(node.endpoints.listen) as admin:
            await admin.create_topic("t", 1)
        assert (await append(channel, put_request())).status == broker_pb2.PUT_OK
        node.store.log.fail(FlushFailedError("fdatasync of the log failed: EIO"))
        answer = await append(channel, put_request())
        assert answer.status in (
            broker_pb2.FLUSH_DISK_TIMEOUT,
            broker_pb2.SERVICE_NOT_AVAILABLE,
        )
        assert "EIO" in answer.error.message
        health = node.health()
        assert "EIO" in health.store_fault
        assert "EIO" in health.put_fault
        assert node.status().state == "read-only"
        pull = await channel.broker.Pull(
            broker_pb2.PullRequest(positions=[broker_pb2.QueuePosition(topic="t")])
        )
        assert pull.queues[0].status == broker_pb2.FOUND


@asynccontextmanager
async def pair(tmp_path: Path, **fields: Any) -> AsyncIterator[tuple[Node, Node]]:
    """A master and a slave that follows it."""
    async with running(config(tmp_path / "n0", node_id="n0", **fields)) as first:
        settings = config(
            tmp_path / "n1",
            node_id="n1",
            role="slave",
            master=first.endpoints.listen,
            **fields,
        )
        async with running(settings) as second:
            await until(lambda: second.status().in_sync)
            yield first, second


async def test_a_slave_serves_what_its_master_confirmed(tmp_path: Path) -> None:
    async with pair(tmp_path) as (first, second):
        async with AsyncAdmin(first.endpoints.listen) as admin:
            await admin.create_topic("t", 1)
        async with AsyncProducer(second.endpoints.listen) as producer:  # finds the master
            await (await producer.send(Message("t", b"one", keys="k")))
        await until(lambda: second.store.topics.get("t") is not None)
        async with AsyncConsumer(second.endpoints.listen, read_from="slave") as consumer:
            async with await consumer.follow("t") as stream:
                message = await anext(aiter(stream))
            assert message.body == b"one"
        async with AsyncAdmin(second.endpoints.listen, read_from="slave") as admin:
            assert len(await admin.query_by_key("t", "k")) == 1
            cluster = await admin.cluster()
        assert [(node.node_id, node.role) for node in cluster.nodes] == [
            ("n0", "master"),
            ("n1", "slave"),
        ]


async def test_a_slave_refuses_changes_and_names_the_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as (first, second), stubs(second) as channel:
        async with AsyncAdmin(first.endpoints.listen) as admin:
            await admin.create_topic("t", 1)
        put = await append(channel, put_request())
        assert put.status == broker_pb2.SERVICE_NOT_AVAILABLE
        commit = await channel.broker.CommitOffsets(broker_pb2.CommitOffsetsRequest(group="g"))
        topic = await channel.admin.CreateTopic(admin_pb2.CreateTopicRequest())
        gone = await channel.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="t"))
        for answer in (put, commit, topic, gone):
            assert answer.error.code == common_pb2.NOT_MASTER
            assert answer.error.hint == first.endpoints.listen


async def test_without_enough_replicas_only_puts_that_wait_for_none_are_taken(
    tmp_path: Path,
) -> None:
    settings = config(
        tmp_path / "n0",
        replication=ReplicationSection(mode=Replication.SYNC, min_in_sync=2),
        put=PutSection(timeout_ms=100),
    )
    async with running(settings) as node, stubs(node) as channel:
        async with AsyncAdmin(node.endpoints.listen, connection=QUICK) as admin:
            with pytest.raises(NotInSyncError, match="min_in_sync is 2"):
                await admin.create_topic("t", 1)
        assert node.store.topics.names() == []
        node.store.create_topic(TopicConfig("t", 1, 1))
        refused = await append(channel, put_request())
        assert refused.status == broker_pb2.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert refused.error.code == common_pb2.NOT_IN_SYNC
        taken = await append(channel, put_request(durability=broker_pb2.NO_WAIT))
        assert taken.status == broker_pb2.PUT_OK
        health = node.health()
        assert "min_in_sync" in health.put_fault
        assert not health.store_fault


async def test_a_put_that_no_slave_confirms_is_unknown(tmp_path: Path) -> None:
    fields = {
        "replication": ReplicationSection(mode=Replication.SYNC),
        "put": PutSection(timeout_ms=300),
    }
    async with pair(tmp_path, **fields) as (first, second), stubs(first) as channel:
        async with AsyncAdmin(first.endpoints.listen) as admin:
            await admin.create_topic("t", 1)
        assert (await append(channel, put_request())).status == broker_pb2.PUT_OK
        await second.stop()
        answer = await append(channel, put_request())
        assert answer.status == broker_pb2.FLUSH_SLAVE_TIMEOUT
        assert answer.error.code == common_pb2.OUTCOME_UNKNOWN
        assert answer.segments[0].count == 1


async def test_a_slave_of_another_cluster_is_refused_and_says_so(
    master: Node, tmp_path: Path
) -> None:
    settings = config(
        tmp_path / "n1",
        node_id="n1",
        role="slave",
        master=master.endpoints.listen,
        cluster_id="other",
    )
    async with running(settings) as node:
        await until(lambda: "cluster" in node.health().read_fault)
        assert node.status().detail


async def test_a_node_tells_what_is_under_way(master: Node) -> None:
    async with AsyncAdmin(master.endpoints.listen) as admin:
        await admin.create_topic("t", 1)
        async with AsyncConsumer(master.endpoints.listen) as consumer:
            waiting = asyncio.create_task(consumer.pull("t", 0, 0, wait_ms=60_000))
            # it counts as waiting before it has looked for messages, for which it reserves memory
            await until(lambda: master.pulls.waiting == 1)
            await until(lambda: master.statistics()["answer_bytes"] == 0)
            numbers = await admin.stats()
            assert (numbers["long_polls"], numbers["calls"], numbers["answer_bytes"]) == (1, 2, 0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await until(lambda: master.pulls.waiting == 0)
