"""Work queues of three real nodes whose masters change while consumers work."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from fakes.batches import Put, batch_of
from tandemlog.format.lease.policy import AckResult, GroupPolicy
from tandemlog.testing.node_clock import NodeClock
from tandemlog.testing.node_group import NodeGroup
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.node import Node
from tandemlog_server.node.work.work_requests import ReceiveRequest, ReceiveResult
from tandemlog_server.storage.metadata.topics import TopicConfig

GROUP = "billing"
ME = Caller("test:1")
MESSAGES = 120
QUICK = {"work": {"grace_ms": 0, "write_interval_ms": 5}}


@pytest.fixture
def clock() -> NodeClock:
    return NodeClock()


@pytest.fixture
async def group(clock: NodeClock) -> AsyncIterator[NodeGroup]:
    group = NodeGroup(3, clock, QUICK)
    await group.start()
    try:
        yield group
    finally:
        await group.stop()


def master(group: NodeGroup) -> Node:
    name = group.master
    assert name is not None
    node = group.place(name).node
    assert node is not None
    return node


async def put(node: Node, count: int, first: int = 0) -> None:
    node.store.create_topic(TopicConfig("orders", 2, 2), update=True)
    host = node.store.config.store_host
    puts = [
        Put("orders", number % 2, b"%d" % (first + number), b"", store_host=host)
        for number in range(count)
    ]
    end = node.store.put(batch_of(puts)).end_offset
    async with asyncio.timeout(10):
        while node.store.reputed.value < end:  # noqa: ASYNC110 - dispatch is a thread
            await asyncio.sleep(0.01)


async def receive(node: Node, count: int, wait_ms: int = 2_000) -> ReceiveResult:
    request = ReceiveRequest(GROUP, ("orders",), count, 30_000, wait_ms=wait_ms)
    async with asyncio.timeout(20):
        return await node.work.receive(request, ME)


def handles(result: ReceiveResult) -> bytes:
    return b"".join(each.handles for each in result.messages)


def places(result: ReceiveResult) -> list[tuple[int, int]]:
    return [
        (each.queue_id, offset)
        for each in result.messages
        for offset in each.queue_offsets.tolist()
    ]


async def change_master(group: NodeGroup) -> None:
    old = group.master
    assert old is not None
    await group.stop_node(old)
    await group.wait_master()
    await group.start_node(old)


async def test_what_is_confirmed_as_done_does_not_come_again(group: NodeGroup) -> None:
    """Each message is handled; after a confirmed acknowledgement it never comes again."""
    await put(master(group), MESSAGES)
    confirmed: set[tuple[int, int]] = set()
    handled: Counter[tuple[int, int]] = Counter()
    rounds = 0
    while len(confirmed) < MESSAGES:
        rounds += 1
        assert rounds < 200
        if rounds in (4, 9):
            await change_master(group)
        got = await receive(master(group), 10)
        assert confirmed.isdisjoint(places(got))
        handled.update(places(got))
        results = await master(group).work.ack(GROUP, handles(got), sync=True)
        done = [place for place, each in zip(places(got), results, strict=True) if each < 2]
        confirmed.update(done)
    assert set(handled) == {(queue, offset) for queue in range(2) for offset in range(60)}


async def test_a_handle_is_good_on_the_next_master(group: NodeGroup) -> None:
    await put(master(group), 6)
    got = await receive(master(group), 6)
    more = await receive(master(group), 6)
    await change_master(group)
    taken = handles(got) + handles(more)
    results = await master(group).work.ack(GROUP, taken, sync=True)
    assert set(results.tolist()) == {AckResult.OK}
    assert not (await receive(master(group), 6, wait_ms=100)).messages


async def test_a_date_that_a_test_moves_ends_leases(group: NodeGroup, clock: NodeClock) -> None:
    await put(master(group), 1)
    await receive(master(group), 1)
    waiting = asyncio.create_task(receive(master(group), 1, wait_ms=20_000))
    await asyncio.sleep(0)
    clock.advance(31)
    assert (await waiting).messages[0].attempts.tolist() == [2]


async def test_attempts_errors_and_policy_are_known_to_the_next_master(group: NodeGroup) -> None:
    await master(group).work.set_policy(GROUP, GroupPolicy(3))
    await put(master(group), 1)
    got = await receive(master(group), 1)
    await master(group).work.nack(GROUP, handles(got), delay_ms=0, error="no customer")
    await master(group).work.sync(GROUP)
    await change_master(group)
    again = await receive(master(group), 1)
    assert again.messages[0].attempts.tolist() == [2]
    assert dict(again.messages[0].last_errors) == {0: "no customer"}
    assert await master(group).work.policy(GROUP) == GroupPolicy(3)
