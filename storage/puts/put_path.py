"""A client's batch on its way into the log: every check first, then one write.

A put is what a client asks for, one request with a batch of records. An append is what a file does:
bytes are added to the end of the log, units to the end of a queue. So each put that is not refused
or known from before is one append, and a slave appends without puts.

    check the bytes ──▶ resolve the queues ──▶ sent before? ──▶ append ──▶ remember the request
    batch_check.py      targets.py             producer_table.py           producer_table.py
                        delay_check.py: of messages that come later
                        half_check.py: of open transactions

Of a request of which a part was stored before, retried_requests.py cuts what is missing.

Nothing is stored where any of it fails. Caller holds the store's write lock.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.record.batch import AppendSegment, RecordBatch

from ..clock import MAX_AHEAD_MS, duration
from ..delays.delay_check import DelayCheck
from ..log.commit_log import CommitLog
from ..producers.producer_requests import Duplicate, Resume
from ..producers.producer_table import ProducerTable
from ..queues.queue_table import QueueTable
from ..transactions.half_check import NO_HALVES, HalfCheck
from .retried_requests import extents_of, mark_of, rest_of, stored_segments
from .targets import PutTargets

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PutResult:
    """Where a batch was stored. `end_offset` has to be confirmed before the put is answered;
    `duplicate`: it was stored before, at these `segments` (empty if they are no longer known)."""

    segments: Sequence[AppendSegment]
    end_offset: int
    store_timestamp: int
    duplicate: bool = False


class PutPath:
    """The one that appends to a master's log."""

    def __init__(
        self,
        log: CommitLog,
        table: QueueTable,
        producers: ProducerTable,
        targets: PutTargets,
        delays: DelayCheck | None = None,
        halves: HalfCheck | None = None,
    ) -> None:
        self._delays = delays
        self._halves = halves
        self._log = log
        self._next_queue_offsets = table.next_queue_offsets
        self._producers = producers
        self._targets = targets
        self._earliest_time = 0
        self.begin_after(log.store_timestamp)

    def begin_after(self, store_timestamp: int) -> None:
        """The newest record of the log has that time (ms), and this store begins to append.

        The next record must be later: otherwise another client's records could be taken for the
        missing rest of a torn request.
        """
        if self._delays is not None:
            self._delays.begin()
        self._log.store_timestamp = max(self._log.store_timestamp, store_timestamp)
        self._earliest_time = max(self._earliest_time, self._log.store_timestamp + 1)

    def put(self, batch: RecordBatch, now_ms: int, holder: str = "") -> PutResult:
        """`holder` is whose share a new producer counts for. Raises BatchRefusedError,
        StoreBusyError, DiskFullError, StoreReadOnlyError."""
        checked = self._log.check(batch)
        dense = self._targets.resolve(batch)
        time = self._time(now_ms)
        waiting = 0
        if self._delays is not None and self._delays.concerns(batch):
            waiting = self._delays.check(batch, time)
        mark = mark_of(batch)
        if mark is None:
            halves = self._checked_halves(batch)
            self._check_room(waiting, halves, holder)
            segments = self._log.append(checked, dense, self._next_queue_offsets, time)
            self._note_waiting(segments, waiting, holder)
            self._note_halves(halves, batch, segments, holder)
            return PutResult(segments, self._log.wrote.value, time)
        outcome = self._producers.check(mark, batch.count, holder)
        if isinstance(outcome, Duplicate):
            # halves that were open then may have ended since
            return self._stored_before(batch, outcome, duplicate=True)
        have = outcome.have if isinstance(outcome, Resume) else 0
        halves = self._checked_halves(batch, have)
        self._check_room(waiting, halves, holder)
        rest = batch
        if isinstance(outcome, Resume):
            rest, mark = rest_of(batch, have, mark)
            checked = self._log.check(rest)
        with self._producers.appending():
            segments = self._log.append(checked, dense, self._next_queue_offsets, time)
            self._producers.record(mark, extents_of(segments, rest.sizes), time, holder)
        self._note_waiting(segments, waiting, holder)
        self._note_halves(halves, rest, segments, holder)
        if rest is not batch:
            whole = self._producers.check(replace(mark, index=0), batch.count)
            if isinstance(whole, Duplicate):
                return self._stored_before(batch, whole, duplicate=False)
        return PutResult(segments, self._log.wrote.value, time)

    def _checked_halves(self, batch: RecordBatch, have: int = 0) -> NDArray[np.int64]:
        """The rows of halves behind the first `have` records, counted from there. Raises as
        HalfCheck.check."""
        return NO_HALVES if self._halves is None else self._halves.check(batch, have) - have

    def _check_room(self, waiting: int, halves: NDArray[np.int64], holder: str) -> None:
        if waiting and self._delays is not None:
            self._delays.check_room(waiting, holder)
        if len(halves) and self._halves is not None:
            self._halves.check_room(len(halves), holder)

    def _note_halves(
        self,
        halves: NDArray[np.int64],
        batch: RecordBatch,
        segments: Sequence[AppendSegment],
        holder: str,
    ) -> None:
        if len(halves) and self._halves is not None:
            self._halves.appended(halves, batch.sizes, segments, holder)

    def _note_waiting(self, segments: Sequence[AppendSegment], waiting: int, holder: str) -> None:
        if waiting and self._delays is not None:
            self._delays.appended(segments, self._log.wrote.value, waiting, holder)

    def put_own(self, batch: RecordBatch, now_ms: int) -> PutResult:
        """Records of a service of this node, to any topic; sent once, so without a mark. Raises as
        `put`."""
        checked = self._log.check(batch, own=True)
        dense, time = self._targets.register_own(batch), self._time(now_ms)
        segments = self._log.append(checked, dense, self._next_queue_offsets, time)
        return PutResult(segments, self._log.wrote.value, time)

    def _time(self, now_ms: int) -> int:
        """The store time of the next records: never earlier than the record before, unless that one
        is ahead by hours. Then a wrong clock stamped it, and the time goes back once, to the
        clock's (time_steps.py)."""
        newest = self._log.store_timestamp
        if newest - now_ms > MAX_AHEAD_MS:
            logger.warning(
                "the newest record of the log is ahead of the clock by %s: store times "
                "continue from the clock",
                duration(newest - now_ms),
            )
            self._earliest_time = 0
            return now_ms
        return max(now_ms, newest, self._earliest_time)

    def _stored_before(
        self, batch: RecordBatch, outcome: Duplicate, *, duplicate: bool
    ) -> PutResult:
        segments = stored_segments(self._log, batch, outcome.extents)
        return PutResult(segments, outcome.end_offset, outcome.store_timestamp, duplicate)
