"""Messages as they come back: raw records, decoded when a field is accessed.

    ReceivedBatch     records of one queue end to end, and their sizes: columns, no objects
       │ iterate
    ReceivedMessage   a view into the batch; the record is decoded, and its CRC checked, when the
                      first of its fields is asked for
       └ in a batch of many: a row of a piece, whose bodies (or properties) are decoded all at
         once when the first of them is asked for. A record with a fault is decoded alone, so
         that its error is its own.

A batch that was filtered by tags holds exactly the messages with those tags; the node compares only
hashes, the client the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, repeat
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRecordError
from ..format.arrays.ragged import compact, gather_rows
from ..format.columns.fields import Properties, bodies, bytes_under, properties
from ..format.columns.headers import HeaderColumns, gather_headers
from ..format.columns.property_layouts import find_properties
from ..format.constants import (
    BODY_LENGTH_OFFSET,
    BORN_TIMESTAMP_OFFSET,
    CRC_MASK,
    IPV6_EXTRA,
    KEYS,
    TAGS,
)
from ..format.errors import CorruptRecordError
from ..format.fast_crc import crc32
from ..format.record.properties import split_keys
from ..format.record.record import Record, decode_record
from ..format.record.sys_flag import BORN_HOST_IPV6, COMPRESSED, STORE_HOST_IPV6, decompress_body
from ..tracing import processing
from .columns import as_arrow, schema_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from opentelemetry.trace import Span

_HEAD: Final = Struct(">iIiiiqqi")
"""A record up to its system flag."""
_LENGTH: Final = Struct(">i")
_MANY: Final = 16
"""Messages from which on decoding by columns costs less than one by one."""
_PIECE_ROWS: Final = 256
_PIECE_BYTES: Final = 1 << 20
_ALONE: Final = b""
"""In place of a text: this record must be decoded alone."""
_IPV6: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6

assert _HEAD.size == BORN_TIMESTAMP_OFFSET


class ReceivedMessage:
    """One message. Its fields raise BadRecordError if the record is damaged, and the body
    FormatError if it cannot be decompressed. Most of them decode the whole record, once."""

    __slots__ = ("_buffer", "_position", "_record", "size")

    def __init__(self, buffer: bytes | memoryview, position: int, size: int) -> None:
        self._buffer = buffer
        self._position = position
        self._record: Record | None = None
        self.size = size

    @property
    def raw(self) -> bytes:
        """The record's bytes, as in the log."""
        return bytes(self._buffer[self._position : self._position + self.size])

    @property
    def record(self) -> Record:
        """All fields; the body as it is stored."""
        record = self._record
        if record is None:
            try:
                record = decode_record(
                    self._buffer, self._position, limit=self._position + self.size
                )
            except CorruptRecordError as error:
                raise BadRecordError(f"received record: {error}", field=error.field) from error
            self._record = record
        return record

    @property
    def body(self) -> bytes:
        """As the producer sent it, decompressed. Read without decoding the rest."""
        at = self._position
        _, _, crc, *_, sys_flag = _HEAD.unpack_from(self._buffer, at)
        at += BODY_LENGTH_OFFSET
        if sys_flag & _IPV6:
            at += IPV6_EXTRA * (bool(sys_flag & BORN_HOST_IPV6) + bool(sys_flag & STORE_HOST_IPV6))
        (length,) = _LENGTH.unpack_from(self._buffer, at)
        at += _LENGTH.size
        body = bytes(self._buffer[at : at + length]) if length > 0 else b""
        if len(body) != length or (body and crc32(body) & CRC_MASK != crc):
            body = self.record.body  # says what is wrong
        return decompress_body(sys_flag, body) if sys_flag & COMPRESSED else body

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def queue_id(self) -> int:
        return int(_HEAD.unpack_from(self._buffer, self._position)[3])

    @property
    def queue_offset(self) -> int:
        return int(_HEAD.unpack_from(self._buffer, self._position)[5])

    @property
    def physical_offset(self) -> int:
        """Position in the commit log, bytes."""
        return int(_HEAD.unpack_from(self._buffer, self._position)[6])

    @property
    def properties(self) -> dict[str, str]:
        """All properties, including the store's own; do not change them."""
        return self.record.properties

    @property
    def tags(self) -> str | None:
        return self.record.tags

    @property
    def keys(self) -> list[str]:
        return split_keys(self.record.keys or "")

    @property
    def uniq_key(self) -> str | None:
        return self.record.uniq_key

    @property
    def msg_id(self) -> str:
        """The offset id: finds this message on any node that has the log."""
        return self.record.msg_id

    @property
    def flag(self) -> int:
        return self.record.flag

    @property
    def born_timestamp(self) -> int:
        """When the client created it, ms."""
        return self.record.born_timestamp

    @property
    def born_host(self) -> str:
        return self.record.born_host

    @property
    def store_timestamp(self) -> int:
        """When the master stored it, ms."""
        return self.record.store_timestamp

    @property
    def store_time(self) -> datetime:
        return datetime.fromtimestamp(self.store_timestamp / 1000, UTC)

    @property
    def store_host(self) -> str:
        return self.record.store_host

    @property
    def reconsume_times(self) -> int:
        return self.record.reconsume_times

    def span(self, *, group: str | None = None) -> "AbstractContextManager[Span]":
        """For `with`: a span of OpenTelemetry in which this message is processed, linked to that of
        its producer. Raises InvalidArgumentError without the extra `otel`."""
        return processing(self.topic, [self.properties], 1, group)

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, {len(self.record.body)} bytes)"
        )


