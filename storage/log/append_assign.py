"""Give the records of a checked batch what only the master knows: their place in log and queues.

queue offset   counted per queue of the store, in the order of the records
physical offset, store time, store host        written into the records' bytes in place
"""

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import first_true
from tandemlog.format.columns.patch import patch_stored_fields
from tandemlog.format.record.batch import AppendSegment, RecordBatch

from ..errors import BatchRefusedError
from .append_plan import (
    AppendPlan,
    assign_counted,
    assign_few,
    assign_queue_offsets,
    first_queue_offsets,
)
from .batch_check import FEW_RECORDS, CheckedBatch


def assign_offsets(
    checked: CheckedBatch,
    plan: AppendPlan,
    data: NDArray[np.uint8],
    next_offsets: NDArray[np.int64],
    *,
    store_timestamp: int,
    store_host: bytes,
) -> list[AppendSegment]:
    """Write every record's offsets, time (ms) and host into `data`, a copy of the batch's bytes.

    `next_offsets` i8[q], what each entry's next record gets, moves behind the batch.
    """
    segments = []
    for piece in plan.pieces:
        rows = slice(piece.first, piece.first + piece.count)
        indexes = checked.batch.queue_indexes[rows]
        positions = checked.positions[rows]
        if checked.counted is None and piece.count < FEW_RECORDS:
            offsets, counts = assign_few(indexes, next_offsets)
        elif checked.counted is None:
            offsets, counts = assign_queue_offsets(indexes, next_offsets)
        else:
            offsets, counts = assign_counted(indexes, checked.counted[rows], next_offsets)
        firsts = first_queue_offsets(indexes, counts, next_offsets)
        patch_stored_fields(
            data,
            positions,
            queue_offsets=offsets,
            physical_offsets=positions + (piece.offset - piece.start),
            store_timestamp=store_timestamp,
            store_host=store_host,
        )
        next_offsets += counts
        segments.append(
            AppendSegment(piece.first, piece.count, piece.offset, firsts, checked.record_extra)
        )
    return segments


def check_queues(batch: RecordBatch, dense: NDArray[np.int64]) -> None:
    """Raises BatchRefusedError unless every entry of the batch's table is a queue of the store
    (`dense` i8[q] >= 0), and none stands there twice: it would be counted twice."""
    if int(dense.min()) < 0:
        unknown = first_true(dense < 0)
        topic = batch.topics[int(batch.queue_topics[unknown])]
        raise BatchRefusedError(
            "UNKNOWN_QUEUE", "queue_ids", f"{topic} has no queue {int(batch.queue_ids[unknown])}"
        )
    if len(dense) == 1:
        return
    ordered = np.sort(dense)
    twice = first_true(ordered[1:] == ordered[:-1])
    if twice >= 0:
        entry = int(np.flatnonzero(dense == ordered[twice])[1])
        topic, queue_id = batch.topics[int(batch.queue_topics[entry])], batch.queue_ids[entry]
        raise BatchRefusedError(
            "INVALID_ARGUMENT", "queue_ids", f"queue {queue_id} of {topic} is in the table twice"
        )
