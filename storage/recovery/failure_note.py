"""A failed fsync is written down at once, so that the next open does not trust what is cached."""

import threading

from ..errors import FlushFailedError
from ..log.commit_log import CommitLog
from .last_stop import LastStop


class FailureNote:
    """Listens to the log; `apart`: save in a thread of its own, once the store is started."""

    def __init__(self, log: CommitLog, last_stop: LastStop) -> None:
        self.apart = False
        self._log = log
        self._last_stop = last_stop
        log.flushed.listen(self._heard)

    def save(self) -> None:
        """Durable on return if an fsync has failed. Again as long as the disk does not take it."""
        if isinstance(self._log.failure, FlushFailedError):
            self._last_stop.note_failed_fsync()

    def _heard(self) -> None:
        """The thread that met it holds the log's locks and has others to tell, and a disk in
        trouble may take minutes for a byte."""
        if self._log.failure is None:
            return
        if self.apart:
            threading.Thread(target=self.save, name="fsync-flag", daemon=True).start()
        else:
            self.save()
