"""A node's response to one request, computed for each of its records.

    segments          records first .. first+count-1 lie in the log from a position on, and the
                      first of each queue got a queue offset
    queue offset      = the segment's offset of that queue + how many of the queue came before
    physical offset   = the segment's position + the bytes before

All with arrays and only on demand: most senders read few of their results.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .v1 import broker_pb2


class PutAnswer:
    """The positions of the n records of one request. `sizes` are the bytes as they were sent,
    `queue_indexes` each record's entry in the table of `topics` and `queue_ids`."""

    def __init__(
        self,
        *,
        topics: Sequence[str],
        queue_topics: Sequence[int],
        queue_ids: Sequence[int],
        queue_indexes: NDArray[np.uint16],
        sizes: NDArray[np.uint32],
        response: broker_pb2.AppendResponse,
    ) -> None:
        self._topics = topics
        self._queue_topics = queue_topics
        self._queue_ids = queue_ids
        self._queue_indexes = queue_indexes
        self._sizes = sizes
        self._segments = response.segments
        self.store_timestamp = response.store_timestamp
        self.store_host = response.store_host
        self.duplicate = response.duplicate

    @property
    def count(self) -> int:
        return len(self._sizes)

    @property
    def byte_size(self) -> int:
        return int(self._sizes.sum(dtype=np.int64))

    def topic(self, index: int) -> str:
        return self._topics[self._queue_topics[int(self._queue_indexes[index])]]

    def queue_id(self, index: int) -> int:
        return self._queue_ids[int(self._queue_indexes[index])]

    @cached_property
    def record_queue_ids(self) -> NDArray[np.int32]:
        """i4[n]"""
        return np.asarray(self._queue_ids, np.int32)[self._queue_indexes]

    @cached_property
    def physical_offsets(self) -> NDArray[np.int64]:
        """i8[n], bytes; -1 if the node did not say."""
        offsets = np.full(self.count, -1, np.int64)
        for segment in self._segments:
            part = slice(segment.first_index, segment.first_index + segment.count)
            sizes = self._sizes[part].astype(np.int64) + segment.record_extra
            offsets[part] = segment.physical_offset + np.cumsum(sizes) - sizes
        return offsets

    @cached_property
    def queue_offsets(self) -> NDArray[np.int64]:
        """i8[n], messages; -1 if the node did not say."""
        offsets = np.full(self.count, -1, np.int64)
        for segment in self._segments:
            part = slice(segment.first_index, segment.first_index + segment.count)
            first = np.frombuffer(segment.queue_offsets, "<i8")
            if not len(first):
                continue
            indexes = self._queue_indexes[part]
            offsets[part] = first[indexes] + rank_in_group(indexes)
        return offsets


def rank_in_group(groups: NDArray[np.uint16]) -> NDArray[np.int64]:
    """How many equal values stand before each one, i8[n]."""
    count = len(groups)
    if count == 0 or (groups == groups[0]).all():
        return np.arange(count, dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    positions = np.arange(count, dtype=np.int64)
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    lengths = np.diff(np.append(starts, count))
    ranks = np.empty(count, np.int64)
    ranks[order] = positions - np.repeat(starts, lengths)
    return ranks
