"""How many messages a consumer asks for, so that it is never idle and does not hoard. Pure.

    prefetch=None   what is taken in AHEAD_S at the present rate, at least one for each handler
    prefetch=0      as many as callers wait for
    prefetch=n      n

A consumer asks again when half of that is left. The rate rises at once, and falls slowly: between
bursts the callers wait for messages, which says nothing about how quick they are.
"""

from typing import Final

from ...format.lease.policy import MAX_RECEIVE

AHEAD_S: Final = 0.25
MOST: Final = 2 * MAX_RECEIVE
_SHORTEST_S: Final = 0.005
_KEPT: Final = 0.8


class Prefetch:
    """See the module. Times are seconds of one monotonic clock."""

    def __init__(self, fixed: int | None, concurrency: int, now: float) -> None:
        self._fixed = fixed
        self._concurrency = concurrency
        self._rate = 0.0
        self._seen = 0
        self._seen_at = now

    def note(self, taken: int, now: float) -> None:
        """So many messages were taken since the begin."""
        seconds = now - self._seen_at
        if seconds < _SHORTEST_S:
            return
        rate = (taken - self._seen) / seconds
        self._rate = max(rate, _KEPT * self._rate + (1 - _KEPT) * rate)
        self._seen, self._seen_at = taken, now

    def count(self, waiting: int, idle: int) -> int:
        """How many to ask for now, while `waiting` are there and `idle` callers want one."""
        if self._fixed == 0:
            return min(max(idle - waiting, 0), MAX_RECEIVE)
        wanted = self._fixed
        if wanted is None:
            wanted = min(max(round(self._rate * AHEAD_S), self._concurrency), MOST)
        if waiting > wanted // 2:
            return 0
        return min(wanted - waiting, MAX_RECEIVE)
