"""A clock that stands still until it is told to move."""


class FakeClock:
    """The clocks of the store: `advance` moves those on the wall, `work` all of them, `jump` the
    time of day alone."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic: float = 1000.0) -> None:
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._thread_time = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def thread_time(self) -> float:
        return self._thread_time

    def moved_s(self) -> float:
        return 0.0

    def advance(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds

    def jump(self, seconds: float) -> None:
        self._now_ms += round(seconds * 1000)

    def work(self, seconds: float) -> None:
        self.advance(seconds)
        self._thread_time += seconds
