"""What the reads of a store return.

Statuses and next offsets are RocketMQ's (format text, section 9.1), in this order:

    no such queue                 NO_MATCHED_LOGIC_QUEUE   0
    the queue never had a message NO_MESSAGE_IN_QUEUE      0
    offset < min                  OFFSET_TOO_SMALL         min
    offset = max                  OFFSET_OVERFLOW_ONE      offset
    offset > max                  OFFSET_OVERFLOW_BADLY    max
    units cannot be read          OFFSET_FOUND_NULL        start of the next queue file
    nothing taken                 NO_MATCHED_MESSAGE, or MESSAGE_WAS_REMOVING: after the last
                                  unit examined; no get goes beyond one queue file
    something taken               FOUND                    after the last unit examined
"""

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreError

_NO_SIZES: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)


class NoRecordError(StoreError):
    """No record starts at that position of the log."""


class TooManyEntriesError(StoreError):
    """A query for a key that the index has too often."""


class GetStatus(Enum):
    """RocketMQ's GetMessageStatus; the names are those of tandemlog.v1 PullStatus too."""

    FOUND = "FOUND"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"


@dataclass(frozen=True, slots=True, eq=False)
class GetResult:
    """`sizes` u4[n] and `records`, n records end to end; the offsets are queue offsets.

    `behind` is how many bytes the last unit's record lies before the end of what can be read;
    RocketMQ suggests a slave where that is much. `cost`: of a filter, beside the entries that were
    examined, and as so many of them (filtering.py).
    """

    status: GetStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    sizes: NDArray[np.uint32] = field(default_factory=lambda: _NO_SIZES)
    records: bytes | memoryview = b""
    behind: int = 0
    cost: int = 0

    @property
    def count(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class QueueRange:
    """What a queue holds: queue offsets min..max-1, and the store times (ms) of the first and
    the last of them, -1 if there is none."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    min_timestamp: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class FoundRecords:
    """Records by key or position: where each lies in the log, and the bytes. `next_before` is for
    a query that continues with older records, 0 if there are none."""

    physical_offsets: tuple[int, ...]
    records: tuple[bytes, ...]
    next_before: int = 0
