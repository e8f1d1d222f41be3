"""What a report draws of a log: when its messages were stored, how large they are, bytes by topic.

A task counts while it scans and the driver adds the counts up, so what they take does not depend on
the number of messages. Times are counted in bins of the first width that covers all of them with
MOST_BINS; each width divides the next one, so that counts of two widths can be added.

    3 s of a log    1 s 1 s 1 s
    a day later     +---- 15 min ----+---- 15 min ----+ ...
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.arrow.dates import are_dates

MOST_BINS: Final = 100
_DENSE: Final = 1 << 16
"""Bins that are counted at once."""
_DAY: Final = 86400
WIDTHS_S: Final = (
    1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200,
    _DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY, 3640 * _DAY, 36400 * _DAY,
)  # fmt: skip
"""Widths of a bin, in seconds; the last one covers all dates that there are."""


@dataclass(slots=True)
class TimeCounts:
    """Messages by time: bin `n` is from n widths after 1970 on. `undated` have no date as time."""

    counts: Counter[int] = field(default_factory=Counter)
    step: int = 0
    undated: int = 0

    @property
    def width_s(self) -> int:
        """Seconds of a bin."""
        return WIDTHS_S[self.step]

    def add(self, times_ms: NDArray[np.int64]) -> None:
        """Count these, each in milliseconds since 1970."""
        dated = are_dates(times_ms)
        self.undated += len(times_ms) - int(np.count_nonzero(dated))
        self._add(_occurrences(times_ms[dated] // (1000 * self.width_s)))

    def merge(self, other: "TimeCounts") -> None:
        """Add the counts of another one, which stays as it is."""
        self._widen(other.step)
        factor = self.width_s // other.width_s
        self.undated += other.undated
        self._add(_coarser(other.counts, factor))

    def bins(self) -> list[tuple[int, int]]:
        """(begin in milliseconds since 1970, messages), ascending, without a gap."""
        if not self.counts:
            return []
        first, last = min(self.counts), max(self.counts)
        width_ms = 1000 * self.width_s
        return [(number * width_ms, self.counts[number]) for number in range(first, last + 1)]

    def _add(self, counts: dict[int, int]) -> None:
        self.counts.update(counts)
        while self.counts and max(self.counts) - min(self.counts) >= MOST_BINS:
            self._widen(self.step + 1)

    def _widen(self, step: int) -> None:
        if step > self.step:
            factor = WIDTHS_S[step] // self.width_s
            self.counts, self.step = _coarser(self.counts, factor), step


def _occurrences(bins: NDArray[np.int64]) -> dict[int, int]:
    """How often each number occurs. Neighbours, as the times of a log are, are counted in a tenth
    of the time that sorting takes."""
    if not len(bins):
        return {}
    low, high = int(bins.min()), int(bins.max())
    if high - low < _DENSE:
        dense = np.bincount(bins - low)
        found = dense.nonzero()[0]
        numbers, counts = found + low, dense[found]
    else:
        numbers, counts = np.unique(bins, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _coarser(counts: Counter[int], factor: int) -> Counter[int]:
    """The same in bins that are `factor` times as wide."""
    wider: Counter[int] = Counter()
    for number, count in counts.items():
        wider[number // factor] += count
    return wider


@dataclass(slots=True)
class LogFigures:
    """Of the records of a part of a log. `sizes`: how many have 2 ** (n - 1) bytes or more, and
    less than 2 ** n."""

    times: TimeCounts = field(default_factory=TimeCounts)
    topic_bytes: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)

    def add(
        self,
        topics: Sequence[str],
        topic_index: NDArray[np.int64],
        sizes: NDArray[np.int64],
        store_timestamps: NDArray[np.int64],
    ) -> None:
        """Records of a window: topics[topic_index], sizes in bytes, times in milliseconds."""
        self.times.add(store_timestamps)
        total = np.bincount(topic_index, sizes, len(topics))
        self.topic_bytes.update(dict(zip(topics, total.astype(np.int64).tolist(), strict=True)))
        classes = np.bincount(np.frexp(sizes.astype(np.float64))[1])
        self.sizes.update({n: count for n, count in enumerate(classes.tolist()) if count})

    def merge(self, other: "LogFigures") -> None:
        """Add those of another part."""
        self.times.merge(other.times)
        self.topic_bytes.update(other.topic_bytes)
        self.sizes.update(other.sizes)
