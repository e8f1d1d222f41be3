"""Listeners for an event: added from any thread, called in the thread of the event.

They are called one after the other, so each must be quick and must not raise.
"""

import threading
from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Listeners(Generic[P]):
    """The tuple is replaced and never changed, so that a call takes no lock."""

    def __init__(self) -> None:
        self._all: tuple[Callable[P, None], ...] = ()
        self._lock = threading.Lock()

    def add(self, listener: Callable[P, None]) -> Callable[[], None]:
        """Returns a function that removes the listener."""
        with self._lock:
            self._all = (*self._all, listener)

        def remove() -> None:
            with self._lock:
                self._all = tuple(each for each in self._all if each is not listener)

        return remove

    def tell(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._all:
            listener(*args, **kwargs)
