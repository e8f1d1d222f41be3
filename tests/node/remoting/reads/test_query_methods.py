"""Messages by key, by unique id and by position, as RocketMQ's clients ask for them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.forged_records import forged_head
from fakes.reading_node import ReadingNode, reading_node
from fakes.remoting_calls import records_in
from tandemlog_server.node.access.caller import Caller, Who
from tandemlog_server.node.access.identities import Identity
from tandemlog_server.node.access.patterns import Patterns
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.remoting.door.remoting_call import RemotingRefusedError
from tandemlog_server.rocketmq.wire.remoting import Command

KEY, POSITION = 12, 33


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[ReadingNode]:
    async with reading_node(tmp_path / "n0") as reading:
        yield reading


async def by_key(door: ReadingNode, key: str, **fields: object) -> Command:
    times = {"beginTimestamp": 0, "endTimestamp": 9223372036854775807}
    return await door.ask(KEY, **{"topic": "t", "key": key, "maxNum": 64, **times, **fields})


def bodies(answer: Command) -> list[bytes]:
    return [each.body for each in records_in(answer.body)]


async def test_messages_with_a_key(door: ReadingNode) -> None:
    await door.send(b"a", keys=["k", "l"])
    await door.send(b"b", keys=["k"])
    await door.send(b"c", keys=["m"])
    answer = await by_key(door, "k")
    assert (answer.code, bodies(answer)) == (0, [b"a", b"b"])
    assert bodies(await by_key(door, "k", maxNum=1)) == [b"b"]
    last = int(answer.fields["indexLastUpdatePhyoffset"])
    assert 0 < last < door.node.store.log.wrote.value
    assert int(answer.fields["indexLastUpdateTimestamp"]) > 0


async def test_a_message_by_its_unique_id(door: ReadingNode) -> None:
    await door.send(b"a", b"b")
    [record] = records_in((await door.pull(0, maxMsgNums=1)).body)
    assert record.uniq_key
    answer = await by_key(door, record.uniq_key, _UNIQUE_KEY_QUERY="true")
    assert bodies(answer) == [record.body]


async def test_a_slave_leaves_keys_to_the_master(door: ReadingNode) -> None:
    """Or a client, which asks each name of a route, has each message once more for each slave."""
    await door.send(b"a", keys=["k"])
    door.readers.number = 2
    answer = await by_key(door, "k")
    assert (answer.code, answer.body) == (22, b"")
    assert "master" in (answer.remark or "")
    door.readers.leading = None
    assert bodies(await by_key(door, "k")) == [b"a"]


async def test_messages_with_a_tag(door: ReadingNode) -> None:
    await door.send(b"a", tags="x")
    await door.send(b"b", tags="y")
    assert bodies(await by_key(door, "y", indexType="T")) == [b"b"]


async def test_nothing_is_found_by_another_key_time_or_topic(door: ReadingNode) -> None:
    await door.send(b"a", keys=["k"])
    assert (await by_key(door, "other")).code == 22
    assert (await by_key(door, "k", endTimestamp=5)).code == 22
    with pytest.raises(RequestRefusedError, match="no topic"):
        await by_key(door, "k", topic="missing")


async def test_a_message_by_its_position(door: ReadingNode) -> None:
    await door.send(b"a", b"b")
    first, second = records_in((await door.pull(0)).body)
    answer = await door.ask(POSITION, offset=second.physical_offset)
    assert bodies(answer) == [b"b"]
    end = door.node.store.log.wrote.value
    for position in (first.physical_offset + 4, -1, end, end + 1_000_000):
        with pytest.raises(RemotingRefusedError) as refusal:
            await door.ask(POSITION, offset=position)
        assert refusal.value.code == 1


async def test_a_body_that_looks_like_a_record_shows_nobody_the_messages_behind_it(
    door: ReadingNode,
) -> None:
    """Who may read one topic forges a record of it, whose properties are the log behind it."""
    other = Caller(who=Who(Identity("other", read=Patterns(["t"])), frozenset()))
    store = door.node.store
    head = len(forged_head(0, topic="t"))
    await door.send(b"~" * head)
    [probe] = records_in((await door.pull(0)).body)
    body_at = bytes(store.reader.record_at(probe.physical_offset)).index(b"~" * head)
    position = store.log.wrote.value + body_at
    await door.send(forged_head(position, topic="t"))
    await door.send(b"a secret, of whatever topic" * 100)
    assert b"a secret" in store.reader.record_at(position), "it looks like a record"
    with pytest.raises(RemotingRefusedError, match="no message"):
        await door.ask(POSITION, offset=position, caller=other)
    # what is in its queue is still read by its place
    answer = await door.ask(POSITION, offset=probe.physical_offset, caller=other)
    assert bodies(answer) == [b"~" * head]
