"""What one pull found in one queue: raw records, and their sizes.

    ReceivedBatch     records of one queue end to end, and their sizes: columns, no objects
       │ iterate      few of them: one by one; many: in message_pieces.py, if numpy is there
    ReceivedMessage   a view into the batch (received_message.py)

A batch that was filtered by tags holds exactly the messages with those tags; the node compares only
hashes, the client the text.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, cast

from ...format.errors import CorruptRecordError
from ...format.record.record import decode_record, queue_offset_at, store_timestamp_at
from ...lazy import HAVE_NUMPY, lazy
from ...tracing import processing
from .lazy_arrow import as_arrow, schema_of
from .received_message import FIRST_ROWS, ReceivedMessage

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from opentelemetry.trace import Span

    from ...format.columns.headers import HeaderColumns
    from . import message_pieces, received_columns
else:
    message_pieces = lazy(f"{__package__}.message_pieces")
    received_columns = lazy(f"{__package__}.received_columns")


@dataclass(frozen=True)
class ReceivedBatch:
    """Records of one queue, oldest first: `records` end to end (bytes, or a view into the
    response), `sizes` u4[n] bytes of each (without numpy `array.array`, as `positions`).

    `status` is RocketMQ's (FOUND, ...), `next_offset` the queue offset to continue with.
    `min_offset` and `max_offset` are the range of the queue on the node that responded (max: one
    past the last). `log_term`: epoch and id of the newest term of that node's log, zeros if it does
    not say: where it changes, AsyncConsumer.check_positions says whether offsets still mean the
    same.
    """

    topic: str
    queue_id: int
    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes | memoryview
    sizes: "NDArray[np.uint32]"
    suggest_slave: bool = False
    log_term: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def queue(self) -> tuple[str, int]:
        """Topic and queue id, as in assignments and commits."""
        return self.topic, self.queue_id

    @cached_property
    def positions(self) -> "NDArray[np.int64]":
        """i8[n]: where in `records` each begins."""
        if HAVE_NUMPY:
            return received_columns.positions_of(self.sizes)
        positions = array("q", accumulate(self.sizes, initial=0))
        positions.pop()
        return cast("NDArray[np.int64]", positions)

    @cached_property
    def headers(self) -> "HeaderColumns":
        """The fixed fields of all records as arrays. Raises MissingPackageError without numpy."""
        return received_columns.gather_headers(self.records, self.positions, self.sizes)

    @cached_property
    def queue_offsets(self) -> Sequence[int]:
        """The queue offset of each message."""
        if self._by_columns:
            return _list(self.headers.queue_offset)
        return [queue_offset_at(self.records, int(position)) for position in self.positions]

    def following_offsets(self) -> Sequence[int]:
        """The queue offset behind each message."""
        if self._by_columns:
            return (self.headers.queue_offset + 1).data  # few of them are looked at
        return [offset + 1 for offset in self.queue_offsets]

    def store_timestamp(self, index: int) -> int:
        """When message `index` was stored, ms; a damaged record raises nothing."""
        return store_timestamp_at(self.records, int(self.positions[index]))

    @property
    def _by_columns(self) -> bool:
        return HAVE_NUMPY and len(self) >= FIRST_ROWS

    def __getitem__(self, index: int) -> ReceivedMessage:
        size = int(self.sizes[index])
        return ReceivedMessage(self.records, int(self.positions[index]), size)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        if not self._by_columns:
            return map(self.__getitem__, range(len(self)))
        return chain.from_iterable(message_pieces.pieces(self.records, self.sizes, self.headers))

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
        count = sum(map(queue_offset.__gt__, self.queue_offsets))
        end = int(self.positions[count]) if count < len(self) else len(self.records)
        return replace(
            self,
            next_offset=min(self.next_offset, queue_offset),
            records=self.records[:end],
            sizes=self.sizes[:count],
        )

    def first(self, count: int) -> "ReceivedBatch":
        """The first `count` messages, fewer than all: by their number, which a damaged queue offset
        does not change."""
        return replace(
            self,
            next_offset=min(self.next_offset, self.queue_offsets[count]),
            records=self.records[: int(self.positions[count])],
            sizes=self.sizes[:count],
        )

    def behind(self, count: int) -> "ReceivedBatch":
        """The messages after the first `count`."""
        start = int(self.positions[count]) if count < len(self) else len(self.records)
        return replace(self, records=self.records[start:], sizes=self.sizes[count:])

    def only_tags(self, tags: frozenset[str] | None) -> "ReceivedBatch":
        """This batch without messages of other tags; itself if all messages have one of `tags`. A
        damaged record stays, so that its reader hears of it."""
        if tags is None or not len(self):
            return self
        if self._by_columns:
            columns = received_columns.only_tags(self.records, self.headers, tags)
            return self if columns is None else replace(self, records=columns[0], sizes=columns[1])
        rows = [index for index in range(len(self)) if self._may_have(tags, index)]
        if len(rows) == len(self):
            return self
        records = [self[index].raw for index in rows]
        sizes = sizes_of(array("I", map(len, records)).tobytes())
        return replace(self, records=b"".join(records), sizes=sizes)

    def _may_have(self, tags: frozenset[str], index: int) -> bool:
        begin = int(self.positions[index])
        end = begin + int(self.sizes[index])
        try:
            return decode_record(self.records, begin, check_crc=False, limit=end).tags in tags
        except CorruptRecordError:
            return True


def _list(numbers: "NDArray[np.int64]") -> list[int]:
    values: list[int] = numbers.tolist()
    return values


def sizes_of(encoded: bytes) -> "NDArray[np.uint32]":
    """The sizes in a response."""
    if HAVE_NUMPY:
        return received_columns.sizes_of(encoded)
    return cast("NDArray[np.uint32]", _numbers(encoded))


def _numbers(encoded: bytes) -> "array[int]":
    """u4[n] in the order of the wire."""
    numbers = array("I", encoded)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def messages_of(records: bytes, sizes: bytes) -> list[ReceivedMessage]:
    """The messages in a query's response."""
    lengths = _numbers(sizes)
    return list(map(ReceivedMessage, repeat(records), accumulate(lengths, initial=0), lengths))
