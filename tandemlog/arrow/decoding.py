"""Records that a node sent as Arrow columns: checked, and bodies as their producers gave them.

    records ──▶ every length ──▶ CRC of every body ──▶ columns ──▶ compressed bodies decompressed

A record that is damaged ends it with an error that names the record: no row is left out.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import BadRecordError
from ..format.columns.crcs import first_bad_crc
from ..format.columns.headers import HeaderColumns
from ..format.errors import FormatError
from ..format.record.sys_flag import COMPRESSED
from ..unpacking import unpacked
from .arrow_columns import message_batch
from .plain_arrays import strings

Place = Callable[[int], str]
"""Names a record by its number, for an error."""


def decoded(
    data: NDArray[np.uint8],
    headers: HeaderColumns,
    schema: pa.Schema,
    place: Place,
    *,
    verify_crc: bool = True,
) -> pa.RecordBatch:
    """The columns of `schema` (arrow_columns.py) of the records in `data`. Raises
    BadRecordError for bytes that are not a record, for a body that is not the one that was sent
    (only with `verify_crc`), and for one that cannot be decompressed."""
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
