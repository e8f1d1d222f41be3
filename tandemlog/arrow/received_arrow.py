"""Batches that were received, of one queue each, as one Arrow batch.

    [batch of a/0] [batch of a/3] [batch of b/0]   ──end to end──▶  one window  ──▶  RecordBatch

Arrow and numpy have a fixed cost for each call, so small batches are put together first.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..format.columns.headers import HeaderColumns, gather_headers
from .decoding import decoded


class Received(Protocol):
    """What is needed of a ReceivedBatch."""

    @property
    def topic(self) -> str: ...

    @property
    def queue_id(self) -> int: ...

    @property
    def records(self) -> bytes | memoryview: ...

    @property
    def sizes(self) -> NDArray[np.uint32]: ...

    @property
    def headers(self) -> HeaderColumns: ...


def columns_of(
    batches: Sequence[Received], schema: pa.Schema, *, verify_crc: bool = True
) -> pa.RecordBatch:
    """The columns of `schema` of all records, in their order. Raises BadRecordError, naming topic,
    queue and offset, for a record that is damaged."""
    if len(batches) == 1:
        [batch] = batches
        data, headers = np.frombuffer(batch.records, np.uint8), batch.headers
    else:
        data = np.frombuffer(b"".join(batch.records for batch in batches), np.uint8)
        sizes = np.concatenate([np.zeros(0, np.uint32), *(batch.sizes for batch in batches)])
        ends = np.cumsum(sizes, dtype=np.int64)
        headers = gather_headers(data, ends - sizes, sizes)
    ends_of = list(accumulate(len(batch.sizes) for batch in batches))

    def place(row: int) -> str:
        number = next(at for at, end in enumerate(ends_of) if row < end)
        offset = int(headers.queue_offset[row])
        return f"{batches[number].topic}/{batches[number].queue_id} offset {offset}"

    return decoded(data, headers, schema, place, verify_crc=verify_crc)
