"""The fields that only a master knows, written into framed records in place.

    20 queue offset | 28 physical offset        next to each other: one 16-byte write
    56 store time   | 64 store host             the same (12 bytes later after an IPv6 born host)

Many records are written through window views, a few with struct: the dozen numpy calls cost as
much as some twenty records.
"""

from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import none_true, windows
from ..constants import (
    BORN_HOST_OFFSET,
    IPV6_EXTRA,
    QUEUE_OFFSET_OFFSET,
    STORE_TIMESTAMP_OFFSET,
    SYS_FLAG_OFFSET,
)
from ..errors import FormatError
from ..record.host import IPV4_SIZE, IPV6_SIZE
from ..record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

_OFFSETS: Final = Struct(">qq")
_OFFSETS_DTYPE: Final = np.dtype([("queue_offset", ">i8"), ("physical_offset", ">i8")])
_TIME: Final = Struct(">q")
_FEW_RECORDS: Final = 32
_LOW_FLAG_BYTE: Final = SYS_FLAG_OFFSET + 3
"""Where the system flag's bits for the hosts are."""

assert STORE_TIMESTAMP_OFFSET == BORN_HOST_OFFSET + IPV4_SIZE


def patch_stored_fields(
    buffer: NDArray[np.uint8],
    positions: NDArray[np.int64],
    *,
    queue_offsets: NDArray[np.int64],
    physical_offsets: NDArray[np.int64],
    store_timestamp: int,
    store_host: bytes,
) -> None:
    """Writes both offsets of every record, and time (ms) and host for all, into `buffer`.

    `store_host` is as stored, 8 or 20 bytes. Every record must have room for a host of that
    kind, which its system flag says: FormatError otherwise, and nothing is written.
    """
    if len(store_host) not in (IPV4_SIZE, IPV6_SIZE):
        raise FormatError(f"a stored host has {IPV4_SIZE} or {IPV6_SIZE} bytes: {store_host!r}")
    if len(positions) == 0:
        return
    expected = STORE_HOST_IPV6 if len(store_host) == IPV6_SIZE else 0
    stamp = _TIME.pack(store_timestamp) + store_host
    if len(positions) < _FEW_RECORDS:
        _patch_few(buffer, positions, queue_offsets, physical_offsets, stamp, expected)
        return
    flags = buffer[positions + _LOW_FLAG_BYTE]
    flags &= STORE_HOST_IPV6 | BORN_HOST_IPV6
    times = positions + STORE_TIMESTAMP_OFFSET
    if expected or not none_true(flags):
        other_kind = (flags & STORE_HOST_IPV6) != expected
        if other_kind.any():
            index = int(other_kind.argmax())
            raise _no_room(index, int(positions[index]), len(store_host))
        times += IPV6_EXTRA * ((flags & BORN_HOST_IPV6) != 0)
    offsets = np.empty(len(positions), _OFFSETS_DTYPE)
    offsets["queue_offset"] = queue_offsets
    offsets["physical_offset"] = physical_offsets
    windows(buffer, _OFFSETS.size)[positions + QUEUE_OFFSET_OFFSET] = offsets.view(
        f"V{_OFFSETS.size}"
    )
    windows(buffer, len(stamp))[times] = np.frombuffer(stamp, f"V{len(stamp)}")


def _patch_few(
    buffer: NDArray[np.uint8],
    positions: NDArray[np.int64],
    queue_offsets: NDArray[np.int64],
    physical_offsets: NDArray[np.int64],
    stamp: bytes,
    expected_family: int,
) -> None:
    view = buffer.data
    places: list[int] = positions.tolist()
    for index, position in enumerate(places):
        if view[position + _LOW_FLAG_BYTE] & STORE_HOST_IPV6 != expected_family:
            raise _no_room(index, position, len(stamp) - _TIME.size)
    pack = _OFFSETS.pack_into
    for position, queue_offset, physical_offset in zip(
        places, queue_offsets.tolist(), physical_offsets.tolist(), strict=True
    ):
        pack(view, position + QUEUE_OFFSET_OFFSET, queue_offset, physical_offset)
        time = position + STORE_TIMESTAMP_OFFSET
        if view[position + _LOW_FLAG_BYTE] & BORN_HOST_IPV6:
            time += IPV6_EXTRA
        view[time : time + len(stamp)] = stamp


def _no_room(index: int, position: int, size: int) -> FormatError:
    return FormatError(
        f"record {index} at {position} has no room for a store host of "
        f"{size} bytes: bit 0x20 of its system flag says another family"
    )
