"""Property strings as a map column: name 0x01 value 0x02, repeated.

Of a repeated name the last value counts, at the place of the first. Repeats are rare and take the
plain path.
"""

from itertools import pairwise

import pyarrow as pa

from tandemlog.format.properties import decode_properties
from tandemlog.format.property_segments import PropertySegments

from .schema import STRING_MAP
from .text_columns import sliced


def property_map(segments: PropertySegments) -> pa.Array:
    """map<string, string> of each property string."""
    if segments.has_repeats():
        return _plainly(segments)
    flat, separators = segments.flat, segments.separators
    names = sliced(flat, segments.begins, segments.name_lengths, pa.string(), None)
    values = sliced(flat, separators + 1, segments.ends - separators - 1, pa.string(), None)
    return pa.MapArray.from_arrays(
        pa.array(segments.row_offsets, pa.int32()), names, values, type=STRING_MAP
    )


def _plainly(segments: PropertySegments) -> pa.Array:
    """The segments that count, string by string."""
    flat = segments.flat.tobytes()
    offsets = segments.row_offsets.tolist()
    begins, ends = segments.begins.tolist(), segments.ends.tolist()
    rows = []
    for first, last in pairwise(offsets):
        text = b"".join(flat[begins[i] : ends[i] + 1] for i in range(first, last))
        rows.append(list(decode_properties(text).items()))
    return pa.array(rows, STRING_MAP)
