"""Fields of many records at once, as Python's own objects.

    records   | header | body | topic | properties |  | header | ...
                  |        |      |         |
             numbers()  bodies()  |     properties()  names once, a list of values for each name
             [int, ...]       topics()

A call per record to slice and decode costs more than the bytes do. So bodies are cut in one
comprehension and their CRCs taken in one map, and the properties of records that have the same
names in the same order, as those of one producer mostly have, are split as one text:

    1 KEYS 1 k0 2 TAGS 1 t0 2 1 KEYS 1 k1 2 TAGS 1 t1 2 ...       1, 2: the separators
      '------ record 0 -----'   '------ record 1 -----'           and 1 in front of each record

All separators must stand as in that picture, which one comparison proves: since each record ends
with a 2, and no name is empty, the 1 in front of a record cannot be taken for one behind a name. A
record that is in any way unusual (damaged, another layout, an empty value) is left to record.py, so
both ways give the same result.
"""

from collections import deque
from functools import cached_property
from itertools import pairwise, repeat
from operator import setitem
from struct import pack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import Buffer, all_true, byte_array, copy_slices, gather_rows, offsets_of
from ..constants import CRC_MASK, NAME_END, PROPERTY_END
from ..fast_crc import crc32
from ..record.properties import decode_properties
from ..record.sys_flag import COMPRESSED
from .headers import HeaderColumns

_OTHERS: Final = bytes(byte for byte in range(256) if byte not in (NAME_END, PROPERTY_END))
"""All bytes but the separators."""
_SPAN: Final = 2048
"""Rows whose properties are laid end to end at once: more than the pieces that they are decoded in,
since what arrays do costs the more a row, the fewer they are."""
_NAME_END: Final = bytes((NAME_END,))
_PROPERTY_END: Final = bytes((PROPERTY_END,))


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


