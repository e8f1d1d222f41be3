"""One round of retention: ask the disk, decide (policy.py), drop the oldest file, and again.

    lock │ look, drop one │ pause │ look, drop one │ pause │ look: nothing │
                            puts                     puts

Deleting a gigabyte takes the disk a while, so puts wait for one file and not for ten. Without the
pause the running thread would take the lock again before the waiting one wakes up.

The log goes first, then what points into it: queue files, index files, and the epochs that ended
below its new start. A crash in between, or a file that cannot be deleted, leaves derived files that
point below the log, which every reader skips and the next round drops.
"""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial

from ..errors import DiskFullError
from ..store_parts import StoreParts
from .policy import Decision, LogFileAge, decide

logger = logging.getLogger(__name__)

# much longer than waking a thread takes, and much shorter than deleting a file
PAUSE_S = 0.001


class Cleaner:
    """Drops old files of one store; `disk_full` is set while the disk takes no more writes."""

    def __init__(self, parts: StoreParts, sleep: Callable[[float], None] = time.sleep) -> None:
        self._parts = parts
        self._sleep = sleep
        self.config = parts.config.retention
        self.disk_full: DiskFullError | None = None
        self.disk_percent = 0
        """Use of the disk at the last check."""
        self.held_from: Callable[[], int] | None = None
        """From which log offset on something else still needs the log: an archive."""
        self.waits_for: int | None = None
        """Where the oldest file ends, if it would have gone at the last check, and a fold needs its
        records; None if it would not."""

    @property
    def disk_fault(self) -> str:
        """The warning of `check` about a disk that gets full; empty if there is room."""
        limit = self.config.disk_max_used_percent
        if self.disk_percent < limit:
            return ""
        return (
            f"the disk of {self._parts.config.directory} is {self.disk_percent} % full; from "
            f"{limit} % on expired log files go at any hour, and later those that have not "
            "expired: free some space"
        )

    def run(self, write_lock: AbstractContextManager[object]) -> int:
        """One round; returns how many files of the log went. Raises OSError if the disk cannot
        be asked or a file not be deleted."""
        dropped = 0
        with write_lock, suppress(OSError):  # a full disk: files then count as seen later
            self._parts.seen_time.update(file.path.name for file in self._parts.log.files[:-1])
        while True:
            with write_lock:
                count = self._drop_next()
            dropped += count
            if not count or dropped >= self.config.delete_batch_max:
                return dropped
            self._sleep(PAUSE_S)

    def _drop_next(self) -> int:
        """Look at the disk, and drop the oldest file if it is its time; returns how many went.
        Caller holds the lock."""
        parts = self._parts
        now = parts.clock.now_ms()
        use = parts.files.disk_usage(parts.config.directory)
        oldest = self._oldest()
        # what queues and folds have durably, as only they will know the numbers of an idle queue
        # and the requests of an idle producer, and what a fold still needs; without a snapshot on
        # the disk (it was damaged, and cannot be written again) only the log does
        others = min(
            parts.reputed.value,
            parts.confirmed.value,
            parts.log.flushed.value,
            parts.recovery_point.dispatched,
        )
        if self.held_from is not None:
            others = min(others, self.held_from())
        kept = [file.keep_from for file in parts.fold_files]
        keep_from = min(
            others,
            parts.reput.keep_from,
            *(parts.log.min_offset if offset is None else offset for offset in kept),
        )
        decide_by = partial(
            decide,
            oldest,
            self.config,
            local_hour=time.localtime(now / 1000).tm_hour,
            disk_used_percent=use.percent,
        )
        decision = decide_by(keep_from=keep_from)
        self._note_wait(decision, decide_by(keep_from=others))
        self.disk_percent = use.percent
        self._note_disk(decision, use.percent)
        if decision.drop is None:
            return self._drop_missing(oldest, keep_from)
        end = decision.drop.end_offset
        logger.info("dropping the log below %d: %s", end, decision.reason)
        return self.drop_before(end)

    def _note_wait(self, decision: Decision, without_folds: Decision) -> None:
        """Whether a file would go, if no fold needed its records."""
        wanted = without_folds.drop if decision.drop is None else None
        self.waits_for = None if wanted is None else wanted.end_offset

    def _drop_missing(self, oldest: LogFileAge | None, keep_from: int) -> int:
        """Let the log begin at the oldest file that is there: those before were deleted by hand. If
        the newest is missing too, the disk itself is missing."""
        log = self._parts.log
        if not log.files or self._parts.files.status(log.files[-1].path) is None:
            return 0
        begin = oldest.start_offset if oldest is not None else log.files[-1].base
        if not log.min_offset < begin <= keep_from:
            return 0
        logger.warning("the log has lost its files below %d and now begins there", begin)
        return self.drop_before(begin)

    def drop_before(self, offset: int) -> int:
        """Drop the log files that end at or before `offset`, and what points to nothing else;
        returns how many files of the log went. Raises OSError if one could not be deleted, of
        the derived ones after all the others."""
        parts = self._parts
        dropped = parts.log.drop_before(offset)
        parts.stats.count_deleted(len(dropped))
        start = parts.log.min_offset
        with ExitStack() as derived:  # calls each, the last first, whatever they raise
            derived.callback(parts.epochs.truncate_prefix, start)
            derived.callback(parts.time_steps.drop_before, start)
            if parts.index is not None:
                derived.callback(parts.index.drop_before, start)
            derived.callback(parts.queues.set_log_minimum, start)
        return len(dropped)

    def _oldest(self) -> LogFileAge | None:
        """The oldest file of the log that is still on disk, never the newest of all."""
        for file in self._parts.log.files[:-1]:
            status = self._parts.files.status(file.path)
            if status is not None:
                age_ms = self._parts.seen_time.age_ms(file.path.name)
                return LogFileAge(file.base, file.size, age_ms)
        return None

    def _note_disk(self, decision: Decision, percent: int) -> None:
        limit = self.config.disk_warning_percent
        if decision.disk_full and self.disk_full is None:
            self.disk_full = DiskFullError(
                f"the disk of {self._parts.config.directory} is {percent} % full, the limit "
                f"is {limit} % (disk_warning_percent): free some space, then the store "
                "continues by itself"
            )
            logger.error("%s", self.disk_full)
        elif not decision.disk_full and self.disk_full is not None:
            logger.info("the disk has space again: %d %% used", percent)
            self.disk_full = None
