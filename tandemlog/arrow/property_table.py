"""The properties of a window's records as columns: values of one name, or maps of all.

Mostly the records have the same names in the same order:

    row 0   KEYS=1  TAGS=a  UNIQ_KEY=..       the names of every row are those of the first: a value
    row 1   KEYS=2  TAGS=b  UNIQ_KEY=..       of TAGS is every third one, and no name needs copying

If one row has other names, all rows are searched, as in property_segments.py.

If a name is repeated, the last value counts, in a map at the place of the first. Repeats are rare
and take the plain path. The mark that the client puts on a request's first record for the nodes is
not a property of the message, and left out of its map.
"""

from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..format.columns.headers import HeaderColumns
from ..format.columns.property_segments import PropertySegments
from ..format.constants import PRODUCER_MARK
from ..format.record.properties import decode_properties
from .message_schema import STRING_MAP
from .plain_arrays import numbers, strings
from .text_columns import is_ascii, sliced_text, tiled_text

_WHOLE_NAME = 8
"""A name of at most this many bytes is identified by its length and its word."""


class PropertyTable:
    """See the module; n rows, m properties in all."""

    def __init__(self, data: NDArray[np.uint8], headers: HeaderColumns) -> None:
        self.segments = PropertySegments(data, headers.properties_start, headers.properties_length)

    @cached_property
    def ascii_only(self) -> bool:
        return is_ascii(self.segments.flat)

    @cached_property
    def names(self) -> list[bytes] | None:
        """The names that every row has, in their order; None if rows differ."""
        segments = self.segments
        rows = len(segments.row_offsets) - 1
        each = segments.count // rows if rows else 0
        if not each or (segments.row_offsets != np.arange(0, (rows + 1) * each, each)).any():
            return None
        for column in (segments.name_lengths, segments.name_words):
            table = column.reshape(rows, each)
            if (table != table[0]).any():
                return None
        if int(segments.name_lengths[:each].max()) > _WHOLE_NAME:
            return None
        begins, ends = segments.begins[:each].tolist(), segments.separators[:each].tolist()
        return [segments.flat[begin:end].tobytes() for begin, end in zip(begins, ends, strict=True)]

    def has_repeats(self) -> bool:
        """Whether a row has a name twice."""
        if self.names is None:
            return self.segments.has_repeats()
        return len(set(self.names)) < len(self.names)

    def values(self, name: str) -> pa.Array:
        """The last value of the name in each row, null if it has none."""
        segments, wanted = self.segments, name.encode()
        if self.names is None:
            starts, lengths = segments.values(wanted)
            there: NDArray[np.bool_] | None = lengths > 0
        elif wanted not in self.names:
            return pa.nulls(len(segments.row_offsets) - 1, pa.string())
        else:
            each = len(self.names)
            column = slice(each - 1 - self.names[::-1].index(wanted), None, each)
            starts = segments.separators[column] + 1
            lengths, there = segments.ends[column] - starts, None
        return sliced_text(segments.flat, starts, lengths, there, ascii_only=self.ascii_only)

    def without(self, name: str) -> "PropertyTable":
        """The same rows without this property."""
        wanted = name.encode()
        if self.names is not None and wanted not in self.names:
            return self
        segments = self.segments.named(wanted)
        if not len(segments):
            return self
        other = object.__new__(PropertyTable)
        other.segments = self.segments.without(segments)
        other.ascii_only = self.ascii_only
        return other


def property_map(table: PropertyTable) -> pa.Array:
    """map<string, string> of each property string."""
    table = table.without(PRODUCER_MARK)
    segments = table.segments
    if table.has_repeats():
        return _plain_map(segments)
    values = sliced_text(
        segments.flat,
        segments.separators + 1,
        segments.ends - segments.separators - 1,
        ascii_only=table.ascii_only,
    )
    return _map(segments.row_offsets, _names(table), values)


def _names(table: PropertyTable) -> pa.Array:
    segments = table.segments
    if table.names is not None and table.ascii_only:
        names = [name.decode() for name in table.names]
        return tiled_text(names, len(segments.row_offsets) - 1)
    return sliced_text(
        segments.flat, segments.begins, segments.name_lengths, ascii_only=table.ascii_only
    )


def _plain_map(segments: PropertySegments) -> pa.Array:
    """The segments that count, string by string."""
    flat = segments.flat.tobytes()
    begins, ends = segments.begins.tolist(), segments.ends.tolist()
    rows = []
    for first, last in pairwise(segments.row_offsets.tolist()):
        text = b"".join(flat[begins[i] : ends[i] + 1] for i in range(first, last))
        rows.append(decode_properties(text))
    names = [name for row in rows for name in row]
    values = [value for row in rows for value in row.values()]
    offsets = np.cumsum([0, *(len(row) for row in rows)])
    return _map(offsets, strings(names, pa.string()), strings(values, pa.string()))


def _map(row_offsets: NDArray[np.int64], names: pa.Array, values: pa.Array) -> pa.Array:
    offsets = numbers(row_offsets.astype(np.int32), pa.int32())
    return pa.MapArray.from_arrays(offsets, names, values, type=STRING_MAP)
