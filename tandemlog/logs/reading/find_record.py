"""The next whole record behind bytes that are none: where a range begins, or damage ends."""

from collections.abc import Iterator

from tandemlog.format.columns.resync import HEAD_SIZE, MAGICS, starts_in_place
from tandemlog.format.columns.walk import StopReason, walk
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import Record, decode_record

from .log_bytes import LogBytes, read

SEARCH_STEP = 1 << 20
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
    """The record at the log offset, if a whole and right one stands there. With `in_place` false
    it may say that it lies elsewhere."""
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
    """The size that stands at the offset, if size and magic can be a record's there."""
    head = read(log, offset, _HEADER)
    found = walk(head, 0, len(head), limit=file_end - offset, max_records=1)
    if found.count:
        return int(found.sizes[0])
    if found.stop is StopReason.INCOMPLETE and len(head) == _HEADER:
        return int.from_bytes(head[:4])
    return None


def next_record(
    log: LogBytes, start: int, end: int, file_end: int, *, check_crc: bool = True
) -> Record | None:
    """The first whole record that begins in start .. end of a file which ends at `file_end`."""
    for offset in _candidates(log, start, end):
        record = record_at(log, offset, file_end, check_crc=check_crc)
        if record is not None:
            return record
    return None


def _candidates(log: LogBytes, start: int, end: int) -> Iterator[int]:
    """Log offsets in start .. end at which a record may begin."""
    offset = start
    while (offset := log.next_data(offset)) < end:
        wanted = min(SEARCH_STEP, end - offset)
        piece = read(log, offset, wanted + HEAD_SIZE - 1)
        # Most of what is searched is zeros: one look for a byte that every magic has.
        if _FIRST_OF_MAGICS in piece:
            for position in starts_in_place(piece, offset):
                if position >= wanted:
                    break
                yield offset + position
        offset += wanted
