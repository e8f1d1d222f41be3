"""Time as a parameter: the store never reads a clock of its own."""

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds since the epoch for what is stored; monotonic seconds for intervals; seconds
    of processor time that the calling thread has used."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def thread_time(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def thread_time(self) -> float:
        return time.thread_time()
