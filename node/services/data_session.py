"""One data connection of a client: its frames in, the answers of its calls out.

    socket ─▶ frames ─▶ TOKEN    counts for the calls behind it
                        PULL     a task: the door, the method ─▶ answer ──┐
                        CANCEL   ends that task                           │ one after the other
                        APPEND   the requests of one stream ─▶ answers ───┤
                                                         socket ◀─────────┘

The door looks at each call exactly as at one of gRPC. Where callers have to show a token, a frame
may be no larger than a token until they have, and they have FIRST_FRAME_S for it. Bytes that are no
frame are refused with a status; then, as at the end of a stream, what comes is thrown away for a
moment, so that the client can read the status, and the connection ends.

A stream that does not take its next request stops the reading of the socket, and so its producer;
so does a frame for which there is no room among those of all connections (frame_budget.py).
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import grpc

from tandemlog.format.constants import Buffer
from tandemlog.transport.data_frames import (
    FROM_CLIENT,
    MAX_PULL_BYTES,
    MAX_TOKEN_BYTES,
    DataFrameError,
    Frame,
    FrameReader,
    Kind,
    frame,
    greeting,
    head,
    status_frame,
)
from tandemlog.transport.sockets import send_parts

from ..access.access_refusals import NotKnownError
from ..access.caller_addresses import host_of
from ..access.doorkeeper import NO_PROOF, Doorkeeper
from .call_door import Served, ServedStream
from .frame_budget import COUNTED_BYTES, FrameBudget

logger = logging.getLogger(__name__)

FIRST_FRAME_S = 10.0
IDLE_S = 300.0
"""Without a call and without a frame; a client opens a new connection when it needs one."""
FRAME_S = 60.0
"""For a frame, from its first byte to its last."""
LAST_S = 5.0
"""In which a client reads why its stream, or the connection, has ended."""
FRAME_BYTES = 128 << 20
CALLS = 1_024
"""Under way at one time; no further frame is read meanwhile."""
_READ_BYTES = 256 << 10
_FRAMES = 64
"""Taken before the loop gets its turn: a small one costs microseconds, and a read has thousands."""


@dataclass(frozen=True, slots=True)
class DataMethods:
    """What a data connection can ask for."""

    pull: Served
    append: ServedStream


class CallAbortedError(Exception):
    """The call ended with a status in place of an answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class DataContext:
    """The context of a call, for the door in place of gRPC's.

    `peer` names the connection as gRPC does, `authorization` is the value that its last TOKEN had.
    `ended` is to be called when the call is over, answered or not. `status` is what a stream said
    at its end, 0 and no text if all is well.
    """

    def __init__(self, peer: str, authorization: str) -> None:
        self._peer = peer
        self._metadata = (("authorization", authorization),) if authorization else ()
        self._callbacks: list[Callable[[Any], None]] = []
        self.status = 0, ""

    def peer(self) -> str:
        return self._peer

    def invocation_metadata(self) -> Any:
        return self._metadata

    def auth_context(self) -> Mapping[str, Any]:
        return {}

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        raise CallAbortedError(code.value[0], details)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def set_code(self, code: grpc.StatusCode) -> None:
        self.status = code.value[0], self.status[1]

    def set_details(self, details: str) -> None:
        self.status = self.status[0], details

    def ended(self) -> None:
        for callback in self._callbacks:
            callback(None)


class _Requests:
    """The requests of a stream, one at a time. `on_taken` hears how many bytes that were counted
    for one are not any more."""

    def __init__(self, call: int, on_taken: Callable[[int], None]) -> None:
        self.call = call
        self._on_taken = on_taken
        self._next: asyncio.Queue[tuple[Buffer, int]] = asyncio.Queue(maxsize=1)
        self._over = False

    async def put(self, request: Buffer, counted: int) -> None:
        """Wait until the stream has taken the one before."""
        if self._over:
            self._on_taken(counted)
        else:
            await self._next.put((request, counted))

    def end(self) -> None:
        """The stream takes no more: what is put from now on, or waits to be, is thrown away."""
        self._over = True
        while not self._next.empty():
            self._on_taken(self._next.get_nowait()[1])

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        while True:
            request, counted = await self._next.get()
            yield request
            self._on_taken(counted)  # the put path counts it by now


