"""Members of a group on a real node, over gRPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from fakes.inner_node import config, running
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import InvalidArgumentError
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2
from tandemlog_server.node.groups.consumer_group import ConsumerGroup
from tandemlog_server.node.node import Node
from tandemlog_server.storage.metadata.topics import new_group

TOPICS = {"orders": 4, "prices": 2}


@dataclass
class Cluster:
    broker: "broker_pb2_grpc.BrokerAsyncStub"
    admin: "admin_pb2_grpc.AdminAsyncStub"
    node: Node


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Cluster]:
    async with (
        running(config(folder)) as node,
        grpc.aio.insecure_channel(node.endpoints.listen) as channel,
    ):
        admin = admin_pb2_grpc.AdminStub(channel)
        for topic, queues in TOPICS.items():
            asked = admin_pb2.Topic(name=topic, read_queues=queues, write_queues=queues)
            await admin.CreateTopic(admin_pb2.CreateTopicRequest(topic=asked, update=False))
        yield Cluster(broker_pb2_grpc.BrokerStub(channel), admin, node)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with serving(tmp_path) as started:
        yield started


@dataclass
class Member:
    """A client's side, as short as it can be: gives up at once what it may not own."""

    cluster: Cluster
    name: str
    topics: tuple[str, ...] = ("orders",)
    instance: str = ""
    session_timeout_ms: int = 10_000
    epoch: int = 0
    number: int = 0
    owned: dict[str, list[int]] = field(default_factory=dict)
    settled: bool = False

    async def report(self, wait_ms: int = 0) -> broker_pb2.GroupHeartbeatResponse:
        self.number += 1
        response = await self.cluster.broker.GroupHeartbeat(
            broker_pb2.GroupHeartbeatRequest(
                group="g",
                member_id=self.name,
                member_epoch=self.epoch,
                number=self.number,
                instance_id=self.instance,
                client_id=f"client of {self.name}",
                topics=self.topics,
                owned=[
                    broker_pb2.TopicQueues(topic=topic, queue_ids=queue_ids)
                    for topic, queue_ids in self.owned.items()
                ],
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=10_000,
                wait_ms=wait_ms,
            )
        )
        if not response.error.code:
            self.epoch = response.member_epoch
            self.owned = {each.topic: list(each.queue_ids) for each in response.assigned}
            self.settled = response.settled
        return response

    async def commit(self, queue_id: int, offset: int, topic: str = "orders") -> int:
        response = await self.cluster.broker.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group="g",
                offsets=[
                    broker_pb2.QueuePosition(topic=topic, queue_id=queue_id, queue_offset=offset)
                ],
                member_id=self.name,
                member_epoch=self.epoch,
            )
        )
        return response.error.code


async def converge(*members: Member) -> None:
    for _ in range(200):
        for member in members:
            response = await member.report(20)
            assert not response.error.code, response.error
        if all(member.settled for member in members):
            return
    raise AssertionError([member.owned for member in members])


async def test_two_members_share_and_a_third_gets_what_one_leaves(cluster: Cluster) -> None:
    one, two = Member(cluster, "one"), Member(cluster, "two")
    await converge(one)
    assert one.owned == {"orders": [0, 1, 2, 3]}
    await converge(one, two)
    assert sorted(one.owned["orders"] + two.owned["orders"]) == [0, 1, 2, 3]
    assert len(one.owned["orders"]) == 2
    kept = one.owned
    three = Member(cluster, "three", topics=("orders", "prices"))
    await converge(one, two, three)
    assert three.owned["prices"] == [0, 1]
    assert set(one.owned["orders"]) <= set(kept["orders"])
    two.epoch = -1
    await two.report()
    await converge(one, three)
    assert sorted(one.owned["orders"] + three.owned.get("orders", [])) == [0, 1, 2, 3]


async def test_a_commit_counts_of_the_owner_alone(cluster: Cluster) -> None:
    one, two = Member(cluster, "one"), Member(cluster, "two")
    await converge(one, two)
    mine, theirs = one.owned["orders"][0], two.owned["orders"][0]
    assert await one.commit(mine, 0) == common_pb2.ERROR_CODE_UNSPECIFIED
    assert await one.commit(theirs, 0) == common_pb2.FENCED_MEMBER
    response = await cluster.broker.CommitOffsets(
        broker_pb2.CommitOffsetsRequest(
            group="g", offsets=[broker_pb2.QueuePosition(topic="orders", queue_id=mine)]
        )
    )
    assert response.error.code == common_pb2.GROUP_HAS_MEMBERS
    assert "client of one" in response.error.message


async def test_a_long_poll_ends_when_another_member_gives_up(cluster: Cluster) -> None:
    one, two = Member(cluster, "one"), Member(cluster, "two")
    await converge(one)
    joined = asyncio.create_task(two.report(5_000))
    while not (response := await one.report(2_000)).error.code and len(one.owned["orders"]) > 2:
        pass
    assert not response.error.code
    await one.report()
    await joined
    while not two.owned:
        await two.report(2_000)
    assert len(two.owned["orders"]) == 2


