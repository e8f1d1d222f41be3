"""Whether to believe the number that a record gives itself, when its queue is rebuilt.

    numbers   0 1 2 7 4 5      7 is damaged: what follows continues as if it were 3
    numbers   0 1 2 7 8 9      3 to 6 are missing: their records are damaged, or gone
    numbers   0 1 2 7          3 to 6 are missing, unless the queue is known to have ended at 4
    numbers   0 1 2 0 1        the queue began again: its topic was deleted, and created again
    numbers   0 1 2 1 4        1 is damaged: what follows continues as if it were 3

One flipped bit turns 3 into 7, or into 2^40 + 3. If the queue accepted that number, it would drop
all following records, whose numbers are lower, and fill the disk with units for messages that never
existed.

The following records may lie many batches of the log away, in a queue with few messages per file.
So a record whose number is not the next one waits until they have come (`is_undecided`).

A broker numbers a queue from its files: without them, as after its topic was deleted, it counts
from 0 again, and the log has each number twice. The later record is the live one (`begins_again` in
tandemlog/format/columns/queue_numbers.py).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.queue_numbers import NUMBERS_LOOKED_AT
from tandemlog.format.constants import MIN_RECORD_SIZE


@dataclass(frozen=True, slots=True)
class HeldNumbers:
    """The numbers that a queue had when it was found damaged: `first` .. `end`-1, of the records
    below `log_offset`. Its files may have been wrong too: this is evidence, not proof."""

    first: int
    end: int
    log_offset: int

    def contradicts(self, number: int, physical_offset: int) -> bool:
        """Whether the queue had no such number of a record there."""
        return physical_offset < self.log_offset and not self.first <= number < self.end


def is_impossible(number: int, physical_offset: int) -> bool:
    """Whether no record there can have that number: a queue counts from 0, and all earlier records
    must fit below."""
    return number < 0 or number * MIN_RECORD_SIZE > physical_offset


def is_undecided(numbers: NDArray[np.int64], physical: NDArray[np.int64], expected: int) -> bool:
    """Whether `is_stray` needs more records of the queue to judge the first of these, with the same
    `expected`."""
    number, following = int(numbers[0]), numbers[1 : 1 + NUMBERS_LOOKED_AT]
    if number <= expected or is_impossible(number, int(physical[0])):
        return False
    if len(following) and int(following[0]) == number + 1:
        return False
    if expected < 0:
        return len(following) < 2
    continued = bool(np.isin(following, (expected, expected + 1)).any())
    return not continued and len(following) < NUMBERS_LOOKED_AT


def is_stray(
    numbers: NDArray[np.int64],
    physical: NDArray[np.int64],
    expected: int,
    before: int,
    evidence: HeldNumbers | None = None,
) -> bool:
    """Whether the first of these records of one queue, in the order of the log, has a wrong number.
    `expected` is the next number of the queue, -1 for any; `before` the log offset of the record
    before it, -1 for not known; `evidence` what the queue had before."""
    number, place = int(numbers[0]), int(physical[0])
    following = numbers[1 : 1 + NUMBERS_LOOKED_AT]
    if number == expected:
        return False
    if is_impossible(number, place):
        return True
    continued = len(following) > 0 and int(following[0]) == number + 1
    if evidence is not None and not continued and evidence.contradicts(number, place):
        return True
    if expected < 0:
        # only those that follow can tell
        if continued or not len(following):
            return False
        if len(following) == 1:
            return number >= int(following[0])
        return int(following[1]) == int(following[0]) + 1 and not (
            number < int(following[0]) and _fits(number, int(following[0]), physical[:2])
        )
    if number < expected:
        return False  # there already
    if bool(np.isin(following, (expected, expected + 1)).any()):
        return True
    return before >= 0 and not _fits(expected - 1, number, np.array([before, place]))


def following_number(
    numbers: NDArray[np.int64], physical: NDArray[np.int64], expected: int, before: int
) -> int:
    """The number after all these records of one queue; `expected` and `before` as for `is_stray`. A
    record with a wrong number counts as well."""
    unknown = 0
    for index, (number, place) in enumerate(zip(numbers.tolist(), physical.tolist(), strict=True)):
        if place <= before:
            continue  # there already
        believed = number == expected or (
            number > expected and not is_stray(numbers[index:], physical[index:], expected, before)
        )
        if believed:
            expected, before = number + 1, place
        elif expected >= 0:
            expected += 1
        else:
            unknown += 1
    return expected if expected >= 0 else unknown


def _fits(number: int, later: int, physical: NDArray[np.int64]) -> bool:
    """Whether there is room in the log for the records between two."""
    return (later - number) * MIN_RECORD_SIZE <= int(physical[1]) - int(physical[0])
