"""Whole nodes that follow a RocketMQ broker: what they serve and refuse, and how they take over."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_rocketmq import FakeRocketmq, lost_tail
from fakes.following_nodes import QUICK, bodies, caught_up, config, filled, new_broker, started
from fakes.replicas import eventually
from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.takeover import Takeover
from tandemlog.errors import ChangeRefusedError
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.storage.errors import DiskFullError


@pytest.fixture
async def broker() -> AsyncIterator[FakeRocketmq]:
    made = filled(new_broker())
    await made.start()
    yield made
    await made.stop()


async def asked_until_taken(admin: AsyncAdmin) -> Takeover:
    while not (found := await admin.take_over()).taken_over:  # noqa: ASYNC110 - as the program does
        await asyncio.sleep(0.05)
    return found


async def test_it_serves_the_brokers_messages_and_refuses_puts_and_topics(
    tmp_path: Path, broker: FakeRocketmq
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        assert sorted(await bodies(node)) == sorted(b"body %d" % number for number in range(60))
        async with AsyncProducer(node.endpoints.listen) as producer:
            with pytest.raises(ChangeRefusedError, match="takes no puts: send them to that broker"):
                await (await producer.send(Message("Orders", b"x")))
        async with AsyncAdmin(node.endpoints.listen, connection=QUICK) as admin:
            with pytest.raises(ChangeRefusedError, match="takes its topics from there"):
                await admin.create_topic("mine")
            (row,) = (await admin.cluster()).nodes
            assert (row.role, row.state) == ("master", "following")
            assert "follows broker broker-a of cluster shop" in row.detail
        assert node.store.read_only_reason
    finally:
        await node.stop()


async def test_our_readers_groups_commit_and_the_brokers_do_not(
    tmp_path: Path, broker: FakeRocketmq
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        assert len(await bodies(node, "ours")) == 60
        assert await bodies(node, "ours") == []
        await eventually(lambda: node.store.consumer_offsets.of_pair("Orders", "theirs") != {})
        async with AsyncAdmin(node.endpoints.listen, connection=QUICK) as admin:
            with pytest.raises(ChangeRefusedError, match="offsets of group 'theirs' from there"):
                await admin.commit("theirs", {("Orders", 0): 1})
        assert node.store.consumer_offsets.of_pair("Orders", "theirs") == {0: 3, 1: 2}
    finally:
        await node.stop()


async def test_a_slave_follows_the_follower(tmp_path: Path, broker: FakeRocketmq) -> None:
    node = await started(config(tmp_path / "n0", node_id="n0", follow=broker.address))
    await caught_up(node, broker)
    slave = await started(
        config(tmp_path / "n1", node_id="n1", role="slave", master=node.endpoints.listen)
    )
    try:
        await eventually(lambda: slave.store.reputed.value == broker.builder.end)
        for number in range(30):
            broker.builder.put("Orders", number % 4, b"more %d" % number)
        await eventually(lambda: slave.store.reputed.value == broker.builder.end)
        assert slave.store.topics.names() == ["Orders"]
        assert len(await bodies(slave)) == 90
        await eventually(lambda: slave.status().in_sync)
    finally:
        await slave.stop()
        await node.stop()


async def test_a_slave_hears_of_a_cut(tmp_path: Path, broker: FakeRocketmq) -> None:
    """What the broker has lost was confirmed here, and a slave never gives that up by itself."""
    node = await started(config(tmp_path / "n0", node_id="n0", follow=broker.address))
    await caught_up(node, broker)
    slave = await started(
        config(tmp_path / "n1", node_id="n1", role="slave", master=node.endpoints.listen)
    )
    try:
        await eventually(lambda: slave.store.confirmed.value == broker.builder.end)
        await broker.stop()
        lost_tail(broker.builder, broker.builder.records[-5].physical_offset)
        await broker.start()
        await eventually(lambda: node.store.log.wrote.value == broker.builder.end)
        await eventually(lambda: "acknowledged messages would be lost" in slave.status().detail)
        await eventually(lambda: node.members()[0].state == "following")
    finally:
        await slave.stop()
        await node.stop()


async def test_a_relay_with_ports_for_brokers_tells_that_none_can_follow_yet(
    tmp_path: Path, broker: FakeRocketmq, caplog: pytest.LogCaptureFixture
) -> None:
    ports = {"listen": "127.0.0.1:0"}
    node = await started(config(tmp_path, follow=broker.address, rocketmq=ports))
    await node.stop()
    assert caplog.text.count("nothing listens there before this node has taken over") == 1


async def test_it_takes_over_once_the_broker_refuses_writes_and_all_is_here(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandemlog_server.rocketmq.follow.takeover.QUIET_S", 0.3)
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        async with AsyncAdmin(node.endpoints.listen, connection=QUICK) as admin:
            waits = await admin.take_over()
            assert "still takes writes" in waits.waits_for
            assert not waits.taken_over
            broker.permission = 4
            found = await asked_until_taken(admin)
            assert found.end_offset == broker.builder.end
            assert found.break_ms > 0
            again = await admin.take_over()
            assert (again.taken_over, again.epoch) == (True, found.epoch)
            assert (await admin.cluster()).nodes[0].state == "running"
        async with AsyncProducer(node.endpoints.listen) as producer:
            done = await (await producer.send(Message("Orders", b"after", queue_id=0)))
            assert done.queue_offset == 15
        read = await bodies(node, "theirs")
        assert len(read) == 61 - 5  # the broker's group has 3 and 2 of them already
    finally:
        await node.stop()
    # the broker comes back with more, and the configuration still says to follow it
    for number in range(5):
        broker.builder.put("Orders", 0, b"zombie %d" % number)
    broker.permission = 6
    node = await started(config(tmp_path, follow=broker.address))
    try:
        assert b"after" in await bodies(node)
        async with AsyncProducer(node.endpoints.listen) as producer:
            await (await producer.send(Message("Orders", b"later")))
    finally:
        await node.stop()


async def test_it_takes_over_from_a_broker_that_is_gone(
    tmp_path: Path, broker: FakeRocketmq
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        await broker.stop()
        async with AsyncAdmin(node.endpoints.listen, connection=QUICK) as admin:
            assert "has just gone" in (await admin.take_over()).waits_for
            async with asyncio.timeout(10):
                await asked_until_taken(admin)
    finally:
        await node.stop()


async def test_a_relay_term_that_a_full_disk_kept_from_beginning_begins_later(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        await broker.stop()
        lost_tail(broker.builder, broker.builder.records[-5].physical_offset)
        append, refusals = node.store.epochs.append, [DiskFullError("full"), DiskFullError("full")]

        def refuse(entry: EpochEntry) -> None:
            if refusals:
                raise refusals.pop()
            append(entry)

        monkeypatch.setattr(node.store.epochs, "append", refuse)
        await broker.start()
        await eventually(lambda: node.store.log.wrote.value == broker.builder.end)
        await eventually(lambda: node.role.epoch() is not None)
        assert not refusals
        broker.builder.put("Orders", 0, b"one more")
        await eventually(lambda: node.store.reputed.value == broker.builder.end)
        last = node.store.epochs.table.last
        assert last is not None
        assert last.epoch == node.role.epoch()
    finally:
        await node.stop()


async def test_only_a_node_that_follows_can_take_over(tmp_path: Path, broker: FakeRocketmq) -> None:
    node = await started(config(tmp_path / "a"))
    try:
        async with AsyncAdmin(node.endpoints.listen, connection=QUICK) as admin:
            with pytest.raises(ChangeRefusedError, match="follows no RocketMQ broker"):
                await admin.take_over()
    finally:
        await node.stop()
    await broker.stop()
    node = await started(config(tmp_path / "b", follow=broker.address))
    try:
        async with AsyncAdmin(node.endpoints.listen, connection=QUICK) as admin:
            waits = await admin.take_over(force=True)
            assert "has not followed" in waits.waits_for
    finally:
        await node.stop()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"role": "master"}, "has no other role"),
        ({"role": "slave", "master": "h:1"}, "has no other role"),
        ({"coordinator": {"endpoints": ["h:1"]}}, "takes part in no election"),
    ],
)
def test_a_follower_has_no_other_role(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="follow: a node that follows") as caught:
        NodeConfig(follow="rocketmq://h:10911", **fields)
    assert words in str(caught.value)


def test_a_wrong_address_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ValueError, match="must begin with rocketmq://"):
        NodeConfig(follow="h:10911")
