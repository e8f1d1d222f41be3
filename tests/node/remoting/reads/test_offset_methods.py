"""Offsets of groups and the ends of queues, as RocketMQ's clients ask for them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.reading_node import ReadingNode, pull_header, reading_node
from fakes.remoting_calls import call_of
from tandemlog.format.calls import JOIN
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
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
    if oneway:
        assert door.read.offsets.begin_commit(call, lambda *_: None)
        await door.read.offsets._commits.settled("g")
    else:
        answer = await door.read.offsets.commit(call)
        assert answer is not None
        assert answer.code == 0


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
        commit(door, -1, queue=1, oneway=False),
        commit(door, 1, oneway=False),
        return_exceptions=True,
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
    await commit(door, 2)  # refused without a word
    with pytest.raises(RequestRefusedError) as refusal:
        await commit(door, 2, oneway=False)
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


async def test_offsets_without_an_answer_keep_their_order(door: ReadingNode) -> None:
    await door.send(b"a", b"b", b"c")
    ends: list[tuple[Command | None, Exception | None]] = []

    def ended(call: RemotingCall, response: Command | None, problem: Exception | None) -> None:
        ends.append((response, problem))

    def begin(value: int, *, oneway: bool = True) -> bool:
        call = call_of(
            COMMIT, oneway=oneway, consumerGroup="g", topic="t", queueId=0, commitOffset=value
        )
        return door.read.offsets.begin_commit(call, ended)

    for value in (1, 2, 9, 1, 3):  # the first, one that moves on, one beyond the end, one back
        assert begin(value)
    assert ends == [(None, None)] * 5
    assert await offset(door) == "3"
    assert not begin(2, oneway=False)  # its client waits for the answer


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


async def test_who_takes_a_queue_over_sees_with_which_offset_its_last_owner_left(
    tmp_path: Path,
) -> None:
    async with reading_node(tmp_path / "n0") as door:
        for queue in range(2):
            await door.send(b"a", b"b", b"c", queue_id=queue)
        service, gate = door.node.group_members, asyncio.Event()
        real = service.commit

        async def commit(request: Any, caller: Caller, *, of_clients: bool = False) -> Any:
            response = await real(request, caller, of_clients=of_clients)
            await gate.wait()  # until a slave has the offsets
            return response

        service.commit = commit  # type: ignore[method-assign]
        first, second = Caller("ipv4:10.0.0.7:1"), Caller("ipv4:10.0.0.8:1")
        header: dict[str, Any] = pull_header(3, sysFlag=1, commitOffset=3)
        pull = call_of(11, caller=first, **header)
        door.read.pulls.begin(pull, lambda *_: None)  # the first offset of queue 0
        await asyncio.sleep(0)
        left = call_of(
            15, oneway=True, caller=first, consumerGroup="g", topic="t", queueId=1, commitOffset=2
        )
        assert door.read.offsets.begin_commit(left, lambda *_: None)
        asked = call_of(
            14, caller=second, consumerGroup="g", topic="t", queueId=1, setZeroIfNotFound="false"
        )
        taking = asyncio.create_task(door.read.offsets.offset(asked))
        await asyncio.sleep(0)
        assert not taking.done()
        gate.set()
        answer = await taking
        assert (answer.code, answer.fields.get("offset")) == (0, "2")


async def test_a_reset_is_not_undone_by_an_offset_that_was_in_line(tmp_path: Path) -> None:
    async with reading_node(tmp_path / "n0") as door:
        for queue in range(2):
            await door.send(b"a", b"b", b"c", queue_id=queue)
        service, gate = door.node.group_members, asyncio.Event()
        real = service.commit

        async def commit(request: Any, caller: Caller, *, of_clients: bool = False) -> Any:
            response = await real(request, caller, of_clients=of_clients)
            if of_clients:
                await gate.wait()  # until a slave has the offsets
            return response

        service.commit = commit  # type: ignore[method-assign]
        for queue in range(2):  # one is being written, the other one is behind it
            left = call_of(
                15, oneway=True, consumerGroup="g", topic="t", queueId=queue, commitOffset=3
            )
            assert door.read.offsets.begin_commit(left, lambda *_: None)
            await asyncio.sleep(0.01)
        request = broker_pb2.CommitOffsetsRequest(group="g", without_members=True)
        request.offsets.add(topic="t", queue_id=1, queue_offset=0)
        reset = asyncio.create_task(service.commit(request, Caller("ipv4:10.0.0.1:1")))
        await asyncio.sleep(0.05)
        gate.set()
        await reset
        assert not door.read.offsets._commits._lines
        assert door.node.store.consumer_offsets.offset("g", "t", 1) == 0
