"""One block of the log, judged by itself: where it ends, whether its records are right.

    log     | r r r r r r | r r r XXXX r r | BLANK ....| r r
    blocks  '---- 1 MiB --' '----'^         '----------'^ the next file
                            whole  damaged from here, no end known

A block begins where a record begins and ends where one ends, BLOCK bytes later at most, unless a
single record is longer. So every node that has the same bytes cuts the same blocks, and a node that
is asked about one can walk it from its begin. A block ends before damage; the damage is the begin
of the next one, and only a copy that is whole there knows where that ends.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.walk import StopReason, WalkResult
from tandemlog.format.constants import BLANK_SIZE

BLOCK: Final = 1 << 20
LONGEST: Final = 128 << 20
"""A block may be one record, or one BLANK, of this many bytes; a larger size is damage."""

Read = Callable[[int, int], bytes]
"""(log offset, bytes) -> exactly these bytes of the log, which lie in one file. Raises
UnreadableError, OffsetOutOfRangeError."""


def _none() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class CheckedBlock:
    """Log bytes start .. end-1. `fault` says what is wrong at `start`, and then `end` equals it and
    there is nothing else; empty for a whole block of these `data`, whose `checksum` is SHA-256.
    `begins` i8[n]: where its records begin, counted from `start`."""

    start: int
    end: int
    checksum: bytes = b""
    fault: str = ""
    data: bytes = field(default=b"", repr=False, compare=False)
    begins: NDArray[np.int64] = field(default_factory=_none, repr=False, compare=False)


def checksum_of(data: bytes) -> bytes:
    """SHA-256: two blocks with the same one are the same."""
    return hashlib.sha256(data).digest()


def check_next(
    read: Read, start: int, limit: int, file_size: int, *, property_crc: bool
) -> CheckedBlock:
    """The block that begins at log offset `start`, where a record or a BLANK begins. A record, or
    the log, ends at `limit`, which is above `start`. Raises what `read` does."""
    room = file_size - start % file_size
    there = min(room, limit - start)
    data = read(start, min(BLOCK, there))
    walked = _walk(data, start, room, property_crc)
    if not walked.count and walked.stop in (StopReason.INCOMPLETE, StopReason.BLANK):
        size = int.from_bytes(data[:4]) if len(data) >= BLANK_SIZE else 0
        if walked.stop is StopReason.BLANK and size != room:
            return CheckedBlock(start, start, fault=f"a BLANK of {size} bytes, {room} are left")
        if not 0 < size <= min(there, LONGEST):
            return CheckedBlock(start, start, fault=f"a record of {size} bytes in {there}")
        if size > len(data):
            data = read(start, size)
            walked = _walk(data, start, room, property_crc)
        if walked.stop is StopReason.BLANK and not walked.count:
            return CheckedBlock(start, start + size, checksum_of(data[:size]), data=data[:size])
    if not walked.count:
        return CheckedBlock(start, start, fault=_why(walked))
    data = data[: walked.end]
    return CheckedBlock(
        start, start + walked.end, checksum_of(data), data=data, begins=walked.positions
    )


def check_given(data: bytes, start: int, file_size: int, *, property_crc: bool) -> str:
    """What is wrong with a block that begins at log offset `start` and ends where another node says
    that it does; empty if it is whole records, or one BLANK, to its last byte."""
    room = file_size - start % file_size
    walked = _walk(data, start, room, property_crc)
    if walked.end == len(data):
        return ""
    blank = walked.stop is StopReason.BLANK and not walked.count
    if blank and len(data) == room == int.from_bytes(data[:4]):
        return ""
    return _why(walked)


def _walk(data: bytes, start: int, room: int, property_crc: bool) -> WalkResult:
    walked, _headers = walk_strict(
        np.frombuffer(data, np.uint8),
        base_offset=start,
        limit=room,
        check_crc=True,
        check_topics=True,
        check_property_crc=property_crc,
    )
    return walked


def _why(walked: WalkResult) -> str:
    fault = walked.error
    return walked.stop.value if fault is None else str(fault)
