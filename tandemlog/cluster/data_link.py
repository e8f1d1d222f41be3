"""One data connection to a node, for pulls or for a stream of puts (transport/data_frames.py has
the frames).

    pulls   loop: requests ─▶ socket       thread: socket ─▶ answers, each by one read
    puts    loop: requests ─▶ socket ◀─ what it does not take at once: thread
                  answers  ◀─ socket

The loop never waits for the socket. What may be large is the work of the link's thread, in one call
of the kernel without Python's lock: in a process that is busy each wake-up of the loop may take
milliseconds, and megabytes would need a dozen. A pull's answer is received where the caller gets
it. A node that does not even take a pull's request counts as gone.

A link is for one of the two: a node that takes no further put stops reading that connection, and a
large answer delays those behind it (docs/decisions/0057-one-data-link.md).

The thread is made with the link, and not taken from a pool: a pool may be full of work that waits
for these very bytes, and is gone when a program that ends still sends what it has. The loop closes
the socket after the thread's end: the number of a socket that is closed during a call of the kernel
could belong to another file a moment later.

A link that fails, or one of whose calls is late, is not used again, and all its calls end: a pull
is repeated by gRPC, and a producer repeats its puts in its next stream.
"""

import asyncio
import contextlib
import itertools
import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Self

from ..format.constants import MAX_GRPC_MESSAGE, Buffer
from ..transport.data_frames import (
    FROM_NODE,
    GREETING_BYTES,
    HEAD,
    LAST_CALL,
    DataFrameError,
    Frame,
    FrameReader,
    Kind,
    frame,
    greeting,
    head,
    read_head,
    read_status,
)
from ..transport.sockets import behind, prepare

AVAILABLE: Final = hasattr(socket, "MSG_WAITALL") and hasattr(socket, "MSG_DONTWAIT")
"""Whether this system can do it; else everything goes by gRPC."""
CONNECT_S: Final = 1.0
LARGEST_PULL_BYTES: Final = 64 << 10
"""Of a request: it has to fit into the socket."""
_READ_BYTES: Final = 64 << 10
_CHECK_S: Final = 60.0
"""How often a thread checks whether its loop was closed and the link was not."""


class DataLinkError(Exception):
    """There is no such connection, or not any more: the same can be asked by gRPC."""


class DataStatusError(Exception):
    """The node has ended a call with a status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Answers:
    """What a node answers to one call: once to a pull, to each request of a stream of puts."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self._lost = ""
        self._waiter: asyncio.Future[None] | None = None

    def add(self, answer: Frame) -> None:
        self._frames.append(answer)
        self._wake()

    def lose(self, reason: str) -> None:
        """No more will come."""
        self._lost = reason
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> Buffer:
        """The next answer. Raises DataStatusError, once the node has ended the call, and
        DataLinkError."""
        while not self._frames:
            if self._lost:
                raise DataLinkError(self._lost)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        answer = self._frames.popleft()
        if answer.kind is Kind.ANSWER:
            return answer.payload
        try:
            code, text = read_status(answer.payload)
        except DataFrameError as error:
            raise DataLinkError(str(error)) from None
        raise DataStatusError(code, text)


