"""Checks that a client's batch is what its columns say: every value against the bytes.

    sizes         |  s0  |    s1    |  s2  |        must add up to the buffer
    records       [ r0   ][  r1     ][ r2  ]        size, magic, inner lengths, limits, body CRC
    queue_indexes   q0       q1       q2            -> table: topic bytes and queue id of each

A wrong byte that got into the log would stop recovery there and cut off every later record, on
every replica. So a batch is refused as a whole, with the first offending record and field.

Two paths with one meaning: from 32 records on by columns (a few dozen array operations and one
loop over zlib.crc32), below with struct, record by record. If the columns find a fault, the plain
path words the error.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import (
    all_true,
    compact,
    first_true,
    gather_rows,
    none_true,
    windows,
)
from tandemlog.format.columns.crcs import first_bad_crc
from tandemlog.format.columns.faults import first_hole
from tandemlog.format.columns.headers import HeaderColumns, gather_headers
from tandemlog.format.constants import (
    CRC_PROPERTY_SIZE,
    MAX_TABLE,
    MIN_RECORD_SIZE,
    NAME_END,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.producer_mark import MARK_NAME, mark_in
from tandemlog.format.record.sys_flag import (
    INNER_BATCH,
    STORE_HOST_IPV6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

from ..errors import BatchRefusedError
from .record_check import (
    CRC_NAME,
    KIND_OF_TOPIC,
    LIGHT_NUMBERS,
    ORDINARY,
    RecordLimits,
    bad_record,
    check_record,
    may_name_unserved,
    unserved_property,
)

FEW_RECORDS: Final = 32
MOST_WIDTH: Final = 4
"""Times their mean length that the longest properties may have to be searched as rows."""

_MARK_END: Final = np.uint16(int.from_bytes(MARK_NAME[-2:], sys.byteorder))
_CRC_NAME_START: Final = np.uint64(int.from_bytes(CRC_NAME[:8], sys.byteorder))


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A valid batch, and what the check had to compute anyway.

    positions, sizes  i8[n]; `counted` bool[n]: which records get a queue offset (PREPARED and
    ROLLBACK do not), None if all do

    `data` are the bytes to be stored where they are not the batch's: each record is `record_extra`
    bytes longer then, and positions and sizes are those in `data` (crc_room.py).
    """

    batch: RecordBatch
    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    counted: NDArray[np.bool_] | None
    data: NDArray[np.uint8] | None = None
    record_extra: int = 0


def check_batch(batch: RecordBatch, limits: RecordLimits) -> CheckedBatch:
    """Raises BatchRefusedError (BAD_RECORD, MESSAGE_TOO_LARGE, PROPERTIES_TOO_LARGE,
    BATCH_TOO_LARGE, INVALID_ARGUMENT) at the first thing that is wrong."""
    _check_lengths(batch, limits)
    return _check_few(batch, limits) if batch.count < FEW_RECORDS else _check_many(batch, limits)


def _check_lengths(batch: RecordBatch, limits: RecordLimits) -> None:
    count, total, table = batch.count, batch.byte_size, len(batch.queue_ids)
    if count == 0:
        raise _argument("sizes", "the batch has no record")
    if total > limits.max_batch:
        raise BatchRefusedError(
            "BATCH_TOO_LARGE",
            "records",
            f"the batch has {total} bytes, the limit is {limits.max_batch}: send smaller batches",
            limit=limits.max_batch,
            actual=total,
        )
    if len(batch.queue_indexes) != count:
        raise _argument("queue_indexes", f"{len(batch.queue_indexes)} for {count} records")
    if len(batch.queue_topics) != table:
        raise _argument("queue_topics", f"{len(batch.queue_topics)} for {table} queue ids")
    if not 0 < table <= MAX_TABLE:
        raise _argument("queue_ids", f"{table} queues, the table has 1 to {MAX_TABLE}")


