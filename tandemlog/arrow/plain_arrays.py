"""Arrow arrays of numbers and of a few Python values, made of their buffers.

    values    5  None  7   ─▶   validity 101, numbers 5 0 7            (bits, the first one lowest)
    texts     "a" None "bc" ─▶  validity 101, offsets 0 1 1 3, bytes abc

pa.array would create them too. But its first call in a process imports pandas if that is installed:
this costs each of Spark's workers half a second of CPU time, and more objects for the garbage
collection after each task.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .dates import EPOCH, are_dates


def numbers(
    values: NDArray[Any], kind: pa.DataType, there: NDArray[np.bool_] | None = None
) -> pa.Array:
    """The values as they are in memory, of a kind that is as wide; null if not `there`."""
    values = np.ascontiguousarray(values)
    bits = validity(there) if there is not None else None
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


def validity(there: NDArray[np.bool_]) -> pa.Buffer:
    """The bitmap of an array's values that are not null."""
    return pa.py_buffer(np.packbits(there, bitorder="little"))


def integers(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Whole numbers of `kind`, or what Arrow counts in them; None is null."""
    there = np.array([each is not None for each in values], np.bool_)
    width = np.dtype(f"i{kind.bit_width // 8}")
    whole = np.array([0 if each is None else each for each in values], width)
    return numbers(whole, kind, None if there.all() else there)


def timestamps(
    milliseconds: NDArray[np.int64],
    kind: pa.DataType,
    there: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Points in time of `kind`, timestamp[ms] or timestamp[us]; null if not `there`, and for a time
    that is not a date."""
    dates = are_dates(milliseconds)
    if there is not None:
        dates &= there
    factor = 1000 if kind.unit == "us" else 1
    if dates.all():
        return numbers(milliseconds.astype(np.int64) * factor, kind)
    return numbers(np.where(dates, milliseconds, 0) * factor, kind, dates)


def strings(values: Sequence[str | bytes | None], kind: pa.DataType) -> pa.Array:
    """Text, or bytes, of `kind`; None is null."""
    pieces = [each.encode() if isinstance(each, str) else each or b"" for each in values]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(each) for each in pieces], out=offsets[1:])
    there = np.array([each is not None for each in values], np.bool_)
    bits = None if there.all() else validity(there)
    return pa.Array.from_buffers(
        kind, len(values), [bits, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))]
    )


def batch_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A few rows with the schema's fields: text, bytes, integers, points in time, or nothing."""
    return pa.RecordBatch.from_arrays(
        [_column([row[field.name] for row in rows], field.type) for field in schema], schema=schema
    )


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if all(each is None for each in values):
        return pa.nulls(len(values), kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return strings(values, kind)
    if pa.types.is_timestamp(kind):
        values = [None if each is None else _microseconds(each) for each in values]
    return integers(values, kind)


def _microseconds(time: datetime) -> int:
    return (time - EPOCH) // timedelta(microseconds=1)
