"""Small things that the parts of a process need when they start and end."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def nothing() -> None:
    """Nothing to be done."""


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel `task`, and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


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
