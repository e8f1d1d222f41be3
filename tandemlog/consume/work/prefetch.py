"""How many messages a consumer asks for, so that it is seldom idle and does not hoard. Pure.

    prefetch=None   what is settled in AHEAD_S at the present rate, at least what callers wait for
    prefetch=0      what callers wait for
    prefetch=n      n

A consumer asks again when half of that is left. The rate rises at once, and falls slowly: between
bursts the callers wait for messages, which says nothing about how quick they are. A caller that
takes seconds for a message gets none ahead: another consumer may be free.
"""

from typing import Final

from ...format.lease.policy import MAX_RECEIVE

AHEAD_S: Final = 0.25
MOST: Final = 2 * MAX_RECEIVE
_SHORTEST_S: Final = 0.005
_KEPT: Final = 0.8


class Prefetch:
    """See the module. Times are seconds of one monotonic clock."""

    def __init__(self, fixed: int | None, now: float) -> None:
        self.fixed = fixed
        self._rate = 0.0
        self._seen = 0
        self._seen_at = now

    def note(self, settled: int, now: float) -> None:
        """So many messages were settled since the begin."""
        seconds = now - self._seen_at
        if seconds < _SHORTEST_S:
            return
        rate = (settled - self._seen) / seconds
        self._rate = max(rate, _KEPT * self._rate + (1 - _KEPT) * rate)
        self._seen, self._seen_at = settled, now

    def slow(self) -> None:
        """The callers are busy with what they have."""
        self._rate = 0.0

    def count(self, waiting: int, idle: int) -> int:
        """How many to ask for now, while `waiting` are there and `idle` callers want one."""
        wanted = self.fixed
        if wanted is None:
            wanted = min(round(self._rate * AHEAD_S), MOST)
        wanted = max(wanted, idle)
        if waiting > wanted // 2:
            return 0
        return min(wanted - waiting, MAX_RECEIVE)
