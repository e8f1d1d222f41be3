"""Time as a parameter: the store never reads a clock of its own.

A machine's clock can jump: by NTP after a start without a battery, by a hand that types the wrong
year, by a virtual machine that slept. The store needs the wall clock for one thing, the times that
it writes into records, and SteadyClock keeps a jump out of them:

    wall clock ─┬─ as far as the monotonic clock says, or within a minute of it ──▶ that is the time
                └─ further away: a jump ──▶ the time continues by the monotonic clock, and the node
                                             reports it, until the wall clock comes back,
                                             or has stayed where it jumped to for ACCEPT_JUMP_S

How long something is kept is never measured with the wall clock (state_files/seen_time.py).
"""

import logging
import threading
import time
from dataclasses import dataclass
from typing import Protocol

logger = logging.getLogger(__name__)

JUMP_MS = 60_000
"""NTP and operators correct this much in one step, and no alarm is due."""
ACCEPT_JUMP_S = 600.0
"""A wrong time is noticed and corrected within this time; what stays longer is the new time."""
MAX_AHEAD_MS = 3_600_000
"""A log whose newest record is ahead of the clock by more than this has a wrong time in it."""


class Clock(Protocol):
    """`now_ms`: since the epoch, for what is stored. `monotonic`: seconds, for intervals.
    `thread_time`: seconds of processor time of the calling thread. `moved_s`: seconds by which a
    test has moved the date on purpose: no jump, but they count for ages; 0 on a machine."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def thread_time(self) -> float: ...

    def moved_s(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def thread_time(self) -> float:
        return time.thread_time()

    def moved_s(self) -> float:
        return 0.0


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The wall clock is `apart_ms` away from where the monotonic clock says that it must be, since
    `since` (seconds of SteadyClock.elapsed)."""

    apart_ms: int
    since: float

    def text(self) -> str:
        direction = "ahead" if self.apart_ms > 0 else "back"
        return (
            f"the clock of this machine has jumped {direction} by {duration(self.apart_ms)}: "
            f"messages get the time that it should be, and become the clock's own if it stays "
            f"there for {ACCEPT_JUMP_S / 60:.0f} minutes; set the clock if it is wrong"
        )


def duration(milliseconds: int) -> str:
    """In the unit that people would use: "5 minutes", "4 days", "10.1 years"."""
    seconds = abs(milliseconds) / 1000
    for name, length in (("years", 31_557_600), ("days", 86_400), ("hours", 3_600)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {name}"
    return f"{seconds / 60:.3g} minutes" if seconds >= 120 else f"{seconds:.3g} seconds"


class SteadyClock:
    """A clock whose time does not jump; see the module. `jump` is the one that it is hiding."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # wall time and monotonic time of the last moment in which the two agreed
        self._agreed = (clock.now_ms(), self.elapsed())
        self._lock = threading.Lock()
        self.jump: ClockJump | None = None
        self.accepted_at: float | None = None
        """When a jump was last accepted as the right time, by `elapsed`."""

    def now_ms(self) -> int:
        wall, now = self._clock.now_ms(), self.elapsed()
        agreed, at = self._agreed
        expected = agreed + round((now - at) * 1000)
        if -JUMP_MS <= wall - expected <= JUMP_MS:
            if self.jump is not None:
                self._came_back()
            self._agreed = (wall, now)
            return wall
        return self._jumped(wall, expected, now)

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def elapsed(self) -> float:
        """Seconds that never jump: for ages, and to notice a jump."""
        return self._clock.monotonic() + self._clock.moved_s()

    def thread_time(self) -> float:
        return self._clock.thread_time()

    def moved_s(self) -> float:
        return self._clock.moved_s()

    def _came_back(self) -> None:
        with self._lock:
            if self.jump is not None:
                self.jump = None
                logger.warning("the clock of this machine is right again")

    def _jumped(self, wall: int, expected: int, now: float) -> int:
        with self._lock:
            jump, apart = self.jump, wall - expected
            if jump is None or abs(apart - jump.apart_ms) > JUMP_MS:
                self.jump = ClockJump(apart, now)
                logger.error("%s", self.jump.text())
                return expected
            if now - jump.since < ACCEPT_JUMP_S:
                return expected
            self._agreed, self.jump, self.accepted_at = (wall, now), None, now
        logger.error(
            "the clock of this machine has stayed where it jumped to, %s away: messages have its "
            "time from now on",
            duration(apart),
        )
        return wall
