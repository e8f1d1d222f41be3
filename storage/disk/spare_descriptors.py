"""Descriptors that a process keeps, so that its store can open a file when none is left.

    kept   [ ][ ][ ][ ]     each holds /dev/null open
    open fails because none is left  ─▶ close one of these, try again
    the store closes a file          ─▶ as many are opened again as are missing

Connections have bounds that leave enough for the store (node/process/machine_bounds.py). But they
are accepted by libraries, and a log that cannot continue because of them is the worst outcome.
Another thread may take a descriptor that is closed here before the store opens its file, so there
are several. Thread-safe; empty until `keep` is called, which a node does for its process.
"""

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_NONE_LEFT = (errno.EMFILE, errno.ENFILE)

Opened = TypeVar("Opened")


class SpareDescriptors:
    """See the module."""

    def __init__(self) -> None:
        self._wanted = 0
        self._kept: list[int] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, count: int) -> None:
        """Keep `count` of them from now on, as far as there are; close those above that."""
        with self._lock:
            self._wanted = count
            while len(self._kept) > count:
                os.close(self._kept.pop())
        self.refill()

    def open(self, call: Callable[[], Opened]) -> Opened:
        """What `call` opens. Raises its OSError."""
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in _NONE_LEFT or not self._give_one():
                    raise

    def refill(self) -> None:
        """Open again those that were given up, as far as that is possible."""
        with self._lock, suppress(OSError):
            while len(self._kept) < self._wanted:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def close(self, handle: int) -> None:
        """Close a file of the store."""
        os.close(handle)
        if len(self._kept) < self._wanted:
            self.refill()

    def _give_one(self) -> bool:
        with self._lock:
            if not self._kept:
                return False
            os.close(self._kept.pop())
            return True


SPARES = SpareDescriptors()
"""Of this process."""
