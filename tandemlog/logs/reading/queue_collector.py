"""The records of a span by queue, collected window by window and sorted once.

    window 1   topic, queue id -> number of the queue in this span;  columns appended
    window 2   ...
    at the end one stable sort by queue: each queue's records stand together, in log order

A span has a million records or so at most: some dozen bytes of each are kept, never the record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.grouping import distinct_pairs, stable_order
from tandemlog.format.arrays.ragged import offsets_of

Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CollectedQueues:
    """Queue q's records are order[bounds[q] : bounds[q + 1]], numbers among all collected ones;
    `columns` are the collected ones, not sorted."""

    queues: list[Queue]
    order: NDArray[np.int64]
    bounds: NDArray[np.int64]
    columns: list[NDArray[Any]]


class QueueCollector:
    """Takes records window by window; each column is an array of one value a record."""

    def __init__(self) -> None:
        self._numbers: dict[Queue, int] = {}
        self._queue_of: list[NDArray[np.int64]] = []
        self._columns: list[tuple[NDArray[Any], ...]] = []

    def add(
        self,
        topics: Sequence[str],
        topic_index: NDArray[np.int64],
        queue_id: NDArray[np.int32],
        *columns: NDArray[Any],
    ) -> None:
        """Records of a window: topics[topic_index], queue id, and the columns to collect."""
        if not len(queue_id):
            return
        firsts, group = distinct_pairs(topic_index, queue_id.astype(np.int64))
        names = zip(topic_index[firsts].tolist(), queue_id[firsts].tolist(), strict=True)
        numbers = self._numbers
        of_group = [numbers.setdefault((topics[t], q), len(numbers)) for t, q in names]
        self._queue_of.append(np.array(of_group, np.int64)[group])
        self._columns.append(columns)

    def collected(self) -> CollectedQueues:
        """Everything, in order."""
        if not self._queue_of:
            return CollectedQueues([], np.zeros(0, np.int64), np.zeros(1, np.int64), [])
        queue_of = np.concatenate(self._queue_of)
        columns = [joined(each) for each in zip(*self._columns, strict=True)]
        count = len(self._numbers)
        order = stable_order(queue_of, count)
        bounds = offsets_of(np.bincount(queue_of, minlength=count))
        return CollectedQueues(list(self._numbers), order, bounds, columns)


def joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The arrays end to end, in their own byte order: numpy would swap that of structured ones."""
    kind = arrays[0].dtype
    if kind.names is None:
        return np.concatenate(arrays)
    raw = np.dtype(f"V{kind.itemsize}")
    return np.concatenate([each.view(raw) for each in arrays]).view(kind)
