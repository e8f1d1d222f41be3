"""Whole nodes in one process: a master, a pair, what they refuse, how they start and stop."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from helpers.running import free_ports
from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import (
    InvalidArgumentError,
    MessageTooLargeError,
    NotInSyncError,
    OffsetOutOfRangeError,
    UnknownQueueError,
    UnknownTopicError,
)
from tandemlog.format.record.record import encode_record
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.node.node import Node
from tandemlog_server.node.pulls import pages
from tandemlog_server.node.roles.elected_roles import ElectedRoles
from tandemlog_server.node.services import broker_service
from tandemlog_server.node.services.broker_service import BrokerService
from tandemlog_server.node.settings.listen_endpoints import ListenError
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import PutSection, ReplicationSection, StoreSection
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.dispatch.reput import ReputService
from tandemlog_server.storage.errors import FlushFailedError, StoreLockedError
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.reads import store_reader as reads

QUICK = ConnectionOptions(
    request_timeout_ms=5_000, retry_timeout_ms=200, discovery_timeout_ms=1_000
)


def config(directory: Path, **fields: Any) -> NodeConfig:
    store = {
        "directory": directory,
        "commit_log_file_size": 1 << 20,
        "queue_file_size": 8_000,
        "index_slots": 500,
        "index_entries": 2_000,
        "max_message_size": 100_000,
        **fields.pop("store", {}),
    }
    return NodeConfig(
        listen=fields.pop("listen", "127.0.0.1:0"),
        http_listen="",
        store=StoreSection(**store),
        **fields,
    )


@asynccontextmanager
async def running(settings: NodeConfig) -> AsyncIterator[Node]:
    node = Node(settings)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@dataclass
class Stubs:
    """A node's services as they stand on the wire."""

    broker: Any
    admin: Any
    channel: aio.Channel


@asynccontextmanager
async def stubs(node: Node) -> AsyncIterator[Stubs]:
    async with aio.insecure_channel(node.endpoints.listen) as channel:
        yield Stubs(broker_pb2_grpc.BrokerStub(channel), admin_pb2_grpc.AdminStub(channel), channel)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens in other tasks, threads and nodes."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - there is no event for all of it
            await asyncio.sleep(0.01)


async def append(channel: Stubs, request: broker_pb2.AppendRequest) -> broker_pb2.AppendResponse:
    call = channel.broker.Append(iter([request]))
    async with asyncio.timeout(10):
        answer = await call.read()
    assert isinstance(answer, broker_pb2.AppendResponse)
    return answer


def put_request(topic: str = "t", **fields: Any) -> broker_pb2.AppendRequest:
    record = encode_record(topic=topic, body=b"body")
    values = {
        "request_id": 1,
        "topics": [topic],
        "queue_topics": [0],
        "queue_ids": [0],
        "records": record,
        "sizes": len(record).to_bytes(4, "little"),
        "queue_indexes": b"\0\0",
        **fields,
    }
    return broker_pb2.AppendRequest(**values)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(config(tmp_path / "n0")) as node:
        yield node


async def test_messages_are_put_pulled_and_found(master: Node) -> None:
    endpoint = master.endpoints.listen
    async with AsyncAdmin(endpoint) as admin:
        await admin.create_topic("t", 2)
        async with AsyncProducer(endpoint) as producer:
            future = await producer.send(
                Message("t", b"one", keys=["k1", "k2"], tags="A", queue_id=1)
            )
            result = await future
        assert (result.queue_id, result.queue_offset, result.physical_offset) == (1, 0, 0)
        async with AsyncConsumer(endpoint, group="g") as consumer:
            batch = await consumer.pull("t", 1, 0, wait_ms=5_000)
            assert [message.body for message in batch] == [b"one"]
            await consumer.commit({("t", 1): 1})
            assert await consumer.committed("t") == {("t", 1): 1}
        (found,) = await admin.query_by_key("t", "k2")
        assert found.body == b"one"
        by_id = await admin.query_by_id(result.msg_id)
        assert by_id is not None
        assert by_id.body == b"one"
        assert "g" in await admin.groups()
        numbers = await admin.stats()
        assert numbers["puts_total"] == 1
        assert numbers["put_seconds_count"] == 1


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


