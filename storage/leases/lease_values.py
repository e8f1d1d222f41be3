"""What goes in and out of the lease engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .queue_leases import QueueLeases
from .read_batch import ReadBatch
from .unacked import I64


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """Messages that are delivered and not done: of one queue of a group, and of the node."""

    queue_unacked: int = 10_000
    node_unacked: int = 1_000_000
    grace_ms: int = 10_000
    """A new master waits so long before it delivers again what the log says was tried."""


@dataclass(frozen=True, slots=True)
class Now:
    """`ms`: of a clock that never jumps; `wall_ms`: since the epoch."""

    ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What to read of a queue: `again`, offsets that come again, or, where there are none,
    `start`..`end`."""

    queue: QueueLeases
    again: I64
    start: int
    end: int
    holder: str

    @property
    def count(self) -> int:
        return len(self.again) or self.end - self.start

    @property
    def first(self) -> int:
        """The queue offset of its first message."""
        return int(self.again[0]) if len(self.again) else self.start


@dataclass(frozen=True, slots=True, eq=False)
class Leased:
    """Messages of one queue that a consumer has now; `attempts` u2[n], `first_ms` i8[n] when each
    was first delivered (since the epoch), `handles` 64 characters each, `errors` by index in the
    batch."""

    queue: QueueLeases
    batch: ReadBatch
    attempts: NDArray[np.uint16]
    first_ms: I64
    handles: bytes
    errors: Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class DeadLetters:
    """Messages of one queue whose attempts are exhausted, or that were rejected."""

    queue: QueueLeases
    offsets: I64
    attempts: NDArray[np.uint16]
    first_ms: I64
    errors: Sequence[str]

    def only(self, offsets: Sequence[int]) -> "DeadLetters":
        """Those with one of these queue offsets."""
        return self._part(np.isin(self.offsets, offsets).nonzero()[0])

    def without(self, offsets: Sequence[int]) -> "DeadLetters":
        """The others."""
        return self._part((~np.isin(self.offsets, offsets)).nonzero()[0])

    def _part(self, rows: I64) -> "DeadLetters":
        errors = [self.errors[row] for row in rows.tolist()]
        return DeadLetters(
            self.queue, self.offsets[rows], self.attempts[rows], self.first_ms[rows], errors
        )


@dataclass(slots=True)
class Counters:
    """Of all terms of a process together."""

    delivered: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    retried: int = 0
    expired: int = 0
    set_aside: int = 0
    invalid_handles: int = 0
    dead_letters: int = 0
