"""Records among bytes that may be damaged: where the next whole one begins, and what a damaged one
still says.

    r r xxxxxxxxxx r r      next_record: a place with the magic, the matching physical offset,
        ^         ^         lengths that add up and a valid CRC
        damaged: whole_but_for_head, _a_length, _body
"""

from collections.abc import Iterator
from struct import Struct

from tandemlog.format.columns.record_starts import MAGICS, magic_positions
from tandemlog.format.constants import (
    BODY_LENGTH_OFFSET,
    BORN_TIMESTAMP_OFFSET,
    IPV6_EXTRA,
    MAGIC_BLANK,
    MAGIC_OFFSET,
    MIN_RECORD_SIZE,
    PAGE,
    PHYSICAL_OFFSET_OFFSET,
    SYS_FLAG_OFFSET,
)
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

from ..disk.mapped_file import MappedFile
from ..disk.mapped_file_queue import MappedFileQueue

SEARCH_STEP = 1 << 20
_I64 = Struct(">q")
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big")


def next_record(mapped: MappedFileQueue, offset: int, below: int) -> int | None:
    """Where the first whole record behind `offset` starts; None if none does below `below`.
    Raises UnreadableError."""
    for file in mapped.files:
        if file.end > offset and file.base < below:
            record = find_record(file, max(offset + 1 - file.base, 0), file.size)
            if record is not None:
                return record if record < below else None
    return None


def find_record(file: MappedFile, start: int, stop: int) -> int | None:
    """The log offset of the first whole record in bytes start .. stop of a file; None if they have
    none. The record must say that it lies there, so stale and stray bytes are skipped. Raises
    UnreadableError."""
    overlap = MAGIC_OFFSET + len(MAGICS[0])
    for begin in range(start, stop - MIN_RECORD_SIZE, SEARCH_STEP):
        piece = bytes(file.view(begin, min(SEARCH_STEP + overlap - 1, stop - begin)))
        for position in magic_positions(piece):
            if position < SEARCH_STEP and _is_record(file, begin + position, stop):
                return file.base + begin + position
    return None


def _is_record(file: MappedFile, position: int, stop: int) -> bool:
    try:
        decode_record(record_view(file, position, stop), physical_offset=file.base + position)
    except CorruptRecordError:
        return False
    return True


def record_view(file: MappedFile, position: int, stop: int | None = None) -> memoryview:
    """The record at `position` of a file, of the size in its head; for an impossible size up to a
    page, not beyond `stop` (default: the file's end). Raises UnreadableError."""
    room = (file.size if stop is None else stop) - position
    size = int.from_bytes(file.view(position, min(4, room)))
    return file.view(position, size if MIN_RECORD_SIZE <= size <= room else min(room, PAGE))


def whole_but_for_head(data: bytes, offset: int) -> Record | None:
    """The record in `data`, at log `offset`, if only its size, magic or physical offset is damaged;
    else None."""
    data = _without_blank(data)
    if len(data) < MIN_RECORD_SIZE:
        return None
    position = _I64.pack(offset)
    for magic in MAGICS:
        mended = bytearray(data)
        mended[: MAGIC_OFFSET + len(magic)] = len(data).to_bytes(4, "big") + magic
        mended[PHYSICAL_OFFSET_OFFSET : PHYSICAL_OFFSET_OFFSET + len(position)] = position
        try:
            return decode_record(bytes(mended), physical_offset=offset)
        except CorruptRecordError:
            continue
    return None


def whole_but_for_body(data: bytes, offset: int) -> Record | None:
    """The record in `data`, at log `offset`, if only its body or a CRC is damaged: its other fields
    may be wrong too; else None."""
    data = _without_blank(data)
    try:
        record = decode_record(data, physical_offset=offset, check_crc=False)
    except CorruptRecordError:
        return None
    return record if record.size == len(data) else None


def whole_but_for_a_length(data: bytes, offset: int) -> Record | None:
    """The record in `data`, at log `offset`, if one bit is flipped in one of its lengths, or in the
    flags that tell how long its hosts are; else None."""
    data = _without_blank(data)
    if len(data) < MIN_RECORD_SIZE or int.from_bytes(data[:MAGIC_OFFSET]) != len(data):
        return None
    mended = bytearray(data)
    for place, bit in _bits_of_lengths(data):
        mended[place] ^= bit
        try:
            return decode_record(mended, physical_offset=offset)
        except CorruptRecordError:
            mended[place] ^= bit
    return None


def _bits_of_lengths(data: bytes) -> Iterator[tuple[int, int]]:
    """(byte, mask) of each bit that says where a part of the record in `data` ends, by what the
    lengths before it say; those outside `data` left out."""
    flags = int.from_bytes(data[SYS_FLAG_OFFSET:BORN_TIMESTAMP_OFFSET])
    wide = [bit for bit in (BORN_HOST_IPV6, STORE_HOST_IPV6) if flags & bit]
    width = 1 if data[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGICS[0])] == MAGICS[0] else 2
    body = BODY_LENGTH_OFFSET + IPV6_EXTRA * len(wide)
    topic = body + 4 + int.from_bytes(data[body : body + 4])
    properties = topic + width + int.from_bytes(data[topic : topic + width])
    for begin, size in ((body, 4), (topic, width), (properties, 2)):
        for place in range(begin, min(begin + size, len(data))):
            yield from ((place, 1 << bit) for bit in range(8))
    yield from ((BORN_TIMESTAMP_OFFSET - 1, bit) for bit in (BORN_HOST_IPV6, STORE_HOST_IPV6))


def _without_blank(data: bytes) -> bytes:
    """`data` up to the BLANK that it ends with: damage in the last record of a file is followed
    by the next file's first record only."""
    place = data.rfind(_BLANK_MAGIC)
    begin = place - MAGIC_OFFSET
    if begin > 0 and int.from_bytes(data[begin:place], "big") == len(data) - begin:
        return data[:begin]
    return data
