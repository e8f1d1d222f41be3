"""Small things that the parts of a process need when they start and end."""

import asyncio
from contextlib import suppress


async def nothing() -> None:
    """Nothing to be done."""


async def cancelled(task: asyncio.Task[None]) -> None:
    """Cancel `task`, and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
