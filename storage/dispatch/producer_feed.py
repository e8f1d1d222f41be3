"""Feeds a batch of the log to the producer table, including a record that damage has left out.

If the third of a request's six records is damaged, the request still has six records in the log.
Counted as five it would never be complete: a retry would store its last record once more, and the
producer's next request would be refused. So a record counts if only its head is damaged and the
rest still identifies it.
"""

import numpy as np

from tandemlog.format.errors import FormatError
from tandemlog.format.record.producer_mark import mark_in
from tandemlog.format.record.record import Record

from ..producers.producer_table import ProducerTable
from .dispatch_source import DispatchBatch


def feed(table: ProducerTable, batch: DispatchBatch) -> list[str]:
    """What `ProducerTable.take` returns."""
    lost = batch.lost
    if lost is not None:
        table.take(
            np.array([batch.start], np.int64),
            np.array([batch.end - batch.start], np.int64),
            np.array([lost.store_timestamp], np.int64),
            [(0, lost.mark)] if lost.mark else [],
            batch.end,
        )
    columns = batch.columns
    return table.take(
        columns.physical_offset,
        columns.size,
        columns.store_timestamp,
        columns.producer_marks,
        batch.end,
    )


def mark_bytes(record: Record) -> bytes:
    """The mark as stored; empty for none."""
    try:
        mark = mark_in(record.properties_raw)
    except FormatError:
        return b""
    return mark.encode().encode() if mark is not None else b""
