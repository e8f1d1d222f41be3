"""Pulls that found nothing wait here for the next dispatch to one of their queues.

    reput thread ──touched queues──▶ on_dispatch ──one wake-up──▶ loop ──▶ set() of the waiters
    deadlines    ──────────────────────────────────one timer────▶  '──▶ WAKE_SLICE in a turn

A waiter is an event for which a task waits, or a pull that is parked without one and is answered
by its set() (parked_reads.py).

A waiter registers before it checks its queues for the last time, and reput publishes before it
notifies: everything dispatched after that check sets the waiter, so no message is missed. A
queue is known by its dense number. A queue without messages has none: its waiters are woken by the
first dispatch after the table of queues has grown, and resolve their names again.

One put, or one moment at which many waits end, can wake all waiters. Their work takes longer than
the waking, so each turn of the loop wakes only a slice of them, and other tasks run in between.
"""

import asyncio
import heapq
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

UNKNOWN_QUEUE = -1
WAKE_SLICE = 32
_FEW_DEADLINES = 1_024


class Waiter(Protocol):
    """Hashed by identity, as an asyncio.Event is."""

    def set(self) -> None:
        """Something happened for which it waits. In the loop."""


class LongPolling:
    """See the module. `waiting` belongs to the loop, `on_dispatch` to reput's thread.

    `queue_count` gives how many queues have a dense number.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, queue_count: Callable[[], int]) -> None:
        self._loop = loop
        self._queue_count = queue_count
        self._seen_count = queue_count()
        self._watched: dict[int, set[Waiter]] = {}
        self._lock = threading.Lock()  # of the two below: reput adds, the loop takes
        self._touched: set[int] = set()
        self._scheduled = False
        self._due: OrderedDict[Waiter, None] = OrderedDict()
        self._waking = False
        self._order = count()
        self._deadlines: list[tuple[float, int, Waiter]] = []
        self._waiters: dict[Waiter, int] = {}
        self._watches = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def watching(self) -> int:
        """How many queues have a waiting reader."""
        return len(self._watched)

    @property
    def waiters(self) -> int:
        return len(self._waiters)

    @property
    def watches(self) -> int:
        """The queues of each waiter, all waiters together."""
        return self._watches

    @contextmanager
    def waiting(
        self, queues: Collection[int], deadline: float | None = None
    ) -> Iterator[asyncio.Event]:
        """An event that is set by each dispatch to one of `queues` (dense, or UNKNOWN_QUEUE), and
        at `deadline` (the loop's time)."""
        event = asyncio.Event()
        self.enter(event, queues, deadline)
        try:
            yield event
        finally:
            self.leave(event, queues)

    def enter(self, waiter: Waiter, queues: Collection[int], deadline: float | None = None) -> None:
        """`waiter` is set as an event of `waiting` is, until it leaves."""
        for queue in queues:
            self._watched.setdefault(queue, set()).add(waiter)
        self._waiters[waiter] = len(queues)
        self._watches += len(queues)
        if deadline is not None:
            self._add_deadline(deadline, waiter)

    def leave(self, waiter: Waiter, queues: Collection[int]) -> None:
        """`queues`: those with which it entered."""
        del self._waiters[waiter]
        self._watches -= len(queues)
        self._due.pop(waiter, None)
        for queue in queues:
            waiters = self._watched.get(queue)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._watched[queue]

    def has(self, waiter: Waiter) -> bool:
        """Whether it has entered, and not left."""
        return waiter in self._waiters

    def wake_all(self) -> None:
        """Set every waiter: the node is stopping, or has another role."""
        self._due.update(dict.fromkeys(self._waiters))
        self._begin_waking()

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
        queue_count = self._queue_count()
        if queue_count != self._seen_count:
            self._seen_count = queue_count
            self._set(UNKNOWN_QUEUE)
        self._begin_waking()

    def _set(self, queue: int) -> None:
        self._due.update(dict.fromkeys(self._watched.get(queue, ())))

    def _begin_waking(self) -> None:
        if not self._waking:
            self._wake_slice()

    def _wake_slice(self) -> None:
        due = self._due
        try:
            for _ in range(WAKE_SLICE):
                if not due:
                    break
                due.popitem(last=False)[0].set()
        finally:
            self._waking = bool(due)
            if self._waking:
                self._loop.call_soon(self._wake_slice)

    def _add_deadline(self, deadline: float, waiter: Waiter) -> None:
        heap = self._deadlines
        if len(heap) > 2 * len(self._waiters) + _FEW_DEADLINES:  # of those that left before
            heap[:] = [each for each in heap if each[2] in self._waiters]
            heapq.heapify(heap)
        heapq.heappush(heap, (deadline, next(self._order), waiter))
        if self._timer is None or deadline < self._timer.when():
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        heap = self._deadlines
        self._timer = self._loop.call_at(heap[0][0], self._on_deadline) if heap else None

    def _on_deadline(self) -> None:
        now = self._loop.time()
        while self._deadlines and self._deadlines[0][0] <= now:
            waiter = heapq.heappop(self._deadlines)[2]
            if waiter in self._waiters:
                self._due[waiter] = None
        self._timer = None
        self._set_timer()
        self._begin_waking()
