"""Changes of a table that wait until the in-sync set has taken them.

    topic made, durable here, version 7 ──▶ sent ──▶ every in-sync member says 7 or above ──▶ answer
                                                     not in time ──▶ its outcome is unknown

A change waits as a put waits for the confirm offset: after it is acknowledged, the master's disk
may be lost, and every member of the set that becomes the master has the topic. In async replication
there is no wait.
"""

import asyncio
from collections.abc import Callable


class TableWaiters:
    """Of one master; all methods belong to the loop. `held(kind, version)` says whether the set
    has taken that version."""

    def __init__(self, held: Callable[[str, int], bool]) -> None:
        self._held = held
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    async def wait(self, kind: str, version: int, timeout_s: float) -> bool:
        """Whether it was taken in time."""
        if self._held(kind, version):
            return True
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (kind, version, done)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await done
        except TimeoutError:
            return False
        finally:
            self._waiting.remove(entry)
        return True

    @property
    def kinds(self) -> frozenset[str]:
        """The tables that are waited for."""
        return frozenset(kind for kind, _, _ in self._waiting)

    def look(self) -> None:
        """After every acknowledgement, and every change of the set."""
        for kind, version, done in self._waiting:
            if not done.done() and self._held(kind, version):
                done.set_result(None)
