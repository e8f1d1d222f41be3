"""Where the records of a batch go in the log: pure arithmetic over their sizes.

    file N                              file N+1
    | ... wrote| r0 | r1 | BLANK .... |  | r2 | r3 |
                piece 0      blank          piece 1

A record of L bytes goes into a file only if L + 8 <= what is left of it, so every full file ends
with a BLANK record of at least 8 bytes (RocketMQ's rule, section 1.3). The records of a request
that still fit stay, the rest goes to the next file.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import BLANK_SIZE


@dataclass(frozen=True, slots=True)
class Piece:
    """Records first .. first+count-1 of the batch, its bytes start .. end, at log `offset`."""

    first: int
    count: int
    start: int
    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class Blank:
    """The rest of a file that is given up: `size` bytes from log `offset`."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """Pieces and blanks, both in log order, and the log offset after the last piece."""

    pieces: tuple[Piece, ...]
    blanks: tuple[Blank, ...]
    end: int


def plan_append(ends: NDArray[np.int64], wrote: int, file_size: int) -> AppendPlan:
    """`ends` i8[n] > 0: where each record ends in the batch. No record is longer than
    file_size - 8, else ValueError."""
    count, total = len(ends), int(ends[-1])
    room = file_size - wrote % file_size
    if total + BLANK_SIZE <= room:
        return AppendPlan((Piece(0, count, 0, total, wrote),), (), wrote + total)
    pieces: list[Piece] = []
    blanks: list[Blank] = []
    offset, first, start = wrote, 0, 0
    while first < count:
        room = file_size - offset % file_size
        after = int(np.searchsorted(ends, start + room - BLANK_SIZE, side="right"))
        if after > first:
            end = int(ends[after - 1])
            pieces.append(Piece(first, after - first, start, end, offset))
            offset, first, start = offset + end - start, after, end
        elif room == file_size:
            raise ValueError(f"record {first} does not fit a file of {file_size} bytes")
        if first < count:
            rest = file_size - offset % file_size
            blanks.append(Blank(offset, rest))
            offset += rest
    return AppendPlan(tuple(pieces), tuple(blanks), offset)


def plan_raw(offset: int, size: int) -> AppendPlan:
    """Bytes that are stored as they are, within one file."""
    return AppendPlan((Piece(0, 0, 0, size, offset),), (), offset + size)
