"""Is a client's batch what its columns say? Everything is held against the bytes, nothing trusted.

    sizes         |  s0  |    s1    |  s2  |        must add up to the buffer
    records       [ r0   ][  r1     ][ r2  ]        size, magic, inner lengths, limits, body CRC
    queue_indexes   q0       q1       q2            -> table: topic bytes and queue id of each

A wrong byte that got into the log would stop recovery there and cut off every later record, on
every replica. So a batch is refused as a whole, with the first offending record and field.

Two paths with one meaning: from 64 records on by columns (a few dozen array operations and one
loop over zlib.crc32), below with struct, record by record. Where the columns find a fault, the
plain path is asked to put it into words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.batch import RecordBatch
from tandemlog.format.columns import HeaderColumns, gather_headers
from tandemlog.format.constants import (
    BODY_LENGTH_OFFSET,
    CRC32,
    CRC_MASK,
    CRC_PROPERTY_SIZE,
    FIXED_SIZE,
    IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES,
    MIN_RECORD_SIZE,
    NAME_END,
)
from tandemlog.format.crc_columns import first_bad_crc
from tandemlog.format.ragged import compact, first_true, windows
from tandemlog.format.sys_flag import (
    BORN_HOST_IPV6,
    INNER_BATCH,
    STORE_HOST_IPV6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)

from .errors import BatchRefusedError

FEW_RECORDS: Final = 64
MAX_TABLE: Final = 65_535

_HEAD: Final = Struct(">iIiiiqqi")
_I32: Final = Struct(">i")
_I16: Final = Struct(">h")
_I8: Final = Struct(">b")
_CRC_NAME: Final = CRC32.encode() + bytes([NAME_END])
_CRC_NAME_START: Final = int.from_bytes(_CRC_NAME[:8], "big")


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Bytes: of a body, of a batch, and of a record, which must fit a log file with its BLANK.

    `store_host_ipv6`: the family that records must have room for.
    """

    max_body: int
    max_batch: int
    max_record: int
    store_host_ipv6: bool


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch that holds, and what the check had to compute anyway.

    positions, sizes  i8[n]; `counted` bool[n]: which records get a queue offset (PREPARED and
    ROLLBACK do not), None where all do
    """

    batch: RecordBatch
    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]
    counted: NDArray[np.bool_] | None


def check_batch(batch: RecordBatch, limits: RecordLimits) -> CheckedBatch:
    """Raises BatchRefusedError (BAD_RECORD, MESSAGE_TOO_LARGE, PROPERTIES_TOO_LARGE,
    BATCH_TOO_LARGE, INVALID_ARGUMENT) at the first thing that is wrong."""
    sizes = _check_shape(batch, limits)
    positions = np.cumsum(sizes) - sizes
    if batch.count < FEW_RECORDS:
        counted = _check_few(batch, positions, sizes, limits)
    else:
        counted = _check_columns(batch, positions, sizes, limits)
    return CheckedBatch(batch, positions, sizes, counted)


def _check_shape(batch: RecordBatch, limits: RecordLimits) -> NDArray[np.int64]:
    """The columns among themselves; the sizes as i8."""
    count, total, table = batch.count, batch.byte_size, len(batch.queue_ids)
    if count == 0:
        raise _argument("sizes", "the batch holds no record")
    if total > limits.max_batch:
        raise BatchRefusedError(
            "BATCH_TOO_LARGE",
            "records",
            f"the batch has {total} bytes, the limit is {limits.max_batch}: send smaller ones",
            limit=limits.max_batch,
            actual=total,
        )
    if len(batch.queue_indexes) != count:
        raise _argument("queue_indexes", f"{len(batch.queue_indexes)} for {count} records")
    if len(batch.queue_topics) != table:
        raise _argument("queue_topics", f"{len(batch.queue_topics)} for {table} queue ids")
    if table > MAX_TABLE:
        raise _argument("queue_ids", f"{table} queues, the table has at most {MAX_TABLE}")
    if table and int(batch.queue_topics.max()) >= len(batch.topics):
        raise _argument("queue_topics", f"points beyond the {len(batch.topics)} topics")
    if int(batch.queue_indexes.max()) >= table:
        raise _argument("queue_indexes", f"points beyond the {table} entries of the table")
    sizes = batch.sizes.astype(np.int64)
    said = int(sizes.sum())
    if said != total:
        raise BatchRefusedError(
            "BAD_RECORD",
            "sizes",
            f"the sizes add up to {said} bytes, the records have {total}",
            limit=total,
            actual=said,
        )
    short = first_true(sizes < MIN_RECORD_SIZE)
    if short >= 0:
        raise _bad("size", f"{int(sizes[short])}, a record has at least {MIN_RECORD_SIZE}", short)
    return sizes


def _check_columns(
    batch: RecordBatch,
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    limits: RecordLimits,
) -> NDArray[np.bool_] | None:
    data = np.frombuffer(batch.records, np.uint8)
    headers = gather_headers(data, positions, sizes)
    sys_flags = headers.sys_flag
    good = headers.well_formed.copy()
    good &= headers.queue_id == batch.queue_ids.astype(np.int64)[batch.queue_indexes]
    good &= headers.body_length <= limits.max_body
    good &= sizes <= limits.max_record
    expected_host = STORE_HOST_IPV6 if limits.store_host_ipv6 else 0
    good &= (sys_flags & (STORE_HOST_IPV6 | INNER_BATCH)) == expected_host
    good &= ~_have_property_crc(data, headers)
    bad = first_true(~good)
    checked = headers if bad < 0 else headers.head(bad)
    wrong_topic = _first_wrong_topic(batch, data, checked)
    if wrong_topic >= 0:
        bad, checked = wrong_topic, checked.head(wrong_topic)
    wrong_crc = first_bad_crc(data, checked.body_start, checked.body_length, checked.body_crc)
    bad = wrong_crc if wrong_crc >= 0 else bad
    if bad >= 0:
        _check_one(batch, bad, int(positions[bad]), int(sizes[bad]), limits)
        raise _bad("record", "it does not hold together", bad)
    kinds = sys_flags & TRANSACTION_MASK
    if not kinds.any():
        return None
    counted: NDArray[np.bool_] = (kinds != TRANSACTION_PREPARED) & (kinds != TRANSACTION_ROLLBACK)
    return counted


def _have_property_crc(data: NDArray[np.uint8], headers: HeaderColumns) -> NDArray[np.bool_]:
    """Records that end in a property CRC: the offsets that we write would make it wrong."""
    tails = headers.positions + headers.sizes - CRC_PROPERTY_SIZE
    names = windows(data, 8)[tails].view(">u8")
    found: NDArray[np.bool_] = (names == _CRC_NAME_START) & (data[tails + 8] == NAME_END)
    return found & (headers.properties_length >= CRC_PROPERTY_SIZE)


def _first_wrong_topic(batch: RecordBatch, data: NDArray[np.uint8], headers: HeaderColumns) -> int:
    """Index of the first record whose topic is not that of its table entry, or -1."""
    flat, starts, lengths = _topic_table(batch.topics)
    numbers = batch.queue_topics[batch.queue_indexes[: headers.count]]
    wanted = lengths[numbers]
    wrong_length = first_true((headers.topic_length != wanted) | (wanted == 0))
    rows = slice(0, headers.count if wrong_length < 0 else wrong_length)
    differs = first_difference(
        data, headers.topic_start[rows], flat, starts[numbers[rows]], wanted[rows]
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
    width, longest = int(lengths.min()), int(lengths.max())
    if longest <= 2 * width:
        # The first `width` bytes and the last `width` bytes cover every row.
        a, b = windows(left, width), windows(right, width)
        rest = lengths - width
        wrong = _rows(a[left_starts], width) != _rows(b[right_starts], width)
        if longest > width:
            wrong |= _rows(a[left_starts + rest], width) != _rows(b[right_starts + rest], width)
        return first_true(wrong.ravel()) // width if wrong.any() else -1
    found, offsets = compact(left, left_starts, lengths)
    expected, _ = compact(right, right_starts, lengths)
    difference = first_true(found != expected)
    return int(np.searchsorted(offsets, difference, side="right")) - 1 if difference >= 0 else -1


def _rows(items: NDArray[np.void], width: int) -> NDArray[np.uint8]:
    return items.view(np.uint8).reshape(-1, width)


def _topic_table(
    topics: Sequence[str],
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The topics' bytes end to end, and where each starts and how long it is."""
    text = "".join(topics)
    pieces: Sequence[str] | list[bytes] = topics
    if not text.isascii():
        pieces = [topic.encode(errors="replace") for topic in topics]
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    flat = np.frombuffer(text.encode(errors="replace"), np.uint8)
    return flat, np.cumsum(lengths) - lengths, lengths


