"""Which caller reads next, and how many bytes of responses may be in flight, for the whole node.

    caller A ── r1 r2 r3 r4 … ─┐  one after the other,   a thread is free, and
    caller B ── r1             ├─ a caller at a time ──▶ the room is in its share ──▶ reader thread
    caller C ── r1 r2          ┘                                                       │
                                                                                      ▼
               given back when it was sent, or its call has ended             ◀── what it made

A caller is an identity, or a host where there is none, and below that a connection. A read takes
one of the threads and reserves room for the largest response it may produce; the response counts
until the call is over. So a caller that asks for much delays only itself. Responses that it does
not receive fill its own share of the room (storage/shares.py), and half of the room at most for one
connection; an eighth is for callers that hold nothing. A read that does not get its turn within
WAIT_S is refused as BUSY.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.shares import Shares

from ..access.caller import Caller
from ..error_status import RequestRefusedError

WAIT_S = 5.0
COPIES = 2
"""Of each answer: that which was made, and gRPC's."""
RESERVE_PART = 8
"""This part of the room is for callers that hold nothing."""
SMALL_BYTES = 4 << 10
"""Answers below this are not counted: their number is bounded, by that of the calls."""

Made = TypeVar("Made")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A read that has no turn yet."""

    caller: Caller
    room: int
    admitted: asyncio.Future[None]


_Queues: TypeAlias = OrderedDict[str, deque[_Waiting]]


class ReadTurns:
    """See the module. `limit_bytes` is for all answers together. Belongs to the loop."""

    def __init__(self, threads: int, limit_bytes: int, *, wait_s: float = WAIT_S) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="read")
        self._shares = Shares(limit_bytes, reserve=limit_bytes // RESERVE_PART, oversize=True)
        self._wait_s = wait_s
        self._free = threads
        self._held_by: dict[str, int] = {}
        # by holder, and of a holder by connection
        self._waiting: OrderedDict[str, _Queues] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """Of all answers that are under way."""
        return self._shares.held

    def close(self) -> None:
        """Wait for the reads that run; no other one begins."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def run(
        self,
        caller: Caller,
        work: Callable[[], Made],
        *,
        room: int = 0,
        size_of: Callable[[Made], int] | None = None,
    ) -> Made:
        """What `work` makes, in a reader thread. `room` bytes are kept free for it before it
        begins; what it made, by `size_of`, is then held by `caller` until `release`.

        Raises RequestRefusedError (BUSY) if no turn came in time, and what `work` raises.
        """
        room *= COPIES
        if not self._may_begin(caller, room) or self._waiting:
            await self._turn(caller, room)
        else:
            self._take(caller, room)
        try:
            running = self._executor.submit(work)
        except RuntimeError:
            self._end(caller, room)
            raise RequestRefusedError(common_pb2.SHUTTING_DOWN, "the node is stopping") from None
        try:
            answer = await asyncio.wrap_future(running)
            if size_of is not None:
                self.hold(caller, size_of(answer))
            return answer
        finally:
            self._end_when_done(running, caller, room)

    def may_read_now(self, caller: Caller, room: int) -> bool:
        """Whether a read that needs no thread may be done in the loop: its caller would not wait
        for its turn."""
        return not self._waiting and self._may_begin(caller, room * COPIES)

    def hold(self, caller: Caller, size: int) -> None:
        """An answer of so many bytes is held by `caller` until `release`."""
        if (made_bytes := COPIES * size) >= SMALL_BYTES:
            self._hold(caller, made_bytes)

    def release(self, caller: Caller) -> None:
        """What `caller` held is sent, or thrown away."""
        if caller.held_bytes:
            self._hold(caller, -caller.held_bytes)
            self._begin_others()

    def _end_when_done(self, running: "Future[Made]", caller: Caller, room: int) -> None:
        """A call that ended early leaves its thread at work: the turn ends with that."""
        if running.done():
            self._end(caller, room)
            return
        loop = asyncio.get_running_loop()
        running.add_done_callback(
            lambda _: (
                loop.call_soon_threadsafe(self._end, caller, room) if not loop.is_closed() else None
            )
        )

    async def _turn(self, caller: Caller, room: int) -> None:
        waiting = _Waiting(caller, room, asyncio.get_running_loop().create_future())
        queues = self._waiting.setdefault(caller.holder, OrderedDict())
        queues.setdefault(caller.peer, deque()).append(waiting)
        self._begin_others()
        try:
            async with asyncio.timeout(self._wait_s):
                await waiting.admitted
        except BaseException as ended:
            self._forget(waiting)
            if isinstance(ended, TimeoutError):
                shares = self._shares
                raise RequestRefusedError(
                    common_pb2.BUSY,
                    f"the read could not start within {self._wait_s:g} s: {shares.held} bytes of "
                    "responses are in progress on this node (the limit limits.answer_bytes is "
                    f"{shares.limit}), {shares.of(caller.holder)} of them for this identity or "
                    f"host and {self._held_by.get(caller.peer, 0)} for this connection; receive "
                    "those first, or request less at a time",
                    field="answer_bytes",
                    limit=shares.limit,
                    actual=shares.held,
                ) from None
            raise

    def _forget(self, waiting: _Waiting) -> None:
        if waiting.admitted.done() and not waiting.admitted.cancelled():
            self._end(waiting.caller, waiting.room)  # its turn came in the same moment
            return
        queues: _Queues = self._waiting.get(waiting.caller.holder, OrderedDict())
        queue = queues.get(waiting.caller.peer)
        if queue is not None and waiting in queue:
            queue.remove(waiting)
            if not queue:
                del queues[waiting.caller.peer]
            if not queues:
                del self._waiting[waiting.caller.holder]

    def _may_begin(self, caller: Caller, room: int) -> bool:
        if not self._free:
            return False
        if not room:
            return True
        own = self._held_by.get(caller.peer, 0)
        if own and own + room > self._shares.limit // 2:
            return False
        return self._shares.may_take(caller.holder, room)

    def _take(self, caller: Caller, room: int) -> None:
        self._free -= 1
        self._count(caller, room)

    def _end(self, caller: Caller, room: int) -> None:
        self._free += 1
        self._count(caller, -room)
        self._begin_others()

    def _hold(self, caller: Caller, change: int) -> None:
        caller.held_bytes += change
        self._count(caller, change)

    def _count(self, caller: Caller, change: int) -> None:
        if change:
            peer = caller.peer
            self._shares.take(caller.holder, change)
            held_bytes = self._held_by.get(peer, 0) + change
            if held_bytes:
                self._held_by[peer] = held_bytes
            else:
                del self._held_by[peer]

    def _firsts(self) -> Iterator[_Waiting]:
        """Of each connection the read that waits longest, those of the holder first whose last turn
        is longest ago."""
        for queues in self._waiting.values():
            for queue in queues.values():
                yield queue[0]

    def _begin_others(self) -> None:
        """Turns for those who wait: one of each caller, then the next one of each."""
        while self._waiting and self._free:
            waiting = next((w for w in self._firsts() if self._may_begin(w.caller, w.room)), None)
            if waiting is None:
                return
            holder, peer = waiting.caller.holder, waiting.caller.peer
            queues = self._waiting[holder]
            queue = queues[peer]
            queue.popleft()
            if queue:
                queues.move_to_end(peer)
            else:
                del queues[peer]
            if queues:
                self._waiting.move_to_end(holder)
            else:
                del self._waiting[holder]
            if not waiting.admitted.done():  # else its call has ended, and forgets it soon
                self._take(waiting.caller, waiting.room)
                waiting.admitted.set_result(None)
