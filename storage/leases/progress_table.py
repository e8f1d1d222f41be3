"""What the log says about all groups: the state of each of their queues, and where it can begin.

    log   | ... | changes | changes | STATE 1/2 | changes | STATE 2/2 | changes ...
            |                         ^ base: from here on a node learns everything
            ^ first: of the log as this node has seen it

While no whole set of STATE pieces was seen, everything since the first record is needed; afterwards
the log from the newest whole set's first piece on.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tandemlog.format.lease.progress import Progress, ProgressKind, QueueProgress

from .queue_state import QueueState

QueueKey = tuple[str, int]
"""Topic and queue id."""
UNKNOWN: Final = -1


class ProgressTable:
    """See the module. `base_offset` and `first_offset` are log offsets, UNKNOWN before there is
    one."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[QueueKey, QueueState]] = {}
        self.first_offset = UNKNOWN
        self.base_offset = UNKNOWN
        self._set_id = UNKNOWN
        self._set_offset = UNKNOWN
        self._seen: set[int] = set()

    @property
    def needed_offset(self) -> int:
        """The log from there on says everything; UNKNOWN if it says nothing."""
        return self.base_offset if self.base_offset != UNKNOWN else self.first_offset

    def apply(self, progress: Progress, log_offset: int) -> None:
        """The record at `log_offset`."""
        if self.first_offset == UNKNOWN:
            self.first_offset = log_offset
        self._apply(progress.entries)
        if progress.kind is ProgressKind.STATE:
            self._count_piece(progress, log_offset)

    def load(
        self, entries: Iterable[QueueProgress], *, first_offset: int, base_offset: int
    ) -> None:
        """What a snapshot said. Pieces of a set that was not whole are forgotten: the next set
        counts."""
        self._apply(entries)
        self.first_offset, self.base_offset = first_offset, base_offset

    def _apply(self, entries: Iterable[QueueProgress]) -> None:
        for entry in entries:
            queues = self.groups.setdefault(entry.group, {})
            key = (entry.topic, entry.queue_id)
            if entry.dropped:
                queues.pop(key, None)
                if not queues:
                    del self.groups[entry.group]
                continue
            state = queues.get(key)
            if state is None:
                state = queues[key] = QueueState()
            state.apply(entry)

    def _count_piece(self, progress: Progress, log_offset: int) -> None:
        if progress.set_id != self._set_id:
            self._set_id, self._set_offset, self._seen = progress.set_id, log_offset, set()
        self._seen.add(progress.piece)
        if len(self._seen) == progress.pieces:
            self.base_offset = self._set_offset

    def entries(self) -> Iterator[QueueProgress]:
        """Everything, one entry for each queue."""
        for group in self.groups:
            yield from self.of_group(group)

    def of_group(self, group: str) -> Iterator[QueueProgress]:
        for (topic, queue_id), state in self.groups.get(group, {}).items():
            yield state.progress(group, topic, queue_id)

    def queue_count(self) -> int:
        return sum(map(len, self.groups.values()))
