"""Which open transactions the master asks their producers about, and when. Pure: `now` in, answers
out.

    begun ── check_after ──▶ 1st check ── interval ──▶ 2nd ── .. ──▶ last ── interval ──▶ exhausted

A check waits at its group for a producer that comes for it, until the next one. Whether one came or
not, it counts: a group whose producers are gone must not keep its transactions for ever. Counts are
this master's: a new one begins again, and so it asks more often, and never less.

A thread may look while doors take checks in the event loop: a lock is held for each step at what
waits, and never while a transaction is judged.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol

LOOKED_AT: Final = 1_024
"""Checks of a group that one call looks at, for those that its caller may answer."""


def _all(_: str) -> bool:
    return True


class CheckLimits(Protocol):
    """Of the settings: times in ms."""

    @property
    def check_after_ms(self) -> int: ...

    @property
    def check_interval_ms(self) -> int: ...

    @property
    def max_checks(self) -> int: ...


class Asked(NamedTuple):
    """An open transaction: how old it is (s), and how often it was asked about before this master
    has seen it."""

    transaction_id: str
    group: str
    age_s: float
    checks: int


@dataclass(slots=True)
class _State:
    group: str
    next_at: float
    checks: int


class CheckBoard:
    """See the module; times in seconds of one monotonic clock. `lock` is for a board of several
    threads."""

    def __init__(self, lock: AbstractContextManager[object] | None = None) -> None:
        self._lock = nullcontext() if lock is None else lock
        self._states: dict[str, _State] = {}
        self._due: dict[str, dict[str, None]] = {}
        self.checks_total = 0
        """How many were made."""

    def look(self, transactions: Iterable[Asked], limits: CheckLimits, now: float) -> list[str]:
        """Those among all open `transactions` whose last check is over. Checks that are due wait at
        their groups afterwards."""
        known, self._states = self._states, {}
        exhausted = []
        for each in transactions:
            name = each.transaction_id
            state = known.get(name)
            if state is None:
                wait_s = max(0.0, limits.check_after_ms / 1000 - max(0.0, each.age_s))
                state = _State(each.group, now + wait_s, each.checks)
            self._states[name] = state
            if now < state.next_at:
                continue
            self._take_back(name, state.group)
            if state.checks >= limits.max_checks:
                exhausted.append(name)
                continue
            state.checks += 1
            state.next_at = now + limits.check_interval_ms / 1000
            self.checks_total += 1
            with self._lock:
                self._due.setdefault(state.group, {})[name] = None
        for name in known.keys() - self._states.keys():
            self._take_back(name, known[name].group)
        return exhausted

    def take(self, group: str, limit: int, may_answer: Callable[[str], bool] = _all) -> list[str]:
        """Checks that wait at a group and that this producer `may_answer`, the oldest first, at
        most `limit`; they do not wait any more."""
        with self._lock:
            oldest = list(islice(self._due.get(group, ()), LOOKED_AT))
        names = islice(filter(may_answer, oldest), limit)
        return [name for name in names if self._take_back(name, group)]

    def waits(self, group: str) -> bool:
        """Whether a check waits at this group."""
        return group in self._due

    @property
    def groups(self) -> list[str]:
        """Those at which a check waits."""
        with self._lock:
            return list(self._due)

    def checks(self, transaction_id: str) -> int:
        """How often it was asked about."""
        state = self._states.get(transaction_id)
        return 0 if state is None else state.checks

    def clear(self) -> None:
        """Another term: nothing was asked."""
        with self._lock:
            self._states, self._due = {}, {}

    def _take_back(self, name: str, group: str) -> bool:
        """The check does not wait any more; whether it did."""
        with self._lock:
            waiting = self._due.get(group, {})
            if name not in waiting:
                return False
            del waiting[name]
            if not waiting:
                del self._due[group]
            return True