class _Piece:
    """Rows of a batch that are decoded together; few enough to stay in the processor's cache."""

    __slots__ = (
        "_base", "_batch", "_data", "_headers", "_rows", "bodies", "keys", "properties", "tags",
    )  # fmt: skip

    def __init__(self, batch: "ReceivedBatch", data: bytes, base: int, rows: slice) -> None:
        """The batch's records begin at `base` of `data`."""
        self._batch = batch
        self._data = data
        self._base = base
        self._headers = batch.headers
        self._rows = rows
        self.bodies: list[bytes | None] | None = None
        self.properties: Properties | None = None
        self.keys: list[Any] = []
        self.tags: list[Any] = []

    def place(self, row: int) -> tuple[bytes | memoryview, int, int]:
        """Buffer, position in it and size of a record."""
        row += self._rows.start
        headers = self._headers
        return self._batch.records, int(headers.positions[row]), int(headers.sizes[row])

    def decode_bodies(self) -> list[bytes | None]:
        """None for those that must be decoded alone."""
        found = self.bodies = bodies(self._data, self._base, self._headers, self._rows)
        return found

    def decode_properties(self) -> Properties:
        """Keys and tags too: a text, None, or _ALONE for those that must be decoded alone."""
        found = properties(self._data, self._base, self._headers, self._rows)
        alone = [
            row for row, body in enumerate(self.bodies or self.decode_bodies()) if body is None
        ]
        self.keys = _marked(found.column(KEYS), alone)
        self.tags = _marked(found.column(TAGS), alone)
        self.properties = found
        return found


def _marked(values: list[str | None], alone: list[int]) -> list[Any]:
    if not alone:
        return values
    marked: list[Any] = list(values)
    for row in alone:
        marked[row] = _ALONE
    return marked


class _PieceMessage(ReceivedMessage):
    """A row of a piece. The slots of a message that stands alone are filled when they are asked
    for the first time."""

    __slots__ = ("_piece", "_row")

    def __init__(self, piece: _Piece, row: int) -> None:
        self._piece = piece
        self._row = row

    def __getattr__(self, name: str) -> Any:
        """Only called for a slot without a value."""
        if name not in ReceivedMessage.__slots__:
            raise AttributeError(f"a message has no {name!r}", name=name, obj=self)
        super().__init__(*self._piece.place(self._row))
        return getattr(self, name)

    @property
    def body(self) -> bytes:
        piece = self._piece
        body = (piece.bodies or piece.decode_bodies())[self._row]
        return super().body if body is None else body

    @property
    def properties(self) -> dict[str, str]:
        piece = self._piece
        if (piece.bodies or piece.decode_bodies())[self._row] is None:
            return self.record.properties
        return (piece.properties or piece.decode_properties())[self._row]

    @property
    def keys(self) -> list[str]:
        piece = self._piece
        if piece.properties is None:
            piece.decode_properties()
        keys = piece.keys[self._row]
        if keys is None:
            return []
        if keys is _ALONE:
            return split_keys(self.record.keys or "")
        return split_keys(keys) if " " in keys else [keys]

    @property
    def tags(self) -> str | None:
        piece = self._piece
        if piece.properties is None:
            piece.decode_properties()
        tags: Any = piece.tags[self._row]
        return self.record.tags if tags is _ALONE else tags


