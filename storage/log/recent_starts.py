"""Where the records begin that were appended last, for dispatch, which follows soon after.

    append ──starts of its records──▶ ring ──▶ dispatch guesses, the log itself proves

The appender knows the starts that dispatch would otherwise find by reading the size of each record.
They are only hints: dispatch uses those that the sizes in the log prove (format/columns/walk.py),
so missing or stale hints only make dispatch slower.
"""

import threading
from collections import deque

import numpy as np
from numpy.typing import NDArray

MOST_STARTS = 1 << 20

_NONE = np.empty(0, np.int64)


class RecentStarts:
    """Log offsets, ascending; one writer. A reader that moves forward forgets what lies before it;
    one that reads elsewhere may find fewer, and only walks longer."""

    def __init__(self) -> None:
        self._ring: deque[NDArray[np.int64]] = deque()
        self._count = 0
        self._lock = threading.Lock()

    def add(self, starts: NDArray[np.int64]) -> None:
        """`starts` i8[n] > all before, n > 0. The oldest are forgotten where they are too many."""
        with self._lock:
            self._ring.append(starts)
            self._count += len(starts)
            while self._count > MOST_STARTS:
                self._forget_oldest()

    def between(self, start: int, end: int) -> NDArray[np.int64]:
        """i8[m]: those known in start .. end-1; what lies before is forgotten."""
        with self._lock:
            ring = self._ring
            while ring and ring[0][-1] < start:
                self._forget_oldest()
            pieces = []
            for starts in ring:
                if starts[0] >= end:
                    break
                pieces.append(starts)
        if not pieces:
            return _NONE
        there = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        # dispatch mostly asks for whole requests: then there is nothing to search
        first = 0 if there[0] >= start else int(there.searchsorted(start))
        last = len(there) if there[-1] < end else int(there.searchsorted(end))
        return there[first:last]

    def clear(self) -> None:
        """The log was cut, or is another one."""
        with self._lock:
            self._ring.clear()
            self._count = 0

    def _forget_oldest(self) -> None:
        self._count -= len(self._ring.popleft())
