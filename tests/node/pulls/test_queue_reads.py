"""Reads in the loop on a whole node: what one turn of the loop reads for all its callers."""

import asyncio
from pathlib import Path

from fakes.reading_node import reading_node
from fakes.remoting_calls import records_in
from tandemlog_server.node.pulls.loop_share import MOST_MESSAGES
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall
from tandemlog_server.rocketmq.wire.remoting import Command

PULLS = 400
"""More than one read of a socket brings."""


async def test_one_turn_of_the_loop_reads_for_a_bounded_number_of_pulls(disk_path: Path) -> None:
    """On a disk: of a file in memory the kernel does not say that a read would not wait."""
    async with reading_node(disk_path / "n0") as door:
        await door.send(*[b"%d" % number for number in range(96)])
        ended: list[Command | None] = []
        for _ in range(PULLS):
            assert door.begin_pull(
                0,
                lambda _, answer, __: ended.append(answer),
                maxMsgNums=96,
                suspendTimeoutMillis=0,
            )
        each_turn = -(-MOST_MESSAGES // 96)
        assert len(ended) == each_turn
        await asyncio.sleep(0)
        assert len(ended) <= 2 * each_turn
        async with asyncio.timeout(20):
            while len(ended) < PULLS:
                before = len(ended)
                await asyncio.sleep(0)
                assert len(ended) <= before + each_turn
        assert all(each is not None and each.code == 0 for each in ended)
        answers = await asyncio.gather(*(door.pull(0, maxMsgNums=96) for _ in range(20)))
        assert [len(records_in(each.body)) for each in answers] == [96] * 20


async def test_parked_pulls_beyond_the_bound_get_their_message_too(tmp_path: Path) -> None:
    parked = MOST_MESSAGES + 50
    async with reading_node(tmp_path / "n0") as door:
        await door.send(b"first")
        answered: list[bytes] = []
        every = asyncio.Event()

        def ended(_: RemotingCall, response: Command | None, problem: Exception | None) -> None:
            assert response is not None, problem
            answered.extend(each.body for each in records_in(response.body))
            if len(answered) == parked:
                every.set()

        assert all(door.begin_pull(1, ended, sysFlag=2) for _ in range(parked))
        await door.send(b"second")
        async with asyncio.timeout(20):
            await every.wait()
        assert answered == [b"second"] * parked
