"""Small things that the parts of a process need when they start and end."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def watched(
    work: Coroutine[Any, Any, None], name: str, fatal: Callable[[BaseException], None]
) -> asyncio.Task[None]:
    """A task that runs until it is cancelled; any other end is one that only an operator can mend,
    and `fatal` hears of it."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (problem := task.exception()) is not None:
            fatal(problem)

    task = asyncio.create_task(work, name=name)
    task.add_done_callback(ended)
    return task


async def stopped(task: asyncio.Task[None]) -> None:
    """Cancel `task`, and wait for its end, whatever it is."""
    task.cancel()
    # not awaited itself: a cancel of the caller would be taken for that of the task
    await asyncio.wait({task})


async def cancelled(task: asyncio.Task[None]) -> None:
    """`stopped`; raises what the task has failed with."""
    await stopped(task)
    if not task.cancelled():
        task.result()


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is not interrupted: if the caller is cancelled, it is so after
    the end of `work`."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        raise
