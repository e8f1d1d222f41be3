"""The optional CRC over whole records (record/property_crc.py), of many records at once."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import gather_rows, none_true, windows
from ..constants import CRC_MASK, CRC_PROPERTY_SIZE, PROPERTY_END
from ..fast_crc import crc32
from ..record.property_crc import ALIKE, CRC_NAME

_NAME_COLUMN: Final = np.frombuffer(CRC_NAME, np.uint8)
_DIGITS: Final = CRC_PROPERTY_SIZE - len(CRC_NAME) - 1
_POWERS: Final = 10 ** np.arange(_DIGITS, dtype=np.int64)


def have_property_crc(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which records, bool[n], end in what is a property CRC, or was one before it was damaged."""
    tails = np.maximum(starts + sizes - CRC_PROPERTY_SIZE, 0)
    names = gather_rows(data, tails, len(CRC_NAME))
    found: NDArray[np.bool_] = (names == _NAME_COLUMN).sum(axis=1) >= ALIKE
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
    written[:, : len(CRC_NAME)] = _NAME_COLUMN
    digits = crcs[:, None] // _POWERS % 10
    written[:, len(CRC_NAME) : -1] = digits + ord("0")
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
