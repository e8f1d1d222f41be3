"""A byte position of the log: one owner advances it; any thread may read it, wait for it or listen
to it.

    wrote >= committed >= flushed            confirmed >= reputed

`value` is a plain int that one thread writes: reading it needs no lock. Listeners run in the
owner's thread, after the value is set and outside the lock; they must be quick and must not raise.
A position that has failed (after a failed fsync) never advances again and keeps the reason.
"""

import threading
from collections.abc import Callable

from .errors import StoreError
from .listeners import Listeners


class Position:
    """See the module. `advance` never moves backwards; `retreat` is for truncation alone."""

    def __init__(self, name: str, value: int = 0) -> None:
        self.name = name
        self.value = value
        self.failure: StoreError | None = None
        self._changed = threading.Condition()
        self._waiting = 0
        self._listeners: Listeners[[]] = Listeners()

    def advance(self, value: int) -> None:
        """Move forward to `value` and wake all waiters; a smaller value changes nothing."""
        if value <= self.value:
            return
        self.value = value
        self._publish()

    def retreat(self, value: int) -> None:
        """Move to a smaller `value` after a truncation, or to any value at open."""
        self.value = value
        self._publish()

    def fail(self, failure: StoreError) -> None:
        """The value will never grow again: every waiter gets `failure`."""
        if self.failure is None:
            self.failure = failure
            self._publish()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` after every change or failure. Returns the function that removes it."""
        return self._listeners.add(listener)

    def wait(self, value: int, timeout_s: float) -> bool:
        """Wait until the position has reached `value`; False if the time ran out first.

        Raises the failure where the position failed below `value`.
        """
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(
                    lambda: self.value >= value or self.failure is not None, timeout_s
                )
            finally:
                self._waiting -= 1
        if self.value >= value:
            return True
        if self.failure is not None:
            raise self.failure
        return False

    def _publish(self) -> None:
        # The unlocked look is safe: a waiter registers and tests the value under the lock, and
        # the value was set before this line, so one of the two always sees the other.
        if self._waiting:
            with self._changed:
                self._changed.notify_all()
        self._listeners.tell()