def _check_values(
    batch: RecordBatch, *, highest_topic: int, highest_index: int, total: int, shortest: int
) -> None:
    if highest_topic >= len(batch.topics):
        raise _argument("queue_topics", f"points beyond the {len(batch.topics)} topics")
    if highest_index >= len(batch.queue_ids):
        raise _argument("queue_indexes", f"points beyond the table of {len(batch.queue_ids)}")
    if total != batch.byte_size:
        raise BatchRefusedError(
            "BAD_RECORD",
            "sizes",
            f"the sizes add up to {total} bytes, the records have {batch.byte_size}",
            limit=batch.byte_size,
            actual=total,
        )
    if shortest < MIN_RECORD_SIZE:
        index = first_true(batch.sizes < MIN_RECORD_SIZE)
        raise bad_record("size", f"{shortest}, a record has at least {MIN_RECORD_SIZE}", index)


def _check_few(batch: RecordBatch, limits: RecordLimits) -> CheckedBatch:
    sizes: list[int] = batch.sizes.tolist()
    entries: list[int] = batch.queue_indexes.tolist()
    topic_numbers: list[int] = batch.queue_topics.tolist()
    queue_ids: list[int] = batch.queue_ids.tolist()
    _check_values(
        batch,
        highest_topic=max(topic_numbers),
        highest_index=max(entries),
        total=sum(sizes),
        shortest=min(sizes),
    )
    view = memoryview(batch.records)
    positions: list[int] = []
    counted: list[bool] = []
    position = 0
    for index, (size, entry) in enumerate(zip(sizes, entries, strict=True)):
        topic = batch.topics[topic_numbers[entry]].encode(errors="replace")
        sys_flag = check_record(view, position, size, topic, queue_ids[entry], limits, index)
        kind = sys_flag & TRANSACTION_MASK
        counted.append(kind not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK))
        positions.append(position)
        position += size
    return CheckedBatch(
        batch,
        np.array(positions, np.int64),
        np.array(sizes, np.int64),
        None if all(counted) else np.array(counted, np.bool_),
    )


def _check_many(batch: RecordBatch, limits: RecordLimits) -> CheckedBatch:
    sizes = batch.sizes.astype(np.int64)
    ends = sizes.cumsum()
    _check_values(
        batch,
        highest_topic=int(np.maximum.reduce(batch.queue_topics)),
        highest_index=int(np.maximum.reduce(batch.queue_indexes)),
        total=int(ends[-1]),
        shortest=int(np.minimum.reduce(sizes)),
    )
    positions = ends - sizes
    data = np.frombuffer(batch.records, np.uint8)
    headers = gather_headers(data, positions, sizes)
    bad = _first_bad_record(batch, data, headers, limits)
    if bad >= 0:
        entry = int(batch.queue_indexes[bad])
        topic = batch.topics[int(batch.queue_topics[entry])].encode(errors="replace")
        queue_id = int(batch.queue_ids[entry])
        view = memoryview(batch.records)
        check_record(view, int(positions[bad]), int(sizes[bad]), topic, queue_id, limits, bad)
        raise bad_record("record", "its parts do not fit together", bad)
    counted = None
    if not none_true(headers.sys_flag):
        kinds = headers.sys_flag & TRANSACTION_MASK
        if not none_true(kinds):
            counted = (kinds != TRANSACTION_PREPARED) & (kinds != TRANSACTION_ROLLBACK)
    return CheckedBatch(batch, positions, sizes, counted)


def _first_bad_record(
    batch: RecordBatch, data: NDArray[np.uint8], headers: HeaderColumns, limits: RecordLimits
) -> int:
    """Index of the first record that is not what it must be, or -1."""
    entries = batch.queue_indexes.astype(np.int64)
    good = headers.queue_id == batch.queue_ids.astype(np.int64)[entries]
    good &= headers.well_formed
    # A record is not longer than all of them.
    if batch.byte_size > limits.max_body:
        good &= headers.body_length <= limits.max_body
    if batch.byte_size > limits.max_record:
        good &= headers.sizes <= limits.max_record
    expected_host = STORE_HOST_IPV6 if limits.store_host_ipv6 else 0
    if expected_host or not none_true(headers.sys_flag):
        unserved = 0 if limits.services else TRANSACTION_MASK
        good &= (headers.sys_flag & (STORE_HOST_IPV6 | INNER_BATCH | unserved)) == expected_host
    if not limits.services and not none_true(headers.fixed["prepared_transaction_offset"]):
        good &= headers.prepared_transaction_offset == 0
    ends = headers.positions + headers.sizes
    last_bytes = data[ends - 1]
    if not all_true(last_bytes):
        good &= (last_bytes != 0) | (headers.properties_length == 0)
    property_crc = _have_property_crc(data, headers, ends)
    if property_crc is not None:
        good &= ~property_crc
    bad, checked = -1, headers
    if not all_true(good):
        bad = int(good.argmin())
        checked = headers.head(bad)
    kinds = _kinds_of_topics(batch, entries[: checked.count])
    named = _first_named(data, checked, kinds, services=limits.services)
    for found in (*named, first_hole(data, checked)):
        if 0 <= found < checked.count:
            bad, checked = found, checked.head(found)
    wrong_topic = _first_wrong_topic(batch, data, checked, entries[: checked.count])
    if wrong_topic >= 0:
        bad, checked = wrong_topic, checked.head(wrong_topic)
    wrong_crc = first_bad_crc(
        batch.records, checked.body_start, checked.body_length, checked.body_crc
    )
    return wrong_crc if wrong_crc >= 0 else bad