@dataclass(frozen=True)
class ReceivedBatch:
    """Records of one queue, oldest first: `records` end to end (bytes, or a view into the
    response), `sizes` u4[n] bytes of each.

    `status` is RocketMQ's (FOUND, ...), `next_offset` the queue offset to continue with.
    `min_offset` and `max_offset` are the range of the queue on the node that responded (max: one
    past the last).
    """

    topic: str
    queue_id: int
    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes | memoryview
    sizes: NDArray[np.uint32]
    suggest_slave: bool = False

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """i8[n]: where in `records` each begins."""
        sizes = self.sizes.astype(np.int64)
        return np.cumsum(sizes) - sizes

    @cached_property
    def headers(self) -> HeaderColumns:
        """The fixed fields of all records as arrays."""
        return gather_headers(self.records, self.positions, self.sizes)

    def __getitem__(self, index: int) -> ReceivedMessage:
        size = int(self.sizes[index])
        return ReceivedMessage(self.records, int(self.positions[index]), size)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        if len(self) < _MANY:
            return map(self.__getitem__, range(len(self)))
        return chain.from_iterable(self._pieces())

    def _pieces(self) -> Iterator[Iterator[ReceivedMessage]]:
        data, base = bytes_under(self.records)
        mean = max(len(self.records) // len(self), 1)
        step = max(min(_PIECE_ROWS, _PIECE_BYTES // mean), 1)
        for begin in range(0, len(self), step):
            rows = slice(begin, min(begin + step, len(self)))
            piece = _Piece(self, data, base, rows)
            yield map(_PieceMessage, repeat(piece), range(rows.stop - rows.start))

    def span(self, *, group: str | None = None) -> "AbstractContextManager[Span]":
        """As ReceivedMessage.span, for all messages of the batch: one span, linked to those of
        their producers."""
        return processing(self.topic, (each.properties for each in self), len(self), group)

    def to_arrow(self, columns: Sequence[str] | None = None) -> "pa.RecordBatch":
        """The messages as an Arrow batch: the given columns, or those of docs/client.md. Bodies are
        decompressed and checked. Raises BadRecordError, which names the record, for a damaged one,
        and InvalidArgumentError for an unknown column or without the extra `arrow`."""
        return as_arrow([self], schema_of(columns))

    def before(self, queue_offset: int) -> "ReceivedBatch":
        """The messages before `queue_offset`."""
        count = int(np.count_nonzero(self.headers.queue_offset < queue_offset))
        end = int(self.positions[count]) if count < len(self) else len(self.records)
        return replace(
            self,
            next_offset=min(self.next_offset, queue_offset),
            records=self.records[:end],
            sizes=self.sizes[:count],
        )

    def behind(self, count: int) -> "ReceivedBatch":
        """The messages after the first `count`."""
        start = int(self.positions[count]) if count < len(self) else len(self.records)
        return replace(self, records=self.records[start:], sizes=self.sizes[count:])

    def only_tags(self, tags: frozenset[str] | None) -> "ReceivedBatch":
        """This batch without the messages of other tags; itself if there are none."""
        if tags is None or not len(self):
            return self
        matching = self._tag_mask(tags)
        if matching.all():
            return self
        sizes = self.sizes[matching]
        records, _ = compact(
            np.frombuffer(self.records, np.uint8),
            self.positions[matching],
            sizes.astype(np.int64),
        )
        return replace(self, records=records.tobytes(), sizes=sizes)

    def _tag_mask(self, tags: frozenset[str]) -> NDArray[np.bool_]:
        data = np.frombuffer(self.records, np.uint8)
        headers = self.headers
        [(starts, lengths)] = find_properties(
            data, headers.properties_start, headers.properties_length, [TAGS.encode()]
        )
        mask = np.zeros(len(self), bool)
        for tag in tags:
            wanted = np.frombuffer(tag.encode(), np.uint8)
            rows = np.flatnonzero(lengths == len(wanted))
            if len(rows):
                equal = (gather_rows(data, starts[rows], len(wanted)) == wanted).all(axis=1)
                mask[rows[equal]] = True
        return mask


def messages_of(records: bytes, sizes: bytes) -> list[ReceivedMessage]:
    """The messages in a query's response."""
    found = []
    position = 0
    for size in np.frombuffer(sizes, "<u4").tolist():
        found.append(ReceivedMessage(records, position, size))
        position += size
    return found
