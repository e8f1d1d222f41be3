import asyncio

import pytest

from tandemlog.consume.interruptible import Interruptible


async def answer(after: asyncio.Event, value: int = 7) -> int:
    await after.wait()
    if value < 0:
        raise ValueError("refused")
    return value


async def under_way(call: Interruptible[int], value: int = 7) -> "asyncio.Task[int | None]":
    task = asyncio.create_task(call.result(answer(asyncio.Event(), value)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_a_call_that_nothing_interrupts() -> None:
    call: Interruptible[int] = Interruptible()
    there = asyncio.Event()
    there.set()
    call.interrupt()  # nothing is under way
    assert await call.result(answer(there)) == 7
    with pytest.raises(ValueError, match="refused"):
        await call.result(answer(there, -1))
    call.interrupt()
    assert await call.result(answer(there)) == 7


async def test_an_interrupted_call_has_no_result() -> None:
    call: Interruptible[int] = Interruptible()
    task = await under_way(call)
    call.interrupt()
    assert await task is None


@pytest.mark.parametrize("interrupted", [False, True])
async def test_a_caller_that_is_cancelled_stays_cancelled(interrupted: bool) -> None:
    call: Interruptible[int] = Interruptible()
    task = await under_way(call)
    if interrupted:
        call.interrupt()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
