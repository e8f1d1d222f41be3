"""From waiting records to the messages that they were waiting for, by columns.

    waiting    | header | body | SCHEDULE_TOPIC_XXXX | properties with mark, CRC |
    delivered  | header | body | orders              | properties                |
                 queue id of REAL_QID, and the log offset of the waiting record

As RocketMQ's, a delivered record keeps its properties, those of the delay among them. Left out are
the producer's mark, which numbers the request of the waiting record, and the CRC over that record.
The log offset stands in `prepared_transaction_offset`, where a committed transaction has that of
its half message: by it every node knows that the message has come.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.grouping import distinct_pairs, distinct_slices
from ..arrays.ragged import Buffer, byte_array, compact, copy_slices, offsets_of, windows
from ..columns.headers import HeaderColumns, gather_headers
from ..columns.property_columns import ValueColumn
from ..columns.property_layouts import find_properties
from ..constants import (
    CRC_PROPERTY_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TABLE,
    MAX_TOPIC_V1,
    PRODUCER_MARK,
    REAL_QUEUE_ID,
    REAL_TOPIC,
)
from ..record.batch import RecordBatch
from ..record.property_crc import CRC_NAME
from ..record.record import decode_record
from ..record.sys_flag import STORE_HOST_IPV6
from .framing import FIRST_RECORD, with_store_host
from .waiting_columns import parse_numbers

_ANY_HOST: Final = {False: "0.0.0.0:0", True: "[::]:0"}
_MAGIC_AT: Final = 4
_QUEUE_ID_AT: Final = 12
_NAMED_BEFORE_END: Final = 12
"""Bytes before the end of a header in which `prepared_transaction_offset` begins."""
_NAME_AND_SEPARATOR: Final = len(PRODUCER_MARK) + 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """Framed messages, and of which of the waiting records each is: i8[n], ascending."""

    batch: RecordBatch
    rows: NDArray[np.int64]


def delivered(
    records: Buffer,
    sizes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    *,
    store_ipv6: bool,
    readable: Callable[[str, int], int] = lambda _, queue_id: queue_id,
) -> Delivery | None:
    """The messages of waiting records, in their order: `records` are their bytes end to end,
    `sizes` i8[n] each, from log `offsets` i8[n]. `store_ipv6` is the family of the master's
    address, `readable` gives the queue in place of that which a record names, by its topic.

    Left out are bytes that are not the record of their offset, records that do not say where they
    go, and from the first on those that would be one queue too many for a batch. None if nothing is
    left.
    """
    data = byte_array(records)
    headers = gather_headers(data, offsets_of(sizes)[:-1], sizes)
    if not _of_family(headers, store_ipv6).all():
        data, sizes = _moved(data, headers, store_ipv6)
        headers = gather_headers(data, offsets_of(sizes)[:-1], sizes)
    names = [name.encode() for name in (REAL_TOPIC, REAL_QUEUE_ID, PRODUCER_MARK)]
    topic, queue, mark = find_properties(
        data, headers.properties_start, headers.properties_length, names
    )
    queue_ids = parse_numbers(data, *queue)
    good = headers.well_formed & (headers.physical_offset == offsets)
    good &= (topic[1] > 0) & (queue_ids >= 0) & (queue_ids < 1 << 31)
    rows = good.nonzero()[0]
    if not len(rows):
        return None
    table = _table(data, (topic[0][rows], topic[1][rows]), queue_ids[rows], readable)
    rows = rows[: len(table.indexes)]
    framed = _framed(data, headers, rows, table, (mark[0][rows], mark[1][rows]))
    return Delivery(framed, rows)


def _of_family(headers: HeaderColumns, store_ipv6: bool) -> NDArray[np.bool_]:
    """Which records have room for the master's address."""
    right: NDArray[np.bool_] = ((headers.sys_flag & STORE_HOST_IPV6) != 0) == store_ipv6
    return right | ~headers.well_formed


