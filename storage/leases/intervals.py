"""A set of queue offsets, as intervals.

    offsets    7 8 9 . . 12 . 14 15 16
    starts     7         12   14            half open: start <= offset < end
    ends             10     13          17  sorted, apart from each other by at least one

Consumers end messages nearly in order, so millions of offsets are a few intervals. Two arrays of
64-bit integers, changed in place: 16 bytes for an interval and no object.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def runs_of(offsets: I64) -> tuple[I64, I64]:
    """Starts and ends of the stretches of consecutive numbers in ascending, distinct `offsets`."""
    count = len(offsets)
    if not count:
        return offsets, offsets
    if offsets[-1] - offsets[0] == count - 1:
        return offsets[:1], offsets[-1:] + 1
    breaks = np.flatnonzero(offsets[1:] - offsets[:-1] != 1)
    starts = offsets[np.concatenate(([0], breaks + 1))]
    ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    return starts, ends


class IntervalSet:
    """See the module."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._starts = array("q")
        self._ends = array("q")
        for start, end in pairs:
            self.add(start, end)

    def __len__(self) -> int:
        """How many intervals there are."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    @property
    def last(self) -> int:
        """The end of the last interval; -1 if there is none."""
        return self._ends[-1] if self._ends else -1

    def count(self) -> int:
        """How many offsets there are."""
        return sum(self._ends) - sum(self._starts)

    def add(self, start: int, end: int) -> None:
        """Every offset from `start` to before `end`; none if there are none."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        if not starts or start > ends[-1]:
            starts.append(start)
            ends.append(end)
            return
        # those that touch the new one: from the first that ends at or behind its start
        first = bisect_left(ends, start)
        behind = bisect_right(starts, end)
        if first < behind:
            start, end = min(start, starts[first]), max(end, ends[behind - 1])
        starts[first:behind] = array("q", (start,))
        ends[first:behind] = array("q", (end,))

    def add_runs(self, starts: I64, ends: I64) -> None:
        """Each starts[i] .. ends[i]."""
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            self.add(start, end)

    def update(self, other: "IntervalSet") -> None:
        for start, end in other:
            self.add(start, end)

    def cut_below(self, floor: int) -> None:
        """Forget what is below `floor`."""
        behind = bisect_right(self._ends, floor)
        del self._starts[:behind]
        del self._ends[:behind]
        if self._starts and self._starts[0] < floor:
            self._starts[0] = floor

    def advance(self, floor: int) -> int:
        """Forget what is below `floor`, and the interval that contains it, if there is one; returns
        the first offset from `floor` on that was not in the set."""
        self.cut_below(floor)
        if self._starts and self._starts[0] == floor:
            floor = self._ends.pop(0)
            self._starts.pop(0)
        return floor

    def contains(self, offsets: I64) -> NDArray[np.bool_]:
        """bool[n] for offsets in any order."""
        if not len(offsets) or not self._starts or offsets.min() >= self._ends[-1]:
            return np.zeros(len(offsets), np.bool_)
        starts, ends = self.columns()
        at = starts.searchsorted(offsets, "right") - 1
        return (at >= 0) & (offsets < ends[at])

    def columns(self) -> tuple[I64, I64]:
        """Copies of the starts and of the ends."""
        return np.array(self._starts, np.int64), np.array(self._ends, np.int64)

    def next_outside(self, offset: int) -> int:
        """The first offset from `offset` on that is not in the set."""
        at = bisect_right(self._starts, offset) - 1
        return self._ends[at] if at >= 0 and offset < self._ends[at] else offset

    def next_inside(self, offset: int) -> int | None:
        """The first offset from `offset` on that is in the set; None if there is none."""
        at = bisect_right(self._ends, offset)
        return max(offset, self._starts[at]) if at < len(self._starts) else None
