"""What a consumer believes: a slave that is behind, or lacks messages, decides nothing.

Nodes are real gRPC servers over one log; what each of them has is what the test says.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import errors
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.stream import AsyncStream
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import common_pb2

QUICK = ConnectionOptions(
    retry_timeout_ms=1_500, discovery_timeout_ms=1_000, topology_max_age_ms=100
)
IMPATIENT = FollowOptions(patience_ms=1, wait_ms=10)
QUEUE = ("t", 0)
NONE = common_pb2.ERROR_CODE_UNSPECIFIED


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """A master and two slaves; topic t with messages 0..99 in one queue."""
    async with FakeCluster(slaves=2) as cluster:
        cluster.log.create_topic("t", 1)
        await fill(cluster, range(100))
        yield cluster


async def fill(cluster: FakeCluster, numbers: range) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send_many(None, [Message("t", b"%d" % n, queue_id=0) for n in numbers])


def consumer(cluster: FakeCluster, **fields: object) -> AsyncConsumer:
    fields.setdefault("options", IMPATIENT)
    return AsyncConsumer(cluster.endpoints, connection=QUICK, **fields)  # type: ignore[arg-type]


async def take(stream: AsyncStream, count: int) -> list[int]:
    """The next `count` messages."""
    found: list[int] = []
    while len(found) < count:
        batch = await stream.next_batch(timeout_ms=20_000)
        assert batch is not None
        found += [int(message.body) for message in batch]
    return found


async def nothing_comes(stream: AsyncStream, timeout_ms: float = 400) -> None:
    with pytest.raises(TimeoutError):
        await stream.next_batch(timeout_ms=timeout_ms)


async def test_slaves_that_are_behind_lose_nothing_while_the_master_is_away(
    cluster: FakeCluster,
) -> None:
    for name in ("n1", "n2"):
        cluster.nodes[name].visible = 98
    async with consumer(cluster) as reader, await reader.follow("t") as stream:
        assert await take(stream, 100) == list(range(100))
        await cluster.master.stop()
        await nothing_comes(stream)
        await cluster.master.start()
        await fill(cluster, range(100, 102))
        assert await take(stream, 2) == [100, 101]


async def test_a_deposed_master_that_does_not_know_it_loses_nothing(cluster: FakeCluster) -> None:
    """The new master is away, the old one answers and has less: its epoch is not the newest."""
    old = cluster.nodes["n0"]
    cluster.promote("n1")
    async with consumer(cluster) as reader, await reader.follow("t") as stream:
        assert await take(stream, 100) == list(range(100))
        old.epoch, old.visible = 1, 90
        for name in ("n1", "n2"):
            await cluster.nodes[name].stop()
        await nothing_comes(stream)
        await cluster.nodes["n1"].start()
        await fill(cluster, range(100, 101))
        assert await take(stream, 1) == [100]


@pytest.mark.parametrize("refusal", [common_pb2.NOT_IN_SYNC, common_pb2.BUSY])
async def test_a_new_master_that_has_not_confirmed_its_log_has_lost_nothing(
    cluster: FakeCluster, refusal: common_pb2.ErrorCode.ValueType
) -> None:
    """It sends what is confirmed, which may end before what the old one has acknowledged."""
    small = FollowOptions(patience_ms=1, wait_ms=10, max_messages=10, prefetch_bytes=1)
    ahead = FollowOptions(patience_ms=1, wait_ms=10, on_data_loss="error")
    async with (
        consumer(cluster, options=small) as reader,
        await reader.scan("t") as scan,
        consumer(cluster, options=ahead) as other,
        await other.follow("t", start={QUEUE: 100}) as stream,
    ):
        for node in cluster.nodes.values():
            node.visible, node.ends_refused = 98, refusal
        scanned = asyncio.ensure_future(scan.read_all())
        await nothing_comes(stream)
        assert not scanned.done()
        for node in cluster.nodes.values():
            node.visible, node.ends_refused = None, NONE
        await fill(cluster, range(100, 101))
        assert await take(stream, 1) == [100]
        assert len(await scanned) == 100


@pytest.mark.parametrize("refusal", [common_pb2.NOT_IN_SYNC, common_pb2.NOT_MASTER])
async def test_a_master_that_is_not_sure_ends_nothing(
    cluster: FakeCluster, refusal: common_pb2.ErrorCode.ValueType
) -> None:
    """For longer than a call is repeated."""
    async with consumer(cluster) as reader, await reader.follow("t") as stream:
        assert await take(stream, 100) == list(range(100))
        for node in cluster.nodes.values():
            node.pulls_refused = refusal
        await nothing_comes(stream, 1_500)
        for node in cluster.nodes.values():
            node.pulls_refused = NONE
        await fill(cluster, range(100, 101))
        assert await take(stream, 1) == [100]


async def test_the_end_is_the_masters_to_say(cluster: FakeCluster) -> None:
    """One slave is far behind, and is the one that is read from."""
    slow = cluster.nodes["n1"]
    slow.visible = 40
    cluster.nodes["n2"].lag_bytes = 1
    async with consumer(cluster, read_from="slave") as reader:
        async with await reader.follow("t", until_end=True) as stream:
            assert [int(message.body) async for message in stream] == list(range(100))
        async with await reader.follow("t", start="latest") as stream:
            await fill(cluster, range(100, 101))
            assert await take(stream, 1) == [100]
    assert slow.pulls


async def test_a_time_is_the_masters_to_find(cluster: FakeCluster) -> None:
    moment = datetime.fromtimestamp((cluster.log.now_ms + 1) / 1000, UTC)
    await fill(cluster, range(100, 110))
    cluster.nodes["n1"].visible = 40
    cluster.nodes["n2"].lag_bytes = 1
    async with (
        consumer(cluster, read_from="slave") as reader,
        await reader.follow("t", start=moment, until_end=True) as stream,
    ):
        assert [int(message.body) async for message in stream] == list(range(100, 110))


async def test_without_a_master_the_furthest_slave_says_where_queues_end(
    cluster: FakeCluster,
) -> None:
    cluster.nodes["n1"].visible = 40
    cluster.nodes["n2"].visible = 90
    await cluster.master.stop()
    async with (
        consumer(cluster) as reader,
        await reader.follow("t", start="earliest", until_end=True) as stream,
    ):
        assert [int(message.body) async for message in stream] == list(range(90))


@pytest.mark.parametrize("read_from", ["slave", "any"])
async def test_what_one_node_deleted_is_read_from_another(
    cluster: FakeCluster, read_from: str
) -> None:
    cluster.nodes["n0"].removed[QUEUE] = 30
    cluster.nodes["n1"].removed[QUEUE] = 60
    strict = FollowOptions(on_data_loss="error", wait_ms=10)
    async with (
        consumer(cluster, read_from=read_from, options=strict) as reader,
        await reader.follow("t", start={QUEUE: 10}) as stream,
    ):
        assert await take(stream, 90) == list(range(10, 100))


async def test_what_all_nodes_deleted_is_lost_and_told(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for name, first in (("n0", 30), ("n1", 60), ("n2", 20)):
        cluster.nodes[name].removed[QUEUE] = first
    async with (
        consumer(cluster, options=FollowOptions(wait_ms=10)) as reader,
        await reader.follow("t", start={QUEUE: 5}) as stream,
    ):
        assert await take(stream, 80) == list(range(20, 100))
    assert "t/0: offset 5 is not there" in caplog.text
    strict = FollowOptions(on_data_loss="error", wait_ms=10)
    async with (
        consumer(cluster, options=strict) as reader,
        await reader.follow("t", start={QUEUE: 5}) as stream,
    ):
        with pytest.raises(errors.OffsetOutOfRangeError, match="offset 5 is not there"):
            await take(stream, 1)


async def test_a_node_that_never_answers_is_not_waited_for_for_ever(
    cluster: FakeCluster,
) -> None:
    cluster.nodes["n1"].pulls_fail = True
    for name in ("n0", "n2"):
        cluster.nodes[name].removed[QUEUE] = 30
    async with consumer(cluster) as reader, await reader.follow("t", start={QUEUE: 5}) as stream:
        assert await take(stream, 70) == list(range(30, 100))


async def test_nothing_is_lost_while_the_master_may_have_it(cluster: FakeCluster) -> None:
    for name in ("n1", "n2"):
        cluster.nodes[name].removed[QUEUE] = 60
    await cluster.master.stop()
    async with consumer(cluster) as reader, await reader.follow("t", start={QUEUE: 5}) as stream:
        await nothing_comes(stream)
        await cluster.master.start()
        assert await take(stream, 95) == list(range(5, 100))


@pytest.mark.parametrize("holes", [{7}, {7, 8, 40}, {0}, {99}])
async def test_a_hole_in_one_node_is_filled_from_another(
    cluster: FakeCluster, holes: set[int]
) -> None:
    cluster.nodes["n0"].holes = {(*QUEUE, offset) for offset in holes}
    strict = FollowOptions(on_data_loss="error", wait_ms=10)
    async with (
        consumer(cluster, options=strict) as reader,
        await reader.follow("t", start={QUEUE: 0}) as stream,
    ):
        assert await take(stream, 100) == list(range(100))


async def test_a_hole_in_all_nodes_is_told(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for node in cluster.nodes.values():
        node.holes = {(*QUEUE, 7), (*QUEUE, 8)}
    rest = [number for number in range(100) if number not in (7, 8)]
    async with consumer(cluster) as reader, await reader.follow("t", start={QUEUE: 0}) as stream:
        assert await take(stream, 98) == rest
    assert "t/0: offset 7 is not there" in caplog.text
    strict = FollowOptions(on_data_loss="error", wait_ms=10)
    async with (
        consumer(cluster, options=strict) as reader,
        await reader.follow("t", start={QUEUE: 0}) as stream,
    ):
        assert await take(stream, 7) == list(range(7))
        with pytest.raises(errors.OffsetOutOfRangeError, match="offset 7 is not there"):
            await take(stream, 1)


async def test_a_slave_that_has_not_heard_of_a_topic_ends_nothing(cluster: FakeCluster) -> None:
    for name in ("n1", "n2"):
        cluster.nodes[name].unheard_topics.add("t")
    async with consumer(cluster) as reader, await reader.follow("t") as stream:
        assert await take(stream, 100) == list(range(100))
        await cluster.master.stop()
        await nothing_comes(stream)
        await cluster.master.start()
        await fill(cluster, range(100, 101))
        assert await take(stream, 1) == [100]


async def test_a_log_that_was_cut_ends_a_read_to_the_end(cluster: FakeCluster) -> None:
    small = FollowOptions(patience_ms=1, wait_ms=10, max_messages=10, prefetch_bytes=1)
    async with (
        consumer(cluster, options=small) as reader,
        await reader.follow("t", until_end=True) as stream,
    ):
        first = await take(stream, 10)
        for node in cluster.nodes.values():
            node.visible = 50
        found = first + [int(message.body) async for message in stream]
    assert found == list(range(50))


async def test_a_loop_that_is_left_is_gone_on_with(cluster: FakeCluster) -> None:
    """What the first loop did not come to must come: the offsets behind it get committed."""
    async with consumer(cluster, group="g") as reader:
        async with await reader.follow("t", until_end=True) as stream:
            found: list[int] = []
            async for message in stream:
                found.append(int(message.body))
                if len(found) % 30 == 0:
                    break
            async for message in stream:
                found.append(int(message.body))
                if len(found) == 40:
                    break
            batch = await stream.next_batch()
            assert batch is not None
            found += [int(message.body) for message in batch]
            assert [message async for message in stream] == []
        assert found == list(range(100))
        assert await reader.committed() == {QUEUE: 100}


async def test_a_group_goes_on_in_a_queue_that_is_found_later(cluster: FakeCluster) -> None:
    """The topic had one queue when the consumer began, as far as the node knew."""
    watchful = FollowOptions(refresh_ms=1, wait_ms=10)
    async with (
        consumer(cluster, group="g", options=watchful) as reader,
        await reader.follow("t") as stream,
    ):
        await take(stream, 100)
        cluster.log.committed["g", "t", 1] = 3
        cluster.log.create_topic("t", 2)
        cluster.groups.rebalance()
        async with AsyncProducer(cluster.endpoints) as producer:
            await producer.send_many("t", [b"%d" % n for n in range(100, 106)], queues=1)
        assert await take(stream, 3) == [103, 104, 105]
