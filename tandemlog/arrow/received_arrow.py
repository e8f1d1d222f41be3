"""Batches that were received, of one queue each, as one Arrow batch.

    [batch of a/0] [batch of a/3] [batch of b/0]   ──end to end──▶  one window
    window ──▶ every length ──▶ CRC of every body ──▶ columns ──▶ compressed bodies decompressed

Arrow and numpy have a fixed cost for each call, so small batches are put together first. A record
that is damaged ends it with an error that names the record: no row is left out.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import BadRecordError
from ..format.columns.crcs import first_bad_crc
from ..format.columns.headers import HeaderColumns, gather_headers
from ..format.errors import FormatError
from ..format.record.sys_flag import COMPRESSED
from ..unpacking import unpacked
from .arrow_columns import message_batch
from .plain_arrays import strings

Place = Callable[[int], str]
"""Names a record by its number, for an error."""


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

    return _decoded(data, headers, schema, place, verify_crc=verify_crc)


def _decoded(
    data: NDArray[np.uint8],
    headers: HeaderColumns,
    schema: pa.Schema,
    place: Place,
    *,
    verify_crc: bool,
) -> pa.RecordBatch:
    """The columns of `schema` of the records in `data`. Raises BadRecordError for bytes that are
    not a record, for a body that is not the one that was sent (only with `verify_crc`), and for one
    that cannot be decompressed."""
    if not headers.well_formed.all():
        row = int(np.argmin(headers.well_formed))
        raise BadRecordError(f"{place(row)}: the record does not hold together")
    if verify_crc:
        wrong = first_bad_crc(data, headers.body_start, headers.body_length, headers.body_crc)
        if wrong >= 0:
            raise BadRecordError(
                f"{place(wrong)}: the body is not the one that was sent: its CRC differs"
            )
    batch = message_batch(data, headers, schema)
    number = schema.get_field_index("body")
    if number >= 0 and (headers.sys_flag & COMPRESSED).any():
        bodies = _decompressed(headers, batch.column(number), place)
        batch = batch.set_column(number, schema.field(number), bodies)
    return batch


def _decompressed(headers: HeaderColumns, stored: pa.Array, place: Place) -> pa.Array:
    """A plain loop over the compressed ones: decompressing costs more than any statement."""
    bodies = stored.to_pylist()
    for row in np.flatnonzero(headers.sys_flag & COMPRESSED).tolist():
        try:
            bodies[row] = unpacked(int(headers.sys_flag[row]), bodies[row])
        except FormatError as error:
            raise BadRecordError(f"{place(row)}: {error}") from error
    return strings(bodies, pa.binary())
