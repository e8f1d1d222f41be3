"""What one turn of the loop reads: a bound for all callers, which begins again with each turn."""

import asyncio

from tandemlog_server.node.pulls.loop_share import LoopShare


async def test_a_turn_has_room_until_its_messages_are_read() -> None:
    share = LoopShare(100)
    share.take(99)
    assert share.has_room()
    share.take(96)
    assert not share.has_room()
    await asyncio.sleep(0)
    assert share.has_room()


async def test_a_read_of_nothing_counts_as_a_message() -> None:
    share = LoopShare(2)
    share.take(0)
    assert share.has_room()
    share.take(0)
    assert not share.has_room()


async def test_each_turn_begins_with_nothing() -> None:
    share = LoopShare(10)
    for _ in range(3):
        share.take(10)
        assert not share.has_room()
        await asyncio.sleep(0)
        assert share.has_room()
