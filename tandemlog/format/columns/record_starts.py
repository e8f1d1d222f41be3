"""Where a record may begin among bytes that cannot be walked.

    ...damaged or unknown bytes... | size | magic | ... | physical offset | ...
                                   '-- here, if the offset written inside says just this place

A magic alone stands in many a body. Together with the record's own position, which no copy of a
record elsewhere has right, it is a start worth decoding; only that (record.py) decides.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ..constants import MAGIC_OFFSET, MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET_OFFSET

MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_OFFSET: Final = Struct(">q")
HEAD_SIZE: Final = PHYSICAL_OFFSET_OFFSET + _OFFSET.size
"""Bytes of a record that are looked at."""


def magic_positions(data: bytes, start: int = 0) -> Iterator[int]:
    """Ascending positions from `start` on, in `data`, of records whose magic stands there."""
    ahead = {magic: data.find(magic, start + MAGIC_OFFSET) for magic in MAGICS}
    while True:
        next_places = [(at, magic) for magic, at in ahead.items() if at >= 0]
        if not next_places:
            return
        at, magic = min(next_places)
        yield at - MAGIC_OFFSET
        ahead[magic] = data.find(magic, at + 1)


def stored_offset(data: bytes | memoryview, position: int) -> int | None:
    """The log offset that the record at `position` says it has; None if that is cut off."""
    if position + HEAD_SIZE > len(data):
        return None
    offset: int = _OFFSET.unpack_from(data, position + PHYSICAL_OFFSET_OFFSET)[0]
    return offset


def starts_in_place(data: bytes, base_offset: int, start: int = 0) -> Iterator[int]:
    """Those of magic_positions whose record says that it lies there; `base_offset` is the log
    offset of data[0]. The last HEAD_SIZE - 1 bytes are not looked at."""
    for position in magic_positions(data, start):
        if stored_offset(data, position) == base_offset + position:
            yield position