def _check_few(
    batch: RecordBatch,
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    limits: RecordLimits,
) -> NDArray[np.bool_] | None:
    view = memoryview(batch.records)
    topics = [topic.encode(errors="replace") for topic in batch.topics]
    topic_of = [topics[number] for number in batch.queue_topics.tolist()]
    queue_ids = batch.queue_ids.tolist()
    counted: list[bool] = []
    for index, (position, size, entry) in enumerate(
        zip(positions.tolist(), sizes.tolist(), batch.queue_indexes.tolist(), strict=True)
    ):
        sys_flag = _check_record(
            view, position, size, topic_of[entry], queue_ids[entry], limits, index
        )
        kind = sys_flag & TRANSACTION_MASK
        counted.append(kind not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK))
    return None if all(counted) else np.array(counted, np.bool_)


def _check_one(
    batch: RecordBatch, index: int, position: int, size: int, limits: RecordLimits
) -> None:
    entry = int(batch.queue_indexes[index])
    topic = batch.topics[int(batch.queue_topics[entry])].encode(errors="replace")
    queue_id = int(batch.queue_ids[entry])
    _check_record(memoryview(batch.records), position, size, topic, queue_id, limits, index)


def _check_record(
    view: memoryview,
    position: int,
    size: int,
    topic: bytes,
    queue_id: int,
    limits: RecordLimits,
    index: int,
) -> int:
    """The system flag of a record that holds; raises for one that does not."""
    sys_flag: int
    stored_size, magic, body_crc, stored_queue, _, _, _, sys_flag = _HEAD.unpack_from(
        view, position
    )
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise _bad("magic", f"0x{magic:08X} is not that of a record", index)
    if stored_size != size:
        raise _bad("size", f"it says {stored_size}, the column says {size}", index)
    if size > limits.max_record:
        raise _too_large("record", size, limits.max_record, index)
    _check_sys_flag(sys_flag, limits, index)
    hosts = ((sys_flag & BORN_HOST_IPV6) != 0) + ((sys_flag & STORE_HOST_IPV6) != 0)
    body_start = position + FIXED_SIZE + IPV6_EXTRA * hosts
    end = position + size
    if body_start + 3 > end:
        raise _bad("size", f"{size} is too short for its header", index)
    (body_length,) = _I32.unpack_from(view, body_start - FIXED_SIZE + BODY_LENGTH_OFFSET)
    if body_length > limits.max_body:
        raise _too_large("body", body_length, limits.max_body, index)
    body_end = body_start + body_length
    if body_length < 0 or body_end + 3 > end:
        raise _bad("body", f"a length of {body_length} does not fit the record", index)
    if stored_queue != queue_id:
        raise _bad("queue_id", f"{stored_queue}, its table entry says {queue_id}", index)
    properties_start = _check_topic(view, body_end, magic == MAGIC_V2, end, topic, index)
    _check_properties(view, properties_start, end, index)
    if body_length and crc32(view[body_start:body_end]) & CRC_MASK != body_crc:
        raise _bad("body_crc", "the body does not have the CRC that the record says", index)
    return sys_flag


