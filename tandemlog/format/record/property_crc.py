"""The optional CRC over a whole record, kept as its last property.

    ... | __CRC32# 0x01 dddddddddd 0x02      the last 20 bytes of the record

The digits are the CRC-32 (31 bits) of all bytes before these 20, in decimal, padded with zeros
and written backwards, the least significant digit first. It is computed when the offsets and
the store time are in place. RocketMQ writes it since 5.2.0, if told to; the lengths of the
record and of its properties count the 20 bytes.
"""

from operator import eq
from typing import Final

from ..constants import CRC32, CRC_MASK, CRC_PROPERTY_SIZE, PROPERTY_END
from ..fast_crc import crc32

CRC_NAME: Final = f"{CRC32}\x01".encode()
ALIKE: Final = len(CRC_NAME) - 2
"""With this many equal bytes a name was this one: no other property has a similar name."""


def with_room_for_crc(properties: bytes) -> bytes:
    """Encoded properties with 20 bytes to spare at the end, behind a 0x02."""
    if properties and properties[-1] != PROPERTY_END:
        properties += bytes((PROPERTY_END,))
    return properties + bytes(CRC_PROPERTY_SIZE)


def with_property_crc(encoded: bytes) -> bytes:
    """A record that was encoded with room for it, with its CRC in place."""
    covered = encoded[:-CRC_PROPERTY_SIZE]
    digits = f"{crc32(covered) & CRC_MASK:010d}"[::-1]
    return covered + CRC_NAME + digits.encode() + bytes((PROPERTY_END,))


def verify_property_crc(
    buffer: bytes | bytearray | memoryview, position: int, size: int
) -> bool | None:
    """Whether the CRC of the record at `position` is right; None if it does not end in one."""
    end = position + size
    name_start = end - CRC_PROPERTY_SIZE
    digits_start = name_start + len(CRC_NAME)
    if name_start < position or bytes(buffer[name_start:digits_start]) != CRC_NAME:
        return None
    digits = bytes(buffer[digits_start : end - 1])
    if not digits.isdigit() or buffer[end - 1] != PROPERTY_END:
        return False
    covered = memoryview(buffer)[position:name_start]
    return crc32(covered) & CRC_MASK == int(digits[::-1])


def wrong_property_crc(record: bytes) -> bool:
    """Whether one record has a property CRC that does not hold; of many: wrong_property_crcs."""
    alike = sum(map(eq, record[-CRC_PROPERTY_SIZE:], CRC_NAME))
    return alike >= ALIKE and not verify_property_crc(record, 0, len(record))
