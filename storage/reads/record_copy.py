"""Copying many records out of the log: as few slices as possible, and checked against their units.

    units    offset, size   offset, size   offset, size        from a consume queue
    log      [record       ][record       ]     [record   ]    two stretches, two slices
    answer   [record       ][record       ][record   ]         one buffer

A unit is checked against its record: the copied bytes must begin with the magic of a record of that
size and physical offset, and the record must have this queue and queue offset. So a flipped bit in
a queue file or in a record's header, or two swapped files, are noticed before a reader gets any of
these bytes.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import LONG_SLICE, compact, first_true, none_true, windows
from tandemlog.format.columns.light_queues import light_queues
from tandemlog.format.columns.property_crcs import wrong_property_crcs
from tandemlog.format.constants import (
    FIXED_SIZE,
    IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    REAL_TOPIC,
)
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.property_crc import wrong_property_crc
from tandemlog.format.record.record import decode_record
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

from ..errors import OffsetOutOfRangeError
from ..log.commit_log import CommitLog
from .selection import runs

# Slices of a view are faster than arrays, except for many short stretches: then the statement for
# each of them costs more than its copy.
MANY: Final = 64

_HEAD: Final = np.dtype(
    {
        "names": [
            "size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag",
            "body_length",
        ],
        "formats": [">i4", ">u4", ">i4", ">i8", ">i8", ">i4", ">i4"],
        "offsets": [0, 4, 12, 20, 28, 36, FIXED_SIZE - 4],
        "itemsize": FIXED_SIZE,
    }
)  # fmt: skip
_BODY_LENGTH_SIZE: Final = 4


@dataclass(frozen=True, slots=True)
class Expected:
    """The records that n units promise: `offsets` and `sizes` i8[n] in the log, and `queue_offsets`
    i8[n] in a queue. With `check_crc` a property CRC must be right too."""

    topic: str
    queue_id: int
    queue_offsets: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    check_crc: bool = False


def copy_records(
    log: CommitLog, offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> bytes | memoryview | None:
    """The bytes at log `offsets`, `sizes` each, end to end; None if the log has not all."""
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


def first_missing(log: CommitLog, wanted: Expected) -> int:
    """Index of the first record whose bytes the log does not have; -1 if it has all."""
    base = wanted.offsets - wanted.offsets % log.file_size
    inside = (wanted.sizes > 0) & (wanted.offsets + wanted.sizes <= base + log.file_size)
    inside &= wanted.offsets >= log.min_offset
    inside &= wanted.offsets + wanted.sizes <= log.wrote.value
    return first_true(~inside)


def first_wrong(records: bytes | memoryview, wanted: Expected) -> int:
    """Index of the first record that is not what its unit says; -1 if all are. `records` holds
    them end to end."""
    sizes = wanted.sizes
    if not len(sizes):
        return -1
    if int(sizes.min()) < FIXED_SIZE:
        return int(np.argmin(sizes))
    starts = np.cumsum(sizes) - sizes
    data = np.frombuffer(records, np.uint8)
    heads = windows(data, FIXED_SIZE)[starts].view(_HEAD)
    version_2 = heads["magic"] == MAGIC_V2
    good = (heads["size"] == sizes) & (heads["physical_offset"] == wanted.offsets)
    good &= version_2 | (heads["magic"] == MAGIC_V1)
    if wanted.check_crc:
        good &= ~wrong_property_crcs(data, starts, sizes)
    mine = (heads["queue_id"] == wanted.queue_id) & (heads["queue_offset"] == wanted.queue_offsets)
    mine &= _have_topic(data, starts, sizes, heads, version_2, wanted.topic.encode())
    good &= mine
    if bool(good.all()):
        return -1
    for row in np.flatnonzero(~good).tolist():
        if mine[row] or not _is_light(records, int(starts[row]), row, wanted):
            return int(row)
    return -1


def _have_topic(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    heads: NDArray[np.void],
    version_2: NDArray[np.bool_],
    topic: bytes,
) -> NDArray[np.bool_]:
    """Which records are of that topic."""
    places = starts + FIXED_SIZE + version_2
    lengths = heads["body_length"].astype(np.int64)
    flags = heads["sys_flag"].astype(np.int32) & (BORN_HOST_IPV6 | STORE_HOST_IPV6)
    if not none_true(flags):
        hosts = ((flags & BORN_HOST_IPV6) != 0).astype(np.int64) + ((flags & STORE_HOST_IPV6) != 0)
        places += IPV6_EXTRA * hosts
        at = windows(data, _BODY_LENGTH_SIZE)
        ends = np.minimum(places - version_2, len(data)) - _BODY_LENGTH_SIZE
        lengths = at[ends].view(">i4").astype(np.int64)
    places += lengths
    # the length's low byte and the text: a record of either version has them side by side
    text = bytes([len(topic) & 0xFF]) + topic
    inside = (lengths >= 0) & (places + len(text) <= starts + sizes)
    if len(data) < len(text):
        return inside & False
    texts = windows(data, len(text))[np.where(inside, places, 0)]
    same: NDArray[np.bool_] = texts == np.frombuffer(text, f"V{len(text)}")[0]
    return same & inside


def _is_light(records: bytes | memoryview, start: int, row: int, wanted: Expected) -> bool:
    """Whether the record has a further unit in this queue, by the numbers that a broker gave it."""
    size, at = int(wanted.sizes[row]), int(wanted.offsets[row])
    data = bytes(records[start : start + size])
    try:
        record = decode_record(data, physical_offset=at, limit=size)
    except CorruptRecordError:
        return False
    if wanted.check_crc and wrong_property_crc(data):
        return False
    properties = record.properties
    queues = light_queues(
        record.topic,
        record.queue_id,
        properties.get(MULTI_DISPATCH, ""),
        properties.get(MULTI_QUEUE_OFFSET, ""),
        properties.get(REAL_TOPIC, ""),
    )
    number = int(wanted.queue_offsets[row])
    return record.size == size and (wanted.topic, wanted.queue_id, number) in queues


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
