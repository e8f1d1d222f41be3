"""Consumers of one group share the queues of a topic: on a real node, and on the fake of it."""

# ruff: noqa: SIM117 - which stream closes first is plain to see

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster
from fakes.inner_node import config, running
from tandemlog import AsyncAdmin, ReceivedMessage, errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.group.membership import Membership
from tandemlog.consume.stream import AsyncStream
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer

QUICK = ConnectionOptions(retry_timeout_ms=2_000, discovery_timeout_ms=300)
ALL = frozenset(("orders", queue) for queue in range(4))
Queue = tuple[str, int]


@pytest.fixture(params=["node", "fake"])
async def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """Topic orders with the messages 0..99 in turns over 4 queues."""
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "node":
            node = await stack.enter_async_context(running(config(tmp_path)))
            endpoint = node.endpoints.listen
        else:
            endpoint = (await stack.enter_async_context(FakeCluster())).endpoints[0]
        async with AsyncAdmin(endpoint) as admin:
            await admin.create_topic("orders", 4)
        await fill(endpoint, range(100))
        yield endpoint


async def fill(endpoint: str, numbers: range, topic: str = "orders") -> None:
    async with AsyncProducer(endpoint) as producer:
        messages = [Message(topic, b"%d" % n, queue_id=n % 4) for n in numbers]
        await producer.send_many(None, messages)


def consumer(endpoint: str, **fields: Any) -> AsyncConsumer:
    return AsyncConsumer(endpoint, **{"group": "g", "connection": QUICK, **fields})


async def until(stream: AsyncStream, queues: int, *others: AsyncStream) -> None:
    """Until `stream` owns so many queues; all of them look after their callbacks meanwhile."""
    async with asyncio.timeout(20):
        while len(stream.assignment) != queues:
            for each in (stream, *others):
                await each.poll(5)


async def read_on(stream: AsyncStream) -> None:
    while True:
        await stream.poll(1_000)


async def drain(stream: AsyncStream, found: list[int], count: int) -> None:
    async with asyncio.timeout(20):
        while len(found) < count:
            message = await stream.poll(1_000)
            if message is not None:
                found.append(int(message.body))


async def test_one_member_has_all_queues_and_two_share(endpoint: str) -> None:
    async with consumer(endpoint) as one, consumer(endpoint) as two:
        async with await one.follow("orders") as first:
            await until(first, 4)
            assert first.assignment == ALL
            async with await two.follow("orders") as second:
                await until(second, 2, first)
                assert not first.assignment & second.assignment
                assert first.assignment | second.assignment == ALL
            await until(first, 4)


async def test_every_message_is_handled_by_one_of_the_members(endpoint: str) -> None:
    found: list[int] = []
    async with consumer(endpoint) as one, consumer(endpoint) as two:
        async with await one.follow("orders") as first, await two.follow("orders") as second:
            await until_shared(first, second, found)
            await fill(endpoint, range(100, 400))
            async with asyncio.timeout(20):
                while len(set(found)) < 400:
                    for stream in (first, second):
                        message = await stream.poll(20)
                        if message is not None:
                            found.append(int(message.body))
            for stream in (first, second):
                assert await stream.poll(1) is None, "the last message is done now"
    assert sorted(found) == list(range(400))
    async with consumer(endpoint) as after:
        assert sum((await after.committed("orders")).values()) == 400


async def until_shared(first: AsyncStream, second: AsyncStream, found: list[int]) -> None:
    async with asyncio.timeout(20):
        while len(first.assignment) != 2 or len(second.assignment) != 2:
            for stream in (first, second):
                message = await stream.poll(5)
                if message is not None:
                    found.append(int(message.body))


