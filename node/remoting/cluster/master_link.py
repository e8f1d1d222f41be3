"""The connection to the door of another node: many requests in flight, one write for each turn.

    call ─▶ connected? ─▶ opaque of this connection ─▶ all of one turn together ─▶ answers by opaque
              │ no: NotSentError                         │ lost: LinkLostError
              ▼                                          ▼
            nothing was done                           it may have been done

A request is either not written at all, or its outcome is open until an answer comes: the two errors
are never mixed up, since what follows from them is different.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Final

from tandemlog_server.rocketmq.wire.remoting import Command, CommandReader, encode_command

CONNECT_S: Final = 1.0
IDLE_S: Final = 60.0
"""Half of the time after which a door closes a connection without requests."""
AGAIN_S: Final = 0.05
"""Between two attempts to connect."""
MAX_OPAQUE: Final = 0x7FFFFFFF
MAX_ANSWER: Final = 32 << 20

Context = Callable[[], ssl.SSLContext | None]


class NotSentError(Exception):
    """The request was not written: nothing was done."""


class LinkLostError(Exception):
    """The connection ended, or its time was over, before the answer came: it may have been done."""


class _Wire(asyncio.Protocol):
    """One connection, from its beginning to its end."""

    def __init__(self, ended: Callable[["_Wire"], None]) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = CommandReader(MAX_ANSWER, MAX_ANSWER)
        self._out: list[bytes] = []
        self._opaque = count(1)
        self.waiting: dict[int, asyncio.Future[Command]] = {}
        self.open = False
        self.used_at = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.open = True

    def data_received(self, data: bytes) -> None:
        commands: list[Command] = []
        fault = self._reader.take(data, commands)
        for command in commands:
            # requests are pushed to clients, and this is none
            future = self.waiting.pop(command.opaque, None) if command.is_response else None
            if future is not None and not future.done():
                future.set_result(command)
        if fault is not None:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is awaited any more: what was written may have been done."""
        if not self.open:
            return
        self.open = False
        if self._transport is not None:
            self._transport.abort()
        waiting, self.waiting = self.waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LinkLostError("the connection ended before the answer came"))
        self._ended(self)

    def write(self, request: Command, flag: int) -> "tuple[int, asyncio.Future[Command] | None]":
        """Its number, and the answer to come; None if there is none."""
        opaque = next(self._opaque) & MAX_OPAQUE
        self.used_at = self._loop.time()
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(encode_command(replace(request, opaque=opaque, flag=request.flag | flag)))
        if request.is_oneway:
            return opaque, None
        future: asyncio.Future[Command] = self._loop.create_future()
        self.waiting[opaque] = future
        return opaque, future

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self.open and self._transport is not None:
            self._transport.write(b"".join(out))


class MasterLink:
    """See the module. `address` is host:port; `context` gives the TLS of a connection, None for one
    in the clear. Lives in one event loop."""

    def __init__(self, address: str, context: Context = lambda: None) -> None:
        self.address = address
        self.replaced_at: float | None = None
        """When another node was found to lead, in seconds of the loop."""
        self._context = context
        self._wire: _Wire | None = None
        self._connecting: asyncio.Task[_Wire] | None = None
        self._failed_at = float("-inf")
        self._fault = ""
        self._loop = asyncio.get_running_loop()

    @property
    def in_flight(self) -> int:
        return 0 if self._wire is None else len(self._wire.waiting)

    def may_try(self) -> bool:
        """Whether a request can be written, or a connection is worth an attempt now."""
        return self._wire is not None or self._loop.time() - self._failed_at >= AGAIN_S

    async def call(self, request: Command, flag: int, timeout_s: float) -> Command | None:
        """The answer to the request, with its opaque; None for one without answer. `flag` is added
        to its own. Raises NotSentError and LinkLostError."""
        wire = await self._connected()
        if not wire.open:  # lost between its first moment and this one
            raise NotSentError(f"the connection to {self.address} ended as it began")
        opaque, future = wire.write(request, flag)
        if future is None:
            return None
        try:
            async with asyncio.timeout(timeout_s):
                answer = await future
        except TimeoutError:
            raise LinkLostError(
                f"{self.address} did not answer request {request.code} within {timeout_s:g} s"
            ) from None
        finally:
            wire.waiting.pop(opaque, None)
        return replace(answer, opaque=request.opaque)

    def close(self) -> None:
        """End the connection; those who wait get LinkLostError."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._wire is not None:
            self._wire.close()

    async def _connected(self) -> _Wire:
        wire = self._wire
        if wire is not None:
            if wire.waiting or self._loop.time() - wire.used_at < IDLE_S:
                return wire
            wire.close()  # the other side may be about to do so
        if self._connecting is None:
            if not self.may_try():
                raise NotSentError(self._fault)
            self._connecting = self._loop.create_task(self._connect(), name="master-link")
            self._connecting.add_done_callback(self._attempted)
        try:
            # one request that is given up does not end it for the others
            return await asyncio.shield(self._connecting)
        except (OSError, TimeoutError, ssl.SSLError) as error:
            self._fault = f"{self.address} cannot be reached: {error or 'no answer'}"
            raise NotSentError(self._fault) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise NotSentError(f"the connection to {self.address} is not needed") from None

    async def _connect(self) -> _Wire:
        host, _, port = self.address.rpartition(":")
        context = self._context()
        async with asyncio.timeout(CONNECT_S):
            _, wire = await self._loop.create_connection(
                lambda: _Wire(self._lost), host.strip("[]"), int(port), ssl=context
            )
        self._wire = wire
        return wire

    def _attempted(self, task: "asyncio.Task[_Wire]") -> None:
        self._connecting = None
        if task.cancelled() or task.exception() is not None:
            self._failed_at = self._loop.time()

    def _lost(self, wire: _Wire) -> None:
        if self._wire is wire:
            self._wire = None
