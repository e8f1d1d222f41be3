"""How many bytes the requests of all data connections may hold before a put counts them.

    head of a frame ─▶ is its size in the share of this host? ── no: the socket is read no further
                              │ yes                              until others have given back
                              ▼
    received ─▶ waits for its stream ─▶ taken by the put path, which has a bound of its own

A frame counts with the size that it announces: a client that sends 31 of 32 MiB and then nothing
holds memory that is of no use, until the time of a frame is over. So a few of them are enough
to fill the share of a host (storage/shares.py), and none of them reaches another host's.
"""

import asyncio
from collections import deque

from tandemlog_server.storage.shares import Shares

COUNTED_BYTES = 4 << 10
"""Smaller ones are bounded by the number of connections."""


class FrameBudget:
    """See the module. `limit` is in bytes. Belongs to the loop."""

    def __init__(self, limit: int) -> None:
        self._shares = Shares(limit, oversize=True)
        self._waiting: deque[tuple[str, int, asyncio.Future[None]]] = deque()

    @property
    def held_bytes(self) -> int:
        return self._shares.held

    def has_room(self, host: str, size: int) -> bool:
        return self._shares.may_take(host, size)

    def count(self, host: str, size: int) -> None:
        """What is here already."""
        self._shares.take(host, size)

    async def hold(self, host: str, size: int) -> None:
        """Wait until `size` bytes are in the share of `host`, and take them."""
        if self._shares.try_take(host, size):
            return
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.append((host, size, admitted))
        try:
            await admitted
        except BaseException:
            if admitted.done() and not admitted.cancelled():
                self.give_back(host, size)
            raise

    def give_back(self, host: str, size: int) -> None:
        """They are taken, or thrown away; those that wait for them continue, in their order."""
        self._shares.give_back(host, size)
        for _ in range(len(self._waiting)):
            each = holder, wanted, admitted = self._waiting.popleft()
            if admitted.done():
                continue  # its connection has ended
            if self._shares.try_take(holder, wanted):
                admitted.set_result(None)
            else:
                self._waiting.append(each)