def _check_sys_flag(sys_flag: int, limits: RecordLimits, index: int) -> None:
    if bool(sys_flag & STORE_HOST_IPV6) != limits.store_host_ipv6:
        family = "IPv6" if limits.store_host_ipv6 else "IPv4"
        raise _bad(
            "sys_flag",
            f"bit 0x20 must say that the store host is {family}, as this node's is",
            index,
        )
    if sys_flag & INNER_BATCH:
        raise _bad("sys_flag", "bit 0x80, inner batches are not taken: send the messages", index)


def _check_topic(
    view: memoryview, position: int, version_2: bool, end: int, topic: bytes, index: int
) -> int:
    """Where the properties start."""
    shape = _I16 if version_2 else _I8
    if position + shape.size + 2 > end:
        raise _bad("topic", "no room for its length", index)
    length: int = shape.unpack_from(view, position)[0]
    start = position + shape.size
    if length <= 0 or start + length + 2 > end:
        raise _bad("topic", f"a length of {length} does not fit the record", index)
    if view[start : start + length] != topic:
        said = bytes(view[start : start + length]).decode(errors="replace")
        wanted = topic.decode(errors="replace")
        raise _bad("topic", f"{said!r}, its table entry says {wanted!r}", index)
    return start + length + 2


def _check_properties(view: memoryview, start: int, end: int, index: int) -> None:
    length = end - start
    if length > MAX_PROPERTIES:
        raise BatchRefusedError(
            "PROPERTIES_TOO_LARGE",
            "properties",
            f"record {index}: properties have {length} bytes, the limit is {MAX_PROPERTIES}",
            limit=MAX_PROPERTIES,
            actual=length,
            record_index=index,
        )
    (said,) = _I16.unpack_from(view, start - 2)
    if said != length:
        raise _bad("properties", f"their length says {said}, {length} bytes are left", index)
    if length >= CRC_PROPERTY_SIZE:
        tail = end - CRC_PROPERTY_SIZE
        if view[tail : tail + len(_CRC_NAME)] == _CRC_NAME:
            raise _bad(
                "properties", f"{CRC32} is for the node to write: leave the property out", index
            )


def _bad(field: str, reason: str, index: int) -> BatchRefusedError:
    return BatchRefusedError(
        "BAD_RECORD", field, f"record {index}: {field}: {reason}", record_index=index
    )


def _too_large(part: str, actual: int, limit: int, index: int) -> BatchRefusedError:
    return BatchRefusedError(
        "MESSAGE_TOO_LARGE",
        part,
        f"record {index}: {part} has {actual} bytes, the limit is {limit}",
        limit=limit,
        actual=actual,
        record_index=index,
    )


def _argument(field: str, reason: str) -> BatchRefusedError:
    return BatchRefusedError("INVALID_ARGUMENT", field, f"{field}: {reason}")
