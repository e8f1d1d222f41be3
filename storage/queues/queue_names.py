"""Numbers of queues by their names, as checkpoints and state files have them.

    dense -> number  ─▶  {topic: {queue id: number}}

A node with thousands of queues makes a checkpoint every half second, also while nothing happens:
the ends of all queues are named again only if one of them has changed. Dense indexes are never
reused, so the same ends have the same names.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .queue_table import QueueTable


def named(table: QueueTable, numbers: Mapping[int, int]) -> dict[str, dict[int, int]]:
    """{topic: {queue id: number}} of dense -> number."""
    by_name: dict[str, dict[int, int]] = {}
    for dense, number in numbers.items():
        topic, queue_id = table.name(dense)
        by_name.setdefault(topic, {})[queue_id] = number
    return by_name


class NamedEnds:
    """See the module. One thread at a time."""

    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self._ends: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._named: Mapping[str, Mapping[int, int]] = {}

    def of(self, ends: NDArray[np.int64]) -> Mapping[str, Mapping[int, int]]:
        """ends i8[queues], by dense index, 0 without units; what it returns is never changed."""
        if not np.array_equal(ends, self._ends):
            self._named = named(
                self._table, {dense: int(ends[dense]) for dense in np.flatnonzero(ends).tolist()}
            )
            self._ends = ends
        return self._named
