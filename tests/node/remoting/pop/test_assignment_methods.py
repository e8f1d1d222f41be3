"""Queues that a node deals out to members, groups that begin to pop, and who is refused then."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.popping_node import (
    BROKER,
    GROUP,
    QUERY,
    SET_MODE,
    TOPIC,
    Popper,
    connected,
    popping_node,
)
from tandemlog_server.rocketmq.wire.remoting import Command

NO_PERMISSION, NO_TOPIC = 16, 17
PULL = 11


@pytest.fixture
async def popper(tmp_path: Path) -> AsyncIterator[Popper]:
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        yield popper


async def queues(popper: Popper, client: str = "c1", **fields: object) -> list[tuple[int, str]]:
    row = {
        "topic": TOPIC,
        "consumerGroup": GROUP,
        "clientId": client,
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }
    answer = await popper.ask(QUERY, {**row, **fields})
    assert answer.code == 0, answer.remark
    rows = json.loads(answer.body)["messageQueueAssignments"]
    assert {each["messageQueue"]["brokerName"] for each in rows} <= {BROKER}
    return sorted((each["messageQueue"]["queueId"], each["mode"]) for each in rows)


async def set_mode(popper: Popper, mode: str, **fields: object) -> Command:
    row = {"topic": TOPIC, "consumerGroup": GROUP, "mode": mode, "popShareQueueNum": 0}
    return await popper.ask(SET_MODE, {**row, **fields})


async def test_members_that_pull_get_a_part_of_the_queues_each(popper: Popper) -> None:
    async with connected(popper.node) as other:
        await popper.heartbeat("c1")
        assert await queues(popper) == [(each, "PULL") for each in range(4)]
        await other.heartbeat("c2")
        assert await queues(popper) == [(0, "PULL"), (1, "PULL")]
        assert await queues(other, "c2") == [(2, "PULL"), (3, "PULL")]
        assert await queues(popper, "a stranger") == []
        assert len(await queues(popper, messageModel="BROADCASTING")) == 4


async def test_a_member_keeps_its_queues_where_nothing_is_known(popper: Popper) -> None:
    row = {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c1"}
    assert json.loads((await popper.ask(QUERY, row)).body) == {}
    await popper.heartbeat("c1")
    assert json.loads((await popper.ask(QUERY, {**row, "topic": "none"})).body) == {}


async def test_a_group_that_pops_pops_the_whole_topic(popper: Popper) -> None:
    async with connected(popper.node) as second, connected(popper.node) as third:
        members = [(popper, "c1"), (second, "c2"), (third, "c3")]
        for link, client in members:
            await link.heartbeat(client)
        assert (await set_mode(popper, "POP")).code == 0
        assert await queues(popper) == [(-1, "POP")]
        assert (await set_mode(popper, "POP", popShareQueueNum=1)).code == 0
        assert await queues(popper) == [(0, "POP"), (1, "POP"), (2, "POP")]
        assert (await set_mode(popper, "PULL")).code == 0
        assert await queues(popper) == [(0, "PULL"), (1, "PULL")]


async def test_a_mode_outlives_the_master(tmp_path: Path) -> None:
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        await set_mode(popper, "POP")
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        await popper.heartbeat()
        assert await queues(popper) == [(-1, "POP")]


async def test_what_cannot_be_set_is_refused(popper: Popper) -> None:
    assert (await set_mode(popper, "POP", topic="none")).code == NO_TOPIC
    assert (await set_mode(popper, "POP", topic=f"%RETRY%{GROUP}")).code == NO_PERMISSION
    assert (await set_mode(popper, "PUSH")).code != 0
    assert popper.node.store.groups.table == {}


def pull(popper: Popper, topic: str = TOPIC) -> object:
    return popper.ask(
        PULL,
        consumerGroup=GROUP,
        topic=topic,
        queueId=0,
        queueOffset=0,
        maxMsgNums=1,
        sysFlag=0,
    )


async def test_a_topic_that_is_popped_is_not_pulled(popper: Popper) -> None:
    await popper.put(b"a")
    assert (await pull(popper)).code == 0  # type: ignore[misc]
    await set_mode(popper, "POP")
    refused = await pull(popper)  # type: ignore[misc]
    assert refused.code == NO_PERMISSION
    assert "mqadmin setConsumeMode -m PULL" in refused.remark
    await set_mode(popper, "PULL")
    assert (await pull(popper)).code == 0  # type: ignore[misc]


async def test_who_pulls_and_who_pops_do_not_meet_in_a_group(popper: Popper) -> None:
    await popper.put(b"a")
    await popper.heartbeat()
    refused = await popper.pop()
    assert "has 1 member of RocketMQ's clients" in refused.remark
    await set_mode(popper, "POP")
    assert len(await popper.popped()) == 1
    # its members are still there
    assert (await popper.heartbeat("c2")).code == 0
    await set_mode(popper, "PULL")
    assert "of its work queues" in (await popper.heartbeat("c3")).remark
