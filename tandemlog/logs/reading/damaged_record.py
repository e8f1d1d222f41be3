"""Which message a damaged record was, as far as its bytes still tell, for people who must act.

A record whose lengths do not add up is decoded again with the size and magic that fit its place,
then with each single bit of its length fields and host flags flipped: one flipped bit is the usual
damage, and then the message can be named.
"""

from collections.abc import Iterator

from tandemlog.format.constants import (
    BODY_LENGTH_OFFSET,
    FIXED_SIZE,
    IPV6_EXTRA,
    MAGIC_OFFSET,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    SYS_FLAG_OFFSET,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import Record, decode_record

from .find_record import record_size_at
from .log_bytes import LogBytes, read

MAX_TRIED = 64 << 20


def lenient_record(log: LogBytes, offset: int, file_end: int, end: int = 0) -> Record | None:
    """The record at the log offset whatever its CRC and its own offset; `end`, if known, is where
    the next one begins. None if its lengths cannot be made to add up."""
    own_size = record_size_at(log, offset, file_end)
    for size in dict.fromkeys((own_size, end - offset)):
        if size is not None and MIN_RECORD_SIZE <= size <= MAX_TRIED:
            record = _repaired(bytearray(read(log, offset, size)))
            if record is not None:
                return record
    return None


def _repaired(data: bytearray) -> Record | None:
    """The first of the changed records that decodes, the least change first."""
    data[:MAGIC_OFFSET] = len(data).to_bytes(MAGIC_OFFSET)
    for magic in (None, MAGIC_V1, MAGIC_V2):
        if magic is not None:
            data[MAGIC_OFFSET : MAGIC_OFFSET + 4] = magic.to_bytes(4)
        record = _decoded(data)
        if record is not None:
            return record
    for magic in (MAGIC_V1, MAGIC_V2):
        data[MAGIC_OFFSET : MAGIC_OFFSET + 4] = magic.to_bytes(4)
        for place, bit in _suspects(data):
            data[place] ^= bit
            record = _decoded(data)
            if record is not None:
                return record
            data[place] ^= bit
    return None


def _suspects(data: bytearray) -> Iterator[tuple[int, int]]:
    """Bytes and bits that decide where a record's parts lie: host flags, lengths."""
    yield SYS_FLAG_OFFSET + 3, 0x10
    yield SYS_FLAG_OFFSET + 3, 0x20
    for extra in (0, IPV6_EXTRA, 2 * IPV6_EXTRA):
        for place in range(BODY_LENGTH_OFFSET + extra, FIXED_SIZE + extra):
            yield from ((place, 1 << bit) for bit in range(8))
        body = int.from_bytes(data[BODY_LENGTH_OFFSET + extra : FIXED_SIZE + extra])
        topic = FIXED_SIZE + extra + body
        if topic + 1 < len(data):
            for place in (topic, topic + 1, topic + 1 + data[topic], topic + 2 + data[topic]):
                if place < len(data):
                    yield from ((place, 1 << bit) for bit in range(8))


def _decoded(data: bytearray) -> Record | None:
    try:
        record = decode_record(bytes(data), 0, check_crc=False)
    except (FormatError, ValueError):
        return None
    return record if record.topic.isprintable() and record.topic else None


def record_text(record: Record | None) -> str:
    """`message 17 of Orders/3`, or that it is unknown."""
    if record is None:
        return "a record that cannot be decoded"
    return f"message {record.queue_offset} of {record.topic}/{record.queue_id}"
