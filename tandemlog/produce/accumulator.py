"""Where callers' threads and the event loop meet: messages in, whole requests out.

    any thread:  add(record) ──▶ open batch ──full, due, or another durability──▶ sealed, in order
    event loop:  pop() ◀─── sealed            release(bytes) ── room for more

The bytes held are all that no node has answered yet. At `max_bytes` callers wait: that is the
back-pressure. The loop is woken once for a batch that opens and once for one that is sealed,
never for a message, and not again before `seal_due`.

One lock guards everything here. It is held for a few statements and never across a wait.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ..delayed import Delayed
from ..errors import BufferFullError, ClientClosedError, TandemlogError
from ..format.constants import MAX_TABLE
from ..in_transaction import HeldBack
from ..v1 import broker_pb2
from .put_batch import OpenBatch, PutBatch, Rows, Sink
from .routes import SPREAD_BYTES

FutureT_co = TypeVar("FutureT_co", covariant=True)
FutureT = TypeVar("FutureT")


class FutureGroup(Sink, Protocol[FutureT_co]):
    """A sink whose waiters each have a future."""

    def add(self, index: int) -> FutureT_co:
        """That of message `index` of the request; called for 0, 1, ... in this order."""
        ...


class Accumulator(Generic[FutureT]):
    """Collects records into requests of about `batch_bytes`.

    `wake` has `seal_due` called in the event loop; it is called from any thread, outside the lock.
    """

    def __init__(
        self,
        *,
        batch_bytes: int,
        max_bytes: int,
        delivery_seconds: float,
        new_group: Callable[[], FutureGroup[FutureT]],
        wake: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.batch_bytes = batch_bytes
        self.max_bytes = max_bytes
        self.delivery_seconds = delivery_seconds
        self._new_group = new_group
        self._wake = wake
        self._clock = clock
        self._wall_clock = wall_clock
        self.rows: Rows | None = None
        """Makes the records of what was added as bodies; used by one thread, the event loop's."""
        self._lock = threading.Lock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._room = threading.Condition(self._lock)
        self._open: OpenBatch | None = None
        self._new_future: Callable[[int], FutureT] = new_group().add
        self._sealed: deque[PutBatch | OpenBatch] = deque()
        self._held = 0
        self._woken = False
        self._closed: TandemlogError | None = None
        self._turn_at = SPREAD_BYTES
        self.generation = 0
        """Grows with every batch, and every SPREAD_BYTES of the one that is filled: what spreads
        messages over queues looks at it."""

    def add(
        self,
        record: bytes,
        topic: str,
        queue_id: int,
        durability: broker_pb2.Durability.ValueType,
        own: bytes | None = None,
        size: int = 0,
        delayed: Delayed | HeldBack | None = None,
    ) -> FutureT | None:
        """The future of a message, or None if there is no room: wait and try again. `own` and
        `size` as in OpenBatch.add; `delayed`: the record is that of a message that comes later, or
        with a transaction.

        Raises what `close` was given.
        """
        if own is None:
            size = len(record)
        # Not `with`: that looks up and binds both ends of the lock, which costs more than the lock.
        self._acquire()
        try:
            if self._closed is not None:
                raise self._closed.copy()
            held = self._held + size
            if held > self.max_bytes and self._held:
                return None
            self._held = held
            batch = self._open
            wake = False
            if (
                batch is None
                or (filled := batch.byte_size + size) > self.batch_bytes
                or batch.durability != durability
                or len(batch.queue_ids) == MAX_TABLE
            ):
                batch = self._open_locked(durability)
                filled = size
                wake = not self._woken
                self._woken = True
            batch.byte_size = filled
            if filled >= self._turn_at:
                self._turn_at = filled + SPREAD_BYTES
                self.generation += 1
            entries = batch.table.get(topic)
            if entries is None or (entry := entries.get(queue_id)) is None:
                entry = batch.new_entry(topic, queue_id)
            batch.queue_indexes.append(entry)
            records = batch.records
            future = self._new_future(len(records))
            if delayed is not None:
                batch.delayed[len(records)] = delayed
            records.append(record)
            batch.own.append(own)
            batch.born.append(self._wall_clock())
            if own is None:
                batch.framed += 1
        finally:
            self._release()
        if wake:
            self._wake()
        return future

    def submit(self, batch: PutBatch) -> bool:
        """Takes a request that is complete, behind all that was added before; False if there
        is no room. Raises what `close` was given."""
        with self._lock:
            if self._closed is not None:
                raise self._closed.copy()
            if self._held + batch.byte_size > self.max_bytes and self._held:
                return False
            self._held += batch.byte_size
            self._seal_locked()
            self._sealed.append(batch)
            self.generation += 1
            wake = not self._woken
            self._woken = True
        if wake:
            self._wake()
        return True

    def wait_for_room(self, size: int, timeout: float) -> None:
        """Blocks the thread until `size` bytes may be tried again; raises BufferFullError after
        `timeout` seconds."""
        with self._room:
            found = self._room.wait_for(
                lambda: self._closed is not None or not self._held or self.has_room(size), timeout
            )
        if not found:
            raise self.full(timeout)

    @property
    def held_bytes(self) -> int:
        """Of all added messages that have no answer."""
        return self._held

    @property
    def held_messages(self) -> int:
        """Of messages whose requests were not popped yet, and so were not sent."""
        with self._lock:
            batches = [*self._sealed, *([self._open] if self._open is not None else [])]
            return sum(
                len(each.records) if isinstance(each, OpenBatch) else len(each.sizes)
                for each in batches
            )

    def has_room(self, size: int) -> bool:
        return self._held + size <= self.max_bytes or not self._held

    def full(self, timeout: float) -> BufferFullError:
        return BufferFullError(
            f"no room within {timeout:g} s: {self._held} bytes wait for their answers, the limit "
            f"max_in_flight_bytes is {self.max_bytes}",
            limit=self.max_bytes,
            actual=self._held,
        )

    def seal_due(self, linger: float) -> float | None:
        """In the event loop, after a wake: seals what is due. Seconds until the open batch is
        due, None if there is none."""
        with self._lock:
            self._woken = False
            if self._open is None:
                return None
            wait_s = self._open.opened_at + linger - self._clock()
            if wait_s > 0:
                return wait_s
            self._seal_locked()
            return None

    def seal(self) -> None:
        """What is open becomes a request now."""
        with self._lock:
            self._seal_locked()

    def pop(self) -> PutBatch | None:
        """The oldest sealed request, the caller's from now on."""
        with self._lock:
            batch = self._sealed.popleft() if self._sealed else None
        return None if batch is None else self._complete(batch)

    def _complete(self, batch: PutBatch | OpenBatch) -> PutBatch:
        """Outside the lock: senders do not wait while records are made."""
        if isinstance(batch, OpenBatch):
            return batch.seal(self.delivery_seconds, self.rows)
        return batch

    def release(self, size: int) -> None:
        """`size` bytes have their answer."""
        with self._room:
            self._held -= size
            self._room.notify_all()

    def close(self, reason: TandemlogError | None = None) -> list[PutBatch]:
        """Accepts nothing more; returns the requests that no one has popped, open or sealed."""
        with self._room:
            if self._closed is None:
                self._closed = reason or ClientClosedError("the producer is closed")
            self._seal_locked()
            requests = list(self._sealed)
            self._sealed.clear()
            self._room.notify_all()
        return [self._complete(batch) for batch in requests]

    def refuse(self, reason: TandemlogError) -> None:
        """Accepts nothing more, but keeps what it has."""
        with self._room:
            if self._closed is None:
                self._closed = reason
            self._room.notify_all()

    def _open_locked(self, durability: broker_pb2.Durability.ValueType) -> OpenBatch:
        """A new batch, behind the one that was open."""
        self._seal_locked()
        group = self._new_group()
        self._new_future = group.add
        self._open = OpenBatch(durability, group, self._clock())
        self._turn_at = SPREAD_BYTES
        return self._open

    def _seal_locked(self) -> None:
        """Caller holds the lock."""
        if self._open is not None:
            self._sealed.append(self._open)
            self._open = None
            self.generation += 1
