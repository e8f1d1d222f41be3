"""Which leases there are, until when, and which keys hang on them. Pure.

Deadlines are never written down. After a restart, and after a time in which this process did not
run (paused, or the machine was asleep), every lease has its whole time again: no holder could renew
it, and a holder counts from before it asked, so a longer life does no harm. For the same reason a
shorter pause of this process does not count for any lease, and no lease ends right after it: the
renewals that came meanwhile are still to be read.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

PAUSE_S = 1.0
"""`expired` is called ten times as often: after a longer step this process did not run."""
STOOD_S = 0.3
"""In a longer step than this, nothing was served."""
AFTER_PAUSE_S = 0.2


@dataclass(slots=True)
class LeaseState:
    """`deadline` in seconds of the caller's `now`."""

    ttl_s: int
    deadline: float
    keys: set[bytes] = field(default_factory=set)


class LeaseTable:
    """See the module."""

    def __init__(self, ttls: dict[int, int], now: float) -> None:
        self.table = {lease: LeaseState(ttl, now + ttl) for lease, ttl in ttls.items()}
        self._now = now
        self._pause_over = now
        self._earliest = self._first_deadline()

    def expired(self, now: float) -> list[int]:
        """Those whose time is over, in order; to be called at least every PAUSE_S / 10."""
        if now - self._now > PAUSE_S:
            for each in self.table.values():
                each.deadline = now + each.ttl_s
            self._earliest = self._first_deadline()
        elif now - self._now > STOOD_S:
            for each in self.table.values():
                each.deadline += now - self._now
            self._earliest += now - self._now
            self._pause_over = now + AFTER_PAUSE_S
        self._now = now
        if now < self._earliest or now < self._pause_over:
            return []
        over = [lease for lease, each in self.table.items() if each.deadline <= now]
        self._earliest = self._first_deadline(without=set(over))
        return sorted(over)

    def grant(self, lease: int, ttl_s: int, now: float) -> None:
        self.table[lease] = LeaseState(ttl_s, now + ttl_s)
        self._earliest = min(self._earliest, now + ttl_s)

    def renew(self, lease: int, now: float) -> int:
        """Its time to live in seconds, 0 where there is no such lease."""
        state = self.table.get(lease)
        if state is None:
            return 0
        state.deadline = now + state.ttl_s
        return state.ttl_s

    def drop(self, lease: int) -> list[bytes]:
        """Forget it; its keys in order."""
        return sorted(self.table.pop(lease).keys)

    def move(self, key: bytes, old: int, new: int) -> None:
        """The key hangs on `new` instead of `old`; 0 is none."""
        if old in self.table:
            self.table[old].keys.discard(key)
        if new in self.table:
            self.table[new].keys.add(key)

    def _first_deadline(self, without: Collection[int] = ()) -> float:
        rest = (each.deadline for lease, each in self.table.items() if lease not in without)
        return min(rest, default=float("inf"))
