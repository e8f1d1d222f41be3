"""Makes the files derived from the log durable, in the one order that is safe.

    1  log flushed up to F            (by its own service; only read here)
    2  queues written and fsynced     -> their ends at log offset D
    3  index fsynced                  -> with a position of its own
    4  folds, the producer table too  -> each with a position of its own
    5  recovery point (D, F, ends)    -> the next recovery may start there
    6  RocketMQ's checkpoint          -> times and offsets of what is durable by now

Each step refers only to what the steps before have made durable, so a crash between any two leaves
a store that claims too little and never too much.

A fold may be true for more than F: then its snapshot waits (FoldFile).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tandemlog.format.files.checkpoint import Checkpoint

from ..disk_errors import refusing
from ..errors import DiskFullError, FlushFailedError, StoreError, StoreReadOnlyError
from ..queues.queue_checkpoint import QueueCheckpoint
from ..state_files.recovery_point import RecoveryPoint, RecoveryPointFile
from ..state_files.store_checkpoint import StoreCheckpoint
from ..store_parts import StoreParts

NOTHING = RecoveryPoint(dispatched=0, flushed=0, confirmed=0)


class Persistence:
    """Writes the recovery point and the checkpoint of one store; one call at a time."""

    def __init__(
        self, parts: StoreParts, recovered_time: int, confirmed_at_most: int | None = None
    ) -> None:
        """`recovered_time`: store time (ms) of the newest record that was there at open.
        `confirmed_at_most`: no point says more, whatever this process dispatches."""
        self._parts = parts
        self._confirmed_at_most = confirmed_at_most
        self._durable_time = recovered_time
        self._dispatched_time = 0
        self._lock = threading.RLock()
        self._saved_point: RecoveryPoint | None = None
        self._starting_over = False

    def save(self, *, log_end: int | None = None, closing: bool = False) -> RecoveryPoint:
        """Run all steps; nothing of the log at or after `log_end` counts as durable. `closing`: the
        last round, without further puts. Raises StoreError that names the file; what was durable
        before stays so then. FlushFailedError ends all writing: a second fsync proves nothing for
        queues and index either."""
        try:
            return self._save(log_end, closing)
        except FlushFailedError as error:
            self._parts.log.fail(error)
            raise

    def _save(self, log_end: int | None, closing: bool) -> RecoveryPoint:
        parts = self._parts
        with self._lock:
            if self._starting_over:
                raise StoreError("the log could not be set aside: the next open completes that")
            failure = parts.log.failure
            if isinstance(failure, FlushFailedError):
                raise failure.with_traceback(None)
            # read before the flushes: they do not cover what is flushed later
            flushed, confirmed = parts.log.flushed.value, parts.confirmed.value
            mended = () if parts.reput.behind else parts.mend_note.told
            whole = parts.log.ends_with_record(flushed) and log_end is None
            if log_end is not None:
                flushed = min(flushed, log_end)
            if flushed <= parts.log.min_offset:
                flushed = 0  # the file of an empty log need not even be on the disk
            durable = min(confirmed, flushed)
            self._update_times(flushed)
            queues = parts.queues.flush()
            index_time = self._save_index()
            for file in parts.fold_files:
                file.save(flushed, closing=closing)
            # before and after: the role may have changed in between
            whole = whole and parts.log.ends_with_record(flushed)
            point = self._save_point(queues, flushed, durable, whole=whole)
            with refusing(f"{parts.checkpoint.path} cannot be written"):
                parts.checkpoint.save(self._checkpoint(point, index_time, durable))
            # while a snapshot waits for the flush, the one on the disk lacks these records
            current = all(file.is_current for file in parts.fold_files)
            if mended and current and not parts.reput.behind:
                with refusing(f"{parts.mend_note.path} cannot be removed"):
                    parts.mend_note.remove(mended)
            parts.stats.count_checkpoint()
            return point

    def around_cut(self, log_end: int, cut: Callable[[], object]) -> None:
        """Save, `cut` the log at `log_end`, save again, and allow no other save in between: after a
        crash there, an older point would make the cut look like damage. Raises what `cut` does, and
        what `save` does, saying whether the log is cut by then."""
        with self._lock:
            with telling(f"the log is not cut at {log_end}"):
                self.save(log_end=log_end)
            cut()
            with telling(f"the log is cut at {log_end}"):
                self.save()

    @contextmanager
    def starting_over(self) -> Iterator[None]:
        """Around a change that removes everything the store holds. No other save runs in between,
        and after an error none at all: the next open completes the change. Raises OSError."""
        with self._lock:
            self._starting_over = True
            reset_checkpoints(self._parts.recovery_point, self._parts.checkpoint)
            self._saved_point = None
            for file in self._parts.fold_files:
                file.forget()
            self._durable_time = self._dispatched_time = 0
            yield
            self._starting_over = False

    def _update_times(self, flushed: int) -> None:
        """The store times (ms) that are durable: the appender's, on a slave those of dispatch.

        Once all that is durable is dispatched, the time is that of the last record, even if a wrong
        clock stamped earlier ones later: a checkpoint with their time would be wrong as soon as
        retention deletes them.
        """
        parts = self._parts
        dispatched = parts.reput.store_timestamp
        reputed = parts.reputed.value
        self._durable_time = max(self._durable_time, parts.log.flushed_timestamp)
        if dispatched and reputed <= flushed:
            self._dispatched_time = dispatched
            self._durable_time = (
                dispatched if reputed == flushed else max(self._durable_time, dispatched)
            )

    def _save_index(self) -> int:
        """Returns the store time (ms) up to which the index is durable."""
        index = self._parts.index
        if index is None:
            return 0
        newest = index.newest
        time = newest.header.end_timestamp if newest is not None else 0
        index.flush()
        return time

    def _save_point(
        self, queues: QueueCheckpoint, flushed: int, durable: int, *, whole: bool
    ) -> RecoveryPoint:
        # dispatch goes up to the confirm offset: what it has come to was confirmed
        confirmed = max(durable, queues.log_offset)
        if self._confirmed_at_most is not None:
            confirmed = min(confirmed, self._confirmed_at_most)
        point = RecoveryPoint(
            dispatched=queues.log_offset,
            flushed=flushed,
            confirmed=confirmed,
            store_timestamp=self._durable_time,
            index_tags=self._index_tags(),
            queues=queues.ends,
            least=queues.least,
            whole=whole,
            offsets=self._parts.consumer_offsets.on_disk,
            folds={
                file.fold.name: position
                for file in self._parts.fold_files[1:]
                if (position := file.position) is not None
            },
        )
        if point != self._saved_point:
            with refusing(f"{self._parts.recovery_point.path} cannot be written"):
                self._parts.recovery_point.save(point)
            self._saved_point = point
        return point

    def _index_tags(self) -> bool | None:
        """Known once the index has entries; an empty one may still become either."""
        index = self._parts.index
        return self._parts.source.index_tags if index is not None and index.files else None

    def _checkpoint(self, point: RecoveryPoint, index_time: int, confirmed: int) -> Checkpoint:
        before = self._parts.checkpoint.value
        return Checkpoint(
            physic_msg_timestamp=self._durable_time,
            logics_msg_timestamp=self._dispatched_time or before.logics_msg_timestamp,
            index_msg_timestamp=index_time or before.index_msg_timestamp,
            master_flushed_offset=before.master_flushed_offset,
            confirm_phy_offset=confirmed,
            logics_physical_offset=min(point.dispatched, point.flushed),
        )


@contextmanager
def telling(done: str) -> Iterator[None]:
    """Around a save: adds what was `done` by then to an error of the disk."""
    try:
        yield
    except FlushFailedError:
        raise
    except StoreReadOnlyError as error:
        kind = DiskFullError if isinstance(error, DiskFullError) else StoreReadOnlyError
        raise kind(f"{done}: {error.reason}") from error


def reset_checkpoints(recovery_point: RecoveryPointFile, checkpoint: StoreCheckpoint) -> None:
    """Note nothing as durable, before everything is set aside, in RocketMQ's checkpoint too: its
    times are of records that will not be here."""
    recovery_point.save(NOTHING)
    checkpoint.save(Checkpoint())
