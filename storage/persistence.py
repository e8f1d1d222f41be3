"""What is derived from the log, made durable in the one order that is safe.

    1  log flushed up to F            (by its own service; only read here)
    2  queues written and fsynced     -> their ends at log offset D
    3  index fsynced                  -> with a position of its own
    4  producer table                 -> with a position of its own
    5  recovery point (D, F, ends)    -> the next recovery may start there
    6  RocketMQ's checkpoint          -> times and offsets of what is durable by now

Each step speaks only of what the steps before have made durable, so a crash between any two leaves
a store that claims too little and never too much.
"""

import threading

from tandemlog.format.checkpoint import Checkpoint

from .consume_queue_store import QueueCheckpoint
from .recovery_point import RecoveryPoint
from .small_files import write_small
from .store_parts import StoreParts


class Persistence:
    """Writes the recovery point and the checkpoint of one store; one call at a time."""

    def __init__(self, parts: StoreParts, recovered_time: int) -> None:
        """`recovered_time`: store time (ms) of the newest record that was there at open."""
        self._parts = parts
        self._durable_time = recovered_time
        self._dispatched_time = 0
        self._lock = threading.Lock()
        self._saved_point: RecoveryPoint | None = None
        self._saved_producers: int | None = None

    def save(self) -> RecoveryPoint:
        """Run all steps. Raises FlushFailedError, DiskFullError or OSError; what was durable
        before stays so."""
        parts = self._parts
        with self._lock:
            # read before the flushes: what is flushed later is not what they speak of
            flushed, confirmed = parts.log.flushed.value, parts.confirmed.value
            self._look_at_times(flushed)
            queues = parts.queues.flush()
            index_time = self._save_index()
            self._save_producers()
            point = self._save_point(queues, flushed, confirmed)
            parts.checkpoint.save(self._checkpoint(point, index_time))
            parts.stats.checkpoints += 1
            return point

    def _look_at_times(self, flushed: int) -> None:
        """The store times (ms) that are durable: the appender's, on a slave those of dispatch."""
        parts = self._parts
        dispatched = parts.reput.store_timestamp
        self._durable_time = max(self._durable_time, parts.log.flushed_timestamp)
        if parts.reputed.value <= flushed:
            self._durable_time = max(self._durable_time, dispatched)
            self._dispatched_time = max(self._dispatched_time, dispatched)

    def _save_index(self) -> int:
        """Answers the store time (ms) up to which the index is durable."""
        index = self._parts.index
        if index is None:
            return 0
        newest = index.newest
        time = newest.header.end_timestamp if newest is not None else 0
        index.flush()
        return time

    def _save_producers(self) -> None:
        producers = self._parts.producers
        if producers.next_offset != self._saved_producers:
            known = producers.next_offset
            write_small(self._parts.files, self._parts.paths.producers, producers.snapshot())
            self._saved_producers = known

    def _save_point(self, queues: QueueCheckpoint, flushed: int, confirmed: int) -> RecoveryPoint:
        point = RecoveryPoint(
            dispatched=queues.log_offset,
            flushed=flushed,
            confirmed=min(confirmed, flushed),
            store_timestamp=self._durable_time,
            index_tags=self._index_tags(),
            queues=queues.ends,
        )
        if point != self._saved_point:
            self._parts.recovery_point.save(point)
            self._saved_point = point
        return point

    def _index_tags(self) -> bool | None:
        """Known once the index has entries; an empty one may still become either."""
        index = self._parts.index
        return self._parts.source.index_tags if index is not None and index.files else None

    def _checkpoint(self, point: RecoveryPoint, index_time: int) -> Checkpoint:
        held = self._parts.checkpoint.value
        return Checkpoint(
            physic_msg_timestamp=self._durable_time,
            logics_msg_timestamp=self._dispatched_time or held.logics_msg_timestamp,
            index_msg_timestamp=index_time or held.index_msg_timestamp,
            master_flushed_offset=held.master_flushed_offset,
            confirm_phy_offset=point.confirmed,
            logics_physical_offset=min(point.dispatched, point.flushed),
        )
