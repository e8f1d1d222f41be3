"""Groups that pop and their committed offsets: moved to pulls and back, set back and forth."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.inner_node import until
from fakes.popping_node import (
    ACK,
    GROUP,
    SET_MODE,
    TOPIC,
    Popper,
    connected,
    popping_node,
    receipt_of,
)
from fakes.remoting_calls import records_in
from tandemlog.format.record.record import Record
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.remoting.pop import pop_offsets

STATS, RESET, PULL = 208, 222, 11
NONE_FOUND = 210


@pytest.fixture
async def popper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Popper]:
    monkeypatch.setattr(pop_offsets, "LOOK_S", 0.005)
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        await set_mode(popper, "POP")
        yield popper


async def set_mode(popper: Popper, mode: str) -> None:
    row = {"topic": TOPIC, "consumerGroup": GROUP, "mode": mode}
    assert (await popper.ask(SET_MODE, row)).code == 0


def committed(popper: Popper) -> dict[int, int]:
    return popper.node.store.consumer_offsets.of_pair(TOPIC, GROUP)


async def acknowledge_all(popper: Popper) -> None:
    await acknowledge(popper, await popper.popped())


async def acknowledge(popper: Popper, records: list[Record]) -> None:
    for each in records:
        assert (await popper.say(ACK, receipt_of(each))).code == 0


async def test_a_group_that_pops_has_an_offset_where_its_first_message_is_not_done(
    popper: Popper,
) -> None:
    await popper.put(b"a", b"b", b"c")
    first, _, third = await popper.popped()
    for each in (first, third):
        await popper.say(ACK, receipt_of(each))
    await until(lambda: committed(popper) == {0: 1})


async def test_a_group_is_moved_to_pulls_and_back(popper: Popper) -> None:
    await popper.put(b"a", b"b")
    await acknowledge_all(popper)
    await until(lambda: committed(popper) == {0: 2})
    await set_mode(popper, "PULL")
    await popper.put(b"c", b"d")
    about = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    assert (await popper.ask(14, **about)).fields["offset"] == "2"
    assert (await popper.ask(15, **about, commitOffset=3)).code == 0
    await set_mode(popper, "POP")
    await until(lambda: popper.node.work.term.engine.groups.queue(GROUP, TOPIC, 0).floor == 3)  # type: ignore[union-attr]
    assert [each.body for each in await popper.popped()] == [b"d"]


async def reset(popper: Popper, offset: int) -> None:
    answer = await popper.ask(
        RESET, group=GROUP, topic=TOPIC, timestamp=-1, isForce="true", offset=offset, queueId=0
    )
    assert answer.code == 0, answer.remark


async def test_an_offset_is_set_back_and_the_group_begins_again_there(popper: Popper) -> None:
    await popper.put(b"a", b"b", b"c")
    await acknowledge_all(popper)
    await reset(popper, 1)
    assert [each.body for each in await popper.popped()] == [b"b", b"c"]
    assert committed(popper) == {0: 1}


async def test_an_offset_is_set_forward(popper: Popper) -> None:
    await popper.put(b"a", b"b", b"c")
    [first] = await popper.popped(1)
    await reset(popper, 2)
    assert [each.body for each in await popper.popped()] == [b"c"]
    assert (await popper.say(ACK, receipt_of(first))).code == 0


async def test_what_was_set_back_is_forgotten_by_the_log_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_offsets, "LOOK_S", 0.005)
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        await set_mode(popper, "POP")
        await popper.put(b"a", b"b")
        await acknowledge_all(popper)
        await reset(popper, 0)
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        assert [each.body for each in await popper.popped()] == [b"a", b"b"]


async def test_a_group_without_the_mode_begins_where_it_was_set_too(tmp_path: Path) -> None:
    """As a proxy pops, and RocketMQ's OffsetResetForPopIT: nobody has set a mode."""
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        await popper.put(b"a", b"b", b"c", b"d")
        first, *_ = await popper.popped()
        await reset(popper, 2)
        assert [each.body for each in await popper.popped()] == [b"c", b"d"]
        await reset(popper, 0)
        found = await popper.popped()
        assert [each.body for each in found] == [b"a", b"b", b"c", b"d"]
        # nothing of what went before counts, and what was leased before is acknowledged no more
        assert {each.reconsume_times for each in found} == {0}
        assert (await popper.say(ACK, receipt_of(first))).code != 0
        await acknowledge(popper, found)
        await node.work.sync(GROUP)
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        assert (await popper.pop()).code == NONE_FOUND


async def test_a_group_in_order_begins_where_it_was_set(popper: Popper) -> None:
    await popper.put(b"a", b"b", b"c")
    await popper.popped(2, order="true")
    await reset(popper, 1)
    found = await popper.popped(order="true")
    assert [(each.body, each.reconsume_times) for each in found] == [(b"b", 0), (b"c", 0)]
    await acknowledge(popper, found)
    await reset(popper, 0)
    assert [each.body for each in await popper.popped(1, order="true")] == [b"a"]


async def test_other_queues_keep_what_they_have_done_and_leased(popper: Popper) -> None:
    await popper.put(b"a", b"b")
    await popper.put(b"c", b"d", b"e", queue_id=1)
    found = {each.body: each for each in await popper.popped()}
    await acknowledge(popper, [found[b"a"], found[b"d"]])
    await reset(popper, 0)
    assert [each.body for each in await popper.popped()] == [b"a", b"b"]
    assert (await popper.say(ACK, receipt_of(found[b"c"]))).code == 0
    await until(lambda: committed(popper).get(1) == 2)


async def test_a_pop_that_waits_gets_what_is_set_back(popper: Popper) -> None:
    await popper.put(b"a")
    await acknowledge_all(popper)
    waits = asyncio.create_task(popper.pop(pollTime=10_000))
    async with connected(popper.node) as other:
        await reset(other, 0)
        assert [each.body for each in records_in((await waits).body)] == [b"a"]


async def test_a_failed_look_does_not_end_the_looks(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    async def fails(*_: object) -> None:
        looks.append(1)
        if len(looks) < 3:
            raise OSError("no room")

    monkeypatch.setattr(pop_offsets.PopOffsets, "look", fails)
    await until(lambda: len(looks) > 3)


@pytest.mark.parametrize("mode", [True, False], ids=["with the mode", "without it"])
async def test_a_reset_by_our_own_tool_counts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: bool
) -> None:
    monkeypatch.setattr(pop_offsets, "LOOK_S", 0.005)
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        if mode:
            row = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP"}
            assert (await popper.ask(SET_MODE, row)).code == 0
        await popper.put(b"a", b"b", b"c")
        for each in await popper.popped():
            await popper.say(ACK, receipt_of(each))
        offsets = node.store.consumer_offsets
        if mode:
            await until(lambda: offsets.of_pair(TOPIC, GROUP) == {0: 3})
        request = broker_pb2.CommitOffsetsRequest(group=GROUP, without_members=True)
        request.offsets.add(topic=TOPIC, queue_id=0, queue_offset=1)
        response = await node.group_members.commit(request, Caller("ipv4:127.0.0.1:1"))
        assert not response.error.code
        assert offsets.of_pair(TOPIC, GROUP) == {0: 1}
        assert [each.body for each in await popper.popped()] == [b"b", b"c"]
