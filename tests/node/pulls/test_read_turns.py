"""Readers take turns by connection, and answers under way have a bound for the node."""

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tandemlog.v1 import common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError, error_of
from tandemlog_server.node.pulls.read_turns import COPIES, ReadTurns

MIB = 1 << 20


class Gate:
    """Work that a reader thread does when it is told to, and in which order it began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._go = threading.Semaphore(0)

    def work(self, name: str) -> Callable[[], str]:
        def run() -> str:
            self.began.append(name)
            assert self._go.acquire(timeout=10)
            return name

        return run

    def open(self, count: int = 1) -> None:
        self._go.release(count)


async def begun(condition: Callable[[], bool]) -> None:
    """Until a thread has come so far."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the reader is a thread and knows no event
            await asyncio.sleep(0)


async def of_bytes(turns: ReadTurns, caller: Caller, size: int, room: int = 0) -> int:
    return await turns.run(caller, lambda: size, room=room, size_of=lambda made: made)


async def test_one_connection_that_asks_for_much_delays_itself() -> None:
    turns, gate = ReadTurns(1, MIB), Gate()
    greedy, other = Caller("a"), Caller("b")
    asked: list[Awaitable[str]] = [
        asyncio.ensure_future(turns.run(greedy, gate.work(f"a{number}"))) for number in range(3)
    ]
    await begun(lambda: bool(gate.began))
    asked.append(asyncio.ensure_future(turns.run(other, gate.work("b"))))
    await asyncio.sleep(0)
    gate.open(4)
    await asyncio.gather(*asked)
    assert gate.began == ["a0", "a1", "b", "a2"]
    turns.close()


async def test_answers_that_are_not_taken_leave_half_of_the_room_to_others() -> None:
    turns = ReadTurns(4, 8 * MIB, wait_s=0)
    slow, other = Caller("slow"), Caller("other")
    for _ in range(4 // COPIES):
        await of_bytes(turns, slow, MIB, MIB)
    assert turns.held_bytes == 4 * MIB
    with pytest.raises(RequestRefusedError, match="in progress") as refused:
        await of_bytes(turns, slow, MIB, MIB)
    assert refused.value.code == common_pb2.BUSY
    assert await of_bytes(turns, other, MIB, MIB) == MIB
    turns.release(slow)
    turns.release(other)
    assert turns.held_bytes == 0
    assert await of_bytes(turns, slow, MIB, MIB) == MIB
    turns.close()


async def test_many_connections_of_one_host_leave_room_to_others() -> None:
    """However many do not take their answers, and though others hold a little already."""
    turns = ReadTurns(4, 64 * MIB, wait_s=0)
    other, little = Caller("ipv4:10.0.0.2:1"), Caller("ipv4:10.0.0.3:1")
    await of_bytes(turns, little, MIB, MIB)
    held = 0
    for number in range(64):
        slow = Caller(f"ipv4:10.0.0.1:{number}")
        if held >= 40 * MIB:
            with pytest.raises(RequestRefusedError, match="for this identity or host"):
                await of_bytes(turns, slow, MIB, MIB)
            break
        await of_bytes(turns, slow, MIB, MIB)
        held += COPIES * MIB
    assert await of_bytes(turns, other, 4 * MIB, 4 * MIB) == 4 * MIB
    assert await of_bytes(turns, little, MIB, MIB) == MIB
    turns.close()


async def test_an_identity_is_one_caller_wherever_it_comes_from() -> None:
    turns = ReadTurns(4, 8 * MIB, wait_s=0)
    for number in range(2):
        await of_bytes(turns, Caller(f"ipv4:10.0.0.{number}:1", "app"), MIB, MIB)
    with pytest.raises(RequestRefusedError):
        await of_bytes(turns, Caller("ipv4:10.0.0.9:1", "app"), MIB, MIB)
    assert await of_bytes(turns, Caller("ipv4:10.0.0.9:1", "other"), MIB, MIB) == MIB
    turns.close()


async def test_a_read_begins_when_others_have_sent_theirs() -> None:
    turns = ReadTurns(4, 8 * MIB)
    callers = [Caller(str(number)) for number in range(4)]
    for caller in callers:
        await of_bytes(turns, caller, MIB, MIB)
    late = asyncio.ensure_future(of_bytes(turns, Caller("late"), MIB, MIB))
    await asyncio.sleep(0)
    assert not late.done()
    turns.release(callers[0])
    assert await late == MIB
    turns.close()


async def test_small_answers_are_not_counted() -> None:
    turns = ReadTurns(1, MIB)
    caller = Caller("a")
    await of_bytes(turns, caller, 100, MIB)
    assert (caller.held_bytes, turns.held_bytes) == (0, 0)
    turns.close()


async def test_a_call_that_ends_early_keeps_its_thread_until_that_is_done() -> None:
    turns, gate = ReadTurns(1, MIB), Gate()
    gone = asyncio.ensure_future(turns.run(Caller("a"), gate.work("a"), room=1_000))
    await begun(lambda: bool(gate.began))
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert turns.held_bytes == COPIES * 1_000
    following = asyncio.ensure_future(turns.run(Caller("b"), gate.work("b")))
    await asyncio.sleep(0)
    assert gate.began == ["a"]
    gate.open(2)
    assert await following == "b"
    assert turns.held_bytes == 0
    turns.close()


async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    turns, gate = ReadTurns(1, MIB), Gate()
    first = asyncio.ensure_future(turns.run(Caller("a"), gate.work("a")))
    await begun(lambda: bool(gate.began))
    gone = asyncio.ensure_future(turns.run(Caller("b"), gate.work("b"), room=500))
    last = asyncio.ensure_future(turns.run(Caller("c"), gate.work("c")))
    await asyncio.sleep(0)
    gone.cancel()
    gate.open(2)
    assert [await first, await last] == ["a", "c"]
    assert gate.began == ["a", "c"]
    assert turns.held_bytes == 0
    turns.close()


def refuse(_: bytes) -> bytes:
    raise RequestRefusedError(common_pb2.UNKNOWN_TOPIC, "there is no such topic")


async def told(turns: ReadTurns, request: bytes) -> None:
    """What the door does with a read."""
    try:
        await turns.run(Caller("a"), partial(refuse, request))
    except RequestRefusedError as refusal:
        error_of(refusal)


async def test_the_request_of_a_refused_read_does_not_wait_for_the_collector() -> None:
    turns, request = ReadTurns(1, MIB), bytes(1_000)
    held = sys.getrefcount(request)
    gc.collect()
    gc.disable()
    try:
        await told(turns, request)
        # the reader's thread lets go a moment later
        await begun(lambda: sys.getrefcount(request) <= held)
    finally:
        gc.enable()
        turns.close()
