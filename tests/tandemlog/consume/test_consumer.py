"""The asyncio consumer against real gRPC servers."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer

QUICK = ConnectionOptions(retry_timeout_ms=1_000, discovery_timeout_ms=300)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """A master and two slaves; topic orders with messages 0..99 over 4 queues, tags a and b."""
    async with FakeCluster(slaves=2) as cluster:
        for topic in ("orders", "bills", "empty"):
            cluster.log.create_topic(topic, 4)
        await fill(cluster, range(100))
        yield cluster


async def fill(cluster: FakeCluster, numbers: range, topic: str = "orders") -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        messages = [Message(topic, b"%d" % n, tags="ab"[n % 2], queue_id=n % 4) for n in numbers]
        if messages:
            await producer.send_many(None, messages)


def consumer(cluster: FakeCluster, **fields: object) -> AsyncConsumer:
    return AsyncConsumer(cluster.endpoints, connection=QUICK, **fields)  # type: ignore[arg-type]


async def read_all(consumer: AsyncConsumer, topics: str | list[str], **fields: object) -> list[int]:
    async with await consumer.follow(topics, until_end=True, **fields) as stream:  # type: ignore[arg-type]
        return sorted([int(message.body) async for message in stream])


async def test_a_pull_gives_messages_and_where_to_go_on(cluster: FakeCluster) -> None:
    async with consumer(cluster) as reader:
        batch = await reader.pull("orders", 1, 3, max_messages=5)
        assert [message.body for message in batch] == [b"13", b"17", b"21", b"25", b"29"]
        assert (batch.status, batch.next_offset, batch.min_offset, batch.max_offset) == (
            "FOUND",
            8,
            0,
            25,
        )
        assert (await reader.pull("orders", 1, 25)).status == "OFFSET_OVERFLOW_ONE"
        assert (await reader.pull("orders", 1, 99)).status == "OFFSET_OVERFLOW_BADLY"
        assert (await reader.pull("empty", 0, 0)).status == "NO_MATCHED_LOGIC_QUEUE"
        with pytest.raises(errors.UnknownTopicError):
            await reader.pull("nope", 0, 0)


async def test_a_pull_waits_for_the_first_message(cluster: FakeCluster) -> None:
    async with consumer(cluster) as reader:
        waiting = asyncio.ensure_future(reader.pull("bills", 0, 0, wait_ms=10_000))
        await cluster.master.pulled.wait()
        await fill(cluster, range(4), "bills")
        assert [message.body for message in await waiting] == [b"0"]


@pytest.mark.parametrize("read_from", ["master", "slave", "any"])
async def test_all_messages_of_all_queues(cluster: FakeCluster, read_from: str) -> None:
    async with consumer(cluster, read_from=read_from) as reader:
        assert await read_all(reader, "orders") == list(range(100))
    assert (cluster.master.pulls == 0) == (read_from == "slave")


async def test_several_topics_and_some_queues(cluster: FakeCluster) -> None:
    await fill(cluster, range(100, 120), "bills")
    async with consumer(cluster) as reader:
        assert await read_all(reader, ["orders", "bills", "empty"]) == list(range(120))
        assert await read_all(reader, "orders", queues=[1, 2]) == [
            n for n in range(100) if n % 4 in (1, 2)
        ]
        some = await read_all(reader, ["orders", "bills"], queues={"orders": [0], "bills": []})
        assert some == list(range(0, 100, 4))
        with pytest.raises(errors.UnknownQueueError, match=r"0\.\.3, not 4"):
            await reader.follow("orders", queues=[4])
        with pytest.raises(errors.UnknownTopicError, match="nope"):
            await reader.follow(["orders", "nope"])


async def test_order_within_a_queue(cluster: FakeCluster) -> None:
    small = FollowOptions(max_messages=3, prefetch_bytes=1)
    async with (
        consumer(cluster, options=small) as reader,
        await reader.follow("orders", until_end=True) as stream,
    ):
        seen: dict[int, list[int]] = {}
        async for batch in stream.batches():
            assert len(batch) <= 3
            seen.setdefault(batch.queue_id, []).extend(int(message.body) for message in batch)
    assert seen == {queue: list(range(queue, 100, 4)) for queue in range(4)}


@pytest.mark.parametrize(
    ("tags", "rest"), [("a", {0}), ("b", {1}), ("a || b", {0, 1}), ("c", set())]
)
async def test_only_the_tags_asked_for(cluster: FakeCluster, tags: str, rest: set[int]) -> None:
    async with consumer(cluster) as reader:
        assert await read_all(reader, "orders", tags=tags) == [
            n for n in range(100) if n % 2 in rest
        ]
        batch = await reader.pull("orders", 0, 0, tags=tags)
        assert {int(message.body) % 2 for message in batch} <= rest
        with pytest.raises(errors.InvalidArgumentError, match="contains no tag"):
            await reader.follow("orders", tags="||")
        with pytest.raises(errors.InvalidArgumentError, match="'a && b'"):
            await reader.follow("orders", tags="a && b")


async def test_tags_of_one_hash_are_told_apart(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send_many(
            None, [Message("bills", b"%d" % n, tags=("AaBB", "BBAa")[n % 2]) for n in range(10)]
        )
    async with consumer(cluster) as reader:
        assert await read_all(reader, "bills", tags="BBAa") == [1, 3, 5, 7, 9]


async def test_a_node_that_knows_no_filters_is_not_read(cluster: FakeCluster) -> None:
    for node in cluster.nodes.values():
        node.old = True
    async with consumer(cluster) as reader:
        with pytest.raises(errors.UnreadableError, match="older version, which knows no filters"):
            await reader.pull("orders", 0, 0, where="TAGS = 'a'")
    cluster.nodes["n2"].old = False
    async with consumer(cluster) as reader:
        assert await read_all(reader, "orders", where="TAGS = 'a'") == list(range(0, 100, 2))


async def test_where_reading_starts(cluster: FakeCluster) -> None:
    later = cluster.log.now_ms + 1
    await fill(cluster, range(100, 120))
    async with consumer(cluster) as reader:
        assert await read_all(reader, "orders", start="earliest") == list(range(120))
        assert await read_all(reader, "orders", start="latest") == []
        assert await read_all(reader, "orders", start=later) == list(range(100, 120))
        moment = datetime.fromtimestamp(later / 1000, UTC)
        assert await read_all(reader, "orders", start=moment) == list(range(100, 120))
        offsets = {("orders", 0): 28, ("orders", 1): 29}
        assert await read_all(reader, "orders", start=offsets) == [112, 116, 117]
        with pytest.raises(errors.InvalidArgumentError, match="group"):
            await reader.follow("orders", start="committed")
        with pytest.raises(errors.InvalidArgumentError, match="time zone"):
            await reader.follow("orders", start=datetime(2024, 1, 1))
        with pytest.raises(errors.InvalidArgumentError, match="start"):
            await reader.follow("orders", start="yesterday")


async def test_new_messages_come_as_they_are_stored(cluster: FakeCluster) -> None:
    async with (
        consumer(cluster) as reader,
        await reader.follow("orders", start="latest") as stream,
    ):
        with pytest.raises(TimeoutError):
            await stream.next_batch(timeout_ms=1)
        await fill(cluster, range(100, 104))
        seen: set[bytes] = set()
        while len(seen) < 4:
            batch = await stream.next_batch(timeout_ms=10_000)
            assert batch is not None
            seen |= {message.body for message in batch}
    assert seen == {b"100", b"101", b"102", b"103"}


async def test_a_group_goes_on_where_it_stopped(cluster: FakeCluster) -> None:
    async with consumer(cluster, group="g") as reader:
        assert await read_all(reader, "orders") == list(range(100))
        assert await reader.committed("orders") == {("orders", queue): 25 for queue in range(4)}
    await fill(cluster, range(100, 108))
    async with consumer(cluster, group="g", read_from="slave") as reader:
        assert await read_all(reader, "orders") == list(range(100, 108))
    async with consumer(cluster, group="other") as reader:
        assert await reader.committed() == {}


async def test_a_message_whose_handling_was_cut_short_comes_again(cluster: FakeCluster) -> None:
    seen: list[int] = []
    for _ in range(2):
        async with (
            consumer(cluster, group="g") as reader,
            await reader.follow("orders", queues=[0]) as stream,
        ):
            async for message in stream:
                seen.append(int(message.body))
                if len(seen) % 3 == 0:
                    break
    assert seen == [0, 4, 8, 8, 12, 16]


async def test_offsets_committed_by_hand(cluster: FakeCluster) -> None:
    by_hand = FollowOptions(auto_commit_ms=None)
    async with consumer(cluster, group="g", options=by_hand) as reader:
        async with await reader.follow("orders", queues=[0]) as stream:
            count = 0
            async for _ in stream:
                count += 1
                if count == 5:
                    await stream.commit()
                if count == 9:
                    break
            assert stream.positions == {("orders", 0): 9}
        assert await reader.committed() == {("orders", 0): 5}
        await reader.commit({("orders", 0): 2})
        assert await reader.committed() == {("orders", 0): 2}
    async with consumer(cluster) as reader:
        with pytest.raises(errors.InvalidArgumentError, match="group"):
            await reader.commit({("orders", 0): 2})
        async with await reader.follow("orders") as stream:
            with pytest.raises(errors.ClientClosedError, match="group"):
                await stream.commit()


async def test_commits_happen_while_reading(cluster: FakeCluster) -> None:
    often = FollowOptions(auto_commit_ms=1)
    async with (
        consumer(cluster, group="g", options=often) as reader,
        await reader.follow("orders") as stream,
    ):
        for _ in range(4):
            assert await stream.next_batch() is not None
        with pytest.raises(TimeoutError):
            await stream.next_batch(timeout_ms=1)
        while list(cluster.log.committed.values()) != [25] * 4:
            cluster.master.committed.clear()
            await cluster.master.committed.wait()


async def test_offsets_move_on_over_what_the_tags_skip(cluster: FakeCluster) -> None:
    async with consumer(cluster, group="g") as reader:
        assert await read_all(reader, "orders", tags="none") == []
        assert await reader.committed() == {("orders", queue): 25 for queue in range(4)}


async def test_another_node_takes_over(cluster: FakeCluster) -> None:
    small = FollowOptions(max_messages=5, prefetch_bytes=1, wait_ms=100)
    seen: list[int] = []
    async with (
        consumer(cluster, read_from="slave", options=small) as reader,
        await reader.follow("orders", until_end=True) as stream,
    ):
        async for message in stream:
            seen.append(int(message.body))
            if len(seen) == 10:
                first = next(node for node in cluster.nodes.values() if node.pulls)
                await first.stop()
    assert sorted(seen) == list(range(100))
    assert all(node.pulls for name, node in cluster.nodes.items() if name != "n0")


async def test_a_restarted_node_is_found_again(cluster: FakeCluster) -> None:
    async with (
        consumer(cluster, read_from="master", options=FollowOptions(wait_ms=100)) as reader,
        await reader.follow("orders", start="latest") as stream,
    ):
        await cluster.master.stop()
        with pytest.raises(TimeoutError):
            await stream.next_batch(timeout_ms=100)
        await cluster.master.start()
        await fill(cluster, range(100, 101))
        batch = await stream.next_batch(timeout_ms=20_000)
        assert batch is not None
        assert batch[0].body == b"100"


async def test_no_slave_is_said(cluster: FakeCluster) -> None:
    async with FakeCluster() as alone:
        alone.log.create_topic("orders", 1)
        async with AsyncConsumer(
            alone.endpoints, read_from="slave", connection=ConnectionOptions(retry_timeout_ms=1)
        ) as reader:
            with pytest.raises(errors.NoNodeError, match="no slave can be reached"):
                await reader.pull("orders", 0, 0)


async def test_a_slave_that_only_the_lost_master_knows_of_can_be_named(
    cluster: FakeCluster,
) -> None:
    await fill(cluster, range(1))
    master = cluster.master.endpoint
    await cluster.master.stop()
    once = ConnectionOptions(retry_timeout_ms=1)
    async with AsyncConsumer([master], read_from="slave", connection=once) as reader:
        with pytest.raises(
            errors.NoNodeError, match=r"no slave can be reached.*name the endpoint of another node"
        ):
            await reader.pull("orders", 0, 0)


async def test_the_hint_sends_a_reader_to_a_slave_and_back(cluster: FakeCluster) -> None:
    async with consumer(cluster) as reader:
        cluster.master.suggest_slave = True
        assert (await reader.pull("orders", 0, 0)).suggest_slave
        slaves = [cluster.nodes["n1"], cluster.nodes["n2"]]
        assert cluster.master.pulls == 1
        await reader.pull("orders", 0, 0)
        assert sum(node.pulls for node in slaves) == 1
        await reader.pull("orders", 0, 0)
        assert (cluster.master.pulls, sum(node.pulls for node in slaves)) == (2, 1)


async def test_a_slave_that_is_behind_is_left(cluster: FakeCluster) -> None:
    cluster.nodes["n1"].visible = 40
    cluster.nodes["n2"].lag_bytes = 1
    start = {("orders", queue): 20 for queue in range(4)}
    async with consumer(cluster, read_from="slave") as reader:
        assert await read_all(reader, "orders", start=start) == list(range(80, 100))
    assert 1 <= cluster.nodes["n1"].pulls <= 2
    assert cluster.nodes["n2"].pulls


@pytest.mark.parametrize(
    ("on_data_loss", "first"), [("earliest", 20), ("latest", None), ("error", None)]
)
async def test_messages_deleted_before_they_were_read(
    cluster: FakeCluster, on_data_loss: str, first: int | None
) -> None:
    for queue in range(4):
        cluster.log.removed["orders", queue] = 5
    start = {("orders", queue): 2 for queue in range(4)}
    async with consumer(cluster, options=FollowOptions(on_data_loss=on_data_loss)) as reader:
        if on_data_loss == "error":
            with pytest.raises(errors.OffsetOutOfRangeError, match=r"5\.\.25"):
                await read_all(reader, "orders", start=start)
        else:
            found = await read_all(reader, "orders", start=start)
            assert found == ([] if first is None else list(range(first, 100)))


async def test_an_offset_beyond_the_end_of_a_master_that_lost_messages(
    cluster: FakeCluster,
) -> None:
    start = {("orders", queue): 40 for queue in range(4)}
    patient = FollowOptions(patience_ms=1, on_data_loss="latest", wait_ms=10)
    async with (
        consumer(cluster, read_from="master", options=patient) as reader,
        await reader.follow("orders", start=start) as stream,
    ):
        with pytest.raises(TimeoutError):
            await stream.next_batch(timeout_ms=300)
        await fill(cluster, range(100, 104))
        batch = await stream.next_batch(timeout_ms=10_000)
        assert batch is not None
        assert batch.next_offset == 26


async def test_a_topic_that_is_deleted_ends_the_reading(cluster: FakeCluster) -> None:
    async with (
        consumer(cluster, options=FollowOptions(wait_ms=10)) as reader,
        await reader.follow("bills") as stream,
    ):
        del cluster.log.topics["bills"]
        with pytest.raises(errors.UnknownTopicError):
            await stream.next_batch()


async def test_a_topic_of_a_pattern_may_be_deleted_and_created_again(cluster: FakeCluster) -> None:
    await fill(cluster, range(100, 104), "bills")
    watchful = FollowOptions(refresh_ms=5, wait_ms=10)
    async with (
        consumer(cluster, options=watchful) as reader,
        await reader.follow("^(orders|bills)$") as stream,
    ):
        first = [int((await anext(stream)).body) for _ in range(104)]
        assert sorted(first) == list(range(104))
        orders = cluster.log.topics.pop("orders")
        await fill(cluster, range(104, 108), "bills")
        others = [int((await anext(stream)).body) for _ in range(4)]
        assert sorted(others) == [104, 105, 106, 107], "the other topic is read on"
        cluster.log.topics["orders"] = orders
        await fill(cluster, range(108, 112))
        async with asyncio.timeout(10):
            more = [int((await anext(stream)).body) for _ in range(4)]
        assert sorted(more) == [108, 109, 110, 111], "it continues where it was"


async def test_new_queues_of_a_topic_are_read_too(cluster: FakeCluster) -> None:
    watchful = FollowOptions(refresh_ms=1, wait_ms=50)
    async with (
        consumer(cluster, options=watchful) as reader,
        await reader.follow("orders", start="latest") as stream,
    ):
        cluster.log.create_topic("orders", 6)
        async with AsyncProducer(cluster.endpoints) as producer:
            await producer.send_many("orders", [b"new"], queues=5)
        batch = await stream.next_batch(timeout_ms=10_000)
    assert batch is not None
    assert (batch.queue_id, batch[0].body) == (5, b"new")


async def test_a_closed_stream_says_so(cluster: FakeCluster) -> None:
    async with consumer(cluster) as reader:
        stream = await reader.follow("empty")
        await stream.close()
        await stream.close()
        with pytest.raises(errors.ClientClosedError):
            await stream.next_batch()
    with pytest.raises(errors.ClientClosedError):
        await reader.pull("orders", 0, 0)


async def test_ranges_are_what_the_queues_hold(cluster: FakeCluster) -> None:
    async with consumer(cluster) as reader:
        ranges = await reader.ranges("orders")
        assert [(each.queue_id, each.min_offset, each.max_offset) for each in ranges] == [
            (queue, 0, 25) for queue in range(4)
        ]
        assert len(await reader.ranges()) == 4


def test_settings_that_cannot_be() -> None:
    wrong: dict[str, Any] = {
        "on_data_loss": "x",
        "max_bytes": 0,
        "auto_commit_ms": 0,
        "wait_ms": -1,
    }
    for name, value in wrong.items():
        with pytest.raises(ValueError, match=r"must"):
            FollowOptions(**{name: value})
    with pytest.raises(errors.InvalidArgumentError, match="group"):
        AsyncConsumer("a:1", group="a b")