def _moved(
    data: NDArray[np.uint8], headers: HeaderColumns, store_ipv6: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The records with room for it, end to end, and their sizes: a store that was moved has records
    of masters with another kind of address."""
    right = _of_family(headers, store_ipv6).tolist()
    records = []
    for row, (start, size) in enumerate(
        zip(headers.positions.tolist(), headers.sizes.tolist(), strict=True)
    ):
        record = data[start : start + size].tobytes()
        if not right[row]:
            record = with_store_host(decode_record(record, check_crc=False), _ANY_HOST[store_ipv6])
        records.append(record)
    return byte_array(b"".join(records)), np.fromiter(map(len, records), np.int64, len(records))


@dataclass(frozen=True, slots=True)
class _Table:
    """Of a batch: distinct topics, the queues, and u2[n] the queue of each record."""

    topics: tuple[bytes, ...]
    queue_topics: NDArray[np.uint32]
    queue_ids: NDArray[np.uint32]
    indexes: NDArray[np.uint16]


def _table(
    data: NDArray[np.uint8],
    topic: ValueColumn,
    queue_ids: NDArray[np.int64],
    readable: Callable[[str, int], int],
) -> _Table:
    firsts, numbers = distinct_slices(data, *topic)
    flat, offsets = compact(data, topic[0][firsts], topic[1][firsts])
    text = flat.tobytes()
    topics = tuple(text[begin:end] for begin, end in pairwise(offsets.tolist()))
    pairs, group = distinct_pairs(numbers, queue_ids)
    names = [topics[number].decode("utf-8", "replace") for number in numbers[pairs].tolist()]
    asked = queue_ids[pairs].tolist()
    there = np.array([readable(*pair) for pair in zip(names, asked, strict=True)], np.int64)
    queue_ids = there[group]
    # two queues may have become one
    pairs, group = distinct_pairs(numbers, queue_ids)
    if len(pairs) > MAX_TABLE:
        most = int((group >= MAX_TABLE).argmax())
        return _table(data, (topic[0][:most], topic[1][:most]), queue_ids[:most], readable)
    return _Table(
        topics,
        numbers[pairs].astype(np.uint32),
        queue_ids[pairs].astype(np.uint32),
        group.astype(np.uint16),
    )


def _framed(
    data: NDArray[np.uint8],
    headers: HeaderColumns,
    rows: NDArray[np.int64],
    table: _Table,
    mark: ValueColumn,
) -> RecordBatch:
    positions = headers.positions[rows]
    header_sizes = headers.body_start[rows] - positions
    body_lengths = headers.body_length[rows]
    topic_of = table.queue_topics[table.indexes].astype(np.int64)
    parts = [_topic_part(topic) for topic in table.topics]
    joined = byte_array(b"".join(parts))
    part_offsets = offsets_of(np.fromiter(map(len, parts), np.int64, len(parts)))
    part_lengths = np.diff(part_offsets)[topic_of]
    before, behind = _kept_properties(data, headers, rows, mark)
    properties_lengths = before[1] + behind[1]
    sizes = header_sizes + body_lengths + part_lengths + 2 + properties_lengths
    ends = offsets_of(sizes)
    target = np.empty(int(ends[-1]), np.uint8)
    cursor = ends[:-1].copy()

    def put(
        source: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> None:
        copy_slices(source, starts, target, cursor, lengths)
        np.add(cursor, lengths, out=cursor)

    put(data, positions, header_sizes + body_lengths)
    put(joined, part_offsets[:-1][topic_of], part_lengths)
    _patch(target, cursor, properties_lengths, ">i2")
    cursor += 2
    put(data, *before)
    put(data, *behind)
    magics = np.array([MAGIC_V1 if len(t) <= MAX_TOPIC_V1 else MAGIC_V2 for t in table.topics])
    queue_ids = table.queue_ids[table.indexes]
    named = headers.physical_offset[rows]
    starts = ends[:-1]
    _patch(target, starts, sizes, ">i4")
    _patch(target, starts + _MAGIC_AT, magics[topic_of], ">u4")
    _patch(target, starts + _QUEUE_ID_AT, queue_ids, ">i4")
    _patch(
        target,
        starts + header_sizes - _NAMED_BEFORE_END,
        np.where(named == 0, FIRST_RECORD, named),
        ">i8",
    )
    return RecordBatch(
        records=target.data,
        sizes=sizes.astype(np.uint32),
        queue_indexes=table.indexes,
        topics=tuple(topic.decode("utf-8", "replace") for topic in table.topics),
        queue_topics=table.queue_topics,
        queue_ids=table.queue_ids,
    )


def _topic_part(topic: bytes) -> bytes:
    """Length and text of a topic as a record has them."""
    return len(topic).to_bytes(1 if len(topic) <= MAX_TOPIC_V1 else 2) + topic


def _kept_properties(
    data: NDArray[np.uint8], headers: HeaderColumns, rows: NDArray[np.int64], mark: ValueColumn
) -> tuple[ValueColumn, ValueColumn]:
    """What is kept of the properties: the bytes before the mark, and those behind it."""
    starts = headers.properties_start[rows]
    ends = starts + headers.properties_length[rows]
    tails = np.maximum(ends - CRC_PROPERTY_SIZE, 0)
    with_crc = (windows(data, len(CRC_NAME))[tails] == np.void(CRC_NAME)) & (tails >= starts)
    ends = np.where(with_crc, tails, ends)
    marked = mark[1] > 0
    before = np.where(marked, mark[0] - _NAME_AND_SEPARATOR, ends)
    behind = np.where(marked, np.minimum(mark[0] + mark[1] + 1, ends), ends)
    return (starts, before - starts), (behind, ends - behind)


def _patch(
    target: NDArray[np.uint8], places: NDArray[np.int64], values: NDArray[np.integer], kind: str
) -> None:
    """Write numbers over the bytes at `places`."""
    encoded = values.astype(kind)
    width = encoded.itemsize
    windows(target, width)[places] = encoded.view(f"V{width}")
