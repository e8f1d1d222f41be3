"""Numbers of a queue whose record is damaged in this node's log, and may be mended.

    log      | r | damage | r |          a record that dispatch could not read
    queue    | 4 |   5    | 6 |          5 is pre-blank: readers of the queue skip it

For a group whose work is counted message by message, such a number is neither deleted nor done: the
scrub brings the record back from another node, and then the group has to get it. So it counts as
unreadable, like a place that the disk does not give. It is damage if the log between the records
beside it is, as dispatch sees it. The list of damages does not outlive the process; a stretch of up
to SEARCH_BYTES is walked again to find it.

Where no other node has the record either, it never comes back. So a group waits PATIENCE_S for it,
from the first time on that this process was asked; then the number is skipped.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE

from ..errors import UnreadableError
from ..leases.intervals import runs_of
from ..log.log_scanner import Damage
from ..message_store import MessageStore

PATIENCE_S: Final = 600.0
SEARCH_BYTES: Final = 64 << 20
_WINDOW: Final = 256
_MOST_NUMBERS: Final = 1 << 16


class DamagedNumbers:
    """See the module; any thread."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._since: dict[int, float] = {}

    def least(self, topic: str, queue_id: int, minimum: int) -> int:
        """Where the queue begins whose first record is number `minimum`: before it, if the damages
        that are listed have taken its first ones. Raises StoreError."""
        dense, number = self._store.queue_table.get(topic, queue_id), minimum
        if dense < 0 or not self._store.damages:
            return minimum
        while number > max(minimum - _WINDOW, 0):
            units = self._store.queues.read(dense, number - 1, 1)
            if not len(units) or not _blanks(units).all():
                break
            number -= 1
        waiting = self._first(dense, number, minimum, search=False)
        return minimum if waiting is None else waiting[0]

    def first(
        self, topic: str, queue_id: int, start: int, end: int
    ) -> tuple[int, UnreadableError] | None:
        """The first number in start .. end-1 that waits for its record. Raises StoreError where
        nothing can be said now."""
        dense = self._store.queue_table.get(topic, queue_id)
        return None if dense < 0 else self._first(dense, start, end, search=True)

    def _first(
        self, dense: int, start: int, end: int, *, search: bool
    ) -> tuple[int, UnreadableError] | None:
        for number, behind in self._blank(dense, start, end):
            damage = self._beside(dense, number, behind, search=search)
            if damage is not None and self._waits(damage):
                position = damage.start % self._store.log.file_size
                size = damage.end - damage.start
                topic, queue_id = self._store.queue_table.name(dense)
                why = f"the record of message {number} of {topic}/{queue_id} is damaged"
                return number, UnreadableError(damage.file, position, size, why)
        return None

    def _blank(self, dense: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Runs of pre-blank units in start .. end-1."""
        while start < end:
            units = self._store.queues.read(dense, start, min(end - start, _MOST_NUMBERS))
            if not len(units):
                return
            starts, ends = runs_of(start + _blanks(units).nonzero()[0])
            yield from zip(starts.tolist(), ends.tolist(), strict=True)
            start += len(units)

    def _beside(self, dense: int, number: int, behind: int, *, search: bool) -> Damage | None:
        """The damage between the records before `number` and at or after `behind`."""
        store = self._store
        begin, stop = store.log.min_offset, store.queues.next_offset
        low = max(number - _WINDOW, 0)
        before = store.queues.read(dense, low, number - low)
        before = before[~_blanks(before)]
        if len(before):
            last = before[-1]
            begin = max(begin, int(last["physical_offset"]) + int(last["size"]))
        after = store.queues.read(dense, behind, _WINDOW)
        after = after[~_blanks(after)]
        if len(after):
            stop = min(stop, int(after["physical_offset"][0]))
        for damage in store.damages:
            if damage.start < stop and begin < damage.end:
                return damage
        if not search or stop - begin > SEARCH_BYTES:
            return None
        at = begin
        while at < stop:
            with store.reput.undisturbed():
                # what this finds is listed from now on
                following = store.source.batch(at, stop, index=False).end
                found = store.source.passed.get(at)
            if found is not None or following == at:
                return found
            at = following
        return None

    def _waits(self, damage: Damage) -> bool:
        now = self._store.clock.monotonic()
        return now - self._since.setdefault(damage.start, now) < PATIENCE_S


def _blanks(units: NDArray[np.void]) -> NDArray[np.bool_]:
    blank: NDArray[np.bool_] = units["size"] == PRE_BLANK_SIZE
    return blank
