"""Room for a property CRC behind every record of a client's batch (setting `property_crc`).

    client   | header, body, topic | length | properties |
    stored   | header, body, topic | length | properties | __CRC32# 0x01 dddddddddd 0x02 |
               size + 20             + 20                  the CRC of all before it

It covers the offsets and the store time, so it is filled in after those. Clients frame their
records without it; the response tells them how much longer the records became.
"""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import copy_slices, first_true, windows
from tandemlog.format.columns.faults import first_hole
from tandemlog.format.columns.headers import HeaderColumns, gather_headers
from tandemlog.format.columns.property_crcs import have_property_crc
from tandemlog.format.constants import CRC32, CRC_PROPERTY_SIZE, MAX_PROPERTIES, PROPERTY_END

from ..errors import BatchRefusedError
from .batch_check import CheckedBatch
from .record_check import PAGE_OF_ZEROS, bad_record

MOST_PROPERTIES: Final = MAX_PROPERTIES - CRC_PROPERTY_SIZE
_SIZE: Final = np.dtype(">i4")
_LENGTH: Final = np.dtype(">i2")


def with_room(checked: CheckedBatch) -> CheckedBatch:
    """The batch with 20 bytes more in every record, in a buffer of its own. Raises
    BatchRefusedError if a record has no room for them among its properties."""
    source = np.frombuffer(checked.batch.records, np.uint8)
    headers = gather_headers(source, checked.positions, checked.sizes)
    lengths = headers.properties_length
    _check(source, checked, headers)
    sizes = checked.sizes + CRC_PROPERTY_SIZE
    positions = sizes.cumsum() - sizes
    data = np.zeros(int(sizes.sum()), np.uint8)
    copy_slices(source, checked.positions, data, positions, checked.sizes)
    windows(data, _SIZE.itemsize)[positions] = sizes.astype(_SIZE).view(f"V{_SIZE.itemsize}")
    moved = headers.properties_start - checked.positions + positions - _LENGTH.itemsize
    longer = (lengths + CRC_PROPERTY_SIZE).astype(_LENGTH)
    windows(data, _LENGTH.itemsize)[moved] = longer.view(f"V{_LENGTH.itemsize}")
    return replace(
        checked, positions=positions, sizes=sizes, data=data, record_extra=CRC_PROPERTY_SIZE
    )


def _check(source: NDArray[np.uint8], checked: CheckedBatch, headers: HeaderColumns) -> None:
    ends, lengths = checked.positions + checked.sizes, headers.properties_length
    long = first_true(lengths > MOST_PROPERTIES)
    if long >= 0:
        raise BatchRefusedError(
            "PROPERTIES_TOO_LARGE",
            "properties",
            f"record {long}: properties have {int(lengths[long])} bytes, the limit is "
            f"{MOST_PROPERTIES} where the node adds {CRC32}",
            limit=MOST_PROPERTIES,
            actual=int(lengths[long]),
            record_index=long,
        )
    open_end = first_true((lengths > 0) & (source[ends - 1] != PROPERTY_END))
    if open_end >= 0:
        raise bad_record(
            "properties", f"end them with 0x02: the node adds {CRC32} after them", open_end
        )
    hole = first_hole(source, headers, longer_by=CRC_PROPERTY_SIZE)
    if hole >= 0:
        raise bad_record("properties", PAGE_OF_ZEROS, hole)
    alike = first_true(have_property_crc(source, checked.positions, checked.sizes))
    if alike >= 0:
        raise bad_record(
            "properties", f"the last one is too similar to {CRC32}, which the node writes", alike
        )