class DataLink:
    """See the module. For calls of `kind`, PULL or APPEND; belongs to the running loop. `connect`,
    in the thread, returns a socket that blocks, connected and greeted. `ended` hears of the end of
    a link that was open, on either side. `answered`: whether the node has ever sent a frame."""

    def __init__(
        self,
        kind: Kind,
        connect: Callable[[], socket.socket],
        ended: Callable[["DataLink"], None],
    ) -> None:
        """Raises DataLinkError."""
        self.kind = kind
        self._connect = connect
        self._tell_ended = ended
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self._sock: socket.socket | None = None
        self._opened: asyncio.Future[socket.socket] = self._loop.create_future()
        self._numbers = itertools.count(1)
        self._calls: dict[int, Answers] = {}
        self._authorization = ""
        self._reader = FrameReader(FROM_NODE, MAX_GRPC_MESSAGE)
        self._large: queue.SimpleQueue[Sequence[memoryview]] = queue.SimpleQueue()
        self._sending: asyncio.Future[None] | None = None
        self._lost = ""
        self.answered = False
        thread = threading.Thread(target=self._run, name="tandemlog-data", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the program ends
            raise DataLinkError(str(error)) from error

    async def opened(self) -> Self:
        """Wait until it is. Raises DataLinkError."""
        try:
            await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            self.close()
            raise
        self._check()
        return self

    def _check(self) -> None:
        if self._lost:
            raise DataLinkError(self._lost)

    async def pull(self, request: bytes, authorization: str, timeout_s: float) -> Buffer:
        """The encoded answer. Raises DataLinkError, DataStatusError and TimeoutError."""
        number, answers = self.start_call()
        try:
            self._send_whole(number, Kind.PULL, [request], authorization)
            async with asyncio.timeout(timeout_s):
                return await answers.next()
        except TimeoutError:
            self.close("a call was not answered in time")
            raise
        except asyncio.CancelledError:
            with contextlib.suppress(DataLinkError):
                self._send_whole(number, Kind.CANCEL, [], authorization)
            raise
        finally:
            self._calls.pop(number, None)

    def start_call(self) -> tuple[int, Answers]:
        """The number of a new call, and what will be answered to it. Raises DataLinkError."""
        number = next(self._numbers)
        if number > LAST_CALL:
            self.close("every number of a call was used")
        self._check()
        answers = self._calls[number] = Answers()
        return number, answers

    async def append(
        self, call: int, request: Sequence[bytes | memoryview], authorization: str
    ) -> None:
        """One request of the stream `call`, behind the one before. One that is given up ends the
        link. Raises DataLinkError."""
        if unsent := self._send(call, Kind.APPEND, request, authorization):
            self._sending = self._loop.create_future()
            self._large.put(unsent)
            try:
                await asyncio.shield(self._sending)
            except asyncio.CancelledError:
                self.close()
                raise

    def close(self, reason: str = "") -> None:
        """End it and its calls. In a fork of the process that opened it, this does nothing."""
        if self._lost or os.getpid() != self._process:
            return
        self._lost = reason or "the connection is closed"
        if self._sock is not None:
            self._shut_down(self._sock)
            self._tell_ended(self)
        for answers in list(self._calls.values()):
            answers.lose(self._lost)

    def _shut_down(self, sock: socket.socket) -> None:
        """So that the thread ends."""
        self._loop.remove_reader(sock)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        self._large.put(())

    def _send_whole(
        self, call: int, kind: Kind, payload: Sequence[bytes], authorization: str
    ) -> None:
        if self._send(call, kind, payload, authorization):
            self.close("the node takes no requests")
            raise DataLinkError(self._lost)

    def _send(
        self, call: int, kind: Kind, payload: Sequence[bytes | memoryview], authorization: str
    ) -> list[memoryview]:
        """A frame, behind the token if that is a new one; what the socket does not take at once is
        returned. Raises DataLinkError."""
        self._check()
        assert self._sock is not None
        size = sum(map(len, payload))
        first = head(call, kind, size)
        if authorization != self._authorization:
            first = frame(0, Kind.TOKEN, authorization.encode()) + first
            self._authorization = authorization
        parts = [first, *payload]
        try:
            sent = self._sock.sendmsg(parts, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(str(error))
            raise DataLinkError(self._lost) from error
        return behind(parts, sent) if sent < len(first) + size else []

    # ---- in the loop, for the thread or the socket

    def _connected(self, sock: socket.socket) -> None:
        self._sock = sock
        if self.kind is Kind.PULL:
            # a request is sent at once, beside those before it that are still on their way
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST_PULL_BYTES)
        self._opened.set_result(sock)
        if self._lost:
            self._shut_down(sock)
        elif self.kind is Kind.APPEND:
            self._loop.add_reader(sock, self._readable, sock)

    def _readable(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(_READ_BYTES, socket.MSG_DONTWAIT)
            for each in self._reader.feed(data):
                self.answered = True
                if each.call in self._calls:
                    self._calls[each.call].add(each)
        except BlockingIOError:
            return
        except (OSError, DataFrameError) as error:
            self.close(str(error))
        else:
            if not data:
                self.close("the node has closed the connection")

    def _sent(self) -> None:
        assert self._sending is not None
        self._sending.set_result(None)

    def _is_over(self, sock: socket.socket | None, reason: str) -> None:
        """The thread; the loop does not use the socket any more either."""
        self.close(reason)
        if sock is not None:
            sock.close()
        for future in (self._opened, self._sending):
            if future is not None and not future.done():
                future.set_exception(DataLinkError(self._lost))
                future.exception()  # perhaps no task waits for it any more

    # ---- the thread

    def _run(self) -> None:
        tell = self._loop.call_soon_threadsafe  # RuntimeError: the loop is closed
        sock, reason = None, ""
        try:
            sock = self._connect()
            tell(self._connected, sock)
            if self.kind is Kind.APPEND:
                self._send_large(sock)
            else:
                self._receive(sock)
        except Exception as error:
            reason = str(getattr(error, "strerror", None) or error)
        try:
            tell(self._is_over, sock, reason)
        except RuntimeError:
            if sock is not None:
                sock.close()

    def _send_large(self, sock: socket.socket) -> None:
        while not self._loop.is_closed():
            with contextlib.suppress(queue.Empty):
                parts = self._large.get(timeout=_CHECK_S)
                if not parts:
                    return
                for part in parts:
                    sock.sendall(part)
                del part, parts
                self._loop.call_soon_threadsafe(self._sent)

    def _receive(self, sock: socket.socket) -> None:
        while True:
            size, call, kind = read_head(_read(sock, HEAD.size), FROM_NODE, MAX_GRPC_MESSAGE)
            answer = Frame(call, kind, _read(sock, size))
            self.answered = True
            # it has one; a node that sends others does not fill the loop with them
            if (answers := self._calls.pop(call, None)) is not None:
                self._loop.call_soon_threadsafe(answers.add, answer)
            del answer


def connected(host: str, port: int, key: bytes) -> socket.socket:
    """A socket, which blocks, to the node that has told `key`, greeted by it. Raises OSError."""
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


def _read(sock: socket.socket, size: int) -> bytes:
    """By one call of the kernel, as a rule. Raises OSError."""
    data = sock.recv(size, socket.MSG_WAITALL) if size else b""
    while len(data) < size:
        more = sock.recv(size - len(data), socket.MSG_WAITALL) if data else b""
        if not more:
            raise OSError("the node has closed the connection")
        data += more
    return data