class RecordFields:
    """The fields of the records in a buffer, for slices of their rows. What is computed for all of
    them is computed when it is first needed.

    Of a record that does not hold together (`torn`), only the number of values is right.
    """

    def __init__(self, records: Buffer, headers: HeaderColumns) -> None:
        self._data, self._base = bytes_under(records)
        self._headers = headers
        self._span: PropertyTexts | None = None

    @cached_property
    def torn(self) -> NDArray[np.bool_] | None:
        """bool[n]: which records do not hold together; None for none."""
        well_formed = self._headers.well_formed
        return None if all_true(well_formed) else ~well_formed

    @cached_property
    def packed(self) -> NDArray[np.bool_] | None:
        """bool[n]: which records have a compressed body; None for none."""
        flags = self._headers.sys_flag & COMPRESSED
        return (flags != 0) if np.count_nonzero(flags) else None

    @cached_property
    def _body_places(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
        """Begin, end and CRC of each body; the CRC of an empty one is not looked at."""
        headers = self._headers
        starts = headers.body_start + self._base
        crcs = headers.body_crc.view(np.uint32) * (headers.body_length != 0)
        return starts, starts + headers.body_length, crcs.astype(np.uint32, copy=False)

    def bodies(self, rows: slice) -> tuple[list[bytes], list[int]]:
        """The bodies as they are stored; and which of these rows, counted from the first, do not
        hold together or have a wrong CRC."""
        starts, ends, expected = self._body_places
        data = self._data
        found = [
            data[start:end]
            for start, end in zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
        ]
        # packing takes a fifth of the time in which numpy takes as many integers
        crcs = np.frombuffer(pack(f"{len(found)}I", *map(crc32, found)), np.uint32)
        right = (crcs & np.uint32(CRC_MASK)) == expected[rows]
        if self.torn is not None:
            right &= ~self.torn[rows]
        return found, [] if all_true(right) else np.flatnonzero(~right).tolist()

    def numbers(self, name: str, rows: slice) -> list[int]:
        """A column of HeaderColumns."""
        values: list[int] = getattr(self._headers, name)[rows].tolist()
        return values

    def topics(self, rows: slice) -> list[str]:
        starts, lengths = self._headers.topic_start[rows], self._headers.topic_length[rows]
        starts = starts + self._base
        length = int(lengths[0])
        if length and all_true(lengths == length):
            texts = gather_rows(byte_array(self._data), starts, length)
            if all_true(texts == texts[0]):
                return [_text(texts[0].tobytes())] * len(starts)
        data, ends = self._data, starts + lengths
        return [
            _text(data[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]

    def properties(self, rows: slice) -> "Properties":
        span = self._span
        if span is None or not (span.rows.start <= rows.start and rows.stop <= span.rows.stop):
            headers = self._headers
            wanted = slice(rows.start, max(rows.stop, min(rows.start + _SPAN, headers.count)))
            span = self._span = PropertyTexts(
                self._data,
                headers.properties_start[wanted] + self._base,
                headers.properties_length[wanted],
                wanted,
            )
        return span.of(rows)


def _text(encoded: bytes) -> str:
    return encoded.decode("utf-8", "replace")


class PropertyTexts:
    """The stored properties of the records in `rows`, laid end to end as the module shows: what
    arrays do is done for many at once. A text whose last 2 is missing gets it."""

    __slots__ = ("_joined", "_offsets", "_plain", "rows")

    def __init__(
        self, data: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64], rows: slice
    ) -> None:
        """The texts are the slices of `data` at `starts`, one for each row."""
        source = byte_array(data)
        closed = np.zeros(len(lengths), np.bool_)
        some = lengths.nonzero()[0]
        closed[some] = source[starts[some] + (lengths[some] - 1)] == PROPERTY_END
        self.rows = rows
        self._offsets = offsets = offsets_of(lengths + 2 - closed)
        joined = np.full(int(offsets[-1]), NAME_END, np.uint8)
        copy_slices(source, starts, joined, offsets[:-1] + 1, lengths)
        joined[offsets[1:] - 1] = PROPERTY_END
        self._joined = joined.tobytes()
        no_value = joined[:-1] == NAME_END
        no_value &= joined[1:] == PROPERTY_END
        self._plain: NDArray[np.bool_] | None = None
        if np.count_nonzero(no_value):
            owners = np.searchsorted(offsets, no_value.nonzero()[0], "right") - 1
            self._plain = np.ones(len(lengths), np.bool_)
            self._plain[owners] = False

    def of(self, rows: slice) -> "Properties":
        """Of some of the rows."""
        mine = slice(rows.start - self.rows.start, rows.stop - self.rows.start)
        offsets = self._offsets[mine.start : mine.stop + 1]
        texts = self._joined[offsets[0] : offsets[-1]]
        plain = self._plain is None or all_true(self._plain[mine])
        return Properties(texts, offsets - offsets[0], plain)


class Properties:
    """The properties of n records. `columns` has the values by name if all records have the same
    names in the same order; else `columns` is None and each record is decoded by itself."""

    __slots__ = ("_common", "_offsets", "_rows", "_texts", "_varying", "columns")

    def __init__(self, texts: bytes, offsets: NDArray[np.int64], plain: bool) -> None:
        """`texts` as PropertyTexts lays them, from `offsets` on, i8[n + 1]; `plain`: no value is
        empty."""
        self._texts = texts
        self._offsets = offsets
        self._rows: list[dict[str, str]] | None = None
        # a text of no properties is its 1 and its 2 alone
        some = len(texts) > 2 * (len(offsets) - 1)
        self.columns = {} if not some else _columns(texts, offsets) if plain else None
        self._common: dict[str, str] = {}
        self._varying: list[tuple[str, list[str]]] = []
        for name, values in (self.columns or {}).items():
            self._common[name] = values[0]
            if values[-1] != values[0] or values.count(values[0]) != len(values):
                self._varying.append((name, values))

    def rows(self) -> list[dict[str, str]]:
        """The properties of each record, a dict of its own."""
        if self._rows is None:
            self._rows = self._decoded()
        return self._rows

    def _decoded(self) -> list[dict[str, str]]:
        if self.columns is None:
            ends = self._offsets.tolist()
            return [
                decode_properties(self._texts[begin + 1 : end]) for begin, end in pairwise(ends)
            ]
        # copied, since that costs a third of a dict that is built from pairs
        found = list(map(dict.copy, repeat(self._common, len(self._offsets) - 1)))
        for name, values in self._varying:
            deque(map(setitem, found, repeat(name), values), maxlen=0)
        return found

    def column(self, name: str) -> list[str | None]:
        """The values of one property; None where a record has it not."""
        if self.columns is None:
            return [each.get(name) for each in self.rows()]
        found: Any = self.columns.get(name)
        return [None] * (len(self._offsets) - 1) if found is None else found


def _columns(texts: bytes, offsets: NDArray[np.int64]) -> dict[str, list[str]] | None:
    """The values by name, or None if the texts are not alike. No value is empty."""
    rows = len(offsets) - 1
    count = texts.count(_PROPERTY_END, 0, int(offsets[1]))
    expected = (_NAME_END + (_NAME_END + _PROPERTY_END) * count) * rows
    if texts.translate(None, _OTHERS) != expected:
        return None
    try:
        parts = texts.decode().replace("\x02", "\x01").split("\x01")
    except UnicodeDecodeError:
        return None
    # nothing stands in front of a record's first part
    step = 2 * count + 1
    columns: dict[str, list[str]] = {}
    for number in range(1, step, 2):
        name = parts[number]
        # compared as one text, which takes a third of the time
        names = "\x01".join(parts[number::step])
        if not name or name in columns or names != f"{name}\x01" * (rows - 1) + name:
            return None
        columns[name] = parts[number + 1 :: step]
    return columns
