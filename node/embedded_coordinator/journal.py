"""Group commit: a change is durable before anyone hears of it.

    machine applies ─▶ add ─▶ │ waiting │ ─▶ one commit in the thread ─▶ durable
                                   ▲                 │
                              while it commits, the next ones gather

An answer waits for everything that was added before it, whether its request changed something or
only read: so no client hears of a change that a power cut could take back. A failed commit is the
end: what the disk holds is unknown, so nothing is answered any more and the process stops.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .database import Database
from .state_machine import Changes

logger = logging.getLogger(__name__)


class Journal:
    """See the module. `on_durable` gets the revision up to which everything is durable."""

    def __init__(self, database: Database, on_durable: Callable[[int], None]) -> None:
        loop = asyncio.get_running_loop()
        self._database = database
        self._on_durable = on_durable
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="coordinator-commit")
        self._waiting: list[Changes] = []
        self.waiting_bytes = 0
        self._next: asyncio.Future[None] = loop.create_future()
        self._present: asyncio.Future[None] | None = None
        self._filled = asyncio.Event()
        self.fatal: asyncio.Future[BaseException] = loop.create_future()
        self._task = asyncio.create_task(self._run())

    def add(self, changes: Changes) -> None:
        """To be made durable, in the order of the calls."""
        if not changes.empty:
            self._waiting.append(changes)
            self.waiting_bytes += changes.size
            self._filled.set()

    async def durable(self) -> None:
        """Until all that was added before is durable. Never returns after a failed commit."""
        if self._waiting or self.fatal.done():
            await asyncio.shield(self._next)
        elif self._present is not None:
            await asyncio.shield(self._present)

    def fail(self, error: BaseException) -> None:
        """Nothing is answered any more."""
        if not self.fatal.done():
            self.fatal.set_result(error)

    async def close(self) -> None:
        """Make durable what was added, unless that failed, and end the thread."""
        last = asyncio.create_task(self.durable())
        # it never returns once a commit has failed, which the last one may do too
        await asyncio.wait((last, self.fatal), return_when=asyncio.FIRST_COMPLETED)
        last.cancel()
        self._task.cancel()
        await asyncio.gather(last, self._task, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._filled.wait()
            self._filled.clear()
            batch, self._waiting = self._waiting, []
            present = self._present = self._next
            self._next = loop.create_future()
            try:
                await loop.run_in_executor(self._thread, self._database.commit, batch)
            except Exception as error:  # whatever it is, the outcome is unknown
                logger.critical("commit failed, the coordinator stops: %s", error)
                self.fail(error)
                return
            if self.fatal.done():
                return
            self._present = None
            self.waiting_bytes -= sum(each.size for each in batch)
            self._on_durable(batch[-1].revision)
            present.set_result(None)
