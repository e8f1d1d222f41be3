"""Reput's notices of queues that grew, brought into the loop: one call there for many notices."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandemlog_server.storage.message_store import MessageStore


class DispatchNotices:
    """`grew(dense numbers)` is called in the loop, soon after dispatch."""

    def __init__(
        self,
        store: MessageStore,
        loop: asyncio.AbstractEventLoop,
        grew: Callable[[Sequence[int]], None],
    ) -> None:
        self._loop = loop
        self._grew = grew
        self._lock = threading.Lock()
        self._touched: set[int] = set()
        self.close = store.on_dispatch(self._notice)

    def _notice(self, queues: NDArray[np.int64]) -> None:
        # in reput's thread
        with self._lock:
            first = not self._touched
            self._touched.update(queues.tolist())
        if first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._lock:
            touched, self._touched = self._touched, set()
        self._grew(sorted(touched))
