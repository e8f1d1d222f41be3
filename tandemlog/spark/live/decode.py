"""The records of a pull as Arrow columns, bodies as their producers gave them."""

import pyarrow as pa

from tandemlog.arrow.received import columns_of
from tandemlog.consume.received import ReceivedBatch
from tandemlog.logs.view_columns import Columns, arrow_schema


def decode(batch: ReceivedBatch, columns: Columns) -> pa.RecordBatch:
    """The given columns of schema.MESSAGES. Raises BadRecordError naming queue and offset for a
    record that cannot be decoded, or a body that cannot be decompressed. The CRCs were checked
    before (progress.py)."""
    return columns_of([batch], arrow_schema(columns), verify_crc=False)
