"""Whose message a damaged record is, as well as its bytes still tell, for people who must act.

A record whose lengths do not add up is tried again with the size and magic that its place asks
for, then with each single bit of its length fields and host flags turned: a flipped bit is the
usual damage, and there the message can be named.
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
    said = record_size_at(log, offset, file_end)
    between = end - offset
    for size in dict.fromkeys(each for each in (said, between) if each):
        if MIN_RECORD_SIZE <= size <= MAX_TRIED:
            found = _tried(bytearray(read(log, offset, size)))
            if found is not None:
                return found
    return None


def _tried(data: bytearray) -> Record | None:
    """One decode after the other, the least change first."""
    data[:MAGIC_OFFSET] = len(data).to_bytes(MAGIC_OFFSET)
    for magic in (None, MAGIC_V1, MAGIC_V2):
        if magic is not None:
            data[MAGIC_OFFSET : MAGIC_OFFSET + 4] = magic.to_bytes(4)
        found = _decoded(data)
        if found is not None:
            return found
    for magic in (MAGIC_V1, MAGIC_V2):
        data[MAGIC_OFFSET : MAGIC_OFFSET + 4] = magic.to_bytes(4)
        for place, bit in _suspects(data):
            data[place] ^= bit
            found = _decoded(data)
            if found is not None:
                return found
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
            lengths = (topic, topic + 1, topic + 1 + data[topic], topic + 2 + data[topic])
            for place in lengths:
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
