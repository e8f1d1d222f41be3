"""One connection of a RocketMQ client: its frames in, answers and pushed requests out.

    socket ─▶ CommandReader ─▶ request   the door, the method            ─▶ answer ─┐
                                         a task, if it has to wait       ─▶ answer ─┤
                            ─▶ response  of an `ask`                             │ all of one turn
                                          push, ask ─────────────────────────────┤ of the loop in
                                                              socket ◀───────────┘ one write

Requests are served side by side and answered in any order, since a client pairs them by opaque: a
pull that is parked holds up no other. Reading stops while

    CALLS requests work (parked ones are not counted), until some are answered
    the client takes no answers, until it does, and the connection ends after TAKE_S
    a large frame has no room among those of all connections (frame_budget.py), until it has

A frame of COUNTED_BYTES and more is counted from its announcement to its answer: a put that waits
for a master holds its memory. Where clients have to prove who they are, the first frame may be the
send of a large message, whose signature covers all of it: so what is larger than FIRST_BYTES counts
in a budget for strangers until one has proved it. Bytes that are no frame end the connection with a
line of the log; what was asked before them is answered first.

If the process is killed, the kernel ends its connections with a reset instead of an orderly end. A
client of 4.9.7 does not look at an orderly one: what it has asked fails when its time is over, a
send after 3 s and a pull after 30 s. Wherever a connection is closed here, that is undone first, so
that what was written arrives.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.rocketmq.clients.codes import ResponseCode
from tandemlog_server.rocketmq.wire.remoting import (
    ONEWAY_FLAG,
    RESPONSE_VERSION,
    Command,
    CommandReader,
    encoded_parts,
)

from ...access.caller import Caller
from ...access.caller_addresses import host_of, peer_of
from ...services.frame_budget import COUNTED_BYTES, FrameBudget
from .remoting_call import RemotingCall
from .remoting_door import RemotingDoor

logger = logging.getLogger(__name__)

FIRST_S: Final = 10.0
"""For the first frame; where clients have to prove who they are, for the first one that does,
whatever comes before it."""
IDLE_S: Final = 120.0
"""Without a request; RocketMQ's own, whose clients send a heartbeat every 30 s."""
FRAME_S: Final = 60.0
"""For a frame, from its first byte to its last."""
TAKE_S: Final = 60.0
"""In which a client has to take some of what waits for it."""
CALLS: Final = 1_024
"""At work at one time."""
FIRST_BYTES: Final = 64 << 10
MAX_HEADER_BYTES: Final = 128 << 10
"""The properties of a message have at most 32 KiB; written as JSON they may be three times that."""
PUSHED_BYTES: Final = 1 << 20
"""Requests are not pushed to a client that has so many bytes to take."""
READ_BYTES: Final = 64 << 10
_LOOK_AGAIN_S: Final = 0.02
_JOINED_BYTES: Final = 64 << 10

_buffer = memoryview(bytearray(READ_BYTES))
"""Shared by all connections: what is received is copied out before the loop does anything else."""


