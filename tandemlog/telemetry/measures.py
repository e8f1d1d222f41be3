"""Latencies and rates of the last minute or so, in little memory.

    Latencies   buckets 5 % wide; two minutes of them, the older one dropped as a new one begins
    Rate        what a counter gained within the last ten seconds

Both are given the time, in seconds of one clock, and may be read from any thread.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

MINUTE_S: Final = 60.0
RATE_S: Final = 10.0
_WIDTH: Final = math.log(1.05)
_LEAST_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Percentiles:
    """In ms, within 5 %; 0 without a measurement. `count`: those of the last minute or two."""

    count: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    p999_ms: float = 0.0
    max_ms: float = 0.0


class Latencies:
    """See the module."""

    def __init__(self, now: float) -> None:
        self._begun = now
        self._current: dict[int, int] = {}
        self._previous: dict[int, int] = {}

    def note(self, seconds: float, count: int, now: float) -> None:
        """`count` events took `seconds` each."""
        self._turn(now)
        bucket = math.ceil(math.log(max(seconds, _LEAST_S) / _LEAST_S) / _WIDTH)
        self._current[bucket] = self._current.get(bucket, 0) + count

    def percentiles(self, now: float, *others: "Latencies") -> Percentiles:
        """Of these, and of all `others` too."""
        counts: dict[int, int] = {}
        for each in (self, *others):
            each._turn(now)
            for buckets in (each._previous, each._current):
                for bucket, count in dict(buckets).items():
                    counts[bucket] = counts.get(bucket, 0) + count
        total = sum(counts.values())
        if not total:
            return Percentiles()
        ranks = [math.ceil(total * share) for share in (0.5, 0.99, 0.999, 1.0)]
        values: list[float] = []
        seen = 0
        for bucket in sorted(counts):
            seen += counts[bucket]
            while len(values) < len(ranks) and seen >= ranks[len(values)]:
                values.append(_LEAST_S * math.exp(bucket * _WIDTH) * 1000)
        return Percentiles(total, *values)

    def _turn(self, now: float) -> None:
        passed = now - self._begun
        if passed < MINUTE_S:
            return
        self._previous = self._current if passed < 2 * MINUTE_S else {}
        self._current = {}
        self._begun = now


class Rate:
    """See the module; `total` only grows."""

    def __init__(self, now: float) -> None:
        self._marks: deque[tuple[float, int]] = deque([(now, 0)], maxlen=int(RATE_S) + 2)

    def note(self, total: int, now: float) -> None:
        """After each change of the counter."""
        if now - self._marks[-1][0] >= 1.0:
            self._marks.append((now, total))

    def per_second(self, total: int, now: float) -> float:
        marks = list(self._marks)
        then, before = next((mark for mark in marks if now - mark[0] <= RATE_S), marks[-1])
        return (total - before) / (now - then) if now > then else 0.0
