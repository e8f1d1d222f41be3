"""What was read of an archive, for the next one who asks: bounded in bytes, read once at a time.

    key ─▶ kept? ──────────────────────▶ value
            │ no     another one reads it? ─ wait ─▶ value
            └─▶ read it, count it, keep it; what was used longest ago leaves

A value larger than the cache is given to those who wait for it, and not kept.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

Value = TypeVar("Value")

ENTRY_BYTES: Final = 256
"""What an entry costs beside its value."""


class SegmentCache:
    """See the module. Safe to use from several threads.

    hits, misses   how often a value was there, or had to be read
    seconds        spent reading
    """

    def __init__(self, limit_bytes: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.hits = self.misses = 0
        self.seconds = 0.0
        self._now = now
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._reading: dict[Hashable, Future[Any]] = {}

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._kept

    def get(
        self, key: Hashable, read: Callable[[], Value], size_of: Callable[[Value], int]
    ) -> Value:
        """The value of `key`: as it is kept, or what `read` returns. Raises what `read` raises, to
        all who wait for it; the next one who asks reads again."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                found: Value = kept[0]
                return found
            other = self._reading.get(key)
            if other is None:
                mine: Future[Value] = Future()
                self._reading[key] = mine
                self.misses += 1
            else:
                self.hits += 1
        if other is not None:
            shared: Value = other.result()
            return shared
        return self._read(key, mine, read, size_of)

    def put(self, key: Hashable, value: Value, size_of: Callable[[Value], int]) -> None:
        """Keep what was read beside another value."""
        with self._lock:
            if key not in self._kept:
                self._keep(key, value, size_of(value) + ENTRY_BYTES)

    def _read(
        self,
        key: Hashable,
        mine: Future[Value],
        read: Callable[[], Value],
        size_of: Callable[[Value], int],
    ) -> Value:
        began = self._now()
        try:
            value = read()
        except BaseException as error:
            with self._lock:
                del self._reading[key]
                self.seconds += self._now() - began
            mine.set_exception(error)
            raise
        with self._lock:
            del self._reading[key]
            self.seconds += self._now() - began
            self._keep(key, value, size_of(value) + ENTRY_BYTES)
        mine.set_result(value)
        return value

    def _keep(self, key: Hashable, value: object, size: int) -> None:
        if size > self.limit_bytes:
            return
        _, before = self._kept.pop(key, (None, 0))
        self._kept[key] = value, size
        self.held_bytes -= before
        self.held_bytes += size
        while self.held_bytes > self.limit_bytes:
            _, (_, dropped) = self._kept.popitem(last=False)
            self.held_bytes -= dropped
