"""Finds the next whole record behind other bytes: where a range begins, or where damage ends."""

from collections.abc import Iterator

from tandemlog.format.columns.record_starts import (
    HEAD_SIZE,
    MAGICS,
    magic_positions,
    starts_in_place,
)
from tandemlog.format.columns.walk import StopReason, walk
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import Record, decode_record

from .log_bytes import LogBytes, read

_SEARCH_STEP = 1 << 20
_FIRST_OF_MAGICS = MAGICS[0][:1]
_HEADER = 128
"""Enough of a record for its inner lengths up to the body's."""


def record_at(
    log: LogBytes,
    offset: int,
    file_end: int,
    *,
    in_place: bool = True,
    check_crc: bool = True,
) -> Record | None:
    """The record at the log offset, if there is a whole and valid one. With `in_place` false its
    own offset may be another."""
    size = record_size_at(log, offset, file_end)
    if size is None:
        return None
    try:
        return decode_record(
            read(log, offset, size),
            0,
            physical_offset=offset if in_place else None,
            check_crc=check_crc,
        )
    except CorruptRecordError:
        return None


def record_size_at(log: LogBytes, offset: int, file_end: int) -> int | None:
    """The record size at the offset, if size and magic there can be those of a record."""
    head = read(log, offset, _HEADER)
    walked = walk(head, 0, len(head), limit=file_end - offset, max_records=1)
    if walked.count:
        return int(walked.sizes[0])
    if walked.stop is StopReason.INCOMPLETE and len(head) == _HEADER:
        return int.from_bytes(head[:4])
    return None


def next_record(
    log: LogBytes, start: int, end: int, file_end: int, *, check_crc: bool = True
) -> Record | None:
    """The first whole record that begins in start .. end of a file which ends at `file_end`."""
    for offset in candidates(log, start, end):
        record = record_at(log, offset, file_end, check_crc=check_crc)
        if record is not None:
            return record
    return None


def candidates(log: LogBytes, start: int, end: int, *, in_place: bool = True) -> Iterator[int]:
    """Log offsets in start .. end at which a record may begin; `in_place` as in record_at."""
    offset = start
    while (offset := log.next_data(offset)) < end:
        wanted = min(_SEARCH_STEP, end - offset)
        piece = read(log, offset, wanted + HEAD_SIZE - 1)
        # Most of what is searched is zeros: one search for a byte that every magic has.
        if _FIRST_OF_MAGICS in piece:
            starts = starts_in_place(piece, offset) if in_place else magic_positions(piece)
            for position in starts:
                if position >= wanted:
                    break
                yield offset + position
        offset += wanted
