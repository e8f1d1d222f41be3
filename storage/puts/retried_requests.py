"""A retried request on a master: what is stored of it already, and what is appended now.

    request      r0*  r1   r2   r3   r4         * carries the producer's mark, index 0
    in the log   r0*  r1                        a crash tore the rest off
    appended               r2*  r3   r4         the same mark with index 2, so that every replica
                                                can tell from the bytes that the request continues

The producer table decides (producer_table.py); here a batch is cut and marked again, and the answer
to a repeated request is read back from the log.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.columns.walk import walk
from tandemlog.format.constants import CRC_PROPERTY_SIZE, PRODUCER_MARK
from tandemlog.format.errors import CorruptRecordError, FormatError
from tandemlog.format.record.batch import AppendSegment, RecordBatch
from tandemlog.format.record.producer_mark import MARK_NAME, ProducerMark, mark_in
from tandemlog.format.record.properties import append_property
from tandemlog.format.record.property_crc import verify_property_crc
from tandemlog.format.record.record import decode_record, encode_record
from tandemlog.format.record.sys_flag import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

from ..errors import BatchRefusedError, OffsetOutOfRangeError
from ..log.commit_log import CommitLog
from ..producers.producer_requests import Extent


def mark_of(batch: RecordBatch) -> ProducerMark | None:
    """The mark in the batch's first record, None without one. The batch has been checked, so the
    mark is valid."""
    size = int(batch.sizes[0])
    if MARK_NAME not in bytes(batch.records[:size]):
        return None
    record = decode_record(batch.records, 0, check_crc=False, limit=size)
    return mark_in(record.properties_raw)


def rest_of(batch: RecordBatch, have: int, mark: ProducerMark) -> tuple[RecordBatch, ProducerMark]:
    """The batch without its first `have` records, and its mark, which the first one left carries
    now. Raises BatchRefusedError if that record has no room for it."""
    sizes = batch.sizes.astype(np.int64)
    start = int(sizes[:have].sum())
    end = start + int(sizes[have])
    rest_mark = replace(mark, index=have)
    first = _with_mark(batch.records, start, end, rest_mark, have)
    records = b"".join((first, bytes(batch.records[end:])))
    rest_sizes = batch.sizes[have:].copy()
    rest_sizes[0] = len(first)
    return (
        replace(batch, records=records, sizes=rest_sizes, queue_indexes=batch.queue_indexes[have:]),
        rest_mark,
    )


def _with_mark(
    records: bytes | bytearray | memoryview, start: int, end: int, mark: ProducerMark, index: int
) -> bytes:
    """The record at `start` with the mark as its last property; a later duplicate of a name wins,
    so one that it may carry already does not matter."""
    try:
        record = decode_record(records, start, check_crc=False, limit=end)
        return encode_record(
            topic=record.topic,
            body=record.body,
            properties=append_property(record.properties_raw, PRODUCER_MARK, mark.encode()),
            queue_id=record.queue_id,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
            version=record.version,
        )
    except (CorruptRecordError, FormatError) as error:
        raise BatchRefusedError(
            "BAD_RECORD",
            PRODUCER_MARK,
            f"the request is stored in part and cannot continue with record {index}: {error}",
            record_index=index,
            of_the_store=True,
        ) from error


def stored_segments(
    log: CommitLog, batch: RecordBatch, extents: Sequence[Extent]
) -> list[AppendSegment]:
    """Where the batch's records were stored, as the first answer said; empty if the log does
    not hold them any more."""
    segments = []
    first = 0
    for extent in extents:
        try:
            data = log.view(extent.physical_offset, extent.end_offset - extent.physical_offset)
        except OffsetOutOfRangeError:
            return []
        indexes = batch.queue_indexes[first : first + extent.count]
        if walk(data, max_records=len(indexes)).count < len(indexes):
            return []  # a damaged one is among them
        offsets = _queue_offsets(data, indexes, len(batch.queue_ids))
        extra = CRC_PROPERTY_SIZE if _has_property_crc(data) else 0
        segments.append(AppendSegment(first, extent.count, extent.physical_offset, offsets, extra))
        first += extent.count
    return segments


def _has_property_crc(data: memoryview) -> bool:
    """Whether the first record, and so all of the same append, was given one."""
    size = int.from_bytes(data[:4])
    return verify_property_crc(data, 0, size) is not None


def _queue_offsets(data: memoryview, indexes: NDArray[np.uint16], queues: int) -> NDArray[np.int64]:
    """i8[q]: the queue offset of the first record of each table entry in `data`; -1 for none."""
    walked = walk(data, max_records=len(indexes))
    headers = gather_headers(data, walked.positions, walked.sizes)
    offsets = headers.queue_offset.astype(np.int64)
    kinds = headers.sys_flag & TRANSACTION_MASK
    uncounted = (kinds == TRANSACTION_PREPARED) | (kinds == TRANSACTION_ROLLBACK)
    firsts = np.full(queues, -1, dtype=np.int64)
    # the last assignment wins: go backwards, uncounted records (their offset is 0) first
    for rows in (np.flatnonzero(uncounted)[::-1], np.flatnonzero(~uncounted)[::-1]):
        firsts[indexes[rows]] = offsets[rows]
    return firsts


def extents_of(segments: Sequence[AppendSegment], sizes: NDArray[np.integer]) -> list[Extent]:
    """The extents in the log of an append's segments; `sizes` are the batch's."""
    extents = []
    for each in segments:
        stop = each.first_index + each.count
        length = int(sizes[each.first_index : stop].sum(dtype=np.int64))
        length += each.count * each.record_extra
        extents.append(Extent(each.physical_offset, each.count, each.physical_offset + length))
    return extents