class RemotingSession(asyncio.BufferedProtocol):
    """See the module; a Connection of remoting_call.py. `largest` is in bytes of a frame.
    `left_out` says whether a bad frame of a peer gets a line of the log, and how that ends
    (AuditLog). `on_begin` is called when the connection is there, `on_end` once after that, with
    the requests that are still served: those to which no answer is expected are not cut off, since
    a consumer that leaves sends its offsets so and closes its connection."""

    def __init__(
        self,
        door: RemotingDoor,
        budget: FrameBudget,
        strangers: FrameBudget,
        *,
        largest: int,
        left_out: Callable[[str], str | None],
        on_begin: Callable[["RemotingSession"], None],
        on_end: Callable[["RemotingSession", set["asyncio.Task[None]"]], None],
    ) -> None:
        self._door = door
        self._budget = self._begun_in = budget
        self._strangers = strangers
        self._left_out = left_out
        self._on_begin, self._on_end = on_begin, on_end
        self._loop = asyncio.get_running_loop()
        self.known = not door.asks_who
        self._reader = CommandReader(largest, MAX_HEADER_BYTES)
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        self.host = ""
        self.local_address = ("", 0)
        self._certificate: bytes | None = None
        self.closed = False
        self._ends = False
        self._stopped_by: set[str] = set()  # why nothing is read
        self._open: dict[RemotingCall, None] = {}  # what is being served, in order of arrival
        self._awaited: set[RemotingCall] = set()  # by `idle`
        self._idle = asyncio.Event()
        self._counted = 0  # by the budget, for this connection
        self._begun = 0  # of it, for the frame that is being received
        self._holding: asyncio.Task[None] | None = None
        self._out: list[bytes] = []
        self._unsent: list[Caller] = []  # whose answers are not taken yet
        self._opaque = 0
        self._asked: dict[int, asyncio.Future[Command]] = {}
        self._closing: list[Callable[[], None]] = []
        self._came_at = now = self._loop.time()
        self._last_at = now  # of a frame, or of an answer
        self._frame_at: float | None = None
        self._full_at: float | None = None

    # ---- of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = link = cast("asyncio.Transport", transport)
        link.set_write_buffer_limits(high=256 << 10, low=0)
        self._reset_if_killed(on=True)
        peer, own = link.get_extra_info("peername"), link.get_extra_info("sockname")
        self.peer = peer_of(*peer[:2]) if peer else "unknown"
        self.host = host_of(self.peer)
        if own:
            self.local_address = (str(own[0]).removeprefix("::ffff:"), int(own[1]))
        secured = link.get_extra_info("ssl_object")
        if secured is not None:
            self._certificate = secured.getpeercert(binary_form=True)
        self._on_begin(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        roomy = self._budget.has_room(self.host, READ_BYTES)
        return _buffer if roomy else _buffer[:COUNTED_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._ends:
            return
        commands: list[Command] = []
        fault = self._reader.take(_buffer[:nbytes], commands)
        now = self._loop.time()
        if commands:
            self._last_at = now
            begun, self._begun = self._begun, 0
            for each in commands:
                self._take(each)
            self._uncount(begun, self._begun_in)
        if fault is not None:
            self._refuse(fault)
            return
        size = self._reader.announced
        if not size:
            self._frame_at = None
        elif self._frame_at is None or commands:
            self._frame_at = now
        if size >= COUNTED_BYTES and not self._begun:
            self._hold_begun(size)
        if len(self._open) >= CALLS:
            self._look_at_calls()

    def eof_received(self) -> bool:
        self._reset_if_killed(on=False)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = self._ends = True
        if self._holding is not None:
            self._holding.cancel()
        remaining = set()
        for call in self._open:
            if call.task is None:
                continue  # the log answers it soon
            if call.request.is_oneway:
                remaining.add(call.task)
            else:
                call.task.cancel()
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"{self.peer} has closed its connection"))
        self._asked.clear()
        self._sent()
        self._uncount(self._begun, self._begun_in)
        self._begun = 0
        for callback in self._closing:
            try:
                callback()
            except Exception:
                logger.exception("what follows the end of a connection failed: peer=%s", self.peer)
        self._on_end(self, remaining)

    def pause_writing(self) -> None:
        self._full_at = self._loop.time()
        self._stop_reading("answers")

    def resume_writing(self) -> None:
        self._full_at = None
        self._sent()
        self._go_on_reading("answers")

    # ---- in

    def _stop_reading(self, reason: str) -> None:
        if not self._stopped_by and self._transport is not None:
            self._transport.pause_reading()
        self._stopped_by.add(reason)

    def _go_on_reading(self, reason: str) -> None:
        if reason not in self._stopped_by:
            return
        self._stopped_by.remove(reason)
        if not self._stopped_by and self._transport is not None and not self.closed:
            self._transport.resume_reading()

    def _hold_begun(self, size: int) -> None:
        """Before more of a frame is received: until there is room for it."""
        if self._holding is not None:
            return
        budget = self._budget if self.known or size <= FIRST_BYTES else self._strangers
        self._begun_in = budget
        if budget.has_room(self.host, size):
            budget.count(self.host, size)
            self._begun = size
            self._counted += size
        else:
            self._stop_reading("room")
            self._holding = self._loop.create_task(self._hold(size, budget), name="remoting-room")

    async def _hold(self, size: int, budget: FrameBudget) -> None:
        try:
            await budget.hold(self.host, size)
        finally:
            self._holding = None
        self._counted += size
        if self.closed:
            self._uncount(size, budget)
            return
        self._begun = size
        self._frame_at = self._loop.time()  # how long that took is no fault of the client
        self._go_on_reading("room")

    def _uncount(self, size: int, budget: FrameBudget) -> None:
        if size:
            self._counted -= size
            budget.give_back(self.host, size)

    def _look_at_calls(self) -> None:
        """Stop reading while too many requests are at work; parked pulls are not."""
        if self.closed:
            return
        if self._at_work() < CALLS:
            self._go_on_reading("calls")
        else:
            self._stop_reading("calls")
            self._loop.call_later(_LOOK_AGAIN_S, self._look_at_calls)

    def _at_work(self) -> int:
        return len(self._open) - self._door.parked(self.peer)

    def _refuse(self, fault: ProtocolError) -> None:
        """End the connection at bytes that are no frame, once what came before is answered."""
        if (more := self._left_out(self.peer)) is not None:
            logger.warning("remoting connection ends: peer=%s reason=%s%s", self.peer, fault, more)
        self.close_when_answered()

    def _take(self, command: Command) -> None:
        if command.is_response:
            waiting = self._asked.pop(command.opaque, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(command)
            return
        door = self._door
        call = RemotingCall(command, door.enter(self.peer), self, self._last_at)
        size = len(command.body)
        if size >= COUNTED_BYTES:
            self._budget.count(self.host, size)
            self._counted += size
            call.held_bytes = size
        self._open[call] = None
        refusal = door.admit(call, self._certificate)
        if refusal is not None:
            self._respond(call, refusal)
        elif not door.begin(call, self._ended):
            self._serve_later(call)

    # ---- a request

    def _serve_later(self, call: RemotingCall, refusal: Exception | None = None) -> None:
        """`refusal`: with which it was begun in vain."""
        call.task = task = self._loop.create_task(self._serve(call, refusal))
        task.add_done_callback(partial(self._served, call))

    async def _serve(self, call: RemotingCall, refusal: Exception | None) -> None:
        self._respond(call, await self._door.serve(call, refusal))

    def _served(self, call: RemotingCall, task: "asyncio.Task[None]") -> None:
        """Also of one that was cancelled before it began."""
        if call in self._open:
            self._close_call(call)
        if not task.cancelled() and (problem := task.exception()) is not None:
            logger.error("a request failed outside of its method", exc_info=problem)

    def _ended(
        self, call: RemotingCall, response: Command | None, problem: Exception | None
    ) -> None:
        """Of a request that was begun without a task."""
        wanted = not self.closed or call.request.is_oneway
        if problem is not None and wanted and self._door.goes_on(call, problem):
            self._serve_later(call, problem)
        else:
            self._respond(call, self._door.ended(call, response, problem))

    def _respond(self, call: RemotingCall, response: Command | None) -> None:
        request = call.request
        if not self.known and call.caller.who is not None:
            self.known = True
        if response is not None and not request.flag & ONEWAY_FLAG:
            self._send(request, response)
        self._close_call(call)

    def _close_call(self, call: RemotingCall) -> None:
        del self._open[call]
        self._uncount(call.held_bytes, self._budget)
        self._leave(call.caller)
        if self._awaited:
            self._awaited.discard(call)
            if not self._awaited:
                self._idle.set()
        if self._ends and not self._open:
            self._close()

    def _leave(self, caller: Caller) -> None:
        """Once its answer is taken, if that is large."""
        if caller.held_bytes and not self.closed:
            self._unsent.append(caller)
        else:
            self._door.leave(caller)

    def _send(self, request: Command, response: Command) -> None:
        try:
            parts = encoded_parts(response)
        except Exception:  # a response that cannot be written must not leave a client waiting
            logger.exception("the response to request %d cannot be written", request.code)
            remark = "the response of this node cannot be written: a bug in the node"
            parts = encoded_parts(request.response(code=ResponseCode.SYSTEM_ERROR, remark=remark))
        self._write(parts)

    # ---- out

    def _write(self, parts: tuple[bytes, bytes, bytes]) -> None:
        if self.closed:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += parts

    def _flush(self) -> None:
        """Everything of this turn of the loop; a large body is not copied together with others."""
        out, self._out = self._out, []
        link = self._transport
        if link is None or self.closed or not out:
            return
        self._last_at = self._loop.time()
        at = 0
        for index, part in enumerate(out):
            if len(part) >= _JOINED_BYTES:
                link.write(b"".join(out[at:index]))
                link.write(part)
                at = index + 1
        if at < len(out):
            link.write(b"".join(out[at:]) if at else b"".join(out))
        if self._unsent and not link.get_write_buffer_size():
            self._sent()

    def _sent(self) -> None:
        """What was written is taken, or thrown away."""
        unsent, self._unsent = self._unsent, []
        for caller in unsent:
            self._door.leave(caller)

    def push(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        """See Connection. A client that takes nothing gets none."""
        self._request(code, fields, body, ONEWAY_FLAG)

    async def ask(
        self, code: int, fields: dict[str, str], body: bytes = b"", *, timeout_s: float = 3.0
    ) -> Command:
        """See Connection."""
        answer: asyncio.Future[Command] = self._loop.create_future()
        opaque = self._request(code, fields, body, 0, answer)
        if not opaque:
            raise ConnectionError(f"{self.peer} has closed its connection, or takes nothing")
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise TimeoutError(
                f"{self.peer} did not answer request {code} within {timeout_s:g} s"
            ) from None
        finally:
            self._asked.pop(opaque, None)

    def _request(
        self,
        code: int,
        fields: dict[str, str],
        body: bytes,
        flag: int,
        answer: "asyncio.Future[Command] | None" = None,
    ) -> int:
        """The number of a request that is sent; 0 if it is not."""
        link = self._transport
        if self._ends or link is None or link.get_write_buffer_size() > PUSHED_BYTES:
            return 0
        self._opaque = self._opaque % 0x7FFFFFFF + 1
        if answer is not None:
            self._asked[self._opaque] = answer
        # in JSON, which every client reads, and which has room for every code
        command = Command(code, self._opaque, flag, "", fields, body, version=RESPONSE_VERSION)
        self._write(encoded_parts(command))
        return self._opaque

    # ---- the end

    def on_close(self, callback: Callable[[], None]) -> None:
        """See Connection."""
        if self.closed:
            self._loop.call_soon(callback)
        else:
            self._closing.append(callback)

    @property
    def in_use(self) -> bool:
        """Whether a request is being served, or a frame is under way, or the end."""
        return bool(self._open) or (self.known and self._reader.announced > 0) or self._ends

    def overdue(self, now: float) -> bool:
        """Whether the client has had its time for what it should do; `now` of the loop's clock."""
        if self._full_at is not None and now - self._full_at > TAKE_S:
            return True
        if self._frame_at is not None and "room" not in self._stopped_by:
            return now - self._frame_at > (FRAME_S if self.known else FIRST_S)
        if not self.known:
            return now - self._came_at > FIRST_S
        return not self._open and now - self._last_at > IDLE_S

    async def idle(self, seconds: float) -> None:
        """Wait until every request that is being served now is answered, at most so long."""
        self._awaited = set(self._open)
        if not self._awaited or seconds <= 0:
            return
        self._idle.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    def close_when_answered(self) -> None:
        """Read no more; the connection ends with the last answer."""
        self._ends = True
        self._stop_reading("end")
        if not self._open:
            self._close()

    def _close(self) -> None:
        # behind what was written in this turn
        self._loop.call_soon(self._close_now)

    def _close_now(self) -> None:
        self._flush()
        if self._transport is not None and not self.closed:
            self._reset_if_killed(on=False)
            self._transport.close()
            self._loop.call_later(TAKE_S, self.abort)

    def _reset_if_killed(self, *, on: bool) -> None:
        """Whether the kernel resets the connection when its socket is closed; what is not sent yet
        is thrown away then."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):  # its client is gone already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, 0))

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None and not self.closed:
            self._transport.abort()
