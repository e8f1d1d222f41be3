"""Arrow arrays of text and bytes from slices of a buffer, from repeated values, from rows.

    buffer    |..header..|.....body.....|topic|..properties..|..header..|...
    offsets               s0           e0                               s1 ...
                          '- value 0 --'--------- gap --------'- value 1 -...

Slices of many lengths are an Arrow array over the whole buffer in which values and gaps alternate;
taking every second element copies the values in one go. Slices of one length are gathered as rows,
which takes half of that.

Spark does not check the text, so it is made valid UTF-8 first, since the reader in the JVM trusts
it.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..format.arrays.ragged import gather_rows
from .plain_arrays import numbers, strings, validity

_ASCII: Final = 0x80
"""Bytes below are text by themselves."""


def is_ascii(data: NDArray[np.uint8]) -> bool:
    return not len(data) or int(data.max()) < _ASCII


def sliced_text(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    there: NDArray[np.bool_] | None = None,
    *,
    ascii_only: bool,
) -> pa.Array:
    """As `sliced`, text; `ascii_only` says that `data` is nothing else, which saves the looking."""
    array = sliced(data, starts, lengths, pa.string(), there)
    return array if ascii_only else valid_text(array)


def sliced(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    kind: pa.DataType,
    there: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """data[start : start + length] of every row; null if `there` is false, with a length of 0.
    `starts` ascend and lie in a buffer below 2 GiB; the slices do not overlap. Text is as it is."""
    count = len(starts)
    width = int(lengths[0]) if count else 0
    if width and (lengths == width).all():
        return _rows(gather_rows(data, starts, width), kind)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    np.add(starts, lengths, out=offsets[1::2], casting="unsafe")
    offsets[-1] = len(data)
    whole = pa.Array.from_buffers(
        kind, 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    chosen = whole.take(numbers(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32()))
    if there is None or there.all():
        return chosen
    return pa.Array.from_buffers(kind, count, [validity(there), *chosen.buffers()[1:]])


def fixed_text(rows: NDArray[np.uint8]) -> pa.Array:
    """ASCII text, one row of u1[n, w] each."""
    return _rows(rows, pa.string())


def _rows(rows: NDArray[np.uint8], kind: pa.DataType) -> pa.Array:
    count, width = rows.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)[: count + 1]
    return pa.Array.from_buffers(
        kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def repeated_text(texts: Sequence[str], which: NDArray[np.integer[Any]]) -> pa.Array:
    """texts[which] of every row."""
    if len(texts) == 1:
        return tiled_text(texts, len(which))
    return strings(texts, pa.string()).take(numbers(which.astype(np.int32), pa.int32()))


def tiled_text(texts: Sequence[str], times: int) -> pa.Array:
    """All of the texts, in order, `times` times."""
    pieces = [each.encode() for each in texts]
    once = b"".join(pieces)
    if len(pieces) == 1:
        offsets = np.arange(times + 1, dtype=np.int32) * len(once)
    else:
        ends = np.cumsum([len(each) for each in pieces], dtype=np.int32)
        begins = np.arange(times, dtype=np.int32) * len(once)
        offsets = np.zeros(len(pieces) * times + 1, np.int32)
        offsets[1:] = (begins[:, None] + ends).ravel()
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(once * times)]
    )


def valid_text(array: pa.Array) -> pa.Array:
    """The array, bytes that are not UTF-8 replaced by U+FFFD."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.cast(pa.binary()).to_pylist()
        texts = [None if each is None else each.decode("utf-8", "replace") for each in raw]
        return strings(texts, pa.string())
    return array
