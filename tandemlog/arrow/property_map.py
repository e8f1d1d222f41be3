"""Property strings as a map column: name 0x01 value 0x02, repeated.

If a name is repeated, the last value counts, at the place of the first. Repeats are rare and take
the plain path. The mark that the client puts on a request's first record for the nodes is no
property of the message, and left out.
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..format.columns.property_segments import PropertySegments
from ..format.constants import PRODUCER_MARK
from ..format.record.properties import decode_properties
from .plain_arrays import numbers, strings
from .property_table import PropertyTable
from .text_columns import sliced_text, tiled_text
from .types import STRING_MAP


def property_map(table: PropertyTable) -> pa.Array:
    """map<string, string> of each property string."""
    table = table.without(PRODUCER_MARK)
    segments = table.segments
    if table.has_repeats():
        return _plainly(segments)
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


def _plainly(segments: PropertySegments) -> pa.Array:
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
