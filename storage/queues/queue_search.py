"""A queue offset for a time: binary search over the store times of a queue's records.

    store times   10 20 20 20 30        for 20: LOWER is the first 20, UPPER the last 20
    queue offset   0  1  2  3  4        for 25: LOWER is 4 (first newer), UPPER 3 (last older)

    store times   10  ?  ?  ? 30        ?: a hole, its record is damaged or was never there; it is
    queue offset   0  1  2  3  4        skipped: for 20 LOWER is 4, UPPER 0

Store times only rise, but where a clock that was wrong was set right. Between two such steps they
do, so each stretch is searched by itself, the newest first. LOWER skips nothing that is newer:

    store times   10 20 | 2036 2036 | 30 40       for 40: 5; for 15: 1; for 25: 2, as everything
    queue offset   0  1     2    3     4  5       from there on is newer

A step that dispatch has not noted gives one of several places that fit. The outcome at the ends is
RocketMQ's (section 2.8 of the format text): after the last unit for LOWER and the last unit for
UPPER where all are older, the first unit where all are newer. A queue of holes alone has no times,
and gives its beginning.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import pairwise


class Boundary(Enum):
    """Which of several fitting messages: the first not older, or the last not newer."""

    LOWER = "lower"
    UPPER = "upper"


def search_by_time(
    minimum: int,
    maximum: int,
    timestamp: int,
    boundary: Boundary,
    time_of: Callable[[int], int],
    steps: Sequence[int] = (),
) -> int:
    """The queue offset in minimum..maximum for a store time in ms. Times go back at `steps`, queue
    offsets in ascending order.

    `time_of(queue_offset)` is the store time of a unit in minimum .. maximum-1, negative if
    its record cannot be read. The result is a unit that can be read, except for LOWER if all are
    older: then it is `maximum`. A hole costs at most one read of each of its units.
    """
    bounds = [minimum, *(each for each in steps if minimum < each < maximum), maximum]
    newest = -1
    for low, high in reversed(list(pairwise(bounds))):
        older, newer = _around(low, high, timestamp, boundary, time_of)
        if boundary is Boundary.UPPER:
            if older >= 0:
                return older
            continue
        newest = newer if newer >= 0 else newest
        if older >= 0:
            return newest if newest >= 0 else maximum
    return max(newest, minimum)


def _around(
    low: int, high: int, timestamp: int, boundary: Boundary, time_of: Callable[[int], int]
) -> tuple[int, int]:
    """The last unit known to come before the boundary, and the first one behind it, in a stretch of
    rising times; -1 for none."""
    older = newer = -1
    while low < high:
        middle = (low + high) // 2
        place, time = _first_with_time(middle, high, time_of)
        if time < 0:
            high = middle  # nothing to be seen from there on
        elif time < timestamp or (boundary is Boundary.UPPER and time == timestamp):
            low, older = place + 1, place
        else:
            high, newer = middle, place
    return older, newer


def _first_with_time(start: int, stop: int, time_of: Callable[[int], int]) -> tuple[int, int]:
    """The first unit in start .. stop-1 whose record can be read, and its time; negative for
    none."""
    for queue_offset in range(start, stop):
        time = time_of(queue_offset)
        if time >= 0:
            return queue_offset, time
    return stop, -1
