from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import errors
from tandemlog.admin import AsyncAdmin, TopicInfo
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 2)
        yield cluster


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[AsyncAdmin]:
    quick = ConnectionOptions(retry_timeout_ms=1_000)
    async with AsyncAdmin(cluster.nodes["n1"].endpoint, connection=quick) as admin:
        yield admin


async def test_topics_are_made_changed_and_deleted(admin: AsyncAdmin) -> None:
    made = await admin.create_topic("bills", 8, attributes={"a": "b"}, order=True)
    assert made == TopicInfo("bills", 8, 8, 6, True, {"a": "b"})
    assert [topic.name for topic in await admin.topics()] == ["bills", "orders"]
    with pytest.raises(errors.TopicExistsError):
        await admin.create_topic("bills")
    await admin.create_topic("bills", 9, update=True)
    assert (await admin.topic("bills")).write_queues == 9
    await admin.delete_topic("bills")
    with pytest.raises(errors.UnknownTopicError):
        await admin.topic("bills")
    with pytest.raises(errors.UnknownTopicError):
        await admin.delete_topic("bills")
    with pytest.raises(errors.InvalidTopicNameError):
        await admin.create_topic("not a name")


async def test_an_update_keeps_what_is_not_passed(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    made = await admin.create_topic("bills", 8, perm=4, order=True, attributes={"a": "1", "b": "2"})
    assert await admin.create_topic("bills", update=True) == made
    assert await admin.create_topic("bills", 9, update=True) == replace(
        made, read_queues=9, write_queues=9
    )
    await admin.create_topic("bills", 8, order=False, attributes={"b": "3"}, update=True)
    assert await admin.topic("bills") == TopicInfo("bills", 8, 8, 4, False, {"a": "1", "b": "3"})
    cluster.log.topics["bills"].write_queues = 3
    changed = await admin.create_topic("bills", perm=6, update=True)
    assert (changed.read_queues, changed.write_queues, changed.perm) == (8, 3, 6)
    with pytest.raises(errors.UnknownTopicError):
        await admin.create_topic("nothing", update=True)


async def test_the_cluster_is_described(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    topology = await admin.cluster()
    assert [(node.node_id, node.role) for node in topology.nodes] == [
        ("n0", "master"),
        ("n1", "slave"),
    ]
    assert topology.master is not None
    assert topology.master.endpoint == cluster.master.endpoint
    assert (topology.flush, topology.min_in_sync) == ("async", 1)


async def test_messages_are_found_by_key_tag_and_id(
    cluster: FakeCluster, admin: AsyncAdmin
) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        result = await (await producer.send(Message("orders", b"a", keys=["k1", "k2"], tags="x")))
        await producer.send_many("orders", [b"b", b"c"], keys="k2", tags="x")
    assert [each.body for each in await admin.query_by_key("orders", "k1")] == [b"a"]
    found = await admin.query_by_key("orders", "k2", begin=1, end=2_000_000_000_000)
    assert sorted(each.body for each in found) == [b"a", b"b", b"c"]
    assert len(await admin.query_by_key("orders", "x", tags=True, max_messages=2)) == 2
    by_id = await admin.query_by_id(result.msg_id)
    assert by_id is not None
    assert by_id.body == b"a"
    assert by_id.uniq_key is not None
    by_unique_id = await admin.query_by_id(by_id.uniq_key, topic="orders")
    assert by_unique_id is not None
    assert by_unique_id.msg_id == result.msg_id
    assert await admin.query_by_id("0" * 32) is None
    assert await admin.query_by_id("01020304" + result.msg_id[8:]) is None
    with pytest.raises(errors.InvalidArgumentError, match="hexadecimal"):
        await admin.query_by_id("xyz")
    [message] = await admin.messages_at([result.physical_offset])
    assert message.body == b"a"
    with pytest.raises(errors.OffsetOutOfRangeError):
        await admin.messages_at([3])


async def test_offsets_and_groups(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send_many("orders", [b"a", b"b"], queues=[0, 1])
        moment = cluster.log.now_ms + 1
        await producer.send_many("orders", [b"c"], queues=0)
    ranges = {(each.topic, each.queue_id): each.max_offset for each in await admin.ranges("orders")}
    assert ranges == {("orders", 0): 2, ("orders", 1): 1}
    assert await admin.search_offset("orders", moment) == {("orders", 0): 1, ("orders", 1): 1}
    assert await admin.search_offset("orders", moment, queue_id=0) == {("orders", 0): 1}
    assert await admin.groups() == []
    await admin.commit("g", {("orders", 0): 1})
    assert await admin.groups() == ["g"]
    assert await admin.committed("g") == {("orders", 0): 1}
    assert await admin.committed("g", "bills") == {}
    assert (await admin.stats())["puts_total"] == 3


async def test_producers_are_described(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    async with AsyncProducer(cluster.endpoints, ProducerOptions(producer_id="me")) as producer:
        await (await producer.send(Message("orders", b"")))
    info = await admin.producer("me")
    assert info is not None
    assert (info.epoch, info.last_sequence) == (0, 0)
    assert await admin.producer("you") is None


async def test_changes_follow_the_master(cluster: FakeCluster, admin: AsyncAdmin) -> None:
    await admin.commit("g", {("orders", 0): 1})
    cluster.promote("n1")
    await admin.commit("g", {("orders", 0): 2})
    assert cluster.log.committed["g", "orders", 0] == 2
    await cluster.nodes["n1"].stop()
    cluster.promote("n0")
    await admin.commit("g", {("orders", 0): 3})
    assert cluster.log.committed["g", "orders", 0] == 3
