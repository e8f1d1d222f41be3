"""What queues, index and folds lack of records of the log that were damaged and are whole again.

    log      | r | R | r |     R: dispatch skipped it, in this process or an earlier one
    queue    | 4 | - | 6 |     its number has a pre-blank unit, or one of other bytes

The queues tell whether dispatch has had a record: its unit names the record's place and size. Only
what it skipped in this process is listed anywhere (MendingSource.passed); the disk has no such
list, since each read of the log finds the damage again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import unit_columns

from ..errors import StoreError
from ..folds.dispatch_batch import DispatchBatch
from ..folds.service_fold import ServiceFold
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.queue_table import QueueTable, register_queues
from .dispatch_source import DispatchSource
from .fold_again import concerns_folds

EntriesCheck = Callable[[DispatchSource, DispatchBatch, int], None]
"""Gets the records of a batch, from a source that can make them again, and the log's begin."""


@dataclass(slots=True)
class MissedRecords:
    """Of some batches. `queues` have records among them, `lacking` those that have not every one of
    them; `has_keys`: the index has entries of them; `folds`: so may the folds of services."""

    queues: set[int] = field(default_factory=set)
    lacking: set[int] = field(default_factory=set)
    has_keys: bool = False
    folds: bool = False

    def add(
        self,
        batch: DispatchBatch,
        table: QueueTable,
        queues: ConsumeQueueStore,
        folds: Sequence[ServiceFold],
    ) -> None:
        """The records of one batch."""
        self._compare(batch, register_queues(table, unit_columns(batch.columns)), queues)
        self.has_keys |= bool(len(batch.columns.key_hash))
        self.folds |= concerns_folds(batch, folds)

    def compare(self, batch: DispatchBatch, table: QueueTable, queues: ConsumeQueueStore) -> None:
        """The same for the queues alone, and only for those that there are."""
        columns = unit_columns(batch.columns)
        dense = table.dense(columns.topics, columns.topic_index, columns.queue_id)
        self._compare(batch, dense, queues)

    def _compare(
        self, batch: DispatchBatch, dense: NDArray[np.int64], queues: ConsumeQueueStore
    ) -> None:
        columns = unit_columns(batch.columns)
        order = np.argsort(dense, kind="stable")
        order = order[np.searchsorted(dense[order], 0) :]  # queues that there are
        numbers, units = columns.queue_offset[order], columns.units[order]
        begins = np.flatnonzero(np.diff(dense[order], prepend=-1))
        for begin, end in pairwise([*begins.tolist(), len(order)]):
            each = int(dense[order[begin]])
            self.queues.add(each)
            mine = numbers[begin:end], units[begin:end]
            if not (_has_in_a_row(queues, each, *mine) or _has_all(queues, each, *mine)):
                self.lacking.add(each)


def _has_in_a_row(
    queues: ConsumeQueueStore,
    dense: int,
    numbers: NDArray[np.int64],
    units: NDArray[np.void],
) -> bool:
    """Whether one read of the queue gives these units, as it nearly always does."""
    count = len(numbers)
    if int(numbers[-1]) - int(numbers[0]) + 1 != count:
        return False
    try:
        found = queues.read(dense, int(numbers[0]), count)
    except StoreError:
        return False
    return len(found) == count and found.tobytes() == units.tobytes()


def _has_all(
    queues: ConsumeQueueStore,
    dense: int,
    numbers: NDArray[np.int64],
    units: NDArray[np.void],
) -> bool:
    """Whether the queue has these units, as far as the log still has their records: a queue whose
    first records were damaged when it was made begins behind them."""
    try:
        minimum, end = queues.min_offset(dense), queues.max_offset(dense)
        at = 0
        while at < len(numbers):
            first = int(numbers[at])
            if int(units["physical_offset"][at]) < queues.log_minimum:
                at += 1
                continue
            if not minimum <= first < end:
                return False
            found = queues.read(dense, first, int(numbers[-1]) - first + 1)
            if not len(found):
                return False
            inside = (numbers >= first) & (numbers < first + len(found))
            rows = np.flatnonzero(inside)
            mine = found[numbers[rows] - first]
            if mine.tobytes() != units[rows].tobytes():
                return False
            at = int(rows[-1]) + 1
    except StoreError:
        return False  # it is damaged, and is rebuilt in any case
    return True
