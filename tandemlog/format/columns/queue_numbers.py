"""Numbers of a queue's records that go back: the queue began again, or one of them is damaged.

    numbers   0 1 2 3 | 0 1      the queue began again
    numbers   0 1 2 1 4 5        the second 1 is damaged: what follows continues as if it were 3

A broker of RocketMQ takes a queue's numbers from the queue's files. Without them, as after its
topic was deleted and created again, it counts from 0, or from what is left, and its log has numbers
twice. The later record of a number is the live one: what the queue had from that number on is gone.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

NUMBERS_LOOKED_AT: Final = 16
"""How many of the following records tell whether a number is right."""


def begins_again(numbers: NDArray[np.int64], expected: int, *, more: bool) -> bool | None:
    """Whether the queue begins again with the first of these records, which lie behind all that it
    has, and whose first number is below `expected`, the next of the queue. False: that number is
    damaged. None: as long as `more` records of the queue may come, those have to tell."""
    number, following = int(numbers[0]), numbers[1 : 1 + NUMBERS_LOOKED_AT]
    if continues(numbers):
        return True
    if bool(np.isin(following, (expected, expected + 1)).any()):
        return False
    if more and len(following) < NUMBERS_LOOKED_AT:
        return None
    return number == 0


def continues(numbers: NDArray[np.int64]) -> bool:
    """Whether the second of these follows the first."""
    return len(numbers) > 1 and int(numbers[1]) == int(numbers[0]) + 1
