"""A client's batch on its way into the log: every check first, then one write.

    check the bytes ──▶ resolve the queues ──▶ sent before? ──▶ append ──▶ remember the request
    batch_check.py     targets.py         producer_table.py            retried_requests.py

Nothing is stored where any of it fails. Caller holds the store's write lock.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandemlog.format.record.batch import AppendSegment, RecordBatch

from ..clock import MAX_AHEAD_MS, duration
from ..log.commit_log import CommitLog
from ..producers.outcomes import Duplicate, Resume
from ..producers.producer_table import ProducerTable
from ..queues.queue_table import QueueTable
from .retried_requests import extents_of, mark_of, rest_of, stored_segments
from .targets import PutTargets

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a batch went. `end_offset` is the log position to be confirmed before the answer;
    `duplicate`: it was stored before, `segments` are those of the first time (empty if the
    store does not know them any more)."""

    segments: Sequence[AppendSegment]
    end_offset: int
    store_timestamp: int
    duplicate: bool = False


class PutPath:
    """The one that appends to a master's log."""

    def __init__(
        self, log: CommitLog, table: QueueTable, producers: ProducerTable, targets: PutTargets
    ) -> None:
        self._log = log
        self._next_queue_offsets = table.next_queue_offsets
        self._producers = producers
        self._targets = targets
        self._earliest_time = 0
        self.begin_after(log.store_timestamp)

    def begin_after(self, store_timestamp: int) -> None:
        """The newest record of the log has that time (ms), and this store begins to append.

        The next record must be later: else records of a stranger could be taken for the missing
        rest of a request that was torn before.
        """
        self._log.store_timestamp = max(self._log.store_timestamp, store_timestamp)
        self._earliest_time = max(self._earliest_time, self._log.store_timestamp + 1)

    def append(self, batch: RecordBatch, now_ms: int, holder: str = "") -> AppendResult:
        """`holder` is whose share a new producer counts for. Raises BatchRefusedError,
        StoreBusyError, DiskFullError, StoreReadOnlyError."""
        checked = self._log.check(batch)
        dense = self._targets.resolve(batch)
        time = self._time(now_ms)
        mark = mark_of(batch)
        if mark is None:
            segments = self._log.append(checked, dense, self._next_queue_offsets, time)
            return AppendResult(segments, self._log.wrote.value, time)
        outcome = self._producers.check(mark, batch.count, holder)
        if isinstance(outcome, Duplicate):
            return self._stored_before(batch, outcome, duplicate=True)
        left = batch
        if isinstance(outcome, Resume):
            left, mark = rest_of(batch, outcome.have, mark)
            checked = self._log.check(left)
        with self._producers.appending():
            segments = self._log.append(checked, dense, self._next_queue_offsets, time)
            self._producers.record(mark, extents_of(segments, left.sizes), time, holder)
        if left is not batch:
            whole = self._producers.check(replace(mark, index=0), batch.count)
            if isinstance(whole, Duplicate):
                return self._stored_before(batch, whole, duplicate=False)
        return AppendResult(segments, self._log.wrote.value, time)

    def _time(self, now_ms: int) -> int:
        """The store time of the next records: never earlier than the record before. Only where
        that one is ahead by hours was it stamped by a clock that was wrong: then the time goes
        back, once, to what it is now (time_steps.py)."""
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
    ) -> AppendResult:
        segments = stored_segments(self._log, batch, outcome.extents)
        return AppendResult(segments, outcome.end_offset, outcome.store_timestamp, duplicate)
