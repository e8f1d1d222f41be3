"""What a master does with messages that wait: lets them come when they are due, or calls them back.

    due       waits ──▶ taken ──▶ appended: its message, which names it ──▶ ended,
    recall    waits ──▶ taken ──▶ appended: a recall, which names it    ──▶ when dispatched

Under the store's write lock a record is looked at, taken and ended by one append: so a message
comes or is called back, and never both. Taken is what this process remembers between the append and
the dispatch. It is forgotten when a term ends: what was not confirmed then may be cut, and the
record waits again.

A term's first decision waits until everything that stood in the log at its begin is confirmed and
dispatched: before that a delivery of the last master may lie there that the fold does not know.

A record that cannot be read, or that the log does not take, is set aside for RETRY_S, and the
others continue.
"""

import logging
import threading
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tandemlog.format.constants import REAL_TOPIC, SERVICE_TOPIC, TIMER_TOPIC
from tandemlog.format.delay.clock_step import ClockStep, clock_step_record
from tandemlog.format.delay.delivery import delivered
from tandemlog.format.delay.framing import given_up_record, recall_record, rolled_record
from tandemlog.format.delay.handle import RecallHandle
from tandemlog.format.delay.timing import out_ms
from tandemlog.format.delay.waiting_columns import hash_of_key
from tandemlog.format.errors import FormatError
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.record import Record, decode_record

from ..clock import JUMP_MS, MAX_AHEAD_MS
from ..errors import BatchRefusedError, OffsetOutOfRangeError, StoreError, UnreadableError
from ..folds.waiting_rows import NewRows, Numbers
from ..message_store import MessageStore
from ..reads.record_copy import copy_records
from ..reads.results import NoRecordError
from .own_batch import own_batch
from .own_records import target_fault

logger = logging.getLogger(__name__)

MOST_RECORDS: Final = 4096
MOST_BYTES: Final = 4 << 20
"""Of one append."""
ROLL_RECORDS: Final = 256
RETRY_S: Final = 60.0
_SCAN: Final = 1_000
_OF_ONE: Final = (UnreadableError, BatchRefusedError, NoRecordError, FormatError)
"""What is wrong with one record, and not with the store."""


class NotWaitingError(StoreError):
    """A message that came already, or that nothing is known of."""


