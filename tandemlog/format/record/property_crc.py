"""The optional CRC over a whole record, kept as its last property.

    ... | __CRC32# 0x01 dddddddddd 0x02      the last 20 bytes of the record

The digits are the CRC-32 (31 bits) of all bytes before these 20, in decimal, padded with zeros
and written backwards, the least significant digit first. It is computed when the offsets and
the store time are in place. RocketMQ writes it since 5.2.0, if told to; the lengths of the
record and of its properties count the 20 bytes.
"""

from operator import eq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import gather_rows, none_true, windows
from ..constants import CRC32, CRC_MASK, CRC_PROPERTY_SIZE, PROPERTY_END
from ..fast_crc import crc32

_NAME: Final = f"{CRC32}\x01".encode()
_NAME_COLUMN: Final = np.frombuffer(_NAME, np.uint8)
_DIGITS: Final = CRC_PROPERTY_SIZE - len(_NAME) - 1
_ALIKE: Final = len(_NAME) - 2
"""With this many equal bytes a name was this one: no other property has a similar name."""
_POWERS: Final = 10 ** np.arange(_DIGITS, dtype=np.int64)


def with_room_for_crc(properties: bytes) -> bytes:
    """Encoded properties with 20 bytes to spare at the end, behind a 0x02."""
    if properties and properties[-1] != PROPERTY_END:
        properties += bytes((PROPERTY_END,))
    return properties + bytes(CRC_PROPERTY_SIZE)


def with_property_crc(encoded: bytes) -> bytes:
    """A record that was encoded with room for it, with its CRC in place."""
    covered = encoded[:-CRC_PROPERTY_SIZE]
    digits = f"{crc32(covered) & CRC_MASK:010d}"[::-1]
    return covered + _NAME + digits.encode() + bytes((PROPERTY_END,))


def verify_property_crc(
    buffer: bytes | bytearray | memoryview, position: int, size: int
) -> bool | None:
    """Whether the CRC of the record at `position` is right; None if it does not end in one."""
    end = position + size
    name_start = end - CRC_PROPERTY_SIZE
    digits_start = name_start + len(_NAME)
    if name_start < position or bytes(buffer[name_start:digits_start]) != _NAME:
        return None
    digits = bytes(buffer[digits_start : end - 1])
    if not digits.isdigit() or buffer[end - 1] != PROPERTY_END:
        return False
    covered = memoryview(buffer)[position:name_start]
    return crc32(covered) & CRC_MASK == int(digits[::-1])


def wrong_property_crc(record: bytes) -> bool:
    """Whether one record has a property CRC that does not hold; as wrong_property_crcs."""
    alike = sum(map(eq, record[-CRC_PROPERTY_SIZE:], _NAME))
    return alike >= _ALIKE and not verify_property_crc(record, 0, len(record))


# ---- by columns


def have_property_crc(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which records, bool[n], end in what is a property CRC, or was one before it was damaged."""
    tails = np.maximum(starts + sizes - CRC_PROPERTY_SIZE, 0)
    names = gather_rows(data, tails, len(_NAME))
    found: NDArray[np.bool_] = (names == _NAME_COLUMN).sum(axis=1) >= _ALIKE
    return found & (sizes > CRC_PROPERTY_SIZE)


def wrong_property_crcs(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which records, bool[n], have a property CRC that does not hold for their bytes; those
    without one are not among them."""
    wrong = have_property_crc(data, starts, sizes)
    if none_true(wrong):
        return wrong
    rows = np.flatnonzero(wrong)
    covered_ends = starts[rows] + sizes[rows] - CRC_PROPERTY_SIZE
    expected = crc_properties(_crcs(data, starts[rows], covered_ends))
    found = gather_rows(data, covered_ends, CRC_PROPERTY_SIZE)
    wrong[rows] = (found != expected).any(axis=1)
    return wrong


def write_property_crcs(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> None:
    """Put the CRC property into the last 20 bytes of every record, in place."""
    covered_ends = starts + sizes - CRC_PROPERTY_SIZE
    written = crc_properties(_crcs(data, starts, covered_ends))
    windows(data, CRC_PROPERTY_SIZE)[covered_ends] = written.view(f"V{CRC_PROPERTY_SIZE}")[:, 0]


def crc_properties(crcs: NDArray[np.int64]) -> NDArray[np.uint8]:
    """u1[n, 20]: the property for each CRC, 31 bits."""
    written = np.empty((len(crcs), CRC_PROPERTY_SIZE), np.uint8)
    written[:, : len(_NAME)] = _NAME_COLUMN
    digits = crcs[:, None] // _POWERS % 10
    written[:, len(_NAME) : -1] = digits + ord("0")
    written[:, -1] = PROPERTY_END
    return written


def _crcs(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """i8[n], 31 bits: one call for each record, the step that cannot be done by columns."""
    view = data.data
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    found = np.array([crc32(view[start:end]) for start, end in pairs], np.int64)
    return found & CRC_MASK
