"""Arrow arrays of text and bytes from slices of a buffer, from repeated values, from rows.

Nothing here checks what Spark would not: text is made valid UTF-8 first, since a reader on the
other side trusts it.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def sliced(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kind: pa.DataType,
    there: NDArray[np.bool_] | None,
) -> pa.Array:
    """data[start : start + length] of every row; null where `there` says so. `starts` ascend and
    lie in a buffer below 2 GiB; the slices do not overlap."""
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    np.add(starts, lengths, out=offsets[1::2], casting="unsafe")
    offsets[-1] = len(data)
    whole = pa.Array.from_buffers(
        kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    picks = np.arange(0, 2 * count, 2, dtype=np.int32)
    chosen = whole.take(pa.array(picks, mask=None if there is None else ~there))
    return valid_text(chosen) if pa.types.is_string(kind) else chosen


def fixed_text(rows: NDArray[np.uint8]) -> pa.Array:
    """ASCII text, one row of u1[n, w] each."""
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)[: count + 1]
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def repeated_text(texts: list[str], numbers: NDArray[np.integer[Any]]) -> pa.Array:
    """texts[number] of every row."""
    return pa.array(texts, pa.string()).take(pa.array(numbers.astype(np.int32)))


def valid_text(array: pa.Array) -> pa.Array:
    """The array, bytes that are not UTF-8 replaced by U+FFFD."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.cast(pa.binary()).to_pylist()
        texts = [None if each is None else each.decode("utf-8", "replace") for each in raw]
        return pa.array(texts, pa.string())
    return array
