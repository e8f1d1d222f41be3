"""One watch stream: requests in, answers and events out, at the pace of who reads them.

A watch that begins in the past goes through the history. All streams do that a piece at a time, one
after the other, and the loop has its turn after each piece: leases are renewed meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError

from tandemlog.v1 import coordinator_pb2 as pb

from .coordinator_refusals import RefusedError
from .watchers import Watchers

_REQUESTS_WAITING = 16
_END = object()


class DurableRevision:
    """The revision up to which everything is durable, and who wants to know when it moves."""

    def __init__(self, revision: int) -> None:
        self.value = revision
        self._listeners: set[asyncio.Event] = set()

    def move(self, revision: int) -> None:
        self.value = revision
        for each in self._listeners:
            each.set()

    def add(self, listener: asyncio.Event) -> None:
        self._listeners.add(listener)

    def remove(self, listener: asyncio.Event) -> None:
        self._listeners.discard(listener)


class WatchStream:
    """See the module. `write` sends one message; `pace` is one lock for all streams."""

    def __init__(
        self,
        watchers: Watchers,
        durable: DurableRevision,
        write: Callable[[bytes], Any],
        pace: asyncio.Lock,
    ) -> None:
        self._pace = pace
        self._watchers = watchers
        self._durable = durable
        self._write = write
        self._wake = asyncio.Event()
        self._requests: asyncio.Queue[pb.WatchRequest] = asyncio.Queue(_REQUESTS_WAITING)

    async def serve(self, requests: AsyncIterator[bytes]) -> None:
        """Until the caller ends its side. Raises RefusedError for bytes that are not a request."""
        reading = asyncio.create_task(self._read(requests))
        self._durable.add(self._wake)
        try:
            while not (reading.done() and self._requests.empty()):
                while not self._requests.empty():
                    answer = self._watchers.handle(self._requests.get_nowait(), self._durable.value)
                    if answer is not None:
                        await self._write(answer.SerializeToString())
                due = self._watchers.due(self._durable.value)
                while (each := await self._piece(due)) is not _END:
                    if isinstance(each, pb.WatchResponse):
                        await self._write(each.SerializeToString())
                await self._wake.wait()
                self._wake.clear()
            await reading
        finally:
            self._durable.remove(self._wake)
            self._watchers.close()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _piece(self, due: Iterator[pb.WatchResponse | None]) -> object:
        """The next message, None if a piece had none, or _END."""
        async with self._pace:
            each = next(due, _END)
            if each is not _END:
                await asyncio.sleep(0)
            return each

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        try:
            async for data in requests:
                try:
                    request = pb.WatchRequest.FromString(data)
                except DecodeError:
                    raise RefusedError(
                        "INVALID_ARGUMENT", "coordinator: the request is not a valid WatchRequest"
                    ) from None
                await self._requests.put(request)
                self._wake.set()
        finally:
            self._wake.set()
