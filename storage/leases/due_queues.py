"""When queues are looked at next: a heap with one entry that counts for each queue.

    arm(queue, t) ─▶ queue.armed_ms = t, an entry (t, queue)        take(now) ─▶ what is due

An entry whose time is not its queue's `armed_ms` any more is stale: it is skipped, and swept out
once there are as many stale ones as others. Times are ms of a clock that never jumps.
"""

import heapq
from typing import Final

from .queue_leases import NEVER, QueueLeases

_STALE_ENTRIES: Final = 4_096


class DueQueues:
    """See the module."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, QueueLeases]] = []
        self._tidy_at = _STALE_ENTRIES

    def arm(self, queue: QueueLeases, due_ms: int) -> None:
        """`take` gives the queue then, or before."""
        if due_ms >= queue.armed_ms:
            return
        queue.armed_ms = due_ms
        heapq.heappush(self._heap, (due_ms, queue))
        if len(self._heap) >= self._tidy_at:
            self._heap = [each for each in self._heap if each[0] == each[1].armed_ms]
            heapq.heapify(self._heap)
            self._tidy_at = 2 * len(self._heap) + _STALE_ENTRIES

    def take(self, now_ms: int) -> QueueLeases | None:
        """One that is due, not armed any more; None if none is."""
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, queue = heapq.heappop(self._heap)
            if due_ms == queue.armed_ms:
                queue.armed_ms = NEVER
                return queue
        return None

    @property
    def next_ms(self) -> int:
        """When `take` may have one, NEVER for never."""
        return self._heap[0][0] if self._heap else NEVER
