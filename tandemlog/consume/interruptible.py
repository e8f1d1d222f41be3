"""Long polls that end early when what they ask for has changed."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")


class Interruptible(Generic[ResultT]):
    """One call at a time, in one event loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[ResultT] | None = None
        self._interrupted = False

    def interrupt(self) -> None:
        """End the call that is under way, if there is one."""
        if self._task is not None and not self._task.done():
            self._interrupted = True
            self._task.cancel()

    async def result(self, work: Coroutine[Any, Any, ResultT]) -> ResultT | None:
        """What `work` returns, or raises; None if it was interrupted."""
        self._interrupted = False
        task = self._task = asyncio.get_running_loop().create_task(work)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            caller = asyncio.current_task()
            if not self._interrupted or (caller is not None and caller.cancelling()):
                raise
            return None
        finally:
            self._task = None
