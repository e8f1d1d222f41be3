"""The first message of each queue that an archive has, looked for once.

A queue that begins far behind the archive's begin costs the indexes before it, once for all queues
together: what is kept of them answers for each. One row for each queue is kept until the archive
begins elsewhere, or its log has another term.
"""

import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from tandemlog.archive.archived_queues import ArchivedLog, ArchivedQueues, QueueName

MOST_QUEUES: Final = 100_000


@dataclass(frozen=True, slots=True)
class QueueBegin:
    """The number of a queue's first message in the archive, and its store time (ms)."""

    number: int
    time_ms: int


class QueueBegins:
    """See the module. Safe to use from several threads."""

    def __init__(self, queues: ArchivedQueues) -> None:
        self._queues = queues
        self._lock = threading.Lock()
        self._of: Hashable = None
        self._found: dict[QueueName, QueueBegin] = {}
        self._missing: dict[QueueName, int] = {}

    def of(self, log: ArchivedLog, term: Hashable, queue: QueueName) -> QueueBegin | None:
        """Of an archived log with that newest term. Raises ArchiveError."""
        with self._lock:
            if self._of != (term, log.begin):
                self._of = term, log.begin
                self._found, self._missing = {}, {}
            found, missing = self._found, self._missing
            known = found.get(queue)
            if known is not None or missing.get(queue) == log.end:
                return known
        units = self._queues.units(log, queue, 0, 1)
        begin = None
        if units is not None:
            begin = QueueBegin(units.first, int(self._queues.store_times(units)[0]))
        with self._lock:
            # in the tables of that log: others may have begun meanwhile
            if len(found) + len(missing) >= MOST_QUEUES:
                found.clear()
                missing.clear()
            if begin is None:
                missing[queue] = log.end
            else:
                found[queue] = begin
        return begin
