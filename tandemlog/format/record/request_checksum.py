"""What tells a request from any other one under the same number (producer_mark.py).

    bytes     of a request whose attempts repeat the same bytes: nothing is left out
    content   of one whose messages are framed again by each attempt: left out is what the attempt
              decides (time and host of birth, unique id, the queue that a batch was given)

    content:  flag, system flag, CRC, length of the body, of the topic and of the properties,
              i8[n] each  |  topics  |  properties    of all rows

Both are of the records before the mark goes in, and one CRC over the whole, none per record.
columns/checksum_columns.py has the same for many records.
"""

from collections.abc import Iterable, Sequence
from struct import pack
from typing import Final

from ..constants import NAME_END, PROPERTY_END, UNIQ_KEY, Buffer
from ..fast_crc import crc32
from .record import Record, decode_record
from .sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

HOST_BITS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
_SEGMENT_END: Final = bytes((PROPERTY_END,))
_UNIQUE_ID: Final = UNIQ_KEY.encode() + bytes((NAME_END,))


def request_checksum(parts: Iterable[Buffer], before: int = 0) -> int:
    """The CRC-32 of all parts in order; `before` is the CRC-32 of the bytes before them, which
    chains requests: if one is equal, all before it are."""
    for part in parts:
        before = crc32(part, before)
    return before


def content_checksum(records: Buffer, sizes: Sequence[int], *, before: int = 0) -> int:
    """The same for each framing of the same messages in the same order. `sizes` are the records',
    which hold together; `before` as in request_checksum."""
    parts: list[Record] = []
    position = 0
    for size in sizes:
        parts.append(decode_record(records, position, check_crc=False, limit=position + size))
        position += size
    topics = [record.topic.encode() for record in parts]
    properties = [_without_unique_id(record.properties_raw) for record in parts]
    fixed = (
        [record.flag for record in parts],
        [record.sys_flag & ~HOST_BITS for record in parts],
        [record.body_crc for record in parts],
        [len(record.body) for record in parts],
        [len(topic) for topic in topics],
        [len(each) for each in properties],
    )
    columns = [pack(f"<{len(column)}q", *column) for column in fixed]
    return request_checksum((*columns, *topics, *properties), before)


def _without_unique_id(properties: bytes) -> bytes:
    """Without the value of the unique id; of several the last one that is not empty."""
    segments = properties.split(_SEGMENT_END)
    for index in reversed(range(len(segments))):
        segment = segments[index]
        if segment.startswith(_UNIQUE_ID) and len(segment) > len(_UNIQUE_ID):
            segments[index] = _UNIQUE_ID
            break
    return _SEGMENT_END.join(segments)
