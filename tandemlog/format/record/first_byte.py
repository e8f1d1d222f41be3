"""The first byte of a record, told from the bytes behind it.

A RocketMQ broker cannot be asked for its log from byte 0 on: 0 means something else there. From 1
on it sends everything but the highest byte of the first record's size.
"""

from ..constants import (
    BODY_LENGTH_OFFSET,
    FIXED_SIZE,
    IPV6_EXTRA,
    MIN_RECORD_SIZE,
    SYS_FLAG_OFFSET,
)
from .sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

MOST_NEEDED = FIXED_SIZE + 2 * IPV6_EXTRA - 1
_HIGH = 24


def first_byte(rest: bytes) -> bytes | None:
    """The byte before `rest`, which begins with byte 1 of a record; None if `rest` is too short to
    tell. The size exceeds that of the fixed fields and the body by less than 16 MiB, so its lower
    three bytes and the body's length leave one value for the highest."""
    if len(rest) < SYS_FLAG_OFFSET + 3:
        return None
    flag = int.from_bytes(rest[SYS_FLAG_OFFSET - 1 : SYS_FLAG_OFFSET + 3])
    extra = IPV6_EXTRA * (flag & (BORN_HOST_IPV6 | STORE_HOST_IPV6)).bit_count()
    at = BODY_LENGTH_OFFSET + extra - 1
    if len(rest) < at + 4:
        return None
    least = int.from_bytes(rest[at : at + 4]) + extra + MIN_RECORD_SIZE
    missing = max(0, least - int.from_bytes(rest[:3]))
    high = -(-missing >> _HIGH)
    return bytes((high & 0xFF,))
