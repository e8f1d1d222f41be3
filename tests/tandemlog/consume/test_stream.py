"""Pausing, seeking, lag, timeouts and commits of a running stream; members without a master."""

# ruff: noqa: SIM117 - which stream closes first is plain to see

import asyncio
import gc
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

from fakes.fake_cluster import FakeCluster
from fakes.fake_log import RefusedError
from tandemlog import Message, errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.consume.stream import AsyncStream
from tandemlog.format.constants import QUEUE_OFFSET_OFFSET
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import common_pb2

QUICK = ConnectionOptions(retry_timeout_ms=1_000, discovery_timeout_ms=300)
ZERO, ONE = ("orders", 0), ("orders", 1)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Topic orders with the messages 0..99 in turns over 2 queues."""
    async with FakeCluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 2)
        await fill(cluster, range(100))
        yield cluster


async def fill(cluster: FakeCluster, numbers: range) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send_many(
            None, [Message("orders", b"%d" % n, queue_id=n % 2) for n in numbers]
        )


async def polled(stream: AsyncStream, count: int) -> list[ReceivedMessage]:
    messages = [await stream.poll(10_000) for _ in range(count)]
    return [message for message in messages if message is not None]


def consumer(cluster: FakeCluster, **fields: Any) -> AsyncConsumer:
    return AsyncConsumer(cluster.endpoints, **{"connection": QUICK, **fields})


async def test_a_paused_queue_gives_nothing_and_continues_where_it_was(
    cluster: FakeCluster,
) -> None:
    async with consumer(cluster) as reader, await reader.follow("orders") as stream:
        first = await stream.poll(10_000)
        assert first is not None
        paused = ("orders", first.queue_id)
        stream.pause([paused])
        assert stream.paused == {paused}
        assert stream.assignment == {ZERO, ONE}
        rest = await polled(stream, 50)
        assert {message.queue_id for message in rest} == {1 - first.queue_id}
        assert len(rest) == 50
        assert await stream.poll(50) is None
        stream.resume([paused])
        assert stream.paused == frozenset()
        more = await polled(stream, 49)
        assert [message.queue_offset for message in more] == list(range(1, 50))
        with pytest.raises(errors.InvalidArgumentError, match="orders/7 is not read"):
            stream.pause([("orders", 7)])


async def test_a_message_in_hand_is_no_reason_to_deliver_a_paused_queue(
    cluster: FakeCluster,
) -> None:
    async with consumer(cluster) as reader, await reader.follow("orders", queues=[0]) as stream:
        seen = []
        messages = stream.messages()
        async for message in messages:
            seen.append(message.queue_offset)
            if len(seen) == 3:
                stream.pause([ZERO])
                break
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(messages), 0.05)
        assert seen == [0, 1, 2]
        stream.resume([ZERO])
        [again] = await polled(stream, 1)
        assert again.queue_offset == 3


async def test_a_loop_continues_behind_what_a_poll_has_taken(cluster: FakeCluster) -> None:
    async with consumer(cluster) as reader, await reader.follow("orders", queues=[0]) as stream:
        seen = []
        async for message in stream:
            seen.append(message.queue_offset)
            assert stream.positions == {ZERO: len(seen)}
            if len(seen) % 5 == 1:
                seen += [each.queue_offset for each in await polled(stream, 2)]
            if len(seen) >= 48:
                break
        assert seen == list(range(len(seen)))


async def test_a_loop_is_stopped_behind_the_message_that_the_caller_has(
    cluster: FakeCluster,
) -> None:
    """Something waits for the caller in the middle of a batch; the rest comes when it was done."""
    async with consumer(cluster) as reader, await reader.follow("orders", queues=[0]) as stream:
        seen = []
        follower = stream.follower
        async for message in stream:
            assert not follower.interrupted, "the loop went back first"
            seen.append(message.queue_offset)
            if message.queue_offset % 7 == 3:
                follower.interrupt()
            if len(seen) == 50:
                break
        assert seen == list(range(50))


async def test_seek(cluster: FakeCluster) -> None:
    later = cluster.log.now_ms + 1
    await fill(cluster, range(100, 104))
    async with (
        consumer(cluster, group="g") as reader,
        await reader.follow("orders", queues=[0]) as stream,
    ):

        async def next_offset() -> int:
            message = await stream.poll(10_000)
            assert message is not None
            return message.queue_offset

        assert [await next_offset() for _ in range(3)] == [0, 1, 2]
        await stream.seek(ZERO, 40)
        assert stream.positions == {ZERO: 40}
        assert [await next_offset() for _ in range(2)] == [40, 41]
        await stream.seek(ZERO, "earliest")
        assert await next_offset() == 0
        await stream.seek(ZERO, datetime.fromtimestamp(later / 1000, UTC))
        assert await next_offset() == 50
        await stream.seek(ZERO, "latest")
        assert await stream.poll(30) is None
        await stream.seek(ZERO, 7)
        await stream.commit()
        assert await reader.committed() == {ZERO: 7}
        with pytest.raises(errors.InvalidArgumentError, match="no offset -1"):
            await stream.seek(ZERO, -1)


async def test_seek_while_a_message_is_in_hand_commits_the_new_place(cluster: FakeCluster) -> None:
    async with consumer(cluster, group="g") as reader:
        async with await reader.follow("orders", queues=[0]) as stream:
            assert await stream.poll(10_000) is not None
            await stream.seek(ZERO, 30)
        assert await reader.committed() == {ZERO: 30}


async def test_lag_of_a_stream(cluster: FakeCluster) -> None:
    async with consumer(cluster) as reader, await reader.follow("orders", queues=[0]) as stream:
        assert (await stream.lag())[ZERO].messages == 50
        for _ in range(10):
            await stream.poll(10_000)
        lag = (await stream.lag())[ZERO]
        assert (lag.committed, lag.end, lag.messages) == (10, 50, 40)
        assert lag.seconds > 0


async def test_batches_of_at_most_so_many_messages(cluster: FakeCluster) -> None:
    async with consumer(cluster, group="g") as reader:
        async with await reader.follow("orders", queues=[0], until_end=True) as stream:
            sizes, seen = [], []
            while (batch := await stream.next_batch(max_messages=20)) is not None:
                sizes.append(len(batch))
                seen += [message.queue_offset for message in batch]
                assert stream.positions == {ZERO: seen[-1] + 1}
            assert sizes == [20, 20, 10]
            assert seen == list(range(50))
            assert await stream.poll(0) is None


@pytest.mark.parametrize("damaged", [0, 1 << 40])
async def test_a_damaged_queue_offset_skips_and_repeats_no_message(
    cluster: FakeCluster, damaged: int
) -> None:
    for number in (7, 20, 21):
        at = cluster.log.queues[ZERO][number]
        record = bytearray(cluster.log.records[at])
        record[QUEUE_OFFSET_OFFSET : QUEUE_OFFSET_OFFSET + 8] = damaged.to_bytes(8, "big")
        cluster.log.records[at] = bytes(record)
    async with (
        consumer(cluster) as reader,
        await reader.follow("orders", queues=[0], until_end=True) as stream,
    ):
        seen = []
        while (batch := await stream.next_batch(max_messages=7)) is not None:
            seen += [int(message.body) for message in batch]
        assert seen == list(range(0, 100, 2))


async def test_commits_of_a_message_a_batch_and_offsets(cluster: FakeCluster) -> None:
    by_hand = FollowOptions(auto_commit_ms=None)
    async with (
        consumer(cluster, group="g", options=by_hand) as reader,
        await reader.follow("orders", queues=[0]) as stream,
    ):
        message = await stream.poll(10_000)
        await stream.poll(10_000)
        assert message is not None
        await stream.commit(message)
        assert await reader.committed() == {ZERO: 1}
        batch = await stream.next_batch(max_messages=10)
        assert batch is not None
        await stream.commit_async(batch)
        assert await reader.committed() == {ZERO: 12}
        await stream.commit({ZERO: 5})
        assert await reader.committed() == {ZERO: 5}
        await stream.commit()
        assert await reader.committed() == {ZERO: 12}


@pytest.mark.parametrize("named", [False, True])
async def test_commits_by_hand_are_saved_in_their_order(cluster: FakeCluster, named: bool) -> None:
    by_hand = FollowOptions(auto_commit_ms=None)
    async with (
        consumer(cluster, group="g", options=by_hand) as reader,
        await reader.follow("orders", queues=[0]) as stream,
    ):
        [first] = await polled(stream, 1)
        earlier = stream.commit_async(first if named else None)
        [second] = await polled(stream, 1)
        await stream.commit(second if named else None)
        await earlier
        assert await reader.committed() == {ZERO: 2}


@pytest.mark.parametrize("named", [False, True])
async def test_the_automatic_commit_does_not_go_back_behind_one_by_hand(
    cluster: FakeCluster, named: bool
) -> None:
    async with consumer(cluster, group="g") as reader:
        async with await reader.follow("orders", queues=[0]) as stream:
            async for message in stream:
                if message.queue_offset == 4:
                    await stream.commit(message if named else None)
                    break
        assert await reader.committed() == {ZERO: 5}


async def test_a_failed_commit_is_told(cluster: FakeCluster) -> None:
    failed: list[tuple[errors.TandemlogError, dict[Any, int]]] = []
    often = FollowOptions(auto_commit_ms=1)
    async with consumer(cluster, group="g", options=often) as reader:
        stream = await reader.follow(
            "orders", queues=[0], on_commit_error=lambda *told: failed.append(told)
        )
        async with stream:
            cluster.promote("")
            assert await stream.poll(10_000) is not None
            async with asyncio.timeout(20):
                while not failed:
                    await stream.poll(10)
            cluster.promote("n0")
    error, offsets = failed[0]
    assert isinstance(error, errors.NodeUnavailableError)
    assert ZERO in offsets


async def test_a_member_without_a_master_stops_before_its_queues_can_be_given_away(
    cluster: FakeCluster,
) -> None:
    lost: list[Any] = []
    short = FollowOptions(session_timeout_ms=300)
    async with consumer(cluster, group="g", options=short) as reader:
        stream = await reader.follow("orders", on_lost=lambda _, queues: lost.append(queues))
        async with stream:
            for _ in range(3):
                assert await stream.poll(10_000) is not None
            cluster.promote("")
            async with asyncio.timeout(20):
                while not lost:
                    await stream.poll(10)
            assert (stream.assignment, lost) == (frozenset(), [[ZERO, ONE]])
            assert await stream.poll(20) is None
            cluster.promote("n1")
            async with asyncio.timeout(20):
                while len(stream.assignment) < 2:
                    await stream.poll(10)
            assert len(cluster.groups.group("g").members) == 1
            assert cluster.groups.group("g").epoch == 1, "nobody else was asked to move"


async def test_a_member_reads_on_while_the_master_changes(cluster: FakeCluster) -> None:
    lost: list[Any] = []
    async with consumer(cluster, group="g") as reader:
        stream = await reader.follow("orders", on_lost=lambda _, queues: lost.append(queues))
        async with stream:
            seen = [await stream.poll(10_000) for _ in range(3)]
            cluster.promote("n1")
            await fill(cluster, range(100, 110))
            while len(seen) < 110:
                seen.append(await stream.poll(10_000))
            assert all(message is not None for message in seen)
            assert (lost, len(stream.assignment)) == ([], 2)


async def test_a_member_that_is_fenced_joins_again(cluster: FakeCluster) -> None:
    calls: list[str] = []
    async with consumer(cluster, group="g") as reader:
        stream = await reader.follow(
            "orders",
            on_assigned=lambda *_: calls.append("assigned"),
            on_lost=lambda *_: calls.append("lost"),
        )
        async with stream:
            assert await stream.poll(10_000) is not None
            [member] = cluster.groups.group("g").members
            cluster.groups.expire("g", member)
            async with asyncio.timeout(20):
                while calls != ["assigned", "lost", "assigned"]:
                    await stream.poll(10)
            assert member not in cluster.groups.group("g").members


async def test_what_a_master_refuses_ends_the_join(cluster: FakeCluster) -> None:
    cluster.groups.refusal = RefusedError(common_pb2.INVALID_ARGUMENT, "session_timeout_ms: no")
    async with consumer(cluster, group="g") as reader:
        with pytest.raises(errors.InvalidArgumentError, match="session_timeout_ms"):
            await reader.follow("orders")
    with pytest.raises(errors.InvalidArgumentError, match="needs a group"):
        consumer(cluster, instance_id="i")


async def test_a_master_whose_slaves_are_slow_ends_no_member(cluster: FakeCluster) -> None:
    """A heartbeat without a settled answer may be repeated, and the master asks for that."""
    slow = RefusedError(common_pb2.OUTCOME_UNKNOWN, "not yet on every in-sync replica")
    async with consumer(cluster, group="g") as reader:
        stream = await reader.follow("orders")
        async with stream:
            assert await stream.poll(10_000) is not None
            cluster.groups.refusal = slow
            heard = len(cluster.groups.heartbeats)
            async with asyncio.timeout(20):
                while len(cluster.groups.heartbeats) < heard + 2:
                    await stream.poll(10)
            cluster.groups.refusal = None
            await fill(cluster, range(100, 202))
            numbers = [int(message.body) async for message in stream.messages(timeout_ms=500)]
            assert set(range(100, 202)) <= set(numbers)


async def test_a_node_of_before_says_what_to_do(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")

    for node in cluster.nodes.values():
        monkeypatch.setattr(node, "GroupHeartbeat", unknown)
        await node.stop()
        await node.start()
    async with consumer(cluster, group="g") as reader:
        with pytest.raises(errors.InvalidArgumentError, match=r"too old .*queues="):
            await reader.follow("orders")


async def test_a_consumer_that_is_not_closed_leaves_its_group(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.log.create_topic("empty", 2)
    reader = AsyncConsumer(cluster.endpoints, group="g")
    stream = await reader.follow("empty")
    del reader
    gc.collect()
    assert await stream.poll(10) is None
    assert cluster.groups.group("g").members  # the stream still uses it
    with pytest.warns(ResourceWarning, match="leaves group 'g'"):
        del stream
    async with asyncio.timeout(10):
        while cluster.groups.group("g").members:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert "leaves group 'g'" in caplog.text


@pytest.mark.parametrize("how", ["messages", "stream", "batches"])
async def test_a_step_that_is_cancelled_ends_nothing_and_loses_nothing(
    cluster: FakeCluster, how: str
) -> None:
    cluster.log.create_topic("empty", 2)
    async with (
        AsyncProducer(cluster.endpoints) as producer,
        AsyncConsumer(cluster.endpoints) as reader,
        await reader.follow("empty", options=FollowOptions(wait_ms=20)) as stream,
    ):
        steps: Any = {
            "messages": lambda: aiter(stream),
            "stream": lambda: stream,
            "batches": stream.batches,
        }[how]()
        found: list[bytes] = []
        for number in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(steps), 0.001)
            await producer.send_many("empty", [b"%d" % number], queues=0)
            while len(found) <= number:
                try:
                    step = await asyncio.wait_for(anext(steps), 0.003)
                except TimeoutError:
                    continue
                found += [each.body for each in step] if how == "batches" else [step.body]
        assert found == [b"%d" % number for number in range(20)]
