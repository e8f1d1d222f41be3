"""Pulls of RocketMQ's consumers on a whole node: answers, waiting, subscriptions, suggestions."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.inner_node import until
from fakes.reading_node import ReadingNode, Subscribed, pull_header, reading_node
from fakes.remoting_calls import call_of, records_in
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.pulls import dispatch_wait
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall, RemotingRefusedError
from tandemlog_server.node.remoting.reads import pull_methods
from tandemlog_server.rocketmq.wire.remoting import Command

COMMIT, PARK = 1, 2
NOT_FOUND, RETRY, MOVED = 19, 20, 21


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[ReadingNode]:
    async with reading_node(tmp_path / "n0") as reading:
        yield reading


def offsets(fields: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(fields[name] for name in ("nextBeginOffset", "minOffset", "maxOffset"))


def bodies(answer: Command) -> list[bytes]:
    return [each.body for each in records_in(answer.body)]


async def test_a_pull_is_answered_with_records_of_the_log(door: ReadingNode) -> None:
    await door.send(b"a", b"b", b"c")
    answer = await door.pull(1)
    assert (answer.code, bodies(answer)) == (0, [b"b", b"c"])
    assert offsets(answer.fields) == ("3", "0", "3")
    assert answer.fields["suggestWhichBrokerId"] == "0"
    assert answer.opaque == 7
    assert all(isinstance(each, str) for each in answer.fields.values())


async def test_a_pull_has_as_many_messages_and_bytes_as_it_asks_for(door: ReadingNode) -> None:
    await door.send(*[b"%04d" % number + bytes(1_000) for number in range(6)])
    assert len(bodies(await door.pull(0, maxMsgNums=2))) == 2
    assert len(bodies(await door.pull(0, maxMsgBytes=4_000))) == 3
    assert len(bodies(await door.pull(0, maxMsgBytes=1))) == 1


@pytest.mark.parametrize(
    ("offset", "queue", "code", "next_offset"),
    [(2, 0, NOT_FOUND, "2"), (9, 0, MOVED, "2"), (0, 1, NOT_FOUND, "0"), (5, 1, MOVED, "0")],
)
async def test_an_offset_without_a_message_has_brokers_code(
    door: ReadingNode, offset: int, queue: int, code: int, next_offset: str
) -> None:
    await door.send(b"a", b"b")
    answer = await door.pull(offset, queueId=queue)
    assert (answer.code, offsets(answer.fields)[0], answer.body) == (code, next_offset, b"")


async def test_a_slave_sends_its_reader_to_the_master_and_not_back(
    door: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_methods, "BEHIND_WAIT_S", 0.001)
    await door.send(b"a")
    door.node.reads._on_slave = lambda: True
    door.readers.number, door.readers.in_sync, door.readers.leading = 1, (1,), 2
    answer = await door.pull(9, sysFlag=PARK)
    assert (answer.code, offsets(answer.fields)[0]) == (RETRY, "9")
    assert answer.fields["suggestWhichBrokerId"] == "2"
    door.readers.leading = None  # it is gone, and a client would go after it
    answer = await door.pull(9, sysFlag=PARK)
    assert (answer.code, answer.fields["suggestWhichBrokerId"]) == (RETRY, "1")


async def test_a_slave_waits_a_moment_until_it_has_come_to_an_offset(
    door: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_methods, "BEHIND_WAIT_S", 60)
    await door.send(b"a")
    door.node.reads._on_slave = lambda: True
    door.readers.number, door.readers.in_sync = 1, (1,)
    waiting = asyncio.create_task(door.pull(2, sysFlag=PARK))
    await until(lambda: door.node.reads.waiting == 1)
    await door.send(b"b")
    await door.send(b"c")
    answer = await waiting
    assert (answer.code, bodies(answer)) == (0, [b"c"])
    assert answer.fields["suggestWhichBrokerId"] == "1"


async def test_a_parked_pull_is_woken_by_its_queue(door: ReadingNode) -> None:
    parked = [
        asyncio.create_task(door.pull(0, queueId=number % 4, sysFlag=PARK)) for number in range(64)
    ]
    await until(lambda: door.node.reads.waiting == 64)
    await door.send(b"x", queue_id=2)
    woken = await asyncio.gather(*parked[2::4])
    assert {each.code for each in woken} == {0}
    assert door.node.reads.waiting == 48
    door.read.pulls.on_role_change()
    rest = await asyncio.gather(*(each for each in parked if each not in parked[2::4]))
    assert {each.code for each in rest} == {NOT_FOUND}


async def test_a_pull_is_answered_at_its_time(door: ReadingNode) -> None:
    answer = await door.pull(0, sysFlag=PARK, suspendTimeoutMillis=1)
    assert answer.code == NOT_FOUND


async def test_a_node_that_stops_names_another_one(door: ReadingNode) -> None:
    door.readers.in_sync = (3,)
    parked = asyncio.create_task(door.pull(0, sysFlag=PARK))
    await until(lambda: door.node.reads.waiting == 1)
    door.read.pulls.on_stop()
    answers = [await parked, await door.pull(0, sysFlag=PARK)]
    assert [each.code for each in answers] == [NOT_FOUND, NOT_FOUND]
    assert [each.fields["suggestWhichBrokerId"] for each in answers] == ["3", "3"]


async def test_a_slave_that_stops_names_the_master(door: ReadingNode) -> None:
    door.readers.number, door.readers.in_sync, door.readers.leading = 3, (3,), 2
    door.read.pulls.on_stop()
    assert (await door.pull(0, sysFlag=PARK)).fields["suggestWhichBrokerId"] == "2"


async def test_a_node_that_stops_alone_refuses_so_that_its_client_waits(door: ReadingNode) -> None:
    parked = asyncio.create_task(door.pull(0, sysFlag=PARK))
    await until(lambda: door.node.reads.waiting == 1)
    door.read.pulls.on_stop()
    for pull in (parked, door.pull(0, sysFlag=PARK)):
        with pytest.raises(RemotingRefusedError, match="stopping") as refusal:
            await pull
        assert refusal.value.code == 14


async def test_a_slave_in_sync_is_suggested(door: ReadingNode) -> None:
    await door.send(b"a")
    door.readers.in_sync = (1, 2)
    suggested = {
        (await door.pull(0, queueId=queue)).fields["suggestWhichBrokerId"] for queue in range(4)
    }
    assert suggested == {"1", "2"}


async def test_a_master_without_slaves_names_itself_and_not_the_one_before(
    door: ReadingNode,
) -> None:
    """Id 0 is the master that was killed, in the routes that clients have at that moment."""
    await door.send(b"a")
    door.readers.number = door.readers.leading = 2
    assert (await door.pull(0)).fields["suggestWhichBrokerId"] == "2"


# ---- subscriptions


async def test_tags_of_the_header_choose(door: ReadingNode) -> None:
    await door.send(b"a", tags="x")
    await door.send(b"b", tags="y")
    assert bodies(await door.pull(0, sysFlag=4, subscription="y || z")) == [b"b"]
    nothing = await door.pull(0, sysFlag=4, subscription="z")
    assert (nothing.code, offsets(nothing.fields)[0]) == (RETRY, "2")


async def test_what_a_filter_has_passed_is_passed_for_its_client(
    door: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandemlog_server.node.pulls.queue_reads.PASSED_WAIT_S", 0.001)
    await door.send(b"a", b"b", tags="x")
    answer = await door.pull(0, sysFlag=4 | PARK, subscription="z")
    assert (answer.code, offsets(answer.fields)[0]) == (RETRY, "2")


async def test_the_tags_of_a_heartbeat_choose(door: ReadingNode) -> None:
    await door.send(b"a", tags="x")
    await door.send(b"b", tags="y")
    assert bodies(await door.pull(0)) == [b"a", b"b"]
    door.heartbeats["g", "t"] = Subscribed("x", version=5)
    assert bodies(await door.pull(0, subVersion=5)) == [b"a"]


async def test_a_newer_subscription_than_that_of_the_heartbeat_gets_everything(
    door: ReadingNode,
) -> None:
    """Its client compares tags itself; the older one may leave out what is wanted now."""
    await door.send(b"a", tags="x")
    await door.send(b"b", tags="y")
    door.heartbeats["g", "t"] = Subscribed("x", version=5)
    assert bodies(await door.pull(0, subVersion=6)) == [b"a", b"b"]


async def test_a_class_filter_gets_everything(door: ReadingNode) -> None:
    await door.send(b"a", tags="x")
    assert bodies(await door.pull(0, sysFlag=12, subscription="com.example.Filter")) == [b"a"]


async def test_sql92_chooses_by_properties(door: ReadingNode) -> None:
    await door.send(b"a", properties={"n": "1"})
    await door.send(b"b", properties={"n": "9"})
    door.heartbeats["g", "t"] = Subscribed("n > 5", "SQL92")
    assert bodies(await door.pull(0, expressionType="SQL92")) == [b"b"]
    asked = {"sysFlag": 4, "subscription": "n < 5", "expressionType": "SQL92"}
    assert bodies(await door.pull(0, **asked)) == [b"a"]


async def test_sql92_without_its_subscription_is_refused_and_not_served_whole(
    door: ReadingNode,
) -> None:
    await door.send(b"a")
    with pytest.raises(RemotingRefusedError, match="no heartbeat") as refusal:
        await door.pull(0, expressionType="SQL92")
    assert refusal.value.code == 24


@pytest.mark.parametrize(("kind", "text"), [("SQL92", "n >"), ("TAG", "||")])
async def test_a_subscription_that_cannot_be_understood(
    door: ReadingNode, kind: str, text: str
) -> None:
    await door.send(b"a")
    with pytest.raises(RemotingRefusedError) as refusal:
        await door.pull(0, sysFlag=4, subscription=text, expressionType=kind)
    assert refusal.value.code == 23


# ---- offsets that come with a pull


async def pulled(door: ReadingNode, offset: int, **fields: object) -> Command:
    """As the session serves a pull: begun, and by a task if that is not enough."""
    header: dict[str, Any] = pull_header(offset, **fields)
    call, ends = call_of(11, **header), list[Command | None]()
    if not door.read.pulls.begin(call, lambda _, answer, __: ends.append(answer)):
        return await door.read.pulls.pull(call)
    await until(lambda: bool(ends))
    assert ends[0] is not None
    return ends[0]


async def test_an_offset_comes_with_a_pull(door: ReadingNode) -> None:
    await door.send(b"a", b"b", b"c")
    offsets = door.node.store.consumer_offsets
    await pulled(door, 1, sysFlag=1, commitOffset=1)
    await until(lambda: offsets.offset("g", "t", 0) == 1)  # a pull does not wait for a begin
    await pulled(door, 3, sysFlag=1, commitOffset=3)
    await until(lambda: offsets.offset("g", "t", 0) == 3)


async def test_a_pull_is_served_though_its_offset_is_not_committed(door: ReadingNode) -> None:
    await door.send(b"a")
    assert bodies(await pulled(door, 0, sysFlag=1, commitOffset=99)) == [b"a"]
    assert door.node.store.consumer_offsets.offset("g", "t", 0) is None


async def test_a_slave_commits_nothing(door: ReadingNode) -> None:
    await door.send(b"a")
    door.readers.number = 1
    await pulled(door, 0, sysFlag=1, commitOffset=1)
    await door.read.offsets._commits.settled("g")
    assert door.node.store.consumer_offsets.offset("g", "t", 0) is None


async def test_what_is_in_memory_needs_no_task(door: ReadingNode) -> None:
    await door.send(b"a", b"b", b"c")
    ends: list[tuple[Command | None, Exception | None]] = []

    def ended(call: RemotingCall, response: Command | None, problem: Exception | None) -> None:
        ends.append((response, problem))

    assert door.begin_pull(1, ended)
    [(answer, problem)] = ends
    assert answer is not None
    by_task = await door.pull(1)
    assert (answer.fields, answer.body, problem) == (by_task.fields, by_task.body, None)
    assert door.begin_pull(1, ended, commitOffset=1, sysFlag=1)  # it does not wait for the commit
    await until(lambda: door.node.store.consumer_offsets.offset("g", "t", 0) == 1)
    assert door.begin_pull(1, ended, commitOffset=2, sysFlag=1)
    assert len(ends) == 3
    assert not door.begin_pull(3, ended)
    assert not door.begin_pull(0, ended, subscription="a || b", sysFlag=4)
    door.read.pulls.on_stop()
    assert not door.begin_pull(1, ended)
    assert len(ends) == 3


async def test_who_is_ahead_of_the_dispatch_is_not_sent_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_wait, "DISPATCH_WAIT_S", 0.0)  # dispatch takes longer
    async with reading_node(tmp_path / "n0") as door:
        await door.send(b"a", b"b")
        store = door.node.store
        store.reput.stop()
        async with AsyncProducer(door.node.endpoints.listen) as producer:
            for body in (b"c", b"d"):
                await (await producer.send(Message("t", body, queue_id=0)))
        # it has read a slave, which is gone
        with pytest.raises(RequestRefusedError, match=r"ends at 2 so far.*pull again from 4"):
            await door.pull(4)
        store.reput.start()
        await until(lambda: store.reputed.value == store.confirmed.value)
        assert (await door.pull(9)).code == MOVED


@pytest.mark.parametrize(
    "more",
    [
        {"sysFlag": COMMIT | 4, "subscription": "a > 1", "expressionType": "SQL92"},
        {"sysFlag": COMMIT, "maxMsgNums": 200},  # a thread reads so many
    ],
    ids=["sql", "many"],
)
async def test_the_offset_of_a_pull_takes_back_no_newer_one_of_its_connection(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    async with reading_node(tmp_path / "n0") as door:
        await door.send(*[b"%d" % number for number in range(5)])
        queue: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": 0}
        assert (await door.ask(15, **queue, commitOffset=0)).code == 0
        ends: list[Any] = []
        # one read of the socket: a pull, and what a consumer says as it leaves
        header: dict[str, Any] = pull_header(1, commitOffset=1, suspendTimeoutMillis=0, **more)
        pull = call_of(11, **header)
        left = call_of(15, oneway=True, **queue, commitOffset=4)
        assert not door.read.pulls.begin(pull, lambda *each: ends.append(each))
        assert door.read.offsets.begin_commit(left, lambda *each: ends.append(each))
        await door.read.pulls.pull(pull)  # the task that the session makes of it
        assert (await door.ask(14, **queue)).fields["offset"] == "4"


async def test_a_new_master_sends_nobody_back_before_its_log_is_confirmed(
    door: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_wait, "DISPATCH_WAIT_S", 0.0)
    await door.send(b"a", b"b")
    store = door.node.store
    # its predecessor acknowledged two more, and they are not confirmed here yet
    begun = SimpleNamespace(last=SimpleNamespace(start_offset=store.log.wrote.value + 200))
    with monkeypatch.context() as patch:
        patch.setattr(store, "epochs", SimpleNamespace(table=begun))
        with pytest.raises(RequestRefusedError, match="pull again from 4"):
            await door.pull(4)
    assert (await door.pull(4)).code == MOVED


async def test_while_dispatch_catches_up_the_offset_of_a_pull_takes_back_no_newer_one(
    door: ReadingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_wait, "DISPATCH_WAIT_S", 0.0)
    await door.send(*[b"%d" % number for number in range(5)])
    queue: dict[str, Any] = {"consumerGroup": "g", "topic": "t", "queueId": 0}
    assert (await door.ask(15, **queue, commitOffset=0)).code == 0
    monkeypatch.setattr(door.read.pulls._dispatch, "_begin", 1 << 40)  # after a crash
    header: dict[str, Any] = pull_header(1, sysFlag=COMMIT, commitOffset=1, suspendTimeoutMillis=0)
    pull = call_of(11, **header)
    left = call_of(15, oneway=True, **queue, commitOffset=4)
    assert not door.read.pulls.begin(pull, lambda *_: None)
    assert door.read.offsets.begin_commit(left, lambda *_: None)
    await door.read.pulls.pull(pull)
    assert (await door.ask(14, **queue)).fields["offset"] == "4"
