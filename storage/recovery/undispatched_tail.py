"""What the end of the log says of queues and producers before it is dispatched.

    log      ..............................................|  end
    queues   |------ dispatched ------>|   the tail: not confirmed yet, or no room for its units
    next queue offsets, producers      |--- read here --->|

An append needs both, and cannot wait for dispatch, which may never come for unconfirmed records,
and on a full disk only when there is space. What is read here is dispatched later.

This is the one place that decides what the next record of a queue gets while nothing is appended:
the greater of what the queue knows (its end, or for a damaged one its floor: queue_floors.py) and
what the tail holds. Only a cut of the log lowers it: then the queue itself ends lower.

Dispatch doubts the number of a damaged record (number_doubts.py), so it is doubted here as well:
records that continued behind a false one would all be left out of their queue.
"""

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import unit_columns
from tandemlog.format.files.queue_unit import UNIT_DTYPE

from ..queues.number_doubts import following_number
from ..queues.queue_runs import regroup
from ..queues.queue_table import register_queue, register_queues
from ..store_parts import StoreParts


def read_tail(parts: StoreParts, end: int) -> tuple[int, int]:
    """Set the next queue offsets to what the log holds up to `end`, and replay the producer table
    up to there. Returns where the records end, `end` if all is well, and the store time (ms) of the
    newest record behind what is dispatched, 0 if there is none."""
    # before the ends, and where both are: what is dispatched meanwhile, to the queues and then to
    # the producers, is looked at twice, never skipped
    dispatched = min(parts.queues.next_offset, parts.producers.next_offset)
    if parts.queues.damaged:
        # whatever units these have by now: others of theirs may lie anywhere
        dispatched = 0
    reset_to_queue_ends(parts)
    table, numbers = parts.queue_table, _TailNumbers(parts)
    position, time = max(dispatched, parts.log.min_offset), 0
    while position < end:
        batch = parts.source.batch(position, end, index=False)
        if batch.end == position:
            break
        columns, lost = batch.columns, batch.lost
        if lost is not None:
            numbers.keep(
                register_queue(table, lost.topic, lost.queue_id), lost.queue_offset, batch.start
            )
        units = unit_columns(columns)
        numbers.add(register_queues(table, units), units.queue_offset, units.units)
        parts.producers.apply(batch)
        if columns.count:
            time = int(columns.store_timestamp[-1])
        position = batch.end
    numbers.resolve()
    return position, time


class _TailNumbers:
    """The next queue offsets, raised by records in the order of the log. A queue whose numbers do
    not simply continue is judged when all of its records are known."""

    def __init__(self, parts: StoreParts) -> None:
        self._following = parts.queue_table.next_queue_offsets
        self._table = parts.queue_table
        # log offset of the last record of each queue so far; -1 for a damaged one all the time:
        # all of its records come again, and what it knows to be its end does not say which it had
        self._last = parts.queues.mender.last_records()
        self._damaged = list(parts.queues.damaged)
        self._doubted: dict[int, list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = {}

    def keep(self, dense: int, number: int, physical_offset: int) -> None:
        """A damaged record still tells its number; of an impossible queue where `dense` < 0."""
        if dense in self._doubted:
            self._doubted[dense].append(
                (np.array([number], np.int64), np.array([physical_offset], np.int64))
            )
        elif dense >= 0 and self._following[dense] == number:
            self._following[dense] += 1

    def add(
        self, dense: NDArray[np.int64], numbers: NDArray[np.int64], units: NDArray[np.void]
    ) -> None:
        if not len(dense):
            return
        new = np.full(self._table.count - len(self._last), -1, np.int64)
        self._last = np.concatenate((self._last, new))
        runs, following = regroup(dense, numbers, units), self._following
        ends, physical = runs.first + runs.counts, runs.cells.view(UNIT_DTYPE)["physical_offset"]
        newest = physical[runs.starts + runs.counts - 1].astype(np.int64)
        ends_before, last = following[runs.queues], self._last[runs.queues]
        plain = runs.contiguous & (runs.first >= 0) & (runs.first <= ends_before)
        # numbers that the queue has already, of other records
        plain &= (ends >= ends_before) | (newest <= last) | (last < 0)
        if self._doubted:
            plain &= ~np.isin(runs.queues, list(self._doubted))
        queues = runs.queues[plain]
        following[queues] = np.maximum(ends_before, ends)[plain]
        self._last[queues] = np.maximum(last, newest)[plain]
        self._last[self._damaged] = -1
        for run in np.flatnonzero(~plain).tolist():
            rows = slice(int(runs.starts[run]), int(runs.starts[run] + runs.counts[run]))
            pieces = self._doubted.setdefault(int(runs.queues[run]), [])
            pieces.append((runs.offsets[rows], physical[rows].astype(np.int64)))

    def resolve(self) -> None:
        for dense, pieces in self._doubted.items():
            end, before = int(self._following[dense]), int(self._last[dense])
            numbers, physical = (np.concatenate(each) for each in zip(*pieces, strict=True))
            following = following_number(numbers, physical, end if before >= 0 else -1, before)
            self._following[dense] = max(end, following)


def reset_to_queue_ends(parts: StoreParts) -> None:
    """Set the next queue offsets to what the queues know; `read_tail` adds what the tail holds."""
    ends = parts.queues.next_offsets()
    parts.queue_table.next_queue_offsets[: len(ends)] = ends