async def test_a_pull_after_a_crash_waits_for_what_is_still_to_be_dispatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(config(tmp_path / "store")) as node, stubs(node) as channel:
        async with AsyncAdmin(node.endpoints.listen) as admin:
            await admin.create_topic("t", 1)
        node.store.reput.stop()
        for _ in range(3):
            assert not (await append(channel, put_request())).HasField("error")
        shutil.copytree(tmp_path / "store", tmp_path / "crashed")
        node.store.reput.start()
    monkeypatch.setattr(ReputService, "start", lambda self: None)
    monkeypatch.setattr(broker_service, "DISPATCH_WAIT_S", 60.0)
    waiting = asyncio.Event()
    reach = BrokerService._reach

    async def reaching(service: BrokerService, target: int) -> None:
        waiting.set()
        await reach(service, target)

    monkeypatch.setattr(BrokerService, "_reach", reaching)
    position = broker_pb2.QueuePosition(topic="t", queue_id=0, queue_offset=0)
    async with running(config(tmp_path / "crashed")) as node, stubs(node) as channel:
        pull = channel.broker.Pull(broker_pb2.PullRequest(positions=[position]))
        await asyncio.wait_for(waiting.wait(), 10)
        assert not pull.done()
        node.store.reput.run_to()
        assert (await pull).queues[0].count == 3


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


async def test_bad_input_is_told_and_the_node_goes_on(master: Node) -> None:
    async with AsyncAdmin(master.endpoints.listen, connection=QUICK) as admin:
        await admin.create_topic("t", 1)
        with pytest.raises(UnknownTopicError):
            await admin.topic("nothing")
        with pytest.raises(OffsetOutOfRangeError):
            await admin.messages_at([12345])
    options = ProducerOptions(connection=QUICK)
    async with AsyncProducer(master.endpoints.listen, options) as producer:
        with pytest.raises(UnknownTopicError):
            await producer.send(Message("nothing", b"x"))
        with pytest.raises(UnknownQueueError):
            await producer.send(Message("t", b"x", queue_id=7))
        with pytest.raises(MessageTooLargeError):
            await (await producer.send(Message("t", bytes(100_001))))
        await (await producer.send(Message("t", b"still here")))


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"topics": ["nothing"]}, "BAD_RECORD", "topic"),
        ({"queue_ids": [5]}, "BAD_RECORD", "queue_id"),
        ({"sizes": b"\1\0\0\0"}, "BAD_RECORD", ""),
        ({"records": b""}, "BAD_RECORD", ""),
        ({"queue_indexes": b"\7\0"}, "INVALID_ARGUMENT", "queue_indexes"),
        ({"sizes": b""}, "INVALID_ARGUMENT", "sizes"),
    ],
)
async def test_a_batch_whose_columns_lie_is_refused(
    master: Node, fields: dict[str, Any], code: str, field: str
) -> None:
    async with AsyncAdmin(master.endpoints.listen) as admin:
        await admin.create_topic("t", 1)
    async with stubs(master) as channel:
        answer = await append(channel, put_request(**fields))
        assert answer.status == broker_pb2.MESSAGE_ILLEGAL
        assert common_pb2.ErrorCode.Name(answer.error.code) == code
        assert answer.error.field.startswith(field)
        fine = await append(channel, put_request())
        assert fine.status == broker_pb2.PUT_OK


async def test_a_flipped_bit_in_a_body_is_refused(master: Node) -> None:
    async with AsyncAdmin(master.endpoints.listen) as admin:
        await admin.create_topic("t", 1)
    request = put_request()
    damaged = bytearray(request.records)
    damaged[damaged.index(b"body")] ^= 1
    request.records = bytes(damaged)
    async with stubs(master) as channel:
        answer = await append(channel, request)
    assert answer.error.code == common_pb2.BAD_RECORD
    assert answer.error.record_index == 0
    assert "crc" in answer.error.field


async def test_requests_that_make_no_sense_are_answered(master: Node) -> None:
    async with stubs(master) as channel:
        pull = await channel.broker.Pull(broker_pb2.PullRequest())
        assert pull.error.field == "positions"
        query = await channel.broker.QueryByKey(broker_pb2.QueryByKeyRequest(topic="t"))
        assert query.error.field == "key"
        commit = await channel.broker.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(group="bad group")
        )
        assert commit.error.code == common_pb2.INVALID_ARGUMENT
        topic = await channel.admin.CreateTopic(
            admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name="bad name"))
        )
        assert topic.error.code == common_pb2.INVALID_TOPIC_NAME
        chunks = channel.broker.FetchSegmentRange(
            broker_pb2.FetchSegmentRangeRequest(physical_offset=99)
        )
        chunk = await chunks.read()
        assert chunk.error.code == common_pb2.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_x"])
async def test_the_stores_own_topics_are_neither_made_nor_deleted(master: Node, name: str) -> None:
    async with stubs(master) as channel:
        made = await channel.admin.CreateTopic(
            admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=name))
        )
        gone = await channel.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name=name))
    for answer in (made, gone):
        assert answer.error.code == common_pb2.INVALID_TOPIC_NAME
        assert (answer.error.field, name in answer.error.message) == ("name", True)


