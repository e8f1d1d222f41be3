"""The rows of a partition in chunks that depend on the rows alone.

    Arrow batches   |--------|-----|-----------|      as Spark cuts them, which may change
    chunks          |----|----|----|----|----|--|     a chunk is full at so many rows or bytes

A chunk is one request, and its number is the request's sequence: the same rows must give the same
chunks whenever and wherever they are written again.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import offsets_of

_CONTENT: Final = ("body", "topic", "keys", "tags", "sharding_key", "properties")


def chunks(
    batches: Iterable[pa.RecordBatch], *, max_rows: int, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Chunks of at most `max_rows` rows and `max_bytes` bytes of content, one row at least."""
    pieces: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        ends = np.cumsum(content_sizes(batch))
        start = 0
        while start < batch.num_rows:
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + max_bytes - size, side="right"))
            stop = min(max(stop, start), start + max_rows - rows)
            if stop == start and not rows:
                stop = start + 1  # a row above the limit gets a chunk of its own
            if stop > start:
                pieces.append(batch.slice(start, stop - start))
                rows += stop - start
                size += int(ends[stop - 1]) - before
                start = stop
            if start < batch.num_rows or rows >= max_rows:
                yield joined(pieces)
                pieces, rows, size = [], 0, 0
    if pieces:
        yield joined(pieces)


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All of them as one batch."""
    if len(batches) == 1:
        return batches[0]
    [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def content_sizes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """i8[n]: the bytes of each row's texts and bodies."""
    total = np.zeros(batch.num_rows, np.int64)
    for name in _CONTENT:
        if name in batch.schema.names:
            total += _lengths(batch.column(name))
    return total


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    if isinstance(column, pa.MapArray):
        offsets = np.asarray(column.offsets, np.int64)
        both = _lengths(column.keys) + _lengths(column.items)
        sizes: NDArray[np.int64] = np.diff(offsets_of(both)[offsets])
        return sizes
    if not len(column):
        return np.zeros(0, np.int64)
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    kind = np.dtype("<i8" if wide else "<i4")
    offsets = np.frombuffer(
        column.buffers()[1], kind, len(column) + 1, column.offset * kind.itemsize
    )
    wide_offsets = offsets.astype(np.int64)
    lengths: NDArray[np.int64] = wide_offsets[1:] - wide_offsets[:-1]
    return lengths
