"""Whose messages wait: an identity, or a host, may have its share of store.max_delayed.

    put of a    ▸ run (first, last record, a, 40 messages)      counted at once
    messages of it come, or are called back                     counted off when it matters

What a holder has is known from above: its count grows with each put, and falls when a put would not
fit, by a look at which messages of each run still wait. So a message costs nothing when it comes.
The runs are looked at as well when there are twice as many as after the last look: of holders that
take turns each message would leave one.
The name of a holder is not in the log. After a restart, or on another master, what waits takes
room, and belongs to no share.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..folds.delay_fold import DelayFold
from ..shares import WEIGHT

FEWEST_RUNS: Final = 4096
"""Until there are so many, no look is made for their number."""
FEWEST_ENDED: Final = 100
"""Messages that must have ended since the last look, before another one pays."""


@dataclass(slots=True)
class _Run:
    """Messages of one holder without another's in between: log offsets of the first record and the
    end of the last one."""

    holder: str
    first: int
    end: int
    count: int


class DelayHolders:
    """See the module; the caller holds the store's write lock."""

    def __init__(self, fold: DelayFold, limit: int) -> None:
        self._fold = fold
        self._limit = limit
        self.clear()

    def clear(self) -> None:
        """A term begins: nothing is known of what waits."""
        self._runs: list[_Run] = []
        self._counts: dict[str, int] = {}
        self._waited = 0
        self._most_runs = FEWEST_RUNS

    def of(self, holder: str) -> int:
        """How many messages of the holder wait, at most."""
        return self._counts.get(holder, 0)

    def may_take(self, holder: str, amount: int, waiting: int) -> bool:
        """Whether `amount` more is within the holder's share, while `waiting` messages of all
        holders wait."""
        if self._fits(holder, amount, waiting):
            return True
        if self._waited - waiting < FEWEST_ENDED and waiting:
            return False
        self._recount()
        self._waited = waiting
        return self._fits(holder, amount, waiting)

    def most(self, holder: str, waiting: int) -> int:
        """How many the holder may have now, with those that it has."""
        others = waiting - self.of(holder)
        return max(WEIGHT * (self._limit - others) // (WEIGHT + 1), 0)

    def _fits(self, holder: str, amount: int, waiting: int) -> bool:
        # as Shares.may_take: three quarters of what would be free without the holder
        own, free = self.of(holder), self._limit - waiting
        return amount <= free if not own else own + amount <= WEIGHT * (free - amount)

    def appended(self, holder: str, first: int, end: int, count: int) -> None:
        """`count` messages of the holder wait in records between these log offsets."""
        self._waited += count
        last = self._runs[-1] if self._runs else None
        if last is not None and last.holder == holder:
            last.end, last.count = end, last.count + count
        else:
            if len(self._runs) >= self._most_runs:
                self._recount()
                self._most_runs = max(FEWEST_RUNS, 2 * len(self._runs))
            self._runs.append(_Run(holder, first, end, count))
        self._counts[holder] = self.of(holder) + count

    def _recount(self) -> None:
        reached = self._fold.next_offset
        bounds = np.array([(run.first, run.end) for run in self._runs], np.int64).reshape(-1, 2)
        with self._fold.lock:
            alive = self._fold.rows.alive_between(bounds[:, 0], bounds[:, 1])
        self._counts = {}
        for run, count in zip(self._runs, alive.tolist(), strict=True):
            if run.end <= reached:
                run.count = count
            if run.count:
                self._counts[run.holder] = self.of(run.holder) + run.count
        self._runs = [run for run in self._runs if run.count]
