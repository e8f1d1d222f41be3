"""The put path of a node: many streams in, one writer thread, answers in order per stream.

    stream A ─┐  submit                        deliver, one wake-up a drain
    stream B ─┼────────▶ queue ─▶ writer thread ─────────▶ loop ─▶ confirm waiters ─▶ stream A, B
    stream C ─┘  (loop)            store.append                     (loop)

Requests of other doors come by `admit` and `enqueue`, in any shape that is a Pending (pending.py).

The log has one writer, so requests are appended one after the other, in the order in which they
came, whichever stream they came from. The writer returns the results of one wake-up to the loop
together, split at DELIVER_BYTES so that an early request does not wait for a long drain. What a
stream is, and the order of its responses, is in put_stream.py.

What waits is bounded: above `max_pending_bytes` to be appended, or MAX_UNANSWERED requests of one
stream, reading stops (`room`), and HTTP/2's flow control makes the producers wait. Each stream may
have sent one more by then: requests above HARD_LIMIT times as many bytes are refused as BUSY. The
bytes of a request are freed once they are in the log. Memory stays flat under any load.

A producer acts on a refusal of the store for ever: a gap says that nothing is stored. So a master
whose lease is over says it only after the in-sync set has confirmed that it still leads; one round
serves all waiting refusals. A stored put needs no such round: its confirmation is one.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tandemlog.format.constants import Buffer
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.errors import BatchRefusedError, StoreClosedError
from tandemlog_server.storage.message_store import MessageStore

from ..access.access_refusals import DeniedError
from ..access.caller import Caller
from ..error_status import RequestRefusedError, error_of, is_of_the_store, not_sure
from ..roles.role import CurrentRole
from .ack_stats import AckStats
from .confirm_waiters import ConfirmWaiters
from .pending import Pending
from .put_rights import require_writes
from .put_stream import AnswerBytes, PendingPut, PutStream
from .put_wire import (
    MOST_FIELDS,
    QUICK_FIELDS,
    ManyFieldsError,
    PutRequest,
    denied_record,
    parse_put,
)

logger = logging.getLogger(__name__)

DELIVER_BYTES = 8 << 20
DELIVER_COUNT = 512
HARD_LIMIT = 2
MAX_TIMEOUT_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class PumpLimits:
    """Bytes of requests that may wait to be appended; milliseconds that a put may wait."""

    max_pending_bytes: int
    timeout_ms: int


class PutPump:
    """See the module. All methods belong to the loop; only `_run` is the writer thread."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        waiters: ConfirmWaiters,
        loop: asyncio.AbstractEventLoop,
        *,
        store_host: str,
        limits: PumpLimits,
        stats: AckStats | None = None,
    ) -> None:
        self._store = store
        self._current = current
        self._waiters = waiters
        self._loop = loop
        self._store_host = store_host
        self._limits = limits
        self.stats = stats if stats is not None else AckStats()
        self._queue: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="append", daemon=True)
        self._streams: set[PutStream] = set()
        self._pending_bytes = 0
        self._pending_count = 0
        self._answer_bytes = AnswerBytes()
        self._room = asyncio.Event()
        self._room.set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._after_appends: list[Callable[[], None]] = []
        self._stopping = False
        self._refusing: set[asyncio.Task[None]] = set()

    @property
    def under_way(self) -> int:
        """Requests that were accepted and are not appended yet."""
        return self._pending_count

    def start(self) -> None:
        self._thread.start()

    def open_stream(self, caller: Caller | None = None) -> PutStream:
        about = self._current, self._store_host, self._loop.time, self._answer_bytes
        stream = PutStream(*about, caller or Caller())
        self._streams.add(stream)
        return stream

    def close_stream(self, stream: PutStream) -> None:
        """The client no longer reads the responses of `stream`."""
        self._streams.discard(stream)
        stream.forget()

    def end_streams(self) -> None:
        """Every stream ends with its last answer."""
        for stream in self._streams:
            stream.end()

    async def room(self) -> None:
        """Wait until another request may come in."""
        await self._room.wait()

    async def receive(self, stream: PutStream, data: Buffer) -> None:
        """As `submit`; a request with very many topics is read by a thread meanwhile."""
        try:
            self.submit(stream, data, QUICK_FIELDS)
        except ManyFieldsError:
            self._submit(stream, len(data), *await asyncio.to_thread(_read_put, data, MOST_FIELDS))

    def submit(self, stream: PutStream, data: Buffer, most_fields: int = MOST_FIELDS) -> None:
        """Take an encoded AppendRequest; the answer comes by `stream.responses()`, whatever
        happens. Raises ManyFieldsError, and takes nothing, above `most_fields`."""
        self._submit(stream, len(data), *_read_put(data, most_fields))

    def _submit(
        self,
        stream: PutStream,
        byte_size: int,
        request: PutRequest,
        problem: RequestRefusedError | None,
    ) -> None:
        timeout_ms = min(request.timeout_ms or self._limits.timeout_ms, MAX_TIMEOUT_MS)
        pending = PendingPut(
            request, byte_size, stream, self.stats, self._loop.time(), timeout_ms / 1000
        )
        stream.add(pending)
        stream.caller.hold(byte_size)
        try:
            if problem is not None:
                raise problem
            require_writes(stream.caller, request)
            self.admit(byte_size, pending.durability)
        except RequestRefusedError as refusal:
            pending.request = None
            pending.refuse(refusal)
            return
        except DeniedError as denial:
            pending.request = None
            stream.caller.refused(denial)
            pending.refuse(denied_record(request, denial))
            return
        self.enqueue(pending)

    def admit(self, byte_size: int, durability: int) -> None:
        """Raises RequestRefusedError if so many bytes cannot be taken now to be stored with that
        durability."""
        if self._stopping:
            raise RequestRefusedError(common_pb2.SHUTTING_DOWN, "the node is stopping")
        self._check_pending(byte_size)
        self._current.role.admit(durability)

    def enqueue(self, pending: Pending) -> None:
        """Append it, and then tell it what became of it. The caller has asked `admit`."""
        self._pending_count += pending.requests
        self._pending_bytes += pending.byte_size
        self._quiet.clear()
        if self._pending_bytes >= self._limits.max_pending_bytes:
            self._room.clear()
        self._queue.put(pending)

    def after_appends(self, call: Callable[[], None]) -> None:
        """Call it once in the loop, when the writer has come to the end of what it took."""
        self._after_appends.append(call)

    def _check_pending(self, byte_size: int) -> None:
        limit = HARD_LIMIT * self._limits.max_pending_bytes
        if self._pending_bytes and self._pending_bytes + byte_size > limit:
            raise RequestRefusedError(
                common_pb2.BUSY,
                f"{self._pending_bytes} bytes of requests are waiting to be appended, and this one "
                f"has {byte_size}; the limit is {limit}, {HARD_LIMIT} times put.max_pending_bytes",
                field="records",
                limit=limit,
                actual=self._pending_bytes + byte_size,
            )

    def refuse_new(self) -> None:
        """From here on every new request is answered with SHUTTING_DOWN."""
        self._stopping = True

    async def stop(self, timeout_s: float) -> bool:
        """Append what has come in, wait for confirmations, end the thread.

        False if the time ran out first: what still waited has been answered as unknown.
        """
        self.refuse_new()
        try:
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()
                await self._waiters.wait_idle()
            drained = True
        except TimeoutError:
            drained = False
        for task in self._refusing:
            task.cancel()
        await asyncio.gather(*self._refusing, return_exceptions=True)
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.sleep(0)  # the last delivery
        return drained

    def _run(self) -> None:
        going = True
        while going:
            pending = self._queue.get()
            done: list[Pending] = []
            size = 0
            while True:
                if pending is None:
                    going = False
                    break
                self._append(pending, done)
                size += pending.byte_size
                if size >= DELIVER_BYTES or len(done) >= DELIVER_COUNT:
                    break
                try:
                    pending = self._queue.get_nowait()
                except queue.Empty:
                    break
            if done:
                self._loop.call_soon_threadsafe(self._deliver, done)

    def _append(self, pending: Pending, done: list[Pending]) -> None:
        """Append it or its parts; `done` gets what is dealt with."""
        try:
            epoch = self._current.role.epoch()
            if epoch is None:
                raise StoreClosedError("the node is no longer the master")
            pending.epoch = epoch
            result = pending.append(self._store)
        except BatchRefusedError as refusal:
            parts = pending.parts()
            for part in parts:
                self._append(part, done)
            if not parts:
                pending.failure = refusal
                done.append(pending)
            return
        except Exception as error:  # whatever a client sends, the writer continues
            pending.failure = error
        else:
            pending.result = result
            pending.end_offset = result.end_offset
            pending.appended_at = self._loop.time()
        done.append(pending)

    def _deliver(self, done: list[Pending]) -> None:
        waiting = False
        doubted: list[tuple[Pending, common_pb2.Error]] = []
        for pending in done:
            self._pending_count -= pending.requests
            self._pending_bytes -= pending.byte_size
            if pending.failure is not None:
                error = error_of(pending.failure)
                may_change = is_of_the_store(pending.failure, error.code)
                if may_change and self._current.role.leased_epoch() != pending.epoch:
                    doubted.append((pending, error))
                else:
                    pending.refuse_with(error)
            elif pending.stored(self._waiters):
                waiting = True
        calls, self._after_appends = self._after_appends, []
        for call in calls:
            call()
        if waiting:
            self._waiters.check()
        if doubted:
            task = self._loop.create_task(self._refuse_if_led(doubted), name="refusals")
            self._refusing.add(task)
            task.add_done_callback(self._refusing.discard)
        if self._pending_bytes < self._limits.max_pending_bytes:
            self._room.set()
        if not self._pending_count:
            self._quiet.set()

    async def _refuse_if_led(self, doubted: list[tuple[Pending, common_pb2.Error]]) -> None:
        """Say what the store has refused, if this node was the master then; see the module."""
        epoch, instead = 0, error_of(not_sure())
        try:
            epoch = await self._current.leads()
        except RequestRefusedError as doubt:
            instead = error_of(doubt)
        finally:  # also if this node stops
            for pending, error in doubted:
                pending.refuse_with(error if pending.epoch == epoch else instead)


def _read_put(data: Buffer, most_fields: int) -> tuple[PutRequest, RequestRefusedError | None]:
    """The request in `data`, or why there is none. Raises ManyFieldsError."""
    try:
        return parse_put(data, most_fields), None
    except RequestRefusedError as unreadable:
        return PutRequest(), unreadable
