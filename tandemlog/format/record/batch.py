"""A batch of framed records on its way to a master, and the columns beside them.

    records       one buffer, records end to end (RocketMQ's layout, record.py)
    sizes         u4[n]   bytes of each record
    queue_indexes u2[n]   which entry of the batch's own table of queues each record goes to
    topics        the distinct topics
    queue_topics  u4[q]   table: index into topics
    queue_ids     u4[q]   table: queue id

The columns save the node from digging them out record by record; it checks them against the
bytes and trusts nothing. A batch is per master and never per queue, so the number of topics
costs nothing. At most 65,535 table entries.

The fields that only the master knows are zero in the records: queue offset, physical offset,
store timestamp, store host. Everything else, the body CRC included, is the client's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Framed records and their columns; see the module's picture. Raises nothing by itself."""

    records: bytes | bytearray | memoryview
    sizes: NDArray[np.uint32]
    queue_indexes: NDArray[np.uint16]
    topics: tuple[str, ...]
    queue_topics: NDArray[np.uint32]
    queue_ids: NDArray[np.uint32]

    @property
    def count(self) -> int:
        return len(self.sizes)

    @property
    def byte_size(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True)
class AppendSegment:
    """Records first_index .. first_index+count-1 of a batch, in the log without a gap.

    `physical_offset` is the position of the first; `queue_offsets[q]` the queue offset that the
    first record of table entry q got in this segment, -1 if it holds none of that queue. Each
    record is `record_extra` bytes longer than the client's.
    """

    first_index: int
    count: int
    physical_offset: int
    queue_offsets: NDArray[np.int64]
    record_extra: int = 0
