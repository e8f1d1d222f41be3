"""Closes what a program has left open, when the collector finds it.

__del__, in any thread ─▶ close() in the event loop that it belongs to, if that runs
"""

import asyncio
import contextlib
import logging
from typing import Any, Protocol

logger = logging.getLogger(__name__)

_closing: set[asyncio.Task[None]] = set()


class Closeable(Protocol):
    """What is closed in a loop."""

    async def close(self) -> Any: ...


def close_later(left: Closeable, loop: asyncio.AbstractEventLoop) -> None:
    """In `loop`. Any thread."""

    def ended(task: asyncio.Task[None]) -> None:
        _closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("what was left open was not closed well: %s", error)

    def begin() -> None:
        task = loop.create_task(left.close(), name="tandemlog-left-open")
        _closing.add(task)
        task.add_done_callback(ended)

    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        begin()
    else:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(begin)
