"""Puts, pulls and queries of a whole node: what is answered, refused, and given in pages."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.inner_node import QUICK, append, config, put_request, running, stubs
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import (
    InvalidArgumentError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    UnknownQueueError,
    UnknownTopicError,
)
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.v1 import admin_pb2, broker_pb2, common_pb2
from tandemlog_server.node.node import Node
from tandemlog_server.node.pulls import dispatch_wait, pages
from tandemlog_server.node.pulls.dispatch_wait import DispatchWait
from tandemlog_server.node.services import broker_service
from tandemlog_server.storage.dispatch.reput import ReputService
from tandemlog_server.storage.reads import store_reader as reads


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
    monkeypatch.setattr(dispatch_wait, "DISPATCH_WAIT_S", 60.0)
    waiting = asyncio.Event()
    reach = DispatchWait.reach

    async def reaching(wait: DispatchWait, target: int) -> None:
        waiting.set()
        await reach(wait, target)

    monkeypatch.setattr(DispatchWait, "reach", reaching)
    position = broker_pb2.QueuePosition(topic="t", queue_id=0, queue_offset=0)
    async with running(config(tmp_path / "crashed")) as node, stubs(node) as channel:
        pull = channel.broker.Pull(broker_pb2.PullRequest(positions=[position]))
        await asyncio.wait_for(waiting.wait(), 10)
        assert not pull.done()
        node.store.reput.run_to()
        assert (await pull).queues[0].count == 3


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
