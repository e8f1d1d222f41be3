"""Copying many records out of the log: as few slices as possible, and checked against their units.

    units    offset, size   offset, size   offset, size        from a consume queue
    log      [record       ][record       ]     [record   ]    two stretches, two slices
    answer   [record       ][record       ][record   ]         one buffer

A unit is trusted only so far: the copied bytes must begin with the magic of a record, of that size,
at that offset. A bit flipped in a queue file is so noticed before a reader gets anything of it.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import MAGIC_V1, MAGIC_V2
from tandemlog.format.ragged import LONG_SLICE, compact, first_true, windows

from .commit_log import CommitLog
from .errors import OffsetOutOfRangeError
from .selection import runs

# Slices of a view are quicker than arrays, but for many short stretches: then the statement for
# each of them costs more than its copying.
MANY: Final = 64

_HEAD_SIZE: Final = 36
_HEAD: Final = np.dtype(
    {
        "names": ["size", "magic", "physical_offset"],
        "formats": [">i4", ">u4", ">i8"],
        "offsets": [0, 4, 28],
        "itemsize": _HEAD_SIZE,
    }
)


def copy_records(
    log: CommitLog, offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> bytes | memoryview | None:
    """The bytes at log `offsets`, `sizes` each, end to end; None where the log has not all."""
    starts, lengths = runs(offsets, sizes)
    if not len(starts):
        return b""
    numbers = starts // log.file_size
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    if not len(cuts):
        return _copy_of_file(log, starts, lengths)
    pieces = []
    for each, many in zip(np.split(starts, cuts), np.split(lengths, cuts), strict=True):
        piece = _copy_of_file(log, each, many)
        if piece is None:
            return None
        pieces.append(piece)
    return b"".join(pieces)


def first_wrong(
    records: bytes | memoryview, offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> int:
    """Index of the first record that is not what its unit says; -1 where all are. `records` holds
    them end to end."""
    if not len(sizes):
        return -1
    starts = np.cumsum(sizes) - sizes
    if int(sizes.min()) < _HEAD_SIZE:
        return int(np.argmin(sizes))
    heads = windows(np.frombuffer(records, np.uint8), _HEAD_SIZE)[starts].view(_HEAD)
    good = (heads["size"] == sizes) & (heads["physical_offset"] == offsets)
    good &= (heads["magic"] == MAGIC_V1) | (heads["magic"] == MAGIC_V2)
    return first_true(~good)


def _copy_of_file(
    log: CommitLog, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> bytes | memoryview | None:
    """Stretches of one file."""
    base = int(starts[0]) - int(starts[0]) % log.file_size
    if int(lengths.min()) <= 0:
        return None  # no unit of a record
    begins = starts - base
    try:
        view = log.parts(base, begins, lengths)
    except OffsetOutOfRangeError:
        return None
    if len(starts) >= MANY and int(lengths.sum()) < len(starts) * LONG_SLICE:
        return compact(np.frombuffer(view, np.uint8), begins, lengths)[0].data
    ends = (begins + lengths).tolist()
    return b"".join([view[begin:end] for begin, end in zip(begins.tolist(), ends, strict=True)])