async def test_a_member_whose_session_is_over_is_fenced(cluster: Cluster) -> None:
    one, two = Member(cluster, "one", session_timeout_ms=1_000), Member(cluster, "two")
    await converge(one, two)
    mine = one.owned["orders"][0]
    while len(two.owned["orders"]) < 4:
        await two.report(500)
    assert await one.commit(mine, 0) == common_pb2.FENCED_MEMBER
    assert (await one.report()).error.code == common_pb2.FENCED_MEMBER


async def test_an_instance_that_comes_back_has_the_same_queues(cluster: Cluster) -> None:
    first = Member(cluster, "first", instance="worker-1")
    other = Member(cluster, "other")
    await converge(first, other)
    epoch = first.epoch
    again = Member(cluster, "again", instance="worker-1")
    await converge(again, other)
    assert (again.owned, again.epoch) == (first.owned, epoch + 1)
    assert (await first.report()).error.code == common_pb2.FENCED_INSTANCE
    assert await first.commit(first.owned["orders"][0], 0) == common_pb2.FENCED_MEMBER


async def test_groups_are_described_and_deleted(cluster: Cluster) -> None:
    describe = broker_pb2.DescribeGroupRequest(group="g")
    assert (await cluster.broker.DescribeGroup(describe)).error.code == common_pb2.UNKNOWN_GROUP
    one = Member(cluster, "one")
    await converge(one)
    found = await cluster.broker.DescribeGroup(describe)
    assert (found.state, found.members[0].client_id) == ("stable", "client of one")
    assert list(found.members[0].assigned[0].queue_ids) == [0, 1, 2, 3]
    delete = admin_pb2.DeleteGroupRequest(group="g")
    refused = await cluster.admin.DeleteGroup(delete)
    assert refused.error.code == common_pb2.GROUP_HAS_MEMBERS
    await one.commit(0, 0)
    one.epoch = -1
    await one.report()
    assert not (await cluster.admin.DeleteGroup(delete)).error.code
    assert (await cluster.broker.DescribeGroup(describe)).error.code == common_pb2.UNKNOWN_GROUP
    assert cluster.node.store.consumer_offsets.fetch("g") == []


async def test_members_continue_after_a_restart_of_the_node(tmp_path: Path) -> None:
    async with serving(tmp_path) as cluster:
        one, two = Member(cluster, "one"), Member(cluster, "two")
        await converge(one, two)
        before = one.owned, one.epoch
    async with serving(tmp_path) as cluster:
        one.cluster = two.cluster = cluster
        assert await one.commit(before[0]["orders"][0], 0) == common_pb2.ERROR_CODE_UNSPECIFIED
        assert not (await one.report()).error.code
        assert one.owned == before[0]
        await converge(one, two)
        assert one.owned == before[0]


async def test_a_topic_with_more_queues_is_assigned_anew(cluster: Cluster) -> None:
    one = Member(cluster, "one", topics=("orders", "later"))
    await converge(one)
    asked = admin_pb2.Topic(name="later", read_queues=2, write_queues=2)
    await cluster.admin.CreateTopic(admin_pb2.CreateTopicRequest(topic=asked))
    while "later" not in one.owned:
        await one.report(500)
    assert one.owned["later"] == [0, 1]


async def test_looking_goes_on_after_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Member(cluster, "one", session_timeout_ms=1_000), Member(cluster, "two")
    await converge(one, two)
    real = ConsumerGroup.next_expiry
    failed: list[str] = []

    def next_expiry(group: ConsumerGroup) -> float:
        if not failed:
            failed.append(group.name)
            raise RuntimeError("a fault of the program")
        return real(group)

    monkeypatch.setattr(ConsumerGroup, "next_expiry", next_expiry)
    while len(two.owned["orders"]) < 4:
        await two.report(500)
    assert failed


async def test_a_group_of_a_broker_may_have_a_longer_name_than_a_new_one(cluster: Cluster) -> None:
    """Our limit is for what is created here; a broker takes 255 characters."""
    table, name = cluster.node.store.groups, "g" * 134
    table.take_rows({name: new_group(name)}, (), 1)
    async with AsyncConsumer(cluster.node.endpoints.listen, group=name) as consumer:
        async with await consumer.follow("orders", until_end=True) as stream:
            assert [message async for message in stream] == []
        await consumer.commit({("orders", 0): 0})
        assert (await consumer.committed())["orders", 0] == 0
    async with AsyncConsumer(cluster.node.endpoints.listen, group="h" * 134) as consumer:
        with pytest.raises(InvalidArgumentError, match="134 characters, the limit is 120"):
            await consumer.commit({("orders", 0): 0})
    assert table.names() == [name]
