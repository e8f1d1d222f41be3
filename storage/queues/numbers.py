"""Is the number that a record says it has to be believed, when its queue is made again?

    numbers   0 1 2 7 4 5      7 is damaged: what follows goes on as if it were 3
    numbers   0 1 2 7 8 9      3 to 6 are missing: their records are damaged, or gone

One turned bit makes 3 into 7, or into 2^40 + 3. Believed, it would drop all that follow, whose
numbers are below it, and fill the disk with units for messages that never were.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import MIN_RECORD_SIZE

_LOOKED_AT: Final = 16


def is_stray(
    numbers: NDArray[np.int64], physical: NDArray[np.int64], expected: int, before: int
) -> bool:
    """Whether the first of these records of one queue, in the order of the log, has another number
    than it says. `expected` is what the queue wants next, -1 for any; `before`, where the record
    before it lies in the log, -1 for not known."""
    number = int(numbers[0])
    following = numbers[1 : 1 + _LOOKED_AT]
    if expected < 0:
        # nobody is asked but those that follow
        if not len(following) or int(following[0]) == number + 1:
            return number < 0
        if len(following) == 1:
            return not 0 <= number < int(following[0])
        return int(following[1]) == int(following[0]) + 1 and not (
            0 <= number < int(following[0]) and _fits(number, int(following[0]), physical[:2])
        )
    if number <= expected:
        return False  # next, or one that is there already
    if bool(np.isin(following, (expected, expected + 1)).any()):
        return True
    return before >= 0 and not _fits(expected - 1, number, np.array([before, int(physical[0])]))


def _fits(number: int, later: int, physical: NDArray[np.int64]) -> bool:
    """Whether there is room in the log for the records between two."""
    return (later - number) * MIN_RECORD_SIZE <= int(physical[1]) - int(physical[0])
