"""One batch of the log, as dispatch gives it to queues, index and folds.

    window     | record | record | damage | record | BLANK |
    columns      row 0    row 1             row 2             a row for each record
               start                                        end

The columns say what nearly all dispatchers want. A fold that wants more of a few records, such as
the properties of a delayed message, reads them from the window, which is valid only while the batch
is dispatched.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import DispatchColumns


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A damaged record that still tells its queue, its number there, its store time (ms) and its
    producer's mark (empty if it has none)."""

    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int = 0
    mark: bytes = b""


_NO_BYTES = memoryview(b"")
_NO_ROWS: NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True)
class DispatchBatch:
    """The records of the log between `start` and `end`, which may be none; `lost` is a damaged one
    there that was skipped. `window` holds the bytes of the log from `start` on."""

    start: int
    end: int
    columns: DispatchColumns
    window: memoryview = _NO_BYTES
    lost: LostRecord | None = None

    def rows_of(self, topic: str) -> NDArray[np.int64]:
        """The rows of the records of this topic, ascending."""
        if topic not in self._topics:
            return _NO_ROWS
        number = self.columns.topics.index(topic)
        rows: NDArray[np.int64] = (self.columns.topic_index == number).nonzero()[0]
        return rows

    def has_any(self, topics: Collection[str]) -> bool:
        """Whether there is a record of one of these topics: most batches have none of a service."""
        return not self._topics.isdisjoint(topics)

    @cached_property
    def _topics(self) -> frozenset[str]:
        """Each fold asks for several of them, and a batch may have thousands."""
        return frozenset(self.columns.topics)

    @cached_property
    def naming(self) -> NDArray[np.int64]:
        """The rows of the records that name an earlier one in `prepared_transaction_offset`:
        delivered messages and those of committed transactions."""
        return self.columns.prepared_transaction_offset.nonzero()[0]

    def record(self, row: int) -> memoryview:
        """The bytes of a record in the window."""
        begin = int(self.columns.physical_offset[row]) - self.start
        return self.window[begin : begin + int(self.columns.size[row])]
