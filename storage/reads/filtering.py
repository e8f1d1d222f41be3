"""How much a get with a filter looks at, and what the filter leaves of it.

    asked for     5 messages, at most 100 KB
    copied        x . . x . x . . . . x x x . . x      as much as this module says
    returned      x     x   x         x x              as much as was asked for
    next offset                           '-- here: the first that was not taken

Most of what is copied may not be selected, so a get copies more than it may return. But it is one
call in a reader thread, and no caller can interrupt it: the heavier the filter, the fewer messages
one get looks at. `cost` is what it then took, for those who bound the gets of a round.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from tandemlog.format.arrays.ragged import byte_array, compact
from tandemlog.format.filter.expression import Condition
from tandemlog.format.filter.records import selected_records
from tandemlog.format.filter.weight import weight

from .selection import Selection, narrowed

FILTERED_BYTES: Final = 1 << 20
"""A get with a filter looks at so many bytes of records, however few it may return."""
LEAST_BYTES: Final = 1 << 16
LEAST_MESSAGES: Final = 64
"""Whatever the filter: a get always comes further."""
MOST_BYTES: Final = 1 << 27
MOST_MESSAGES: Final = 1 << 17
"""Of a filter of weight 1."""

ENTRIES_A_WEIGHT: Final = 8
"""An entry of a queue takes some 20 ns to look at; a weight is so many for each message,"""
ENTRIES_A_CALL: Final = 256
"""and so many for each get,"""
BYTES_AN_ENTRY: Final = 16
"""and so many bytes are copied in that time."""


@dataclass(frozen=True, slots=True)
class Filtering:
    """`max_messages` (0: no limit) and `max_bytes` of an answer; `examined_messages` and
    `examined_bytes` are what the filter looks at."""

    condition: Condition
    weight: int
    max_messages: int
    max_bytes: int
    examined_messages: int
    examined_bytes: int

    @classmethod
    def of(cls, condition: Condition, max_messages: int, max_bytes: int) -> Self:
        weighs = weight(condition)
        return cls(
            condition,
            weighs,
            max_messages,
            max_bytes,
            max(MOST_MESSAGES // weighs, LEAST_MESSAGES),
            min(max(max_bytes, FILTERED_BYTES), max(MOST_BYTES // weighs, LEAST_BYTES)),
        )

    def apply(
        self, chosen: Selection, records: bytes | memoryview
    ) -> tuple[Selection, bytes | memoryview]:
        """The records that it selects, of those that were chosen for it."""
        starts = np.cumsum(chosen.sizes) - chosen.sizes
        kept = selected_records(self.condition, records, starts, chosen.sizes)
        chosen, rows = narrowed(
            chosen, kept, max_messages=self.max_messages, max_bytes=self.max_bytes
        )
        if len(rows) == len(starts):
            return chosen, records
        left, _ = compact(byte_array(records), starts[rows], chosen.sizes)
        return chosen, left.data

    def cost(self, messages: int, size: int) -> int:
        """Of so many messages with `size` bytes together, in entries of a queue."""
        return (messages * ENTRIES_A_WEIGHT + ENTRIES_A_CALL) * self.weight + size // BYTES_AN_ENTRY