async def test_a_queue_in_hand_is_given_up_when_the_caller_is_done(endpoint: str) -> None:
    async with consumer(endpoint) as one, consumer(endpoint) as two:
        async with await one.follow("orders") as first:
            message = await first.poll(10_000)
            assert message is not None
            held = ("orders", message.queue_id)
            kept = set(ALL) - {held}
            async with await two.follow("orders") as second:
                # all others may move; the one in hand stays until the caller comes back
                async with asyncio.timeout(20):
                    while not second.assignment:
                        await second.poll(5)
                assert held not in second.assignment
                assert second.assignment <= kept
                await until(second, 2, first)
            committed = await one.committed("orders")
            assert not first.follower.progress.leaving
            assert all(offset >= 0 for offset in committed.values())


async def test_callbacks_run_in_the_callers_task(endpoint: str) -> None:
    calls: list[tuple[str, Any]] = []
    tasks = set()

    async def assigned(stream: AsyncStream, queues: list[Queue]) -> None:
        tasks.add(asyncio.current_task())
        calls.append(("assigned", queues))
        for queue in queues:
            await stream.seek(queue, 24)

    async def revoked(stream: AsyncStream, queues: list[Queue]) -> None:
        tasks.add(asyncio.current_task())
        await stream.commit()
        calls.append(("revoked", queues))

    by_hand = FollowOptions(auto_commit_ms=None)
    async with consumer(endpoint, options=by_hand) as one, consumer(endpoint) as two:
        stream = await one.follow("orders", on_assigned=assigned, on_revoked=revoked)
        async with stream:
            found: list[int] = []
            await drain(stream, found, 4)
            assert sorted(found) == [96, 97, 98, 99]
            assert calls == [("assigned", sorted(ALL))]
            async with await two.follow("orders") as second:
                await until(second, 2, stream)
                moved = calls[1]
                assert moved == ("revoked", sorted(second.assignment))
                committed = await two.committed("orders")
                assert {committed[queue] for queue in second.assignment} == {25}
                left = sorted(stream.assignment)
        assert calls[2] == ("revoked", left)
    assert tasks == {asyncio.current_task()}


async def test_a_late_commit_is_refused_by_name(endpoint: str) -> None:
    async with consumer(endpoint) as one, consumer(endpoint) as two:
        async with await one.follow("orders") as first:
            messages: dict[Queue, ReceivedMessage] = {}
            while len(messages) < 4:
                message = await first.poll(10_000)
                assert message is not None
                messages["orders", message.queue_id] = message
            async with await two.follow("orders") as second:
                await until(second, 2, first)
                lost = sorted(second.assignment)[0]
                with pytest.raises(errors.FencedMemberError, match=f"orders/{lost[1]}") as told:
                    await first.commit(messages[lost])
                assert told.value.refused == (lost,)
                kept = sorted(first.assignment)[0]
                await first.commit(messages[kept])
                assert (await one.committed())[kept] == messages[kept].queue_offset + 1
                with pytest.raises(errors.GroupHasMembersError):
                    await two.commit({kept: 0})
                with pytest.raises(errors.FencedMemberError):
                    await first.commit_async({lost: 1})