class DataSession:
    """See the module. `keeper` is None if callers need no token. `largest_put` is in bytes of an
    encoded request. Owns `sock`, which does not block. `left_out` says whether a bad frame of a
    peer gets a line of the log, and how that ends (AuditLog)."""

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        key: bytes,
        methods: DataMethods,
        keeper: Doorkeeper | None,
        *,
        largest_put: int,
        left_out: Callable[[str], str | None] = lambda _: "",
        budget: FrameBudget | None = None,
    ) -> None:
        self._budget = FrameBudget(FRAME_BYTES) if budget is None else budget
        self._counted = 0  # by the budget, for this connection
        self._begun = 0  # of it, for the frame that is being received
        self._sock = sock
        self._peer = peer
        self.host = host_of(peer)
        self._ends = False
        self._key = key
        self._methods = methods
        self._left_out = left_out
        self._keeper = keeper
        self._authorization = ""
        self._known = keeper is None  # has shown a token that was valid then
        self._not_known = "" if keeper is None else NO_PROOF  # why its token is not valid
        self._largest_frame = max(largest_put, MAX_PULL_BYTES)
        first = self._largest_frame if keeper is None else MAX_TOKEN_BYTES
        self._reader = FrameReader(FROM_CLIENT, first)
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._fewer_calls = asyncio.Event()
        self._one_sends = asyncio.Lock()
        self._answering: int | None = None  # the call whose answer is being sent
        self._stream: _Requests | None = None
        self._discards = False  # what still comes is thrown away
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve until the client, or a fault of its frames, ends the connection."""
        try:
            await self._send(None, (greeting(self._key),))
            await self._read()
        except OSError as error:
            logger.debug("data connection ends: peer=%s reason=%s", self._peer, error)
        finally:
            await self._end_calls()
            self._uncount(self._counted)
            self._stop_timer()
            self._sock.close()

    async def idle(self, seconds: float) -> None:
        """Wait until no call is under way, at most so long."""
        if self._calls and seconds > 0:
            await asyncio.wait(list(self._calls.values()), timeout=seconds)

    @property
    def known(self) -> bool:
        """Whether it has shown a token that was valid, where one is needed."""
        return self._known

    @property
    def in_use(self) -> bool:
        """Whether a call or a frame is under way, or the end of the connection."""
        return bool(self._calls) or (self._known and self._reader.within) or self._ends

    def close(self) -> None:
        """End the connection; `run` returns as soon as it reads again."""
        self._ends = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    # ---- in

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        self._set_timer(FIRST_FRAME_S)
        while True:
            within = self._reader.within
            room = None if self._discards else self._reader.room
            if room is None:
                roomy = self._budget.has_room(self.host, _READ_BYTES)
                data = await loop.sock_recv(self._sock, _READ_BYTES if roomy else COUNTED_BYTES)
                size, frames = len(data), self._reader.feed(data)
            else:
                size = await loop.sock_recv_into(self._sock, room)
                frames = self._reader.received(size)
            if not size:
                return
            if not self._discards:
                await self._handle_all(frames, within=within)
                await self._hold_begun()
            # a socket that always has more would not let the loop do anything else
            await asyncio.sleep(0)

    async def _hold_begun(self) -> None:
        """Before more of a frame is received: until there is room for it."""
        size = 0 if self._discards else self._reader.announced
        if size < COUNTED_BYTES or self._begun:
            return
        if not self._budget.has_room(self.host, size):
            self._stop_timer()  # how long that takes is no fault of the client
            await self._budget.hold(self.host, size)
            if self._known:
                self._set_timer(FRAME_S)
        else:
            self._budget.count(self.host, size)
        self._begun = size
        self._counted += size

    def _uncount(self, size: int) -> None:
        if size:
            self._counted -= size
            self._budget.give_back(self.host, size)

    async def _handle_all(self, frames: Iterator[Frame], *, within: bool) -> None:
        """`within`: the first of them, if there is one, had begun before."""
        count = 0
        try:
            for each in frames:
                count += 1
                if self._known:
                    # how long a stream lets it wait is no fault of the client
                    self._stop_timer()
                if count % _FRAMES == 0:
                    await asyncio.sleep(0)
                await self._handle(each)
                while len(self._calls) >= CALLS:
                    self._fewer_calls.clear()
                    await self._fewer_calls.wait()
                if self._discards:
                    return
        except DataFrameError as error:
            await self._refuse(error)
            return
        if not self._known:
            return
        if not self._reader.within:
            self._set_timer(IDLE_S)
        elif count or not within:
            self._set_timer(FRAME_S)

    def _set_timer(self, seconds: float) -> None:
        """How long the next frame, or the rest of this one, may take."""
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        """The next frame has not come. A client that waits for an answer need not send one."""
        waits_for_answer = self._calls and not self._reader.within
        if self._discards or not self._known or not waits_for_answer:
            self.close()
        else:
            self._set_timer(IDLE_S)

    async def _refuse(self, problem: DataFrameError) -> None:
        """Say what is wrong with a frame, and end the connection."""
        code, text = grpc.StatusCode.INTERNAL, str(problem)
        if problem.too_large:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
        if self._keeper is not None and self._not_known:
            code, text = grpc.StatusCode.UNAUTHENTICATED, self._not_known
            self._keeper.audit.refused("data connection", "", self._peer, text)
        elif (more := self._left_out(self._peer)) is not None:
            logger.warning("data connection ends: peer=%s reason=%s%s", self._peer, text, more)
        self._discard()
        await self._send(None, (status_frame(problem.call, code.value[0], text),))

    def _discard(self) -> None:
        self._discards = True
        self._set_timer(LAST_S)

    async def _handle(self, message: Frame) -> None:
        counted, self._begun = self._begun, 0
        if message.kind is Kind.APPEND:
            await self._handle_put(message, counted)
            return
        self._uncount(counted)
        if message.kind is Kind.TOKEN:
            self._handle_token(message)
        elif message.kind is Kind.CANCEL:
            self._cancel(message.call)
        else:
            self._begin(message.call, partial(self._pull, message.call, bytes(message.payload)))

    def _handle_token(self, message: Frame) -> None:
        """A bad token is refused with the next call, which has a status to say so."""
        self._authorization = bytes(message.payload).decode("ascii", "replace")
        if self._keeper is None:
            return
        try:
            self._keeper.check_token(self._authorization)
        except NotKnownError as error:
            self._not_known = str(error)
            self._reader.most = MAX_TOKEN_BYTES
        else:
            self._known, self._not_known = True, ""
            self._reader.most = self._largest_frame

    def _cancel(self, call: int) -> None:
        """Of a pull; one whose answer is being sent ends with that. A stream ends with its
        connection alone."""
        task = self._calls.get(call)
        streams = self._stream is not None and self._stream.call == call
        if task is not None and call != self._answering and not streams:
            task.cancel()

    async def _handle_put(self, message: Frame, counted: int) -> None:
        if not counted and len(message.payload) >= COUNTED_BYTES:
            counted = len(message.payload)
            self._budget.count(self.host, counted)
            self._counted += counted
        if self._stream is None:
            stream = _Requests(message.call, self._uncount)
            self._begin(message.call, partial(self._append, stream))
            self._stream = stream
        elif self._stream.call != message.call:
            raise DataFrameError("a second stream of puts on one connection", message.call)
        await self._stream.put(message.payload, counted)

    # ---- calls

    def _begin(self, call: int, work: Callable[[DataContext], Coroutine[Any, Any, None]]) -> None:
        if call in self._calls:
            raise DataFrameError(f"two calls at one time have the number {call}", call)
        context = DataContext(self._peer, self._authorization)
        working = work(context)
        task = asyncio.get_running_loop().create_task(
            self._to_its_end(call, working), name="data-call"
        )
        self._calls[call] = task

        def ended(_: object) -> None:
            # also of one that was cancelled before it began
            working.close()
            context.ended()
            del self._calls[call]
            self._fewer_calls.set()

        task.add_done_callback(ended)

    async def _to_its_end(self, call: int, work: Coroutine[Any, Any, None]) -> None:
        """A call, with a status in place of its answer if there is none."""
        try:
            try:
                await work
            except CallAbortedError as error:
                await self._send(call, (status_frame(call, error.code, error.text),))
            except OSError:
                raise
            except Exception as error:
                logger.exception("a call of a data connection failed: peer=%s", self._peer)
                unknown = grpc.StatusCode.UNKNOWN.value[0]
                await self._send(call, (status_frame(call, unknown, repr(error)),))
        except OSError:
            self.close()
        finally:
            if self._stream is not None and self._stream.call == call:
                self._stream.end()
                self._discard()

    async def _pull(self, call: int, request: bytes, context: DataContext) -> None:
        answer = await self._methods.pull(_one(request), context)
        parts = (answer,) if isinstance(answer, bytes) else answer
        await self._send(call, (head(call, Kind.ANSWER, sum(map(len, parts))), *parts))

    async def _append(self, requests: _Requests, context: DataContext) -> None:
        call = requests.call
        async with contextlib.aclosing(self._methods.append(aiter(requests), context)) as answers:
            async for each in answers:
                await self._send(call, (frame(call, Kind.ANSWER, each.SerializeToString()),))
        await self._send(call, (status_frame(call, *context.status),))

    async def _send(self, call: int | None, parts: Sequence[bytes | memoryview]) -> None:
        """All of `parts`, and nothing else meanwhile. Raises OSError."""
        async with self._one_sends:
            self._answering = call
            try:
                await send_parts(self._sock, parts)
            except BaseException:
                self.close()  # the client could not tell where the next frame begins
                raise
            finally:
                self._answering = None

    async def _end_calls(self) -> None:
        tasks = list(self._calls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _one(request: bytes) -> AsyncIterator[bytes]:
    yield request