class NotReadyError(StoreError):
    """The term has begun, and what the last master has delivered is not known yet."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """The message that waited in the record at `log_offset` and was due at `due_ms` never comes,
    once the log is confirmed up to `end_offset`."""

    log_offset: int
    due_ms: int
    end_offset: int


@dataclass(slots=True)
class DelayCounts:
    """Since this process began: messages that came, were called back, were set aside, got a new
    record; how late the last ones came (ms)."""

    delivered: int = 0
    recalled: int = 0
    set_aside: int = 0
    rolled: int = 0
    late_ms: int = 0


class DelayDesk:
    """See the module. `deliver` belongs to one thread, `recall` to any."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._fold = store.delays
        self._store_ipv6 = store.config.store_host.startswith("[")
        self._began_at: int | None = None
        self._term = 0
        """Terms that began or ended."""
        self._recalls: dict[int, Recalled] = {}
        self._set_aside: list[tuple[float, Numbers]] = []
        self._last_look: tuple[int, float, int] | None = None
        self._newest_ms = 0
        self._recalling = threading.Lock()
        self.counts = DelayCounts()

    # ---- terms

    def begin(self) -> None:
        """This node is the master from now on, and appends."""
        with self._fold.lock:
            self._forget()
            self._began_at = self._store.log.wrote.value
            self._newest_ms = self._store.log.store_timestamp
            self._last_look = None

    def end(self) -> None:
        """It is no longer."""
        with self._fold.lock:
            self._began_at = None
            self._forget()

    def _forget(self) -> None:
        self._term += 1
        self._fold.rows.release_all()
        self._recalls.clear()
        self._set_aside.clear()

    @property
    def ready(self) -> bool:
        """Whether this node knows what has come, and may decide."""
        return self._began_at is not None and self._fold.next_offset >= self._began_at

    # ---- messages that are due

    @property
    def waiting(self) -> int:
        """How many messages wait for their time, on any node."""
        return len(self._fold.rows)

    def overdue_ms(self) -> int:
        """For how long the first message that is due has waited for this master; 0 if none is due,
        or this node does not lead."""
        if self._began_at is None:
            return 0
        now = self._store.clock.now_ms()
        with self._fold.lock:
            following = self._fold.rows.next_due_ms(now)
        return 0 if following is None else max(0, now - following)

    def next_due_ms(self) -> int | None:
        """When to look again: nothing is due before. None if nothing waits."""
        with self._fold.lock:
            return self._fold.rows.next_due_ms(self._store.clock.now_ms())

    def deliver(self) -> int:
        """Let the messages that are due come, as many as one append takes; returns how many records
        were dealt with, 0 if none is due. Raises StoreError if the store takes nothing now."""
        if not self.ready:
            return 0
        now = self._store.clock.now_ms()
        self._note_clock(now)
        self._look_at_set_aside()
        with self._fold.lock:
            due = self._fold.rows.due(now, MOST_RECORDS)
        if not len(due):
            return 0
        total = np.cumsum(due.sizes, dtype=np.int64)
        due = due.taken(slice(0, max(1, int(total.searchsorted(MOST_BYTES, side="right")))))
        try:
            done = self._deliver(due)
        except _OF_ONE as error:
            done = self._one_by_one(due, error)
        self.counts.late_ms = max(0, self._store.clock.now_ms() - int(due.due_ms[0]))
        return done

    def _deliver(self, due: NewRows) -> int:
        """One append; the records that have no message are set aside. Raises UnreadableError, and
        NoRecordError and BatchRefusedError for what the log has not, or does not take; nothing is
        taken then."""
        sizes = due.sizes.astype(np.int64)
        records = copy_records(self._store.log, due.offsets, sizes)
        if records is None:
            raise NoRecordError("the log has no bytes there, its file is gone")
        found = delivered(
            records,
            sizes,
            due.offsets,
            store_ipv6=self._store_ipv6,
            readable=self._store.topics.readable_queue,
        )
        if found is None:
            self._put_aside(due.offsets, "no record that waits stands there")
            return len(due)
        # behind the last one there may be no room for another queue
        known = np.arange(int(found.rows[-1]) + 1)
        missing = np.setdiff1d(known, found.rows)
        if len(missing):
            self._put_aside(due.offsets[missing], "no record that waits stands there")
        for topic in found.batch.topics:
            if fault := target_fault(topic):
                raise BatchRefusedError("INVALID_TOPIC_NAME", "topic", f"topic {topic!r}: {fault}")
        done = self._append(found.batch, due.offsets[found.rows])
        self.counts.delivered += done
        return len(due)

    def _append(self, batch: RecordBatch, ends: Numbers, *, frees: bool = False) -> int:
        """Append records that end those that wait at `ends`, unless one of them does not wait any
        more; returns how many. `frees` as in MessageStore.put_own."""
        rows = self._fold.rows
        taken = False

        def frame() -> RecordBatch | None:
            nonlocal taken
            with self._fold.lock:
                if not self.ready or not rows.waits(ends).all():
                    return None
                rows.take(ends)
                taken = True
            return batch

        try:
            result = self._store.put_own(frame, frees=frees)
        except BaseException:
            if taken:
                with self._fold.lock:
                    rows.release(ends)
            raise
        return 0 if result is None else len(ends)

    def _one_by_one(self, due: NewRows, error: Exception) -> int:
        """After an append that failed for one of its records."""
        if len(due) == 1:
            self._put_aside(due.offsets, str(error))
            return 1
        for row in range(len(due)):
            one = due.taken(slice(row, row + 1))
            try:
                self._deliver(one)
            except _OF_ONE as fault:
                self._put_aside(one.offsets, str(fault))
        return len(due)

    def _put_aside(self, offsets: Numbers, reason: str) -> None:
        logger.error(
            "%d delayed messages cannot come now, the first is that of the record at log offset "
            "%d: %s; they are tried again in %.0f s",
            len(offsets), int(offsets[0]), reason, RETRY_S,
        )  # fmt: skip
        self.counts.set_aside += len(offsets)
        with self._fold.lock:
            waits = offsets[self._fold.rows.waits(offsets)]
            self._fold.rows.take(waits)
            self._set_aside.append((self._store.clock.monotonic() + RETRY_S, waits))

    def _look_at_set_aside(self) -> None:
        now = self._store.clock.monotonic()
        with self._fold.lock:
            while self._set_aside and self._set_aside[0][0] <= now:
                self._fold.rows.release(self._set_aside.pop(0)[1])

    # ---- retention

    def roll(self, end: int) -> int:
        """Let the messages that wait in records below log offset `end` wait on in new records, so
        that the files before can go; ROLL_RECORDS of them at most. Returns how many. One that
        has no record any more is given up: nothing else would ever end it. One that the disk does
        not read now, or that has no room for another time, keeps its file, and is tried again.
        Raises StoreError if the store takes
        nothing now."""
        if not self.ready:
            return 0
        with self._fold.lock:
            old = self._fold.rows.below(end, ROLL_RECORDS)
        if not len(old):
            return 0
        pairs = zip(old.offsets.tolist(), old.due_ms.tolist(), strict=True)
        records = [self._rolled(offset, due_ms) for offset, due_ms in pairs]
        unread = np.array([record is None for record in records])
        if unread.any():
            self._put_aside(old.offsets[unread], "it cannot get a new record")
        framed = [record for record in records if record is not None]
        if framed:
            self.counts.rolled += self._append(
                own_batch(TIMER_TOPIC, framed), old.offsets[~unread], frees=True
            )
        return len(old)

    def _rolled(self, offset: int, due_ms: int) -> bytes | None:
        host = self._store.config.store_host
        try:
            record = decode_record(self._store.reader.record_at(offset), physical_offset=offset)
        except UnreadableError:
            return None
        except (NoRecordError, OffsetOutOfRangeError) as error:
            logger.error(
                "the delayed message of the record at log offset %d is lost: %s", offset, error
            )
            return given_up_record(offset, now_ms=self._store.clock.now_ms(), host=host)
        try:
            return rolled_record(record, due_ms, store_host=host)
        except FormatError as error:
            logger.error("the record at log offset %d has no room to wait on: %s", offset, error)
            return None

    # ---- a clock that is set

    def _note_clock(self, now_ms: int) -> None:
        """If the clock was set since the last look, say so in the log: messages that wait for a
        delay are shifted with it (clock_step.py). Raises as MessageStore.put_own: then the next
        look says it."""
        elapsed, wrote = self._store.clock.elapsed(), self._store.log.wrote.value
        last = self._last_look
        if last is not None:
            before = last[2]
            step_ms = now_ms - last[0] - round((elapsed - last[1]) * 1000)
        else:
            # of the last master, whose clock was ahead: store times go back now (put_path.py)
            assert self._began_at is not None
            before, behind_ms = self._began_at, now_ms - self._newest_ms
            step_ms = behind_ms if behind_ms < -MAX_AHEAD_MS else 0
        if abs(step_ms) > JUMP_MS and len(self._fold.rows):
            host = self._store.config.store_host
            record = clock_step_record(ClockStep(step_ms, before), now_ms=now_ms, host=host)
            logger.warning("the clock was set by %d ms: delays are shifted with it", step_ms)
            self._store.put_own(lambda: own_batch(SERVICE_TOPIC, [record]))
            # a delay must not be measured by the new clock before it is shifted
            self._began_at = self._store.log.wrote.value
        self._last_look = now_ms, elapsed, wrote

    # ---- recalls

    def recall(self, handle: RecallHandle) -> Recalled:
        """Call the message of a handle back. Raises NotWaitingError, NotReadyError, and what
        MessageStore.put_own raises."""
        if not self.ready:
            raise NotReadyError("it is not known yet what has come: try again in a moment")
        with self._recalling:
            return self._recall(handle)

    def _recall(self, handle: RecallHandle) -> Recalled:
        offset, due_ms = self._find(handle)
        if (recalled := self._recalled(offset, due_ms)) is not None:
            return recalled
        waiting = self._waiting_record(handle, offset)
        # the record of the handle too, if its message waits on in another: it may be asked again
        named = {offset, handle.log_offset if handle.log_offset >= 0 else offset}
        records = [
            recall_record(
                replace(waiting, physical_offset=each), due_ms,
                now_ms=self._store.clock.now_ms(),
                born_host=waiting.born_host, store_host=self._store.config.store_host,
            )
            for each in sorted(named)
        ]  # fmt: skip
        ends, term = np.array([offset]), self._term
        if not self._append(own_batch(TIMER_TOPIC, records), ends):
            # meanwhile it came, or another recall of it was faster
            if (recalled := self._recalled(offset, due_ms)) is not None:
                return recalled
            raise _came(handle)
        self.counts.recalled += 1
        recalled = Recalled(offset, due_ms, self._store.log.wrote.value)
        with self._fold.lock:
            if term == self._term:  # else it may be cut
                self._recalls.update(dict.fromkeys(named, recalled))
        return recalled

    def _find(self, handle: RecallHandle) -> tuple[int, int]:
        """Log offset and due time of the record of a handle. Raises NotWaitingError."""
        key = hash_of_key(handle.topic, handle.key)
        with self._fold.lock:
            rows = self._fold.rows
            offset = handle.log_offset
            if offset < 0:
                same = rows.with_key(key)
                found = [rows.find(each) for each in same.tolist()]
                mine = [
                    each
                    for each in found
                    if each is not None and out_ms(int(each.due_ms[0])) == out_ms(handle.time_ms)
                ]
                row = mine[0] if mine else None
            else:
                row = rows.find(offset)
            if row is not None and int(row.keys[0]) == key:
                return int(row.offsets[0]), int(row.due_ms[0])
            if offset in self._fold.recalled or offset in self._recalls:
                return offset, handle.time_ms
            later = [rows.find(each) for each in rows.with_key(key).tolist() if each > offset >= 0]
        for row in later:
            # retention has let it wait on in another record, which names the one before
            place = int(row.offsets[0]) if row is not None else -1
            if row is not None and self._waiting_record(handle, place).prepared_transaction_offset:
                return place, int(row.due_ms[0])
        raise _came(handle)

    def _recalled(self, offset: int, due_ms: int) -> Recalled | None:
        """What an earlier recall of the message did, None without one."""
        with self._fold.lock:
            self._forget_dispatched()
            if (recalled := self._recalls.get(offset)) is not None:
                return recalled
            if offset in self._fold.recalled:
                return Recalled(offset, due_ms, 0)
        return None

    def _forget_dispatched(self) -> None:
        reached = self._fold.next_offset
        for offset in [o for o, each in self._recalls.items() if each.end_offset <= reached]:
            del self._recalls[offset]

    def _waiting_record(self, handle: RecallHandle, offset: int) -> Record:
        try:
            record = decode_record(self._store.reader.record_at(offset), physical_offset=offset)
        except (NoRecordError, OffsetOutOfRangeError) as error:
            raise _came(handle) from error
        real_topic = record.properties.get(REAL_TOPIC, "")
        if real_topic != handle.topic or (record.uniq_key or "") != handle.key:
            raise _came(handle)
        return record


def _came(handle: RecallHandle) -> NotWaitingError:
    return NotWaitingError(
        f"no message to {handle.topic!r} with the id {handle.key} waits (any more): it came, or "
        "the handle is of another cluster"
    )
