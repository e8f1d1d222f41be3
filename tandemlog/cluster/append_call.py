"""A stream of puts to a node, by gRPC or by a data connection of its own.

    write ─▶ AppendRequest ─▶ node ─▶ AppendResponse ─▶ read       in the order of the requests

Both are one stream to the sender: it writes from one task, reads from another one, and `cancel`
ends both, `read` with a CancelledError. What a stream ended with is raised by `read`, as an error
of this package.
"""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from google.protobuf.message import DecodeError

from ..errors import NodeUnavailableError, TandemlogError, error_from_rpc
from ..format.constants import MAX_GRPC_MESSAGE
from ..transport import own_grpc
from ..transport.data_frames import (
    FROM_NODE,
    DataFrameError,
    Frame,
    FrameReader,
    Kind,
    frame,
    head,
    read_status,
)
from ..transport.sockets import behind
from ..v1 import broker_pb2
from .socket_writer import SocketWriter

if TYPE_CHECKING:
    import grpc
    from grpc import aio

APPEND: Final = f"/{broker_pb2.DESCRIPTOR.services_by_name['Broker'].full_name}/Append"
_CALL: Final = 1
_READ_BYTES: Final = 64 << 10

Failure = Callable[["grpc.StatusCode", "str | None"], Awaitable[TandemlogError]]
"""The typed error for the status with which a call has ended."""


class CallOverError(Exception):
    """Nothing can be written any more; `read` says why."""


class AppendCall(Protocol):
    """See the module."""

    async def write(self, request: Sequence[bytes | memoryview]) -> None:
        """An encoded AppendRequest in parts. Raises CallOverError."""
        ...

    async def read(self) -> broker_pb2.AppendResponse | None:
        """The next response; None once the node has ended the stream. Raises TandemlogError."""
        ...

    def cancel(self) -> None:
        """End the stream now."""
        ...

    def close(self) -> None:
        """Free what it holds, once no task writes or reads any more."""
        ...


class GrpcAppendCall:
    """By gRPC."""

    def __init__(self, call: "aio.StreamStreamCall[Any, Any]", failure: Failure) -> None:
        self._call = own_grpc.begun(call)
        self._failure = failure

    async def write(self, request: Sequence[bytes | memoryview]) -> None:
        try:
            await self._call.write(b"".join(request))
        except (own_grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise CallOverError from error

    async def read(self) -> broker_pb2.AppendResponse | None:
        try:
            response: Any = await self._call.read()
        except own_grpc.aio.AioRpcError as error:
            raise await self._failure(error.code(), error.details()) from None
        return None if response is own_grpc.aio.EOF else response

    def cancel(self) -> None:
        self._call.cancel()

    def close(self) -> None:
        self._call.cancel()


class DataAppendCall:
    """By a data connection: `sock`, which blocks, and which it owns.

    The loop never waits for it. What the socket does not take at once is written by a thread, in
    one call without Python's lock: in a process that is busy each wake-up of the loop may take
    milliseconds, and a large request would need several. `ended` is told at the close whether the
    node has ever answered."""

    def __init__(
        self,
        sock: socket.socket,
        endpoint: str,
        authorization: str,
        failure: Failure,
        ended: Callable[["DataAppendCall", bool], None],
    ) -> None:
        self._sock = sock
        self._process = os.getpid()
        self._endpoint = endpoint
        self._failure = failure
        self._tell_ended = ended
        self._token = frame(0, Kind.TOKEN, authorization.encode()) if authorization else b""
        self._reader = FrameReader(FROM_NODE, MAX_GRPC_MESSAGE)
        self._frames: deque[Frame] = deque()
        self._changed = asyncio.Event()
        self._had_answer = False
        self._over = ""
        self._cancelled = False
        self._closed = False
        self._writer = SocketWriter(sock)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._readable)

    async def write(self, request: Sequence[bytes | memoryview]) -> None:
        parts = [self._token + head(_CALL, Kind.APPEND, sum(map(len, request))), *request]
        self._token = b""
        try:
            try:
                sent = self._sock.sendmsg(parts, (), socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            left = behind(parts, sent)
            if left:
                await self._writer.write(left)
        except OSError as error:
            raise CallOverError from error

    async def read(self) -> broker_pb2.AppendResponse | None:
        while not self._frames:
            if self._cancelled:
                raise asyncio.CancelledError
            if self._over:
                raise self._gone(self._over)
            self._changed.clear()
            await self._changed.wait()
        found = self._frames.popleft()
        try:
            if found.kind is Kind.ANSWER:
                return broker_pb2.AppendResponse.FromString(bytes(found.payload))
            code, text = read_status(found.payload)
        except (DataFrameError, DecodeError) as error:
            raise self._gone(str(error)) from None
        if not code:
            return None
        raise await self._failure(status_of(code), text)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            self._frames.extend(self._reader.feed(data))
            self._had_answer = self._had_answer or bool(self._frames)
        except BlockingIOError:
            return
        except (OSError, DataFrameError) as error:
            data, self._over = b"", str(error)
        else:
            self._over = "" if data else "the node has closed the connection"
        if not data:
            self._loop.remove_reader(self._sock)
        self._changed.set()

    def _gone(self, reason: str) -> NodeUnavailableError:
        unavailable = own_grpc.grpc.StatusCode.UNAVAILABLE
        error = error_from_rpc(unavailable, reason, self._endpoint)
        assert isinstance(error, NodeUnavailableError)
        return error

    def cancel(self) -> None:
        self._cancelled = True
        self._changed.set()
        self.interrupt()

    def interrupt(self) -> None:
        """As if the connection had failed. In a fork of the process that made it, this does
        nothing."""
        if not self._closed and os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._sock)
            self._writer.close()
            self._tell_ended(self, self._had_answer)


@cache
def _by_number() -> "dict[int, grpc.StatusCode]":
    return {status.value[0]: status for status in own_grpc.grpc.StatusCode}


def status_of(code: int) -> "grpc.StatusCode":
    """By its number; UNKNOWN for one that gRPC does not have."""
    return _by_number().get(code, own_grpc.grpc.StatusCode.UNKNOWN)