async def test_raw_bytes_of_the_log(master: Node) -> None:
    async with AsyncAdmin(master.endpoints.listen) as admin:
        await admin.create_topic("t", 1)
    async with stubs(master) as channel:
        await append(channel, put_request())
        chunks = channel.broker.FetchSegmentRange(broker_pb2.FetchSegmentRangeRequest())
        chunk = await chunks.read()
    log = next((master.store.directory / "commitlog").iterdir())
    assert chunk.data == log.read_bytes()[: len(chunk.data)]
    assert chunk.confirm_offset == len(chunk.data) > 0
    assert chunk.commit_log_file_size == 1 << 20


async def test_health_and_reflection(master: Node) -> None:
    async with stubs(master) as channel:
        health = health_pb2_grpc.HealthStub(channel.channel)
        for service in ("", "tandemlog.v1.Broker"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        everything = await health.List(health_pb2.HealthListRequest())
        assert "tandemlog.v1.Broker" in everything.statuses
        call = reflection_pb2_grpc.ServerReflectionStub(channel.channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {each.name for each in (await call.read()).list_services_response.service}
    assert {"tandemlog.v1.Broker", "tandemlog.v1.Admin", "tandemlog.v1.Replication"} <= names


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


# ---- a pair


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


async def test_lists_and_records_that_are_too_much_for_an_answer_come_in_pages(
    master: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_ROWS", 2)
    monkeypatch.setattr(broker_service, "MAX_ROWS", 3)
    monkeypatch.setattr(broker_service, "RECORDS_BYTES", 600)
    async with AsyncAdmin(master.endpoints.listen) as admin:
        names = [f"topic-{number}" for number in range(5)]
        for name in names:
            await admin.create_topic(name, 2)
        async with AsyncProducer(master.endpoints.listen) as producer:
            sent = [
                await (await producer.send(Message(name, bytes(200), keys="k", queue_id=queue_id)))
                for name in names
                for queue_id in range(2)
            ]
            sent += [
                await (await producer.send(Message("topic-0", bytes([number]) * 200, keys="k")))
                for number in range(4)
            ]
        assert [topic.name for topic in await admin.topics()] == names
        ranges = [(each.topic, each.queue_id) for each in await admin.ranges()]
        assert ranges == [(name, queue_id) for name in names for queue_id in range(2)]
        assert len(await admin.ranges(["topic-3", "topic-0"])) == 4
        offsets = [each.physical_offset for each in sent][:3]
        found = await admin.messages_at(offsets)
        assert [each.physical_offset for each in found] == offsets
        for everything in (True, False):
            keyed = await admin.query_by_key("topic-0", "k", everything=everything)
            assert [each.physical_offset for each in keyed] == sorted(
                each.physical_offset for each in sent if each.topic == "topic-0"
            )
        newest = await admin.query_by_key("topic-0", "k", max_messages=3)
        assert [each.body[:1] for each in newest] == [b"\1", b"\2", b"\3"]
        for group in ("g0", "g1", "g2"):
            for name in names:
                await admin.commit(group, {(name, 0): 1, (name, 1): 1})
        assert await admin.groups() == ["g0", "g1", "g2"]
        assert len(await admin.committed("g1")) == 10
        assert len(await admin.committed("g1", ["topic-1", "topic-4"])) == 4


async def test_more_rows_than_a_request_may_have_are_refused_by_name(master: Node) -> None:
    async with stubs(master) as channel:
        offsets = broker_pb2.GetByOffsetRequest(
            physical_offsets=[0] * (broker_service.MAX_ROWS + 1)
        )
        answer = await channel.broker.GetByOffset(offsets)
        assert answer.error.code == common_pb2.INVALID_ARGUMENT
        assert (answer.error.field, answer.error.limit) == ("physical_offsets", 4_096)
        names = admin_pb2.ListTopicsRequest(names=["t"] * 1_025)
        assert (await channel.admin.ListTopics(names)).error.field == "names"


async def test_a_key_that_the_index_has_too_often_is_refused_by_name(
    master: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "MAX_PASSED", 2)
    async with AsyncAdmin(master.endpoints.listen) as admin:
        await admin.create_topic("t", 1)
        async with AsyncProducer(master.endpoints.listen) as producer:
            for _ in range(3):
                await (await producer.send(Message("t", b"body", keys="k")))
        with pytest.raises(InvalidArgumentError, match="narrower time"):
            await admin.query_by_key("t", "k", everything=True)
        assert len(await admin.query_by_key("t", "k", max_messages=1)) == 1


async def test_health_is_watched_and_reflection_refuses_what_is_no_request(master: Node) -> None:
    async with stubs(master) as channel:
        watch = health_pb2_grpc.HealthStub(channel.channel).Watch(health_pb2.HealthCheckRequest())
        async with asyncio.timeout(10):
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        call: Any = channel.channel.stream_stream(path)()
        await call.write(b"\xff\xff")
        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


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
