"""Describing, measuring, resetting and deleting consumer groups."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import EARLIEST, LATEST, OffsetChange, QueueLag, errors
from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.connection import Connection
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.reading.positions import Positions
from tandemlog.consume.reading.queue_lag import Lags
from tandemlog.consume.reading.reader import Reader
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import broker_pb2

QUICK = ConnectionOptions(retry_timeout_ms=1_000, discovery_timeout_ms=300)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Topic orders with 30 messages over 3 queues, of which the group "g" has done 4, 0, 10."""
    async with FakeCluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 3)
        cluster.log.create_topic("empty", 1)
        await fill(cluster, 30)
        cluster.log.committed["g", "orders", 0] = 4
        cluster.log.committed["g", "orders", 2] = 10
        yield cluster


async def fill(cluster: FakeCluster, count: int) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        messages = [Message("orders", b"%d" % n, queue_id=n % 3) for n in range(count)]
        await producer.send_many(None, messages)


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[AsyncAdmin]:
    async with AsyncAdmin(cluster.nodes["n1"].endpoint, connection=QUICK) as admin:
        yield admin


async def join(cluster: FakeCluster, group: str, *topics: str) -> None:
    request = broker_pb2.GroupHeartbeatRequest(
        group=group, member_id="m1", client_id="worker-1", number=1, topics=topics
    )
    await cluster.groups.heartbeat(request, lambda: None)


async def test_lag_counts_messages_and_the_age_of_the_oldest(cluster: FakeCluster) -> None:
    first = cluster.log.decoded()[12].store_timestamp  # queue 0, offset 4
    begin = cluster.log.decoded()[1].store_timestamp
    async with Connection(cluster.endpoints, QUICK) as connection:
        positions = Positions(connection, Reader(connection, "any"))
        now = cluster.log.now_ms + 5_000
        lags = Lags(connection, positions, lambda: now)
        found = await lags.of({("orders", 0): 4, ("orders", 1): None, ("orders", 2): 10})
    assert found == {
        ("orders", 0): QueueLag("orders", 0, 4, 10, 6, (now - first) / 1000),
        ("orders", 1): QueueLag("orders", 1, None, 10, 10, (now - begin) / 1000),
        ("orders", 2): QueueLag("orders", 2, 10, 10, 0, 0.0),
    }


async def test_lag_of_a_group(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    lags = await admin.lag("g")
    assert [(each.queue_id, each.committed, each.end, each.messages) for each in lags] == [
        (0, 4, 10, 6),
        (1, None, 10, 10),
        (2, 10, 10, 0),
    ]
    assert all((each.seconds > 0) == (each.messages > 0) for each in lags)
    cluster.log.removed["orders", 1] = 7
    assert (await admin.lag("g", "orders"))[1].messages == 3
    assert [(each.topic, each.messages) for each in await admin.lag("g", "empty")] == [("empty", 0)]
    with pytest.raises(errors.UnknownTopicError, match="nope"):
        await admin.lag("g", ["nope"])
    del cluster.log.topics["orders"]
    assert await admin.lag("g") == []


async def test_a_group_that_does_not_exist(admin: AsyncAdmin) -> None:
    for call in (
        admin.lag("other"),
        admin.describe_group("other"),
        admin.reset_offsets("other", to=EARLIEST),
        admin.delete_group("other"),
    ):
        with pytest.raises(errors.UnknownGroupError, match="other"):
            await call
    with pytest.raises(errors.InvalidArgumentError, match="no group"):
        await admin.lag("no group")


async def test_members_are_described(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    assert (await admin.describe_group("g")).state == "empty"
    await join(cluster, "fresh", "orders")
    described = await admin.describe_group("fresh")
    [member] = described.members
    assert (described.state, member.client_id, member.host) == ("stable", "worker-1", "127.0.0.1")
    assert member.assigned == member.target == (("orders", 0), ("orders", 1), ("orders", 2))
    assert [each.messages for each in await admin.lag("fresh")] == [10, 10, 10]


async def test_a_reset_says_what_changes(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    before = dict(cluster.log.committed)
    planned = await admin.reset_offsets("g", "orders", to=EARLIEST, dry_run=True)
    assert planned == [
        OffsetChange("orders", 0, 4, 0),
        OffsetChange("orders", 1, None, 0),
        OffsetChange("orders", 2, 10, 0),
    ]
    assert cluster.log.committed == before
    assert await admin.reset_offsets("g", "orders", to=EARLIEST) == planned
    assert await admin.committed("g") == {("orders", queue): 0 for queue in range(3)}


async def test_where_a_reset_may_go(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    cluster.log.removed["orders", 1] = 7
    later = cluster.log.now_ms + 1
    await fill(cluster, 6)

    async def after(**fields: object) -> list[int]:
        changes = await admin.reset_offsets("g", dry_run=True, **fields)  # type: ignore[arg-type]
        return [each.after for each in changes]

    assert await after(to=EARLIEST) == [0, 7, 0]
    assert await after(to=LATEST) == [12, 12, 12]
    assert await after(to=later) == [10, 10, 10]
    assert await after(to=datetime.fromtimestamp(later / 1000, UTC)) == [10, 10, 10]
    assert await after(shift_by=3) == [7, 10, 12]
    assert await after(shift_by=-5) == [0, 7, 5]
    assert await after(to={("orders", 1): 0, ("orders", 2): 99}) == [7, 12]
    for fields in ({}, {"to": EARLIEST, "shift_by": 1}, {"to": "yesterday"}):
        with pytest.raises(errors.InvalidArgumentError, match="to"):
            await after(**fields)
    with pytest.raises(errors.InvalidArgumentError, match="not among"):
        await admin.reset_offsets("g", "empty", to={("orders", 1): 0})
    with pytest.raises(errors.UnknownQueueError):
        await after(to={("orders", 9): 0})


async def test_members_keep_a_reset_and_a_deletion_out(
    cluster: FakeCluster, admin: AsyncAdmin
) -> None:
    await join(cluster, "g", "orders")
    before = dict(cluster.log.committed)
    for dry_run in (True, False):
        with pytest.raises(errors.GroupHasMembersError):
            await admin.reset_offsets("g", to=LATEST, dry_run=dry_run)
        with pytest.raises(errors.GroupHasMembersError):
            await admin.delete_group("g", dry_run=dry_run)
    assert cluster.log.committed == before
    cluster.groups.expire("g", "m1")
    await admin.delete_group("g", dry_run=True)
    assert cluster.log.committed == before
    await admin.delete_group("g")
    assert await admin.groups() == []
