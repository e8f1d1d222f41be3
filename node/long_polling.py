"""Pulls that found nothing wait here for the next dispatch to one of their queues.

    reput thread ──touched queues──▶ on_dispatch ──one wake-up──▶ loop ──▶ events of the waiters

A waiter registers before it looks at its queues for the last time, and reput publishes before it
tells: whatever is dispatched after that look sets the waiter's event, so nothing is slept over.
A queue is known by its dense number. One that nobody has written to yet has none: its waiters are
woken by the first dispatch after the table of queues has grown, and resolve their names again.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

UNKNOWN_QUEUE = -1


class LongPolling:
    """See the module. `waiting` belongs to the loop, `on_dispatch` to reput's thread.

    `queue_count` gives how many queues have a dense number.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, queue_count: Callable[[], int]) -> None:
        self._loop = loop
        self._queue_count = queue_count
        self._seen_count = queue_count()
        self._watched: dict[int, set[asyncio.Event]] = {}
        self._lock = threading.Lock()  # of the two below: reput adds, the loop takes
        self._touched: set[int] = set()
        self._scheduled = False

    @property
    def watching(self) -> int:
        """How many queues somebody waits for."""
        return len(self._watched)

    @contextmanager
    def waiting(self, queues: Collection[int]) -> Iterator[asyncio.Event]:
        """An event that is set by each dispatch to one of `queues` (dense, or UNKNOWN_QUEUE)."""
        event = asyncio.Event()
        for queue in queues:
            self._watched.setdefault(queue, set()).add(event)
        try:
            yield event
        finally:
            for queue in queues:
                events = self._watched.get(queue)
                if events is not None:
                    events.discard(event)
                    if not events:
                        del self._watched[queue]

    def wake_all(self) -> None:
        """Set every event: the node is stopping."""
        for queue in list(self._watched):
            self._set(queue)

    def on_dispatch(self, queues: Iterable[int]) -> None:
        """`queues` got entries. In reput's thread: without a waiter it costs one look at a dict."""
        if not self._watched:
            return
        with self._lock:
            self._touched.update(queues)
            schedule = not self._scheduled
            self._scheduled = True
        if schedule:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        with self._lock:
            self._scheduled = False
            touched, self._touched = self._touched, set()
        for queue in touched & self._watched.keys():
            self._set(queue)
        count = self._queue_count()
        if count != self._seen_count:
            self._seen_count = count
            self._set(UNKNOWN_QUEUE)

    def _set(self, queue: int) -> None:
        for event in self._watched.get(queue, ()):
            event.set()
