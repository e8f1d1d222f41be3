"""What the log says about one queue of one group: which messages are done, which were tried.

    queue offset   0 ........ 40 41 42 43 44 45 46 47
                   done      | .  d  d  .  .  d  .  .       d: done, above the floor
                             floor      2  1     1          attempts of those that are not

Everything below `floor` is done. A change only ends more messages, or says how often one was tried:
applying it twice is the same as once. So the state is right wherever a node begins to apply, as
soon as it has everything that was known at some later place.
"""

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.lease.progress import QueueProgress

from .intervals import IntervalSet

MAX_ERRORS = 1_000
"""Texts that are kept for one queue: those of the newest messages."""

_NO_OFFSETS: NDArray[np.int64] = np.empty(0, np.int64)
_NO_ATTEMPTS: NDArray[np.uint16] = np.empty(0, np.uint16)


class QueueState:
    """See the module. `offsets` i8[n], ascending, with `attempts` u2[n] and `first_ms` i8[n]: the
    messages that were delivered and are not done."""

    __slots__ = ("attempts", "ended", "errors", "first_ms", "floor", "generation", "offsets")

    def __init__(self) -> None:
        self._begin(0, 0)

    def _begin(self, generation: int, floor: int) -> None:
        self.generation = generation
        self.floor = floor
        self.ended = IntervalSet()
        self.offsets = _NO_OFFSETS
        self.attempts = _NO_ATTEMPTS
        self.first_ms = _NO_OFFSETS
        self.errors: dict[int, str] = {}

    def apply(self, change: QueueProgress) -> None:
        """What the next record of the log says."""
        if change.generation < self.generation:
            return
        if change.generation > self.generation:
            self._begin(change.generation, 0)
        if change.floor is not None:
            self.floor = max(self.floor, change.floor)
        self.ended.add_runs(change.ended_starts, change.ended_ends)
        self.floor = self.ended.advance(self.floor)
        if len(change.offsets):
            self._merge(change)
        if len(self.offsets):
            self._drop_ended()
        if change.errors:
            self.errors.update(change.errors)
        if self.errors:
            self._drop_errors()

    def _merge(self, change: QueueProgress) -> None:
        """The newer numbers count."""
        others = ~np.isin(self.offsets, change.offsets, assume_unique=True)
        offsets = np.concatenate((self.offsets[others], change.offsets))
        order = np.argsort(offsets, kind="stable")
        self.offsets = offsets[order]
        self.attempts = np.concatenate((self.attempts[others], change.attempts))[order]
        self.first_ms = np.concatenate((self.first_ms[others], change.first_ms))[order]

    def _drop_ended(self) -> None:
        left = (self.offsets >= self.floor) & ~self.ended.contains(self.offsets)
        if not left.all():
            self.offsets = self.offsets[left]
            self.attempts = self.attempts[left]
            self.first_ms = self.first_ms[left]

    def _drop_errors(self) -> None:
        left = [each for each in self.errors if each >= self.floor and each not in self.ended]
        if len(left) > MAX_ERRORS:
            left = sorted(left)[-MAX_ERRORS:]
        if len(left) < len(self.errors):
            self.errors = {each: self.errors[each] for each in left}

    def progress(self, group: str, topic: str, queue_id: int) -> QueueProgress:
        """All of it, as a record of the log says it. The arrays are never changed in place."""
        starts, ends = self.ended.columns()
        return QueueProgress(
            group,
            topic,
            queue_id,
            self.generation,
            self.floor,
            starts,
            ends,
            self.offsets,
            self.attempts,
            self.first_ms,
            dict(self.errors),
        )
