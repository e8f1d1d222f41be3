"""What one pull found in one queue: raw records, and their sizes.

    ReceivedBatch     records of one queue end to end, and their sizes: columns, no objects
       │ iterate      few of them: one by one; many: in pieces.py
    ReceivedMessage   a view into the batch (received_message.py)

A batch that was filtered by tags holds exactly the messages with those tags; the node compares only
hashes, the client the text.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..format.arrays.ragged import compact, gather_rows
from ..format.columns.headers import HeaderColumns, gather_headers
from ..format.columns.property_layouts import find_properties
from ..format.constants import TAGS
from ..tracing import processing
from .columns import as_arrow, schema_of
from .pieces import FIRST_ROWS, pieces
from .received_message import ReceivedMessage

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from opentelemetry.trace import Span


@dataclass(frozen=True)
class ReceivedBatch:
    """Records of one queue, oldest first: `records` end to end (bytes, or a view into the
    response), `sizes` u4[n] bytes of each.

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
    sizes: NDArray[np.uint32]
    suggest_slave: bool = False
    log_term: tuple[int, int] = (0, 0)

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
        if len(self) < FIRST_ROWS:
            return map(self.__getitem__, range(len(self)))
        return chain.from_iterable(pieces(self.records, self.sizes, self.headers))

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
