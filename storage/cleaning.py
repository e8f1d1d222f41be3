"""One round of retention: ask the disk, decide (retention.py), drop the oldest files.

The log goes first, then what points into it: queue files, index files, and the epochs that ended
below its new start. A crash in between leaves derived files that point below the log, which every
reader passes over and the next round drops.
"""

import logging
import time

from .errors import DiskFullError
from .retention import Decision, LogFileAge, decide
from .store_parts import StoreParts

logger = logging.getLogger(__name__)


class Cleaner:
    """Drops old files of one store; `disk_full` is set while the disk takes no more writes."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts
        self._manual = False
        self.disk_full: DiskFullError | None = None

    def request(self) -> None:
        """Let the next round drop expired files, whatever the hour."""
        self._manual = True

    def run(self) -> Decision:
        """One round. Raises OSError where the disk cannot be asked or a file not be deleted."""
        parts = self._parts
        retention = parts.config.retention
        now = parts.clock.now_ms()
        use = parts.files.disk_usage(parts.config.directory)
        decision = decide(
            self._ages(),
            retention,
            now_ms=now,
            local_hour=time.localtime(now / 1000).tm_hour,
            disk_used_percent=use.percent,
            keep_from=min(parts.reputed.value, parts.confirmed.value, parts.log.flushed.value),
            manual=self._manual,
        )
        self._manual = False
        self._note_disk(decision, use.percent)
        if decision.drop_before is not None:
            logger.info("dropping %d log files: %s", decision.files, decision.reason)
            self.drop_before(decision.drop_before)
        return decision

    def drop_before(self, offset: int) -> int:
        """Drop the log files that end at or before `offset`, and what points to nothing else;
        answers how many files of the log went."""
        parts = self._parts
        gone = parts.log.drop_before(offset)
        start = parts.log.min_offset
        parts.queues.set_log_minimum(start)
        if parts.index is not None:
            parts.index.drop_before(start)
        parts.epochs.truncate_prefix(start)
        parts.stats.files_deleted += len(gone)
        return len(gone)

    def _ages(self) -> list[LogFileAge]:
        found = []
        for file in self._parts.log.files:
            status = self._parts.files.status(file.path)
            if status is not None:
                found.append(LogFileAge(file.base, file.size, status.modified_ms))
        return found

    def _note_disk(self, decision: Decision, percent: int) -> None:
        limit = self._parts.config.retention.disk_warning_percent
        if decision.disk_full and self.disk_full is None:
            self.disk_full = DiskFullError(
                f"the disk of {self._parts.config.directory} is {percent} % full, the limit is "
                f"{limit} % (disk_warning_percent): free some space, then it goes on"
            )
            logger.error("%s", self.disk_full)
        elif not decision.disk_full and self.disk_full is not None:
            logger.info("the disk has space again: %d %% used", percent)
            self.disk_full = None
