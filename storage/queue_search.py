"""A queue offset for a time: binary search over the store times of a queue's records.

    store times   10 20 20 20 30        for 20: LOWER is the first 20, UPPER the last 20
    queue offset   0  1  2  3  4        for 25: LOWER is 4 (first newer), UPPER 3 (last older)

Store times never fall along a log that one master after the other wrote with clocks in order;
where a clock ran back, the answer is one of the neighbours of a step back.
The outcome at the ends is RocketMQ's (section 2.8 of the format text): after the last unit for
LOWER and the last unit for UPPER where all are older, the first unit where all are newer.
"""

from collections.abc import Callable
from enum import Enum


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
) -> int:
    """The queue offset in minimum..maximum for a store time in ms.

    `time_of(queue_offset)` is the store time of a unit in minimum .. maximum-1, negative where
    its record cannot be read: the answer is then `minimum`, as RocketMQ's is.
    """
    low, high = minimum, maximum
    while low < high:
        middle = (low + high) // 2
        time = time_of(middle)
        if time < 0:
            return minimum
        before = time < timestamp if boundary is Boundary.LOWER else time <= timestamp
        if before:
            low = middle + 1
        else:
            high = middle
    if boundary is Boundary.UPPER:
        return max(low - 1, minimum)
    return low
