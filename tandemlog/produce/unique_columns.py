"""Unique ids for many messages at once, in the form of format's UniqueIdGenerator.

    prefix (address, process, random) | 8 digits of ms since the month's start | 4 of a counter

The counter tells messages of one ms apart, so no more than 65,536 ids are made at one look at
the clock.
"""

from typing import Final

import numpy as np

from ..format.arrays.byte_column import ByteColumn
from ..format.record.message_id import MAX_IDS_AT_ONCE, UniqueIdGenerator

_DIGITS: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_COUNTERS: Final = np.stack(
    [_DIGITS[(np.arange(MAX_IDS_AT_ONCE) >> shift) & 0xF] for shift in (12, 8, 4, 0)], axis=1
)
"""u1[65536, 4]: every counter value as text."""


class UniqueIdColumns:
    """`generator` gives the first id of each column; only this may use it."""

    def __init__(self, generator: UniqueIdGenerator) -> None:
        self._generator = generator
        self._counter = 0

    def next_ids(self, count: int) -> ByteColumn:
        """`count` ids, at most MAX_IDS_AT_ONCE."""
        if count > MAX_IDS_AT_ONCE:
            raise ValueError(f"{count} unique ids at once, {MAX_IDS_AT_ONCE} are possible")
        start = np.frombuffer(self._generator.next_id().encode(), np.uint8)
        ids = np.empty((count, len(start)), np.uint8)
        ids[:, :-4] = start[:-4]
        numbers = (self._counter + np.arange(count)) & (MAX_IDS_AT_ONCE - 1)
        ids[:, -4:] = _COUNTERS[numbers]
        self._counter = (self._counter + count) & (MAX_IDS_AT_ONCE - 1)
        return ByteColumn.of_equal_lengths(ids.reshape(-1), len(start))
