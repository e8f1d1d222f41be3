"""The records of a pull as Arrow columns, bodies as their producers gave them."""

import numpy as np
import pyarrow as pa

from tandemlog.consume.received import ReceivedBatch
from tandemlog.errors import BadRecordError
from tandemlog.format.columns.crcs import first_bad_crc
from tandemlog.format.columns.headers import HeaderColumns
from tandemlog.format.errors import FormatError
from tandemlog.format.record.sys_flag import COMPRESSED, decompress_body

from ..arrow.message_columns import message_batch
from ..arrow.plain_arrays import strings
from ..arrow.schema import Columns


def decode(batch: ReceivedBatch, columns: Columns, *, verify_crc: bool) -> pa.RecordBatch:
    """The given columns of schema.MESSAGES. Raises BadRecordError naming queue and offset for a
    record that is none, or with `verify_crc` has another body than was sent."""
    data = np.frombuffer(batch.records, np.uint8)
    headers = batch.headers
    if not headers.well_formed.all():
        raise _bad(batch, int(np.argmin(headers.well_formed)), "the record does not hold together")
    if verify_crc:
        wrong = first_bad_crc(data, headers.body_start, headers.body_length, headers.body_crc)
        if wrong >= 0:
            raise _bad(batch, wrong, "the body is not the one that was sent: its CRC differs")
    decoded = message_batch(data, headers, columns)
    if "body" in columns and (headers.sys_flag & COMPRESSED).any():
        bodies = _decompressed(batch, headers, decoded.column("body"))
        decoded = decoded.set_column(
            decoded.schema.get_field_index("body"), decoded.schema.field("body"), bodies
        )
    return decoded


def _decompressed(batch: ReceivedBatch, headers: HeaderColumns, stored: pa.Array) -> pa.Array:
    """A plain loop over the compressed ones: decompressing costs more than any statement."""
    bodies = stored.to_pylist()
    for row in np.flatnonzero(headers.sys_flag & COMPRESSED).tolist():
        try:
            bodies[row] = decompress_body(int(headers.sys_flag[row]), bodies[row])
        except FormatError as error:
            raise _bad(batch, row, str(error)) from error
    return strings(bodies, pa.binary())


def _bad(batch: ReceivedBatch, row: int, reason: str) -> BadRecordError:
    [offset] = batch.headers.queue_offset[row : row + 1].tolist()
    return BadRecordError(f"{batch.topic}/{batch.queue_id} offset {offset}: {reason}")