async def test_the_master_refuses_what_a_member_believed_to_own(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[tuple[Exception, dict[Queue, int]]] = []
    async with consumer(endpoint) as one:
        stream = await one.follow(
            "orders", on_commit_error=lambda error, offsets: failed.append((error, offsets))
        )
        async with stream:
            message = await stream.poll(10_000)
            assert message is not None
            monkeypatch.setattr(Membership, "identity", ("of before", 1))
            with pytest.raises(errors.FencedMemberError):
                await stream.commit_async(message)
            await stream.poll(1)
            assert [offsets for _, offsets in failed] == [
                {("orders", message.queue_id): message.queue_offset + 1}
            ]


async def test_until_end_with_a_group(endpoint: str) -> None:
    async with consumer(endpoint) as one, consumer(endpoint) as two:

        async def read(reader: AsyncConsumer) -> list[int]:
            async with await reader.follow("orders", until_end=True) as stream:
                return [int(message.body) async for message in stream]

        halves = await asyncio.gather(read(one), read(two))
        assert sorted({*halves[0], *halves[1]}) == list(range(100))
        assert await read(one) == []
        assert sum((await one.committed()).values()) == 100


async def test_start_counts_for_topics_without_a_committed_offset(endpoint: str) -> None:
    async with consumer(endpoint) as one, AsyncAdmin(endpoint) as admin:
        await admin.create_topic("paid", 4)
        await fill(endpoint, range(100, 104), "paid")
        await one.commit({("orders", 0): 20})

        async def read(topic: str, start: Any) -> list[int]:
            async with await one.follow(topic, start=start, until_end=True) as stream:
                return sorted([int(message.body) async for message in stream])

        assert await read("paid", "latest") == []
        behind = [number for number in range(100) if number % 4 or number >= 80]
        assert await read("orders", "latest") == behind
        with pytest.raises(errors.InvalidArgumentError, match="queues="):
            await read("orders", {("orders", 0): 3})


async def bodies(stream: AsyncStream, count: int) -> list[int]:
    """`count` of them, however long they take, and what else comes a moment later."""
    found: list[int] = []
    await drain(stream, found, count)
    return sorted([*found, *[int(message.body) async for message in stream.messages(300)]])


@pytest.mark.parametrize("auto_commit_ms", [None, 60_000])
@pytest.mark.parametrize("start", ["latest", "time"])
async def test_what_is_sent_while_no_member_is_there_is_not_lost(
    endpoint: str, start: str, auto_commit_ms: int | None
) -> None:
    """Whatever the group had delivered to it, and also where a topic got a queue meanwhile."""
    options = FollowOptions(auto_commit_ms=auto_commit_ms)
    later = datetime.now(UTC) + timedelta(hours=1)
    begin: Any = "latest" if start == "latest" else later
    async with AsyncAdmin(endpoint) as admin:
        async with consumer(endpoint, options=options) as one:
            async with await one.follow("orders", start=begin) as stream:
                await until(stream, 4)
                # durable at once: nobody has asked for a message, and nothing was delivered
                assert await one.committed() == stream.positions == dict.fromkeys(ALL, 25)
        await fill(endpoint, range(100, 104))
        await admin.create_topic("orders", 5, update=True)
        async with AsyncProducer(endpoint) as producer:
            await producer.send_many("orders", [b"104"], queues=4)
        async with consumer(endpoint, options=options) as two:
            async with await two.follow("orders", start=begin) as stream:
                assert await bodies(stream, 5) == [100, 101, 102, 103, 104]


async def test_what_comes_after_the_stream_began_is_read_from_its_beginning(
    endpoint: str,
) -> None:
    watchful = FollowOptions(refresh_ms=10)
    async with AsyncAdmin(endpoint) as admin, consumer(endpoint, options=watchful) as one:
        topics: list[str | re.Pattern[str]] = ["orders", re.compile("later-.*")]
        async with await one.follow(topics, start="latest") as stream:
            await admin.create_topic("orders", 5, update=True)
            await admin.create_topic("later-1", 4)
            async with AsyncProducer(endpoint) as producer:
                await producer.send_many("orders", [b"100", b"101"], queues=4)
            await fill(endpoint, range(102, 106), "later-1")
            found: list[int] = []
            await drain(stream, found, 6)
            assert sorted(found) == [100, 101, 102, 103, 104, 105]


async def test_a_group_passes_what_its_tags_skip(endpoint: str) -> None:
    often = FollowOptions(auto_commit_ms=10, wait_ms=60_000)
    async with AsyncAdmin(endpoint) as admin, consumer(endpoint, options=often) as one:
        async with await one.follow("orders", tags="none") as stream:
            async with asyncio.timeout(20):
                while sum([lag.messages for lag in await admin.lag("g")]) or not stream.positions:
                    await stream.poll(20)
            assert stream.positions == dict.fromkeys(ALL, 25)


SLOW: dict[str, Any] = {"max_poll_interval_ms": 250}


async def left(endpoint: str) -> None:
    """Until the master has heard that the group has no member any more."""
    async with AsyncAdmin(endpoint) as admin, asyncio.timeout(20):
        while (await admin.describe_group("g")).members:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_slow_handler_alone_in_its_group_gets_on(endpoint: str) -> None:
    """Its member leaves while it handles each message, and no message comes a second time."""
    lost: list[list[Queue]] = []
    options = FollowOptions(auto_commit_ms=60_000, **SLOW)
    async with consumer(endpoint, options=options) as one:
        stream = await one.follow(
            "orders", tags=None, on_lost=lambda _, queues: lost.append(queues)
        )
        seen = []
        async with stream, asyncio.timeout(60):
            async for message in stream:
                seen.append((message.queue_id, message.queue_offset))
                if len(seen) == 4:
                    break
                await left(endpoint)
        assert len(set(seen)) == 4
        assert len(lost) == 3


async def test_a_slow_handler_commits_by_hand_what_nobody_else_has(endpoint: str) -> None:
    options = FollowOptions(auto_commit_ms=None, **SLOW)
    async with consumer(endpoint, options=options) as one, asyncio.timeout(60):
        async with await one.follow("orders") as stream:
            message = await stream.poll(10_000)
            assert message is not None
            queue = message.topic, message.queue_id
            await left(endpoint)
            await stream.commit()
            assert (await one.committed())[queue] == 1
            await stream.commit(message)
            again = await stream.poll(10_000)
            assert again is not None
            assert (again.queue_id, again.queue_offset) != (message.queue_id, 0)


async def test_a_slow_handler_is_told_that_another_member_had_its_queue(endpoint: str) -> None:
    options = FollowOptions(auto_commit_ms=None, **SLOW)
    auto = FollowOptions(auto_commit_ms=60_000, **SLOW)
    failed: list[errors.TandemlogError] = []
    async with consumer(endpoint, options=options) as one, consumer(endpoint) as two:
        async with await one.follow("orders") as stream, asyncio.timeout(60):
            message = await stream.poll(10_000)
            assert message is not None
            queue = message.topic, message.queue_id
            await left(endpoint)
            async with await two.follow("orders") as other:
                await until(other, 4)
            for what in (None, message):
                with pytest.raises(errors.FencedMemberError, match="max_poll_interval_ms"):
                    await stream.commit(what)
            assert (await one.committed())[queue] == 0
    async with consumer(endpoint, options=auto) as one, consumer(endpoint) as two:
        stream = await one.follow("orders", on_commit_error=lambda error, _: failed.append(error))
        async with stream, asyncio.timeout(60):
            assert await stream.poll(10_000) is not None
            await left(endpoint)
            async with await two.follow("orders") as other:
                await until(other, 4)
            while not failed:
                await stream.poll(10)
    assert isinstance(failed[0], errors.FencedMemberError)


async def test_an_offset_that_was_set_by_hand_is_not_overwritten_by_who_left(
    endpoint: str,
) -> None:
    options = FollowOptions(auto_commit_ms=None, **SLOW)
    async with consumer(endpoint, options=options) as one, AsyncAdmin(endpoint) as admin:
        async with await one.follow("orders") as stream, asyncio.timeout(60):
            message = await stream.poll(10_000)
            assert message is not None
            await left(endpoint)
            await admin.reset_offsets("g", to="latest", dry_run=True)
            await stream.commit()
            await admin.reset_offsets("g", to="latest")
            with pytest.raises(errors.FencedMemberError):
                await stream.commit({(message.topic, message.queue_id): 1})
            assert (await one.committed()) == dict.fromkeys(ALL, 25)


async def test_queues_by_hand_make_no_member(endpoint: str) -> None:
    async with consumer(endpoint) as one, consumer(endpoint) as two, AsyncAdmin(endpoint) as admin:
        async with (
            await one.follow("orders", queues=[0, 1]) as first,
            await two.follow("orders", queues=[1]) as second,
        ):
            assert first.assignment == {("orders", 0), ("orders", 1)}
            assert second.assignment == {("orders", 1)}
            await two.commit({("orders", 1): 1})
            assert (await admin.describe_group("g")).members == ()


async def test_a_static_member_comes_back_to_its_queues(endpoint: str) -> None:
    async with consumer(endpoint) as other, consumer(endpoint, instance_id="a") as one:
        async with await other.follow("orders") as rest:
            async with await one.follow("orders") as stream:
                await until(stream, 2, rest)
                had = stream.assignment
            async with consumer(endpoint, instance_id="a") as again:
                async with await again.follow("orders") as stream:
                    await until(stream, 2, rest)
                    assert stream.assignment == had
                    assert len(rest.assignment) == 2


async def test_who_takes_over_an_instance_ends_the_other_one(endpoint: str) -> None:
    lost: list[list[Queue]] = []
    async with (
        consumer(endpoint, instance_id="a") as one,
        consumer(endpoint, instance_id="a") as two,
    ):
        stream = await one.follow("orders", on_lost=lambda _, queues: lost.append(queues))
        async with stream:
            await until(stream, 4)
            async with await two.follow("orders") as second:
                await until(second, 4)
                with pytest.raises(errors.FencedInstanceError, match="'a'"):
                    await asyncio.wait_for(read_on(stream), 20)
                assert lost == [sorted(ALL)]


async def test_a_caller_that_does_not_come_back_loses_its_queues(endpoint: str) -> None:
    calls: list[tuple[str, list[Queue]]] = []
    stuck = FollowOptions(max_poll_interval_ms=200)
    async with consumer(endpoint, options=stuck) as one, consumer(endpoint) as two:
        stream = await one.follow(
            "orders",
            on_assigned=lambda _, queues: calls.append(("assigned", queues)),
            on_revoked=lambda _, queues: calls.append(("revoked", queues)),
            on_lost=lambda _, queues: calls.append(("lost", queues)),
        )
        async with stream:
            message = await stream.poll(10_000)
            assert message is not None
            async with await two.follow("orders") as second:
                await until(second, 4)
                with pytest.raises(errors.FencedMemberError):
                    await stream.commit(message)
                await until(stream, 2, second)
            assert [name for name, _ in calls[:3]] == ["assigned", "lost", "assigned"]


async def test_a_pattern_follows_topics_that_come_later(endpoint: str) -> None:
    watchful = FollowOptions(refresh_ms=20)
    async with AsyncAdmin(endpoint) as admin:
        for group in ("g", None):
            async with consumer(endpoint, group=group, options=watchful) as one:
                later = f"orders-{group}"
                async with await one.follow([re.compile(r"orders-\w+"), f"^{later}"]) as stream:
                    await admin.create_topic(later, 4)
                    await fill(endpoint, range(8), later)
                    found: list[int] = []
                    async with asyncio.timeout(20):
                        while len({*found}) < 8:
                            message = await stream.poll(1_000)
                            if message is not None and message.topic == later:
                                found.append(int(message.body))
                    assert "orders" not in {topic for topic, _ in stream.assignment}
    async with consumer(endpoint) as one:
        with pytest.raises(errors.InvalidArgumentError, match="regular expression"):
            await one.follow("^(")


async def test_members_with_different_topics(endpoint: str) -> None:
    async with AsyncAdmin(endpoint) as admin:
        await admin.create_topic("bills", 2)
    async with (
        consumer(endpoint) as one,
        consumer(endpoint) as two,
        await one.follow("orders") as first,
        await two.follow(["orders", "bills"]) as second,
    ):
        async with asyncio.timeout(20):
            while len(first.assignment | second.assignment) < 6:
                for stream in (first, second):
                    await stream.poll(5)
        bills = {("bills", 0), ("bills", 1)}
        assert bills <= second.assignment
        assert not bills & first.assignment


async def test_the_end_is_found_at_once_where_the_tags_match_nothing(endpoint: str) -> None:
    patient = FollowOptions(wait_ms=600_000)
    async with consumer(endpoint, group=None, options=patient) as reader:
        async with await reader.follow("orders", tags="none", until_end=True) as stream:
            assert await asyncio.wait_for(stream.next_batch(), 20) is None
