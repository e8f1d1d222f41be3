"""Callers that wait until the in-sync set has what they ask for: a table, or the answer to a round.

    topic created, durable here, version 7 ─▶ sent ─▶ every in-sync member says 7 or above ─▶ answer
                                                      not in time ─▶ its outcome is unknown

A change of a table waits as a put waits for the confirm offset: after it is acknowledged, the
master's disk may be lost, and every member of the set that becomes the master has the topic. In
async replication there is no wait.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")


class Waiters(Generic[Key]):
    """Of one master; all methods belong to the loop. `reached(key)` says whether the set has what
    `key` names."""

    def __init__(self, reached: Callable[[Key], bool]) -> None:
        self._reached = reached
        self._waiting: list[tuple[Key, asyncio.Future[None]]] = []

    async def wait(self, key: Key, timeout_s: float) -> bool:
        """Whether the set had it in time."""
        if self._reached(key):
            return True
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (key, done)
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
    def keys(self) -> list[Key]:
        """What is waited for."""
        return [key for key, _ in self._waiting]

    def check(self) -> None:
        """After every acknowledgement, and every change of the set."""
        for key, done in self._waiting:
            if not done.done() and self._reached(key):
                done.set_result(None)
