"""How many messages and bytes each queue has taken and given since the store was opened.

    dispatch ─▶ [in  messages | bytes]  by dense index     a few array operations a batch
    read     ─▶ [out messages | bytes]  by dense index     one addition a read of a queue

Dense indexes are never reused, so a row belongs to one queue permanently. What comes in is counted
when it is dispatched, on a master: there the units lie grouped by queue already, and the append
thread has nothing to do (numpy gives the interpreter away for large arrays, and that thread would
have to wait until it gets it back). Readers count what goes out, and `StoreStats` gives them its
lock. A scrape copies the columns without a lock: each number is one word.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FIRST_QUEUES = 1_024
SIZE_BOUNDS = 128 << np.arange(0, 18, dtype=np.int64)
"""Upper bounds in bytes of the histogram of record sizes: 128, 256, … 16 MiB."""


class TrafficColumns:
    """messages and bytes i8[queues], grown as queues come; one writer at a time."""

    def __init__(self) -> None:
        self.messages: NDArray[np.int64] = np.zeros(FIRST_QUEUES, dtype=np.int64)
        self.bytes: NDArray[np.int64] = np.zeros(FIRST_QUEUES, dtype=np.int64)

    def add(self, dense: int, messages: int, size: int) -> None:
        if dense >= len(self.messages):
            self._grow(dense + 1)
        self.messages[dense] += messages
        self.bytes[dense] += size

    def add_many(
        self, dense: NDArray[np.int64], messages: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> None:
        """All of `dense` are different."""
        try:
            self.messages[dense] += messages
        except IndexError:  # nothing was added; cheaper than to look for the highest each time
            self._grow(int(dense.max()) + 1)
            self.messages[dense] += messages
        self.bytes[dense] += sizes

    def copies(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Messages and bytes of the first `count` queues. Any thread may call."""
        return _first(self.messages, count), _first(self.bytes, count)

    def _grow(self, least: int) -> None:
        size = max(2 * len(self.messages), least)
        # bytes first: an index that `messages` has is then one of both
        self.bytes = _first(self.bytes, size)
        self.messages = _first(self.messages, size)


def _first(column: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """A copy of the first `count` numbers, with 0 for those that are not there."""
    copy = np.zeros(count, dtype=np.int64)
    copy[: len(column)] = column[:count]
    return copy


class SizeHistogram:
    """How many records of which size: one bucket a doubling, and one for what is larger."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(len(SIZE_BOUNDS) + 1, dtype=np.int64)
        self.sum = 0.0

    def add_many(self, sizes: NDArray[np.int32]) -> None:
        """Bytes of each record."""
        buckets = np.searchsorted(SIZE_BOUNDS, sizes)
        self._counts += np.bincount(buckets, minlength=len(self._counts))
        self.sum += int(sizes.sum(dtype=np.int64))

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(upper bound in bytes, how many lie at or below it); the last bound is infinite."""
        bounds = [*map(float, SIZE_BOUNDS.tolist()), math.inf]
        return zip(bounds, np.cumsum(self._counts).tolist(), strict=True)


class QueueTraffic:
    """See the module. `counts_puts`: this node is master, so what becomes readable was put here."""

    def __init__(self) -> None:
        self.put = TrafficColumns()
        self.read = TrafficColumns()
        self.record_sizes = SizeHistogram()
        self.counts_puts = False

    def count_put(
        self,
        queues: NDArray[np.int64],
        messages: NDArray[np.int64],
        sizes: NDArray[np.int64],
        record_sizes: NDArray[np.int32],
    ) -> None:
        """Messages and bytes that came into each of `queues`, all different, and the bytes of each
        message. Only the thread that dispatches calls it."""
        self.put.add_many(queues, messages, sizes)
        self.record_sizes.add_many(record_sizes)
