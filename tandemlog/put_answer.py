"""A node's response to one request, computed for each of its records.

    segments          records first .. first+count-1 lie in the log from a position on, and the
                      first of each queue got a queue offset
    queue offset      = the segment's offset of that queue + how many of the queue came before
    physical offset   = the segment's position + the bytes before

For all records at once and only on demand: most senders read few of their results. Of many records
it is done by columns (put_answer_columns.py).
"""

from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from struct import unpack
from typing import TYPE_CHECKING

from .lazy import FEW, HAVE_NUMPY, lazy
from .v1 import broker_pb2

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    import tandemlog.put_answer_columns as put_answer_columns

    from .delayed import Delayed
    from .in_transaction import HeldBack
else:
    put_answer_columns = lazy(f"{__package__}.put_answer_columns")


class PutAnswer:
    """The positions of the n records of one request. `sizes` are the bytes as they were sent,
    `byte_size` all of them, `queue_indexes` each record's entry in the table of `topics` and
    `queue_ids`, `delayed` the messages that come later or with a transaction, by their index."""

    def __init__(
        self,
        *,
        topics: Sequence[str],
        queue_topics: Sequence[int],
        queue_ids: Sequence[int],
        queue_indexes: "array[int]",
        sizes: "array[int]",
        byte_size: int,
        response: broker_pb2.AppendResponse,
        delayed: "Mapping[int, Delayed | HeldBack] | None" = None,
    ) -> None:
        self._topics = topics
        self._queue_topics = queue_topics
        self._queue_ids = queue_ids
        self._queue_indexes = queue_indexes
        self._sizes = sizes
        self._segments = response.segments
        self.byte_size = byte_size
        self.store_timestamp = response.store_timestamp
        self.store_host = response.store_host
        self.duplicate = response.duplicate
        self.delayed = delayed or {}

    @property
    def count(self) -> int:
        return len(self._sizes)

    def topic(self, index: int) -> str:
        return self._topics[self._queue_topics[self._queue_indexes[index]]]

    def queue_id(self, index: int) -> int:
        return self._queue_ids[self._queue_indexes[index]]

    @cached_property
    def record_queue_ids(self) -> "Sequence[int] | NDArray[np.int32]":
        """i4[n]"""
        if self._by_columns:
            return put_answer_columns.record_queue_ids(self._queue_ids, self._queue_indexes)
        return array("i", map(self._queue_ids.__getitem__, self._queue_indexes))

    @cached_property
    def physical_offsets(self) -> "Sequence[int] | NDArray[np.int64]":
        """i8[n], bytes; -1 if the node did not say."""
        if self._by_columns:
            return put_answer_columns.physical_offsets(self._segments, self._sizes)
        offsets = array("q", [-1]) * self.count
        for segment in self._segments:
            offset = segment.physical_offset
            for index in range(segment.first_index, segment.first_index + segment.count):
                offsets[index] = offset
                offset += self._sizes[index] + segment.record_extra
        return offsets

    @cached_property
    def queue_offsets(self) -> "Sequence[int] | NDArray[np.int64]":
        """i8[n], messages; -1 if the node did not say."""
        if self._by_columns:
            return put_answer_columns.queue_offsets(self._segments, self._queue_indexes)
        offsets = array("q", [-1]) * self.count
        for segment in self._segments:
            following = list(unpack(f"<{len(segment.queue_offsets) // 8}q", segment.queue_offsets))
            if not following:
                continue
            for index in range(segment.first_index, segment.first_index + segment.count):
                entry = self._queue_indexes[index]
                offsets[index] = following[entry]
                following[entry] += 1
        return offsets

    @property
    def _by_columns(self) -> bool:
        return HAVE_NUMPY and self.count > FEW
