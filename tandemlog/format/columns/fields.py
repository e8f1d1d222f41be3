"""Bodies and properties of many records at once, as Python's own objects.

    records   | header | body | topic | properties |  | header | ...
                          |               |
              bodies()  [bytes, ...]      Properties  names once, a list of values for each name

A call per record to slice and decode costs more than the bytes do. So bodies are cut in one
comprehension and their CRCs taken in one map, and the properties of records that have the same
names in the same order, as those of one producer mostly have, are split as one text:

    KEYS 1 k0 2 TAGS 1 t0 2 1 KEYS 1 k1 2 TAGS 1 t1 2 1 ...       1, 2: the separators
    '------ record 0 ------'  '------ record 1 ------'            and 1 between two records

All separators must stand as in that picture, which one comparison proves. A record that is in any
way unusual (damaged, compressed, another layout, an empty value) is left to record.py, so both
ways give the same result.
"""

from collections import deque
from itertools import repeat
from operator import setitem
from struct import pack
from typing import Any, Final

import numpy as np

from ..arrays.ragged import Buffer
from ..constants import CRC_MASK
from ..fast_crc import crc32
from ..record.properties import decode_properties
from ..record.sys_flag import COMPRESSED
from .headers import HeaderColumns

_OTHERS: Final = bytes(byte for byte in range(256) if byte not in (1, 2))
"""All bytes but the separators."""
_PAIR: Final = b"\x01\x02"


def bytes_under(buffer: Buffer) -> tuple[bytes, int]:
    """The bytes object that `buffer` is a view of, and where in it the view begins; a copy where
    there is none. Slices of bytes cost half of those of a view."""
    if isinstance(buffer, bytes):
        return buffer, 0
    if isinstance(buffer, memoryview) and isinstance(buffer.obj, bytes) and buffer.contiguous:
        if not len(buffer):
            return b"", 0
        return buffer.obj, _address(buffer) - _address(buffer.obj)
    return bytes(buffer), 0


def _address(buffer: Buffer) -> int:
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address


def bodies(data: bytes, base: int, headers: HeaderColumns, rows: slice) -> list[bytes | None]:
    """The bodies of the records in `rows`, whose positions count from `base` in `data`. None for
    a record that does not hold together, has a wrong CRC, or is compressed."""
    starts = headers.body_start[rows] + base
    lengths = headers.body_length[rows]
    ends = starts + lengths
    found: list[bytes | None] = [
        data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    crcs = np.frombuffer(pack(f"{len(found)}I", *map(crc32, found)), np.uint32)
    right = (crcs & np.uint32(CRC_MASK)) == headers.body_crc[rows]
    right |= lengths == 0
    right &= headers.well_formed[rows]
    right &= (headers.sys_flag[rows] & COMPRESSED) == 0
    if not right.all():
        for row in np.flatnonzero(~right).tolist():
            found[row] = None
    return found


class Properties:
    """The properties of n records. `columns` has the values by name if all records have the same
    names in the same order; else `columns` is None and each record is decoded by itself."""

    __slots__ = ("_common", "_texts", "_varying", "columns")

    def __init__(self, texts: list[bytes]) -> None:
        """`texts` are the stored forms."""
        self._texts = texts
        self.columns = _columns(texts)
        self._common: dict[str, str] = {}
        self._varying: list[tuple[str, list[str]]] = []
        for name, values in (self.columns or {}).items():
            self._common[name] = values[0]
            if values.count(values[0]) != len(values):
                self._varying.append((name, values))

    def rows(self) -> list[dict[str, str]]:
        """The properties of each record, a dict of its own."""
        if self.columns is None:
            return [decode_properties(text) for text in self._texts]
        # Copied, since that costs a third of a dict that is built from pairs.
        found = [self._common.copy() for _ in self._texts]
        for name, values in self._varying:
            deque(map(setitem, found, repeat(name), values), maxlen=0)
        return found

    def column(self, name: str) -> list[str | None]:
        """The values of one property; None where a record has it not."""
        if self.columns is None:
            return [each.get(name) for each in self.rows()]
        found: Any = self.columns.get(name)
        return [None] * len(self._texts) if found is None else found


def properties(data: bytes, base: int, headers: HeaderColumns, rows: slice) -> Properties:
    """The properties of the records in `rows`; see bodies. Of a record that does not hold together
    they say nothing."""
    starts = headers.properties_start[rows] + base
    ends = starts + headers.properties_length[rows]
    return Properties(
        [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    )


def _columns(texts: list[bytes]) -> dict[str, list[str]] | None:
    """The values by name, or None if the texts are not alike."""
    count = texts[0].count(b"\x02")
    if not count:
        return None if any(texts) else {}
    joined = b"\x01".join(texts)
    expected = (_PAIR * count + b"\x01") * len(texts)
    if joined.translate(None, _OTHERS) != expected[:-1]:
        return None
    try:
        parts = joined.decode().replace("\x02", "\x01").split("\x01")
    except UnicodeDecodeError:
        return None
    step = 2 * count + 1
    # Nothing stands behind the last 0x02 of a record, and no name or value is empty.
    ends = parts[step - 1 :: step]
    if not ends.count("") == parts.count("") == len(texts):
        return None
    columns: dict[str, list[str]] = {}
    for number in range(0, 2 * count, 2):
        name = parts[number]
        if name in columns or parts[number::step].count(name) != len(texts):
            return None
        columns[name] = parts[number + 1 :: step]
    return columns