def _have_property_crc(
    data: NDArray[np.uint8], headers: HeaderColumns, ends: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    """Records that end in a property CRC: the offsets that we write would make it wrong. None for
    none."""
    tails = ends - CRC_PROPERTY_SIZE
    named: NDArray[np.bool_] = windows(data, 8)[tails].view(np.uint64) == _CRC_NAME_START
    if none_true(named):
        return None
    named &= data[tails + 8] == NAME_END
    return named & (headers.properties_length >= CRC_PROPERTY_SIZE)


def _kinds_of_topics(batch: RecordBatch, entries: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The kind (record_check.py) of the topic that each record goes to; None if all are
    ordinary."""
    if KIND_OF_TOPIC.keys().isdisjoint(batch.topics):
        return None
    kinds = np.array([KIND_OF_TOPIC.get(topic, ORDINARY) for topic in batch.topics], np.int64)
    mine: NDArray[np.int64] = kinds[batch.queue_topics.astype(np.int64)][entries]
    return mine


def _first_named(
    data: NDArray[np.uint8],
    headers: HeaderColumns,
    kinds: NDArray[np.int64] | None,
    *,
    services: bool,
) -> tuple[int, int, int]:
    """Indexes of the first record with numbers of light queues among its properties, of the first
    with a producer's mark where none is allowed, and of the first that asks for a service that is
    off; -1 for none."""
    if not headers.count:
        return -1, -1, -1
    start, length = int(headers.properties_start[0]), int(headers.properties_length[0])
    first = data[start : start + length].tobytes()
    try:
        mark_in(first)
        marked = -1
    except FormatError:
        marked = 0
    kind = ORDINARY if kinds is None else int(kinds[0])
    unserved = -1 if services or unserved_property(first, kind) is None else 0
    if LIGHT_NUMBERS not in first and not _may_name(data, headers, services=services):
        return -1, marked, unserved
    flat, offsets = compact(data, headers.properties_start, headers.properties_length)
    text = flat.tobytes()
    light = _row_of(text, offsets, LIGHT_NUMBERS, 0)
    if marked < 0:
        marked = _row_of(text, offsets, MARK_NAME, int(offsets[1]))
    if unserved < 0 and not services and may_name_unserved(text):
        unserved = _first_unserved(text, offsets, kinds)
    return light, marked, unserved


def _first_unserved(
    text: bytes, offsets: NDArray[np.int64], kinds: NDArray[np.int64] | None
) -> int:
    of_row = [ORDINARY] * (len(offsets) - 1) if kinds is None else kinds.tolist()
    for row, (begin, end) in enumerate(pairwise(offsets.tolist())):
        if unserved_property(text[begin:end], of_row[row]) is not None:
            return row
    return -1


def _may_name(data: NDArray[np.uint8], headers: HeaderColumns, *, services: bool) -> bool:
    """Whether the exact search is needed in the records after the first: a search in rows as wide
    as the longest properties costs half as much as joining the properties, and sometimes finds too
    much. The first record is longer, by its mark: with its width each row would reach into the next
    record, where any two bytes may be."""
    starts, lengths = headers.properties_start[1:], headers.properties_length[1:]
    width = int(np.maximum.reduce(lengths, initial=0))
    if width < len(MARK_NAME):
        return False
    if width > MOST_WIDTH * max(1, int(np.add.reduce(lengths)) // len(lengths)):
        return True
    text = gather_rows(data, starts, width).tobytes()
    if LIGHT_NUMBERS in text or (not services and may_name_unserved(text)):
        return True
    # For a name as short as that find takes three times as long as a look at all pairs of bytes.
    flat = np.frombuffer(text, np.uint8)
    return any(
        not none_true(
            flat[first : first + (len(flat) - first) // 2 * 2].view(np.uint16) == _MARK_END
        )
        for first in (0, 1)
    )


def _row_of(text: bytes, offsets: NDArray[np.int64], name: bytes, start: int) -> int:
    """The first row that has `name` in it, from place `start` on; -1 for none."""
    while (place := text.find(name, start)) >= 0:
        row = int(np.searchsorted(offsets, place, side="right")) - 1
        start = int(offsets[row + 1])
        if place + len(name) <= start:
            return row
    return -1


def _first_wrong_topic(
    batch: RecordBatch, data: NDArray[np.uint8], headers: HeaderColumns, entries: NDArray[np.int64]
) -> int:
    """Index of the first record whose topic is not that of its table entry, or -1; `entries`
    i8[n]: which entry."""
    flat, starts, lengths = topic_table(batch.topics)
    numbers = batch.queue_topics[entries]
    wanted, wanted_starts = lengths[numbers], starts[numbers]
    right_length = headers.topic_length == wanted
    if not all_true(wanted):
        right_length &= wanted > 0
    if all_true(right_length):
        return first_difference(data, headers.topic_start, flat, wanted_starts, wanted)
    wrong_length = int(right_length.argmin())
    rows = slice(0, wrong_length)
    differs = first_difference(
        data, headers.topic_start[rows], flat, wanted_starts[rows], wanted[rows]
    )
    return differs if differs >= 0 else wrong_length


def first_difference(
    left: NDArray[np.uint8],
    left_starts: NDArray[np.int64],
    right: NDArray[np.uint8],
    right_starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> int:
    """Index of the first row whose slices, lengths[i] > 0 bytes each, are not equal, or -1."""
    if len(lengths) == 0:
        return -1
    width, longest = int(np.minimum.reduce(lengths)), int(np.maximum.reduce(lengths))
    if longest <= 2 * width:
        # The first `width` bytes and the last `width` bytes cover every row.
        a, b = windows(left, width), windows(right, width)
        pairs = [(a[left_starts], b[right_starts])]
        if longest > width:
            rest = lengths - width
            pairs.append((a[left_starts + rest], b[right_starts + rest]))
        # They are nearly always equal, which one comparison of all bytes shows soonest.
        unlike = [pair for pair in pairs if pair[0].tobytes() != pair[1].tobytes()]
        return min((_first_unlike(*pair, width) for pair in unlike), default=-1)
    ours, offsets = compact(left, left_starts, lengths)
    others, _ = compact(right, right_starts, lengths)
    difference = first_true(ours != others)
    return int(np.searchsorted(offsets, difference, side="right")) - 1 if difference >= 0 else -1


def _first_unlike(items: NDArray[np.void], others: NDArray[np.void], width: int) -> int:
    return first_true(items.view(np.uint8) != others.view(np.uint8)) // width


def topic_table(
    topics: Sequence[str],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The topics' bytes one after the other, and where each starts and how long it is."""
    # the places of the separators tell the lengths: a call of len for each topic costs more
    text = "\0".join(topics) + "\0"
    flat = np.frombuffer(text.encode(errors="replace"), np.uint8)
    ends = (flat == 0).nonzero()[0]
    if len(ends) != len(topics):  # a topic has a zero of its own
        lengths = np.array([len(topic.encode(errors="replace")) for topic in topics], np.int64)
        return flat, np.cumsum(lengths + 1) - lengths - 1, lengths
    starts = np.zeros(len(ends), np.int64)
    np.add(ends[:-1], 1, out=starts[1:])
    return flat, starts, ends - starts


def _argument(field: str, reason: str) -> BatchRefusedError:
    return BatchRefusedError("INVALID_ARGUMENT", field, f"{field}: {reason}")
