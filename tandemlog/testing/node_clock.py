"""The clock of the nodes of a test: its date moves forward on demand.

    machine's date   ──────────────────────────▶
    nodes' date      ────────╮ advance(hours=1)
                             ╰─────────────────▶  and continues at the machine's pace

Store times, expiry of log files and queries by time use the date; delayed messages, leases and
pauses of work queues, and checks of transactions are due by it. The intervals of the cluster itself
are measured with the monotonic clock, which stays the machine's: no election, heartbeat or long
poll times out by `advance`. The date never moves backward, because the store times of a log ascend.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_MILLISECOND: Final = timedelta(milliseconds=1)


class NodeClock:
    """See the module; a storage.clock.Clock. Any thread may call."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def advance(self, by: float | timedelta) -> None:
        """Moves the date forward by seconds or a timedelta. Raises ValueError for less than 0."""
        by = by if isinstance(by, timedelta) else timedelta(seconds=by)
        if by < timedelta(0):
            raise ValueError(f"the date of the nodes can only move forward, not by {by}")
        self._ahead_ms += by // _MILLISECOND

    def set(self, date: datetime) -> None:
        """Moves the date forward to `date`, which must have a time zone. Raises ValueError."""
        if date.tzinfo is None:
            raise ValueError(f"the date needs a time zone: {date}")
        self.advance(date - self.now())

    def now(self) -> datetime:
        """The date of the nodes."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def monotonic(self) -> float:
        return time.monotonic()

    def thread_time(self) -> float:
        return time.thread_time()

    def moved_s(self) -> float:
        return self._ahead_ms / 1000
