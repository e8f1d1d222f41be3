"""How far a group is (208), and where it is set to (222), as mqadmin asks a node."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.popping_node import (
    ACK,
    BROKER,
    GROUP,
    SET_MODE,
    TOPIC,
    Popper,
    connected,
    popping_node,
    receipt_of,
)
from tandemlog import EARLIEST, AsyncAdmin
from tandemlog.errors import GroupHasMembersError
from tandemlog_server.rocketmq.clients.pop.assignments import popped_topics
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.metadata.topics import TopicConfig

STATS, RESET, RESET_CLIENT = 208, 222, 220
COMMIT, UNREGISTER, UPDATE, DELETE = 15, 35, 200, 207
NO_TOPIC, NO_GROUP = 17, 26


@pytest.fixture
async def popper(tmp_path: Path) -> AsyncIterator[Popper]:
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        yield popper


def commit(popper: Popper, offset: int, queue_id: int = 0, topic: str = TOPIC) -> None:
    popper.node.store.consumer_offsets.commit(GROUP, topic, queue_id, offset)


async def reset(popper: Popper, **fields: object) -> Command:
    header = {"group": GROUP, "topic": TOPIC, "timestamp": -1, "isForce": "true"}
    return await popper.ask(RESET, **{**header, **fields})


def row(queue_id: int, end: int, consumed: int, topic: str = TOPIC) -> bytes:
    """A queue of the table, up to the time of what was consumed last."""
    key = f'{{"brokerName":"{BROKER}","queueId":{queue_id},"topic":"{topic}"}}'
    return f'{key}:{{"brokerOffset":{end},"consumerOffset":{consumed},"lastTimestamp":'.encode()


async def test_each_queue_has_its_end_and_the_offset_of_the_group(popper: Popper) -> None:
    await popper.put(b"a", b"b", b"c")
    commit(popper, 2)
    answer = await popper.ask(STATS, consumerGroup=GROUP, topic=TOPIC)
    assert answer.code == 0
    body = answer.body.replace(b" ", b"")
    assert row(0, 3, 2) in body
    assert all(row(each, 0, 0) in body for each in (1, 2, 3))
    stored_ms = popper.node.store.reader.time_at(TOPIC, 0, 1)
    assert row(0, 3, 2) + str(stored_ms).encode() in body


async def test_all_topics_with_offsets_are_told_if_none_is_named(popper: Popper) -> None:
    popper.node.store.create_topic(TopicConfig("other", 1, 1))
    commit(popper, 0)
    commit(popper, 0, topic="other")
    body = (await popper.ask(STATS, consumerGroup=GROUP)).body.replace(b" ", b"")
    assert row(0, 0, 0) in body
    assert row(0, 0, 0, "other") in body
    # a member that has left the other topic holds up nothing there
    await popper.heartbeat()
    body = (await popper.ask(STATS, consumerGroup=GROUP)).body.replace(b" ", b"")
    assert b'"other"' not in body


async def test_a_group_that_nothing_is_known_of_has_an_empty_table(popper: Popper) -> None:
    answer = await popper.ask(STATS, consumerGroup=GROUP)
    assert json.loads(answer.body)["offsetTable"] == {}
    assert (await popper.ask(STATS, consumerGroup="no group!")).code != 0


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"timestamp": -1}, {0: 3, 1: 0, 2: 0, 3: 0}),
        ({"timestamp": 0}, {0: 0, 1: 0, 2: 0, 3: 0}),
        ({"queueId": 0, "offset": 2}, {0: 2}),
        ({"queueId": 1}, {1: 0}),
        ({"timestamp": 1 << 50}, {0: 3, 1: 0, 2: 0, 3: 0}),
    ],
)
async def test_offsets_are_set_by_time_or_by_number(
    popper: Popper, fields: dict[str, object], found: dict[int, int]
) -> None:
    await popper.put(b"a", b"b", b"c")
    commit(popper, 1)
    answer = await reset(popper, **fields)
    assert answer.code == 0, answer.remark
    offsets = popper.node.store.consumer_offsets.of_pair(TOPIC, GROUP)
    assert {each: offsets[each] for each in found} == found
    for queue_id, offset in found.items():
        key = f'{{"brokerName":"{BROKER}","queueId":{queue_id},"topic":"{TOPIC}"}}:{offset}'
        assert key.encode() in answer.body.replace(b" ", b"")


async def test_members_are_told_to_go_there(popper: Popper) -> None:
    await popper.put(b"a", b"b")
    commit(popper, 0)
    await popper.heartbeat()
    pushed: list[Command] = []
    exchanged = popper.link._commands.feed

    def feed(data: bytes) -> list[Command]:
        found = list(exchanged(data))
        pushed.extend(each for each in found if not each.is_response)
        return found

    popper.link._commands.feed = feed  # type: ignore[method-assign,assignment]
    assert (await reset(popper)).code == 0
    [told] = [each for each in pushed if each.code == RESET_CLIENT]
    assert (told.fields["group"], told.fields["topic"]) == (GROUP, TOPIC)
    assert b":2" in told.body.replace(b" ", b"")


async def test_a_group_with_members_is_not_reset_where_none_is_told(popper: Popper) -> None:
    """They would commit what they have in memory over it."""
    await popper.put(b"a", b"b")
    commit(popper, 1)
    await popper.heartbeat()
    async with AsyncAdmin(popper.node.endpoints.listen) as admin:
        for dry_run in (True, False):
            with pytest.raises(GroupHasMembersError, match="resetOffsetByTime") as refused:
                await admin.reset_offsets(GROUP, to=EARLIEST, dry_run=dry_run)
            assert "has 1 member of RocketMQ's clients" in str(refused.value)
        await admin.commit(GROUP, {(TOPIC, 0): 2})
        await popper.ask(UNREGISTER, clientID="c1", consumerGroup=GROUP)
        await admin.reset_offsets(GROUP, to=EARLIEST)
    assert popper.node.store.consumer_offsets.of_pair(TOPIC, GROUP)[0] == 0


async def test_members_commit_what_they_have_read(popper: Popper) -> None:
    await popper.put(b"a", b"b")
    await popper.heartbeat()
    for offset in (2, 1):
        place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "commitOffset": offset}
        answer = await popper.ask(COMMIT, **place)
        assert answer.code == 0, answer.remark
        assert popper.node.store.consumer_offsets.of_pair(TOPIC, GROUP) == {0: offset}


async def test_a_group_with_members_is_not_deleted(popper: Popper) -> None:
    """The next heartbeat would make it again, and the next commit its offsets."""
    await popper.put(b"a", b"b")
    commit(popper, 1)
    await popper.heartbeat()
    async with AsyncAdmin(popper.node.endpoints.listen) as admin:
        for dry_run in (True, False):
            with pytest.raises(GroupHasMembersError, match="stop them first"):
                await admin.delete_group(GROUP, dry_run=dry_run)
        refused = await popper.ask(DELETE, groupName=GROUP, cleanOffset="true")
        assert refused.code != 0
        assert "stop them first" in refused.remark
        assert popper.node.store.consumer_offsets.has_group(GROUP)
        await popper.ask(UNREGISTER, clientID="c1", consumerGroup=GROUP)
        await admin.delete_group(GROUP)
    assert not popper.node.store.consumer_offsets.has_group(GROUP)


async def test_what_a_group_has_read_is_deleted_only_if_that_is_asked_for(popper: Popper) -> None:
    """As RocketMQ's cleanOffset: else it would read everything again, or skip what waits."""
    await popper.put(b"a", b"b")
    commit(popper, 1)
    await popper.heartbeat()
    changed = {"groupName": GROUP, "retryMaxTimes": 3}
    assert (await popper.ask(UPDATE, changed)).code == 0
    groups = popper.node.store.groups
    assert groups.policy(GROUP).max_attempts == 4
    assert (await popper.ask(DELETE, groupName=GROUP)).code == 0
    assert groups.policy(GROUP).max_attempts == 17
    assert popper.node.store.consumer_offsets.of_pair(TOPIC, GROUP)[0] == 1
    await popper.ask(UNREGISTER, clientID="c1", consumerGroup=GROUP)
    assert (await popper.ask(DELETE, groupName=GROUP, cleanOffset="true")).code == 0
    assert GROUP not in groups.table
    assert not popper.node.store.consumer_offsets.has_group(GROUP)


async def test_a_group_that_popped_keeps_what_it_has_done_too(popper: Popper) -> None:
    mode = {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 1}
    assert (await popper.ask(SET_MODE, mode)).code == 0
    await popper.put(b"a", b"b")
    [first] = await popper.popped(1)
    assert (await popper.say(ACK, receipt_of(first))).code == 0
    assert (await popper.ask(DELETE, groupName=GROUP)).code == 0
    assert popped_topics(popper.node.store.groups.table[GROUP]) == {TOPIC: 1}
    assert [each.body for each in await popper.popped()] == [b"b"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "none"}, NO_TOPIC),
        ({"group": "none"}, NO_GROUP),
        ({"queueId": 4}, 13),
        ({"timestamp": "soon"}, 13),
    ],
)
async def test_what_cannot_be_set_is_refused(
    popper: Popper, fields: dict[str, object], code: int
) -> None:
    commit(popper, 0)
    assert (await reset(popper, **fields)).code == code
