"""Which block of the log is checked next, and when.

    log      begin ........................................ end (what is confirmed)
    round      |==checked==| next_offset
                             the block that was checked the longest time ago

Pure. A round goes through the log from its begin to its end, so the next block is always the one
whose last check is the oldest. The next round begins `interval_ms` after this one began, or at once
if this one took longer. So no block is older than an interval, or than a round takes at the rate
that is allowed, whichever is longer.

A stretch that readers could not read comes first, before the round continues.

What could not be settled stays `open`: two copies that differ and no third, or damage for which no
node has whole bytes. These blocks are looked at again, since a node that has the bytes may come
back: soon at first, since that node may just be starting, and each RETRY_MS in the end. Each is
dropped when it is settled, or when the log no longer has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

RETRY_MS: Final = 60_000
SOON_MS: Final = 5_000
MAX_OPEN: Final = 1_024
"""Blocks that are open at a time; more are found again by the next round."""


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """Log bytes start .. end-1 that are in doubt or damaged, `reason` in words for people. `lost`:
    they are damaged and no whole copy was found; else copies differ. `since_ms`: when it was found,
    `looked_ms`: when it was last looked at."""

    start: int
    end: int
    lost: bool
    reason: str
    since_ms: int
    looked_ms: int

    @property
    def rest_ms(self) -> int:
        """How long it is left alone: as long as it has been open by then."""
        return min(max(self.looked_ms - self.since_ms, SOON_MS), RETRY_MS)


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """How far the round is that began at `began_ms`, 0 if none ever did; `ended_ms` is 0 while one
    is under way. `rounds` that have ended, and the end of the last one."""

    next_offset: int = 0
    began_ms: int = 0
    ended_ms: int = 0
    rounds: int = 0

    @property
    def under_way(self) -> bool:
        return self.began_ms > 0 and self.ended_ms == 0


class ScrubPlan:
    """See the module. Times are milliseconds since 1970; a clock that goes back only delays."""

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self.progress = ScrubProgress()
        self.open: dict[int, OpenBlock] = {}
        self._first: list[tuple[int, int]] = []

    def look_at(self, start: int, end: int) -> None:
        """Blocks from log offset `start`, where a record begins, until they have come to `end` are
        checked before the round continues."""
        if len(self._first) < MAX_OPEN:
            self._first.append((start, end))

    def next_first(self, begin: int, end: int) -> int | None:
        """The next block of those stretches, in a log that holds `begin` .. `end`-1."""
        while self._first:
            start, stop = self._first[0]
            if begin <= start < min(stop, end):
                return start
            self._first.pop(0)
        return None

    def passed_first(self, end: int) -> None:
        """That block was checked, and ends at log offset `end`."""
        self._first[0] = (end, self._first[0][1])

    def begin_round(self, now_ms: int) -> None:
        """Start over from the log's begin, now."""
        self.progress = replace(self.progress, next_offset=0, began_ms=max(now_ms, 1), ended_ms=0)

    def next_block(self, begin: int, end: int, now_ms: int) -> int | None:
        """Where the next block of a log that holds `begin` .. `end`-1 starts; None if none is
        due."""
        progress = self.progress
        if not progress.under_way:
            age_ms = now_ms - progress.began_ms
            if begin >= end or (progress.began_ms and 0 <= age_ms < self.interval_ms):
                return None
            self.begin_round(now_ms)
        start = max(self.progress.next_offset, begin)
        if start < end:
            return start
        self.progress = replace(
            self.progress, next_offset=start, ended_ms=max(now_ms, 1), rounds=progress.rounds + 1
        )
        return None

    def passed(self, end: int) -> None:
        """The round has come to log offset `end`."""
        self.progress = replace(self.progress, next_offset=end)

    def cut(self, end: int) -> None:
        """The log was cut at `end`, or ends there: what lies behind it is no longer known."""
        if self.progress.next_offset > end:
            self.progress = replace(self.progress, next_offset=end)
        self.open = {at: each for at, each in self.open.items() if each.end <= end}
        self._first = []

    # ---- what is open

    def next_open(self, begin: int, now_ms: int) -> OpenBlock | None:
        """An open block that is to be looked at again; those below `begin`, which the log has
        dropped, are forgotten."""
        self.open = {at: each for at, each in self.open.items() if each.start >= begin}
        waiting = min(
            self.open.values(), key=lambda each: each.looked_ms + each.rest_ms, default=None
        )
        if waiting is None or 0 <= now_ms - waiting.looked_ms < waiting.rest_ms:
            return None
        return waiting

    def keep_open(self, start: int, end: int, reason: str, now_ms: int, *, lost: bool) -> bool:
        """The block could not be settled; whether that is news."""
        known = self.open.get(start)
        if known is None and len(self.open) >= MAX_OPEN:
            return False
        since_ms = now_ms if known is None else known.since_ms
        self.open[start] = OpenBlock(start, end, lost, reason, since_ms, now_ms)
        return known is None or known.lost != lost

    def settle(self, start: int, end: int) -> None:
        """Everything in start .. end-1 is right now."""
        self.open = {
            at: each for at, each in self.open.items() if each.end <= start or end <= each.start
        }

    # ---- over a restart

    def to_json(self) -> dict[str, Any]:
        progress = self.progress
        return {
            "next_offset": progress.next_offset,
            "began_ms": progress.began_ms,
            "ended_ms": progress.ended_ms,
            "rounds": progress.rounds,
            "open": [
                [e.start, e.end, e.lost, e.reason, e.since_ms, e.looked_ms]
                for e in self.open.values()
            ],
        }

    def take_json(self, value: Mapping[str, Any]) -> None:
        """Continue with what `to_json` gave. Raises ValueError, KeyError or TypeError for anything
        else, and changes nothing then."""
        progress = ScrubProgress(
            *(int(value[name]) for name in ("next_offset", "began_ms", "ended_ms", "rounds"))
        )
        rows = [
            OpenBlock(int(start), int(end), bool(lost), str(reason), int(since), int(looked))
            for start, end, lost, reason, since, looked in value["open"][:MAX_OPEN]
        ]
        self.progress, self.open = progress, {each.start: each for each in rows}
