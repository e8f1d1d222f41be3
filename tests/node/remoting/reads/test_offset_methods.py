"""Offsets of groups and the ends of queues, as RocketMQ's clients ask for them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.reading_node import ReadingNode, reading_node
from fakes.remoting_calls import call_of
from tandemlog.format.calls import JOIN
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall
from tandemlog_server.rocketmq.wire.remoting import Command

QUERY, COMMIT, SEARCH, END, BEGIN, EARLIEST = 14, 15, 29, 30, 31, 32


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[ReadingNode]:
    async with reading_node(tmp_path / "n0") as reading:
        yield reading


async def offset(door: ReadingNode, code: int = QUERY, queue: int = 0, **fields: object) -> str:
    answer = await door.ask(code, consumerGroup="g", topic="t", queueId=queue, **fields)
    assert answer.code in (0, 22)
    return answer.fields.get("offset", "none")


async def commit(door: ReadingNode, value: int, *, queue: int = 0, oneway: bool = True) -> None:
    call = call_of(
        COMMIT, oneway=oneway, consumerGroup="g", topic="t", queueId=queue, commitOffset=value
    )
    answer = await door.read.offsets.commit(call)
    assert (answer is None) == oneway


async def test_a_new_group_begins_at_the_first_message_while_that_is_recent(
    door: ReadingNode,
) -> None:
    await door.send(b"a", b"b")
    assert await offset(door) == "0"
    assert await offset(door, queue=3) == "0"  # which has no message yet
    assert await offset(door, setZeroIfNotFound="false") == "none"


async def test_a_new_group_begins_by_its_program_where_the_first_message_is_old(
    door: ReadingNode,
) -> None:
    await door.send(b"a", b"b")
    door.read.offsets._recent_bytes = 10
    assert await offset(door) == "none"


async def test_an_offset_that_was_committed_is_there(door: ReadingNode) -> None:
    await door.send(b"a", b"b")
    await commit(door, 1, oneway=False)
    assert await offset(door) == "1"
    await commit(door, 2)
    await commit(door, 2, oneway=False)
    assert await offset(door) == "2"
    await commit(door, 0)  # a group may be set back
    assert await offset(door) == "0"


async def test_an_offset_that_cannot_be_takes_no_other_one_of_its_turn_along(
    door: ReadingNode,
) -> None:
    await door.send(b"a", b"b")
    wrong, right = await asyncio.gather(
        commit(door, -1, queue=1), commit(door, 1), return_exceptions=True
    )
    assert isinstance(wrong, RequestRefusedError)
    assert right is None
    assert await offset(door) == "1"


async def test_commits_of_one_turn_are_one(
    door: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in range(4):
        await door.send(b"a", queue_id=queue)
    members = door.read.offsets._members
    commits, real = [], members.commit

    async def counted(request: object, caller: object, **more: bool) -> object:
        commits.append(request)
        return await real(request, caller, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(members, "commit", counted)
    await asyncio.gather(*(commit(door, 1, queue=queue) for queue in range(4)))
    assert [len(each.offsets) for each in commits] == [4]  # type: ignore[attr-defined]
    for _ in range(10):  # a table that is being written just then is asked the long way
        commits.clear()
        await asyncio.gather(*(commit(door, 1, queue=queue) for queue in range(4)))
        if not commits:
            break
    assert not commits  # what is there, or moves on, needs none
    assert [await offset(door, queue=queue) for queue in range(4)] == ["1"] * 4


async def test_an_offset_beyond_the_queue_is_refused_alone(door: ReadingNode) -> None:
    await door.send(b"a", b"b")
    await door.send(b"c", queue_id=1)
    good, bad = await asyncio.gather(
        commit(door, 1, oneway=False),
        commit(door, 9, queue=1, oneway=False),
        return_exceptions=True,
    )
    assert good is None
    assert isinstance(bad, RequestRefusedError)
    assert bad.code == common_pb2.OFFSET_OUT_OF_RANGE
    assert await offset(door) == "1"


async def test_a_group_of_this_projects_members_is_not_moved(door: ReadingNode) -> None:
    await door.send(b"a", b"b")
    await commit(door, 1, oneway=False)
    joins = broker_pb2.GroupHeartbeatRequest(
        group="g", member_id="m", member_epoch=JOIN, number=1, topics=["t"],
        session_timeout_ms=30_000, rebalance_timeout_ms=30_000,
    )  # fmt: skip
    async with asyncio.timeout(10):
        await door.node.groups.heartbeat(joins, "ipv4:10.0.0.8:1")
    for oneway in (True, False):
        with pytest.raises(RequestRefusedError) as refusal:
            await commit(door, 2, oneway=oneway)
        assert refusal.value.code == common_pb2.GROUP_HAS_MEMBERS
    assert await offset(door) == "1"


async def test_the_ends_of_a_queue(door: ReadingNode) -> None:
    await door.send(b"a", b"b", b"c")
    assert (await offset(door, BEGIN), await offset(door, END)) == ("0", "3")
    assert (await offset(door, BEGIN, queue=2), await offset(door, END, queue=2)) == ("0", "0")


async def test_an_offset_for_a_time(door: ReadingNode) -> None:
    await door.send(b"a", b"b", b"c")
    answer = await door.ask(EARLIEST, topic="t", queueId=0)
    first = int(answer.fields["timestamp"])
    assert first > 0
    assert await offset(door, SEARCH, timestamp=first) == "0"
    assert await offset(door, SEARCH, timestamp=first + 1_000_000) == "3"
    assert await offset(door, SEARCH, timestamp=first + 1_000_000, boundaryType="UPPER") == "2"
    empty = await door.ask(EARLIEST, topic="t", queueId=1)
    assert empty.fields["timestamp"] == "-1"


@pytest.mark.parametrize("code", [SEARCH, END, BEGIN, EARLIEST])
async def test_a_queue_that_is_not_there(door: ReadingNode, code: int) -> None:
    with pytest.raises(RequestRefusedError) as refusal:
        await door.ask(code, topic="t", queueId=4, timestamp=0)
    assert refusal.value.code == common_pb2.UNKNOWN_QUEUE
    with pytest.raises(RequestRefusedError) as refusal:
        await door.ask(code, topic="missing", queueId=0, timestamp=0)
    assert refusal.value.code == common_pb2.UNKNOWN_TOPIC


async def test_a_node_that_does_not_lead_states_nothing(
    door: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await door.send(b"a")
    monkeypatch.setattr(type(door.node.role), "epoch", lambda self: None)
    for code in (QUERY, END):
        with pytest.raises(RequestRefusedError):
            await offset(door, code)


# ---- without a task, and without a thread


async def test_an_offset_that_only_moves_on_needs_no_task(door: ReadingNode) -> None:
    await door.send(b"a", b"b", b"c")
    ends: list[tuple[Command | None, Exception | None]] = []

    def ended(call: RemotingCall, response: Command | None, problem: Exception | None) -> None:
        ends.append((response, problem))

    def begin(value: int, *, oneway: bool = True) -> bool:
        call = call_of(
            COMMIT, oneway=oneway, consumerGroup="g", topic="t", queueId=0, commitOffset=value
        )
        return door.read.offsets.begin_commit(call, ended)

    assert not begin(1)  # the group's first offset is more than a move
    await commit(door, 1)
    assert begin(2)
    assert ends == [(None, None)]
    assert await offset(door) == "2"
    for value, oneway in ((1, True), (9, True), (3, False)):  # back, beyond the end, answered
        assert not begin(value, oneway=oneway)
    assert await offset(door) == "2"
    assert len(ends) == 1


async def test_a_consumer_that_starts_needs_no_thread(
    door: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_thread(*_: object, **__: object) -> None:
        raise AssertionError("a thread reads")

    await door.send(b"a", b"b")
    monkeypatch.setattr(door.node._turns, "run", no_thread)
    assert await offset(door) == "0"
    assert await offset(door, queue=3) == "0"
    monkeypatch.setattr(door.read.offsets, "_recent_bytes", 1)
    assert await offset(door) == "none"
