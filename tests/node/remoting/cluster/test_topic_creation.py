"""Topics that are made because a client sends to them, or consumes as a group."""

import asyncio
from collections.abc import Sequence

import pytest

from fakes.stores import Bench
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.remoting.cluster.topic_creation import MAX_AT_ONCE, TopicCreation
from tandemlog_server.node.remoting.door.remoting_call import RemotingRefusedError
from tandemlog_server.node.roles.role import CurrentRole, NodeRole
from tandemlog_server.rocketmq.clients.broker_topics import broker_topics
from tandemlog_server.rocketmq.clients.codes import ResponseCode
from tandemlog_server.storage.metadata.topics import TopicConfig


class Follower(NodeRole):
    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, ""

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return []

    def put_fault(self) -> str:
        return ""

    def read_fault(self) -> str:
        return ""


class Leader(Follower):
    """Counts the tables that it was asked to confirm, and waits until it may."""

    def __init__(self) -> None:
        self.confirmed: list[str] = []
        self.may_confirm = asyncio.Event()
        self.may_confirm.set()

    def require_master(self, what: str) -> None:
        return

    async def admit_change(self) -> None:
        return

    async def confirm_table(self, table: str, version: int | None = None) -> None:
        await self.may_confirm.wait()
        self.confirmed.append(table)


def creation(bench: Bench, role: NodeRole, *, auto_create: bool = True) -> TopicCreation:
    own = broker_topics("C", "b")
    return TopicCreation(bench.store, CurrentRole(role), own, auto_create=auto_create)


@pytest.mark.parametrize(("wanted", "queues"), [(4, 4), (0, 1), (100, 8)])
async def test_a_topic_is_created_as_its_model_says(wanted: int, queues: int) -> None:
    bench, role = Bench(), Leader()
    topic = await creation(bench, role).create_topic("new", model="TBW102", queues=wanted)
    assert topic == bench.store.topics.get("new")
    assert (topic.read_queues, topic.write_queues, topic.perm) == (queues, queues, 6)
    assert role.confirmed == ["topics"]


async def test_many_sends_make_one_change_of_the_table() -> None:
    bench, role = Bench(), Leader()
    topics = creation(bench, role)
    role.may_confirm.clear()
    sends = [
        asyncio.ensure_future(topics.create_topic("new", model="TBW102", queues=4))
        for _ in range(50)
    ]
    await asyncio.sleep(0)
    sends[0].cancel()  # a client that goes away takes nothing from the others
    role.may_confirm.set()
    done = await asyncio.gather(*sends[1:])
    assert {each.name for each in done} == {"new"}
    assert role.confirmed == ["topics"]


async def test_a_model_that_is_not_there_or_gives_nothing_makes_no_topic() -> None:
    bench, role = Bench(), Leader()
    for topics, model in (
        (creation(bench, role, auto_create=False), "TBW102"),
        (creation(bench, role), "unknown"),
        (creation(bench, role), "T"),
    ):
        with pytest.raises(RemotingRefusedError, match="updateTopic") as refusal:
            await topics.create_topic("new", model=model, queues=4)
        assert refusal.value.code == ResponseCode.TOPIC_NOT_EXIST
    assert bench.store.topics.get("new") is None
    assert role.confirmed == []


@pytest.mark.parametrize(
    "name",
    ["", "a b", "rmq_sys_other", "TBW102", "SCHEDULE_TOPIC_XXXX", "x" * 200, "%RETRY%", "%DLQ%a/b"],
)
async def test_names_that_no_topic_has_are_refused(name: str) -> None:
    bench = Bench()
    with pytest.raises(RemotingRefusedError) as refusal:
        await creation(bench, Leader()).create_topic(name, model="TBW102", queues=4)
    assert refusal.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert bench.store.topics.names() == ["T"]


async def test_topics_of_a_group_and_of_the_broker_come_without_a_model() -> None:
    bench, role = Bench(), Leader()
    topics = creation(bench, role, auto_create=False)
    for name in ("%RETRY%g", "%DLQ%g", "C_REPLY_TOPIC"):
        topic = await topics.create_topic(name, model="", queues=4)
        assert (topic.name, topic.write_queues, topic.perm) == (name, 1, 6)
        assert bench.store.topics.get(name) == topic


async def test_only_a_master_creates() -> None:
    bench = Bench()
    with pytest.raises(RequestRefusedError) as refusal:
        await creation(bench, Follower()).create_topic("new", model="TBW102", queues=4)
    assert refusal.value.code == common_pb2.NOT_MASTER
    assert bench.store.topics.get("new") is None


async def test_an_update_keeps_attributes_and_changes_the_rest() -> None:
    bench, role = Bench(), Leader()
    topics = creation(bench, role)
    await topics.create(TopicConfig("new", 4, 4, attributes={"a": "1"}))
    assert (await topics.create(TopicConfig("new", 8, 8))).write_queues == 4
    changed = await topics.create(TopicConfig("new", 8, 8), update=True)
    assert (changed.write_queues, changed.attributes) == (8, {"a": "1"})


async def test_no_more_are_created_at_once_than_the_node_has_room_for() -> None:
    bench, role = Bench(), Leader()
    topics = creation(bench, role)
    role.may_confirm.clear()
    begun = [
        asyncio.ensure_future(topics.create(TopicConfig(f"t{number}", 1, 1)))
        for number in range(MAX_AT_ONCE)
    ]
    await asyncio.sleep(0)
    with pytest.raises(RemotingRefusedError, match="256") as refusal:
        await topics.create(TopicConfig("one-more", 1, 1))
    assert refusal.value.code == ResponseCode.SYSTEM_BUSY
    role.may_confirm.set()
    assert len(await asyncio.gather(*begun)) == MAX_AT_ONCE
