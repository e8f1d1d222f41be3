"""The Work service of a node: rights on dead letters, what is audited, refusals of bad requests."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from fakes.inner_node import append as append_record
from fakes.inner_node import config, put_request, running, stubs
from fakes.secured_node import access_text, bearer, channel, settings
from tandemlog.format.lease.policy import AckResult
from tandemlog.format.record.record import decode_record
from tandemlog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2_grpc,
    common_pb2,
    work_pb2,
    work_pb2_grpc,
)
from tandemlog_server.node.node import Node

GROUP = "billing"


class Caller:
    """One identity at a node."""

    def __init__(self, on: aio.Channel, name: str = "") -> None:
        self._metadata: Any = bearer(name) if name else ()
        self._work: Any = work_pb2_grpc.WorkStub(on)

    async def ask(self, method: str, **fields: Any) -> Any:
        request = getattr(work_pb2, f"{method}Request")(group=GROUP, **fields)
        return await getattr(self._work, method)(request, metadata=self._metadata, timeout=30)

    async def receive(self, topic: str = "t", **fields: Any) -> Any:
        values = {"topics": [topic], "max_messages": 10, "lease_ms": 30_000, **fields}
        return await self.ask("Receive", **values)

    async def letters(self, count: int) -> list[Any]:
        """Once there are so many."""
        async with asyncio.timeout(10):
            while True:
                answer = await self.ask("ListDeadLetters")
                if len(answer.letters) >= count:
                    return list(answer.letters)
                await asyncio.sleep(0.01)


async def put(on: aio.Channel, topic: str, metadata: Any = ()) -> None:
    """A topic with one message."""
    request = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=topic))
    admin: Any = admin_pb2_grpc.AdminStub(on)
    answer = await admin.CreateTopic(request, metadata=metadata)
    assert not answer.error.code, answer.error
    broker: Any = broker_pb2_grpc.BrokerStub(on)
    call = broker.Append(iter([put_request(topic)]), metadata=metadata)
    assert not (await call.read()).error.code


async def test_a_message_is_leased_and_settled(tmp_path: Path) -> None:
    async with running(config(tmp_path / "n0")) as node, channel(node) as on:
        await put(on, "t")
        caller = Caller(on)
        answer = await caller.receive(wait_ms=5_000)
        [leased] = answer.queues
        assert decode_record(leased.records).body == b"body"
        assert (leased.topic, leased.count, leased.attempts) == ("t", 1, b"\1\0")
        assert len(leased.handles) == 64
        assert answer.lease_ms == 30_000
        assert not (await caller.receive()).queues
        extended = await caller.ask("Extend", handles=leased.handles, lease_ms=60_000)
        assert extended.results == bytes([AckResult.OK])
        done = await caller.ask("Acknowledge", handles=leased.handles, sync=True)
        assert done.results == bytes([AckResult.OK])
        again = await caller.ask("Acknowledge", handles=leased.handles)
        assert again.results == bytes([AckResult.ALREADY_DONE])
        described = await caller.ask("DescribeGroupWork")
        assert (described.leased, described.policy.max_attempts) == (0, 17)


async def test_each_failure_keeps_its_own_delay_and_error(tmp_path: Path) -> None:
    async with running(config(tmp_path / "n0")) as node, channel(node) as on:
        await put(on, "t")
        await put(on, "u")
        caller = Caller(on)
        first = (await caller.receive(wait_ms=5_000)).queues[0].handles
        second = (await caller.receive("u", wait_ms=5_000)).queues[0].handles
        failed = [
            work_pb2.FailedMessages(handles=first, delay_ms=0, error="one"),
            work_pb2.FailedMessages(handles=second, delay_ms=0, error="two"),
        ]
        answer = await caller.ask("Nack", failed=failed, sync=True)
        assert answer.results == bytes([AckResult.OK] * 2)
        assert dict((await caller.receive(wait_ms=5_000)).queues[0].last_errors) == {0: "one"}
        assert dict((await caller.receive("u", wait_ms=5_000)).queues[0].last_errors) == {0: "two"}


@pytest.mark.parametrize(
    ("method", "fields", "field"),
    [
        ("Receive", {"topics": ["t"], "max_messages": 0, "lease_ms": 1_000}, "max_messages"),
        ("Receive", {"topics": ["t"], "max_messages": 1, "lease_ms": 1}, "lease_ms"),
        ("Receive", {"topics": [], "max_messages": 1, "lease_ms": 1_000}, "topics"),
        ("Receive", {"topics": ["t"], "max_messages": 1, "lease_ms": 1_000, "filter": "a >"},
         "filter"),
        ("Extend", {"handles": b"", "lease_ms": 1}, "lease_ms"),
        ("SetGroupPolicy", {"max_attempts": 0}, "policy"),
        ("SetGroupPolicy", {"backoff": work_pb2.RetryBackoff(levels_ms=[-1])}, "policy"),
        ("ListDeadLetters", {"from_offset": -1}, "from_offset"),
        ("ResendDeadLetters", {"queue_offsets": list(range(2_000))}, "queue_offsets"),
    ],
)  # fmt: skip
async def test_what_no_one_can_ask_is_refused(
    tmp_path: Path, method: str, fields: dict[str, Any], field: str
) -> None:
    async with running(config(tmp_path / "n0")) as node, channel(node) as on:
        await put(on, "t")
        answer = await Caller(on).ask(method, **fields)
        assert answer.error.code == common_pb2.INVALID_ARGUMENT
        assert answer.error.field == field


async def test_handles_that_are_none_are_refused_and_strange_ones_have_a_result(
    tmp_path: Path,
) -> None:
    async with running(config(tmp_path / "n0")) as node, channel(node) as on:
        await put(on, "t")
        caller = Caller(on)
        await caller.receive(wait_ms=5_000)
        answer = await caller.ask("Acknowledge", handles=b"x")
        assert answer.error.code == common_pb2.INVALID_ARGUMENT
        answer = await caller.ask("Acknowledge", handles=b"A" * 64)
        [result] = answer.results
        assert result not in (AckResult.OK, AckResult.ALREADY_DONE)


async def dead(node: Node, on: aio.Channel) -> None:
    """The group has a dead letter of each of two topics."""
    op = Caller(on, "op")
    for topic in ("mine", "secret"):
        await put(on, topic, bearer("op"))
        handles = (await op.receive(topic, wait_ms=5_000)).queues[0].handles
        rejected = [work_pb2.FailedMessages(handles=handles, error=topic)]
        answer = await op.ask("Reject", rejected=rejected, sync=True)
        assert answer.results == bytes([AckResult.OK])
    assert len(await op.letters(2)) == 2


async def test_dead_letters_are_those_of_topics_that_the_caller_may_see(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tandemlog.audit")
    rights = {"read": ["mine"], "write": ["mine"], "consume": [GROUP]}
    access = access_text(op={"admin": True}, some=rights)
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        await dead(node, on)
        some = Caller(on, "some")
        [mine] = (await some.ask("ListDeadLetters")).letters
        assert mine.origin_topic == "mine"
        [secret] = {each.queue_offset for each in await Caller(on, "op").letters(2)} - {
            mine.queue_offset
        }
        read = await some.ask("ReadDeadLetter", queue_offset=mine.queue_offset)
        assert (read.letter.last_error, decode_record(read.record).body) == ("mine", b"body")
        for method, fields in (
            ("ReadDeadLetter", {"queue_offset": secret}),
            ("ResendDeadLetters", {"queue_offsets": [mine.queue_offset, secret]}),
        ):
            refused = await some.ask(method, **fields)
            assert refused.error.code == common_pb2.PERMISSION_DENIED
        sent = await some.ask("ResendDeadLetters", queue_offsets=[mine.queue_offset, 99])
        assert [(each.topic, bool(each.refusal)) for each in sent.letters] == [
            ("mine", False),
            ("", True),
        ]
        topics = {each.topic for each in (await some.ask("DescribeGroupWork")).queues}
        assert topics == {"mine"}
        assert not (await some.ask("SetGroupPolicy", max_attempts=3)).error.code
        assert (await some.ask("PurgeDeadLetters", before_offset=9)).count == 1
    lines = [each.getMessage() for each in caplog.records if each.name == "tandemlog.audit"]
    for call in ("ResendDeadLetters", "SetGroupPolicy", "PurgeDeadLetters"):
        assert any(f"call={call} who=some" in line for line in lines), call


async def test_a_missing_group_and_a_missing_letter_are_named(tmp_path: Path) -> None:
    async with running(config(tmp_path / "n0")) as node, stubs(node) as channel_:
        caller = Caller(channel_.channel)
        answer = await caller.ask("DescribeGroupWork")
        assert answer.error.code == common_pb2.UNKNOWN_GROUP
        for call in ("ListDeadLetters", "ReadDeadLetter", "PurgeDeadLetters"):
            answer = await caller.ask(call)
            assert answer.error.code == common_pb2.UNKNOWN_GROUP, call
        await caller.ask("SetGroupPolicy")
        await append_record(channel_, put_request("t"))
        answer = await caller.ask("ReadDeadLetter", queue_offset=7)
        assert answer.error.code == common_pb2.OFFSET_OUT_OF_RANGE
        assert "no dead letter 7" in answer.error.message
