"""Log first: far behind its broker, a follower stores log and does not dispatch it.

Dispatching would take the processor from the bytes that make this node a safe copy. What is not
confirmed is not dispatched, so the position that is confirmed stands still meanwhile, but not for
longer than HOLD_S: readers see the log grow.
"""

FAR_BYTES = 16 << 20
HOLD_S = 10.0


class LogFirst:
    """One owner calls; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._held = 0
        self._since: float | None = None

    def position(self, durable: int, broker_end: int, now: float) -> int:
        """What may be confirmed of a log that is durable up to `durable`."""
        far = broker_end - durable > FAR_BYTES
        if far and self._since is None:
            self._since = now
        if not far or self._since is None or now - self._since >= HOLD_S:
            self._held, self._since = durable, None
        return min(self._held, durable)
