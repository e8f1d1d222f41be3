"""One data connection to a node for pulls (transport/data_frames.py has the frames).

    event loop        PULL ─▶ socket                          future ◀─┐
    receiving thread             socket ─▶ one read of a whole answer ─┘

The thread reads an answer into the bytes object that the caller gets, without Python's lock and
without a copy. What goes out is small and is sent by the loop; a node that does not even take that
counts as gone. A connection that fails, or one of whose calls is late, is not used again: the other
pulls on it fail too, and a pull may be repeated elsewhere at any time.

Threads are made here and not taken from a pool: a pool may be full of work that waits for this very
answer, and is gone when a program that ends still sends what it has.
"""

import asyncio
import contextlib
import itertools
import os
import socket
import threading
from typing import Final, Self

from ..format.constants import MAX_GRPC_MESSAGE
from ..transport.data_frames import (
    FROM_NODE,
    GREETING_BYTES,
    HEAD,
    LAST_CALL,
    DataFrameError,
    Kind,
    frame,
    greeting,
    read_head,
    read_status,
)
from ..transport.sockets import prepare

AVAILABLE: Final = hasattr(socket, "MSG_WAITALL") and hasattr(socket, "MSG_DONTWAIT")
"""Whether this system can do it; else everything goes by gRPC."""
CONNECT_S: Final = 1.0
LARGEST_SENT_BYTES: Final = 64 << 10
"""Of a pull: it has to fit into the socket."""
_SEND_BUFFER_BYTES: Final = 128 << 10


class DataConnectionError(Exception):
    """There is no such connection, or not any more: the same can be asked by gRPC."""


class DataStatusError(Exception):
    """The node has ended a call with a status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class DataConnection:
    """See the module. Made by `open`; belongs to the loop that opened it."""

    def __init__(self, sock: socket.socket) -> None:
        """Raises DataConnectionError."""
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._authorization = ""
        self.usable = True
        try:
            threading.Thread(target=self._receive, name="tandemlog-data", daemon=True).start()
        except RuntimeError as error:
            sock.close()
            raise DataConnectionError(str(error)) from error

    @classmethod
    async def open(cls, host: str, port: int, key: bytes) -> Self:
        """Connect to the node that has told `key`. Raises DataConnectionError."""
        sock = await connected(host, port, key)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        return cls(sock)

    async def pull(self, request: bytes, authorization: str, timeout_s: float) -> bytes:
        """The encoded answer. Raises DataConnectionError, DataStatusError and TimeoutError."""
        number = next(self._numbers)
        if number > LAST_CALL:
            self.close()
            raise DataConnectionError("every number of a call was used")
        future = self._calls[number] = self._loop.create_future()
        try:
            frames = frame(number, Kind.PULL, request)
            if authorization != self._authorization:
                frames = frame(0, Kind.TOKEN, authorization.encode()) + frames
            self._send(frames)
            self._authorization = authorization
            async with asyncio.timeout(timeout_s):
                answer: bytes = await future
                return answer
        except TimeoutError:
            self.close()
            raise
        except asyncio.CancelledError:
            with contextlib.suppress(DataConnectionError):
                self._send(frame(number, Kind.CANCEL))
            raise
        finally:
            del self._calls[number]

    def close(self) -> None:
        """End it. In a fork of the process that opened it, this does nothing."""
        if self.usable and os.getpid() == self._process:
            self.usable = False
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)

    def _send(self, frames: bytes) -> None:
        if not self.usable:
            raise DataConnectionError("the connection is closed")
        try:
            sent = self._sock.send(frames, socket.MSG_DONTWAIT)
        except OSError as error:
            self.close()
            raise DataConnectionError(error.strerror or str(error)) from error
        if sent < len(frames):
            self.close()
            raise DataConnectionError("the node takes no requests")

    def _receive(self) -> None:
        """The thread: until the connection ends. The loop closes the socket, since it may be using
        it at this moment."""
        reason = "the node has closed the connection"
        try:
            while first := _read(self._sock, HEAD.size):
                _check_whole(first, HEAD.size)
                size, number, kind = read_head(first, FROM_NODE, MAX_GRPC_MESSAGE)
                payload = _read(self._sock, size)
                _check_whole(payload, size)
                self._loop.call_soon_threadsafe(self._take_answer, number, kind, payload)
                del payload
            self._loop.call_soon_threadsafe(self._ended, reason)
        except (OSError, DataFrameError) as error:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended, str(error))
        except RuntimeError:  # the loop is closed, and uses the socket no more
            self._sock.close()

    def _take_answer(self, number: int, kind: Kind, payload: bytes) -> None:
        future = self._calls.get(number)
        if future is None or future.done():
            return  # of a call that was cancelled
        if kind is Kind.ANSWER:
            future.set_result(payload)
            return
        try:
            problem: Exception = DataStatusError(*read_status(payload))
        except DataFrameError as error:
            problem = DataConnectionError(str(error))
        future.set_exception(problem)

    def _ended(self, reason: str) -> None:
        self.usable = False
        self._sock.close()
        for future in self._calls.values():
            if not future.done():
                future.set_exception(DataConnectionError(reason))


async def connected(host: str, port: int, key: bytes) -> socket.socket:
    """A socket, which blocks, to the node that has told `key`, greeted by it. Raises
    DataConnectionError."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[socket.socket] = loop.create_future()

    def give(sock: socket.socket | None, reason: str) -> None:
        if future.cancelled():
            if sock is not None:
                sock.close()
        elif sock is not None:
            future.set_result(sock)
        else:
            future.set_exception(DataConnectionError(f"{host}:{port}: {reason}"))

    def connect() -> None:
        sock, reason = None, ""
        try:
            sock = _connected(host, port, key)
        except Exception as error:  # of a name that is none, too
            reason = str(getattr(error, "strerror", None) or error)
        try:
            loop.call_soon_threadsafe(give, sock, reason)
        except RuntimeError:  # the loop is closed
            if sock is not None:
                sock.close()

    try:
        threading.Thread(target=connect, name="tandemlog-connect", daemon=True).start()
    except RuntimeError as error:  # the program ends
        raise DataConnectionError(str(error)) from error
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled() and future.exception() is None:
            future.result().close()  # it came in the same moment
        raise


def _connected(host: str, port: int, key: bytes) -> socket.socket:
    """Raises OSError."""
    sock = socket.create_connection((host, port), CONNECT_S)
    try:
        found = b""
        while len(found) < GREETING_BYTES and (more := sock.recv(GREETING_BYTES - len(found))):
            found += more
        if found != greeting(key):
            raise OSError(
                "it is another program, or another node, that listens there"
                if found
                else "it takes no more connections, or is another program"
            )
        prepare(sock)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def _check_whole(data: bytes, size: int) -> None:
    """Raises OSError."""
    if len(data) < size:
        raise OSError("the connection ended within an answer")


def _read(sock: socket.socket, size: int) -> bytes:
    """`size` bytes; fewer at the end of the connection. Raises OSError."""
    data = sock.recv(size, socket.MSG_WAITALL) if size else b""
    while data and len(data) < size:
        more = sock.recv(size - len(data), socket.MSG_WAITALL)
        if not more:
            break
        data += more
    return data
