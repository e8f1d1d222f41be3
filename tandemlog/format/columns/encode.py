"""Messages in columns, out as framed records for a master: what frame_message does, for many.

    header, header, ...      one array, filled field by field, laid over the records' beginnings
    bodies                   copied slice by slice, in a few array operations (ragged.py)
    topic                    a few distinct ones, copied from a table
    properties               name, value, end: written at a cursor that moves in every record

Only the body CRC is computed by a call per record. Properties stand in this order: those of the
first record (the producer mark), UNIQ_KEY, KEYS, TAGS, each record's own, those of all records.
What only the master knows (offsets, store time, store host) is zero.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.byte_column import ByteColumn
from ..arrays.ragged import copy_slices, offsets_of, windows
from ..constants import KEYS, MAX_PROPERTIES, NAME_END, PROPERTY_END, TAGS, UNIQ_KEY
from ..errors import FormatError, RecordTooLargeError
from ..record.batch import RecordBatch
from ..record.host import IPV4_SIZE, IPV6_SIZE
from ..record.record import TopicFrame
from .crcs import body_crcs
from .headers import header_dtype

_PROPERTIES_LENGTH_SIZE: Final = 2
_MIN_I32: Final = -(1 << 31)
_MAX_I32: Final = (1 << 31) - 1

Numbers = int | NDArray[np.integer[Any]]


def encode_columns(
    *,
    bodies: ByteColumn,
    topics: Sequence[str],
    queue_topics: NDArray[np.uint32],
    queue_ids: NDArray[np.uint32],
    queue_indexes: NDArray[np.uint16],
    uniq_keys: ByteColumn | None = None,
    keys: ByteColumn | None = None,
    tags: ByteColumn | None = None,
    own_properties: ByteColumn | None = None,
    common_properties: bytes = b"",
    first_properties: bytes = b"",
    flag: Numbers = 0,
    sys_flag: Numbers = 0,
    born_timestamp: Numbers = 0,
    born_host: str = "0.0.0.0:0",
    store_ipv6: bool = False,
) -> RecordBatch:
    """n records for the queues of a table, of which `queue_indexes` u2[n] chooses one for each.

    `uniq_keys`, `keys`, `tags` are the values of these properties, UTF-8; one that is empty or
    not valid is left out. The other properties come encoded (see encode_properties), each with
    its last 0x02. `sys_flag` is without host bits; `store_ipv6` tells the master's kind of
    address. Times in ms.

    Raises RecordTooLargeError for properties above 32,767 bytes, FormatError for a value that
    holds 0x02, a field out of its range, or columns that do not fit each other.
    """
    named = ((UNIQ_KEY, uniq_keys), (KEYS, keys), (TAGS, tags))
    values = [(name, column) for name, column in named if column is not None]
    _check_columns(bodies, queue_indexes, len(queue_topics), values, own_properties)
    _check_encoded(own_properties, common_properties, first_properties)
    frames = [_frame(topic, born_host, store_ipv6) for topic in topics]
    topic_of = np.asarray(queue_topics).astype(np.int64)[queue_indexes]
    parts = ByteColumn.of([frame.topic_part for frame in frames])
    part_lengths = parts.lengths[topic_of]
    properties_lengths = _properties_lengths(
        len(bodies), values, own_properties, len(common_properties), len(first_properties)
    )
    layout = _layout(frames, store_ipv6)
    sizes = bodies.lengths + part_lengths + properties_lengths
    sizes += layout.itemsize + _PROPERTIES_LENGTH_SIZE
    _check_sizes(sizes, properties_lengths)

    ends = offsets_of(sizes)
    records = np.empty(int(ends[-1]), np.uint8)
    if len(bodies):
        headers = np.zeros(len(bodies), layout)
        headers["size"] = sizes
        headers["queue_id"] = _in_range("queue id", np.asarray(queue_ids))[queue_indexes]
        headers["flag"] = _in_range("flag", flag)
        headers["sys_flag"] = _in_range("sys_flag", sys_flag)
        headers["born_timestamp"] = born_timestamp
        _fill_headers(headers, frames, topic_of, bodies)
        windows(records, layout.itemsize)[ends[:-1]] = headers.view(f"V{layout.itemsize}")

    cursor = _Cursor(records, ends[:-1] + layout.itemsize)
    cursor.put_slices(bodies.data, bodies.starts, bodies.lengths)
    cursor.put_slices(parts.data, parts.starts[topic_of], part_lengths)
    cursor.put_lengths(properties_lengths)
    cursor.put_properties(first_properties, values, own_properties, common_properties)
    return RecordBatch(
        records=records.data,
        sizes=sizes.astype(np.uint32),
        queue_indexes=np.asarray(queue_indexes, np.uint16),
        topics=tuple(topics),
        queue_topics=np.asarray(queue_topics, np.uint32),
        queue_ids=np.asarray(queue_ids, np.uint32),
    )


def _layout(frames: Sequence[TopicFrame], store_ipv6: bool) -> np.dtype[np.void]:
    """All records of a batch have the same kinds of addresses."""
    return header_dtype(
        len(frames[0].born) if frames else IPV4_SIZE, IPV6_SIZE if store_ipv6 else IPV4_SIZE
    )


def _fill_headers(
    headers: NDArray[np.void],
    frames: Sequence[TopicFrame],
    topic_of: NDArray[np.int64],
    bodies: ByteColumn,
) -> None:
    """What follows from the topics and the bodies."""
    headers["magic"] = np.array([frame.magic for frame in frames], np.uint32)[topic_of]
    headers["sys_flag"] |= frames[0].host_flags
    headers["born_host"] = np.void(frames[0].born)
    headers["body_crc"] = body_crcs(bodies.data, bodies.starts, bodies.lengths)
    headers["body_length"] = bodies.lengths


@lru_cache(maxsize=8192)
def _frame(topic: str, born_host: str, store_ipv6: bool) -> TopicFrame:
    return TopicFrame(topic, born_host, store_ipv6=store_ipv6)


class _Cursor:
    """A writing position in each record, moved by what is written there."""

    def __init__(self, target: NDArray[np.uint8], positions: NDArray[np.int64]) -> None:
        self._target = target
        self._positions = positions

    def put_slices(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> None:
        copy_slices(data, starts, self._target, self._positions, lengths)
        self._positions = self._positions + lengths

    def put_properties(
        self,
        first: bytes,
        values: Sequence[tuple[str, ByteColumn]],
        own: ByteColumn | None,
        common: bytes,
    ) -> None:
        """In the order of a record: of the first record alone, named, of each record, of all."""
        self.put_first(first)
        for name, column in values:
            self.put_property(name.encode(), column)
        if own is not None:
            self.put_slices(own.data, own.starts, own.lengths)
        self.put_constant(common)

    def put_constant(self, text: bytes) -> None:
        """The same bytes into every record."""
        if text and len(self._positions):
            windows(self._target, len(text))[self._positions] = np.void(text)
            self._positions = self._positions + len(text)

    def put_first(self, text: bytes) -> None:
        """Into the first record alone."""
        if text and len(self._positions):
            start = int(self._positions[0])
            self._target[start : start + len(text)] = np.frombuffer(text, np.uint8)
            self._positions = self._positions.copy()
            self._positions[0] += len(text)

    def put_lengths(self, lengths: NDArray[np.int64]) -> None:
        """Numbers of two bytes, big-endian."""
        self._target[self._positions] = lengths >> 8
        self._target[self._positions + 1] = lengths & 0xFF
        self._positions = self._positions + _PROPERTIES_LENGTH_SIZE

    def put_property(self, name: bytes, values: ByteColumn) -> None:
        """Name, value and separators into the records whose value is not empty."""
        lengths = values.lengths
        if lengths.all():
            self._put_values(name, values.data, values.starts, lengths)
            return
        rows = lengths.nonzero()[0]
        some = _Cursor(self._target, self._positions[rows])
        some._put_values(name, values.data, values.starts[rows], lengths[rows])
        self._positions = self._positions.copy()
        self._positions[rows] = some._positions

    def _put_values(
        self,
        name: bytes,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        self.put_constant(name + bytes((NAME_END,)))
        self.put_slices(data, starts, lengths)
        self.put_constant(bytes((PROPERTY_END,)))


def _check_columns(
    bodies: ByteColumn,
    queue_indexes: NDArray[np.uint16],
    queues: int,
    values: Sequence[tuple[str, ByteColumn]],
    own_properties: ByteColumn | None,
) -> None:
    """That the columns are of one length, and no value ends early."""
    count = len(bodies)
    lengths = {"queue_indexes": len(queue_indexes)}
    lengths |= {name: len(column) for name, column in values}
    if own_properties is not None:
        lengths["own_properties"] = len(own_properties)
    for name, length in lengths.items():
        if length != count:
            raise FormatError(f"column {name} has {length} rows, bodies has {count}")
    if count and int(queue_indexes.max()) >= queues:
        raise FormatError(
            f"queue_indexes holds {int(queue_indexes.max())}, the table has {queues} queues"
        )
    for name, column in values:
        row = _first_row_with(column, PROPERTY_END)
        if row >= 0:
            # It would end the value there and make a property of the rest.
            raise FormatError(
                f"value of property {name!r} of message {row} holds the separator 0x02"
            )


def _first_row_with(column: ByteColumn, byte: int) -> int:
    """The first string that holds `byte`, -1 if none does."""
    begin, end = int(column.offsets[0]), int(column.offsets[-1])
    places = (column.data[begin:end] == byte).nonzero()[0]
    if not len(places):
        return -1
    rows = np.searchsorted(column.offsets, places + begin, side="right") - 1
    rows = rows[column.lengths[rows] > 0]
    return int(rows[0]) if len(rows) else -1


def _check_encoded(
    own_properties: ByteColumn | None, common_properties: bytes, first_properties: bytes
) -> None:
    """That encoded properties end as such, so that others can follow them."""
    end = bytes((PROPERTY_END,))
    for name, text in (
        ("common_properties", common_properties),
        ("first_properties", first_properties),
    ):
        if text and not text.endswith(end):
            raise FormatError(f"{name} do not end with the separator 0x02")
    if own_properties is not None:
        rows = own_properties.lengths.nonzero()[0]
        last = own_properties.data[own_properties.offsets[rows + 1] - 1]
        wrong = (last != PROPERTY_END).nonzero()[0]
        if len(wrong):
            raise FormatError(
                f"own_properties of message {int(rows[wrong[0]])} do not end with the "
                "separator 0x02"
            )


def _properties_lengths(
    count: int,
    values: Sequence[tuple[str, ByteColumn]],
    own_properties: ByteColumn | None,
    common: int,
    first: int,
) -> NDArray[np.int64]:
    total = np.full(count, common, np.int64)
    total[:1] += first
    for name, column in values:
        lengths = column.lengths
        total += lengths + (len(name) + 2) * (lengths > 0)
    if own_properties is not None:
        total += own_properties.lengths
    return total


def _check_sizes(sizes: NDArray[np.int64], properties_lengths: NDArray[np.int64]) -> None:
    if not len(sizes):
        return
    if int(properties_lengths.max()) > MAX_PROPERTIES:
        raise RecordTooLargeError("properties", int(properties_lengths.max()), MAX_PROPERTIES)
    if int(sizes.max()) > _MAX_I32:
        raise RecordTooLargeError("record", int(sizes.max()), _MAX_I32)


def _in_range(name: str, numbers: Numbers) -> NDArray[np.int64]:
    """The numbers, if all of them fit a signed 32-bit field."""
    array = np.asarray(numbers).astype(np.int64)
    if array.size and (int(array.min()) < _MIN_I32 or int(array.max()) > _MAX_I32):
        raise FormatError(f"{name}: a value between {_MIN_I32} and {_MAX_I32} is needed")
    return array
