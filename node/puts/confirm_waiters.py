"""Puts that are appended and wait for their confirmation: one heap, one timer, one wake-up.

    appended at end_offset in epoch e ─┬─ confirmed >= end_offset, still master of e ─▶ CONFIRMED
                                       ├─ no longer master of e                      ─▶ FENCED
                                       ├─ the position failed below end_offset       ─▶ FAILED
                                       └─ its time is over                           ─▶ TIMED_OUT

Everything here runs in the event loop, except `_on_change`: the position calls it in its owner's
thread, and it only schedules one check, however often the position advances meanwhile. Every
outcome except CONFIRMED means that the records may or may not be stored.

One step of the position, or one deadline, can resolve thousands of puts: each turn of the loop
resolves RESOLVE_SLICE of them, so that other tasks run in between.
"""

import asyncio
import heapq
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Protocol

from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.positions import Position

RESOLVE_SLICE = 512


class Outcome(Enum):
    CONFIRMED = "confirmed"
    TIMED_OUT = "timed out"
    FENCED = "fenced"
    FAILED = "failed"


class Waiter(Protocol):
    """A put that waits. `confirm_deadline` is in the loop's time."""

    end_offset: int
    epoch: int
    confirm_deadline: float

    def resolve(self, outcome: Outcome, failure: StoreError | None) -> None:
        """Called once, in the loop."""


class ConfirmWaiters:
    """See the module. `current_epoch` gives the epoch this node is master of, None if of none.

    The first of `positions` is `confirmed`, which offsets are compared with; if one of the others
    fails (the flush of this node), `confirmed` will never move.
    """

    def __init__(
        self,
        positions: tuple[Position, ...],
        current_epoch: Callable[[], int | None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._confirmed = positions[0]
        self._positions = positions
        self._current_epoch = current_epoch
        self._loop = loop
        self._order = count()
        self._by_offset: list[tuple[int, int, Waiter]] = []
        self._by_deadline: list[tuple[float, int, Waiter]] = []
        self._open: set[int] = set()  # numbers of the waiters without an outcome
        self._idle = asyncio.Event()
        self._idle.set()
        self._check_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._stop_listening = [position.listen(self._on_change) for position in positions]

    def __len__(self) -> int:
        return len(self._open)

    def add(self, waiter: Waiter) -> None:
        """Resolve `waiter` when its outcome is known; call `check` after a round of these."""
        number = next(self._order)
        heapq.heappush(self._by_offset, (waiter.end_offset, number, waiter))
        heapq.heappush(self._by_deadline, (waiter.confirm_deadline, number, waiter))
        self._open.add(number)
        self._idle.clear()

    async def wait_idle(self) -> None:
        """Wait until no put waits."""
        await self._idle.wait()

    def check(self) -> None:
        """Resolve every put whose outcome is known."""
        self._check_scheduled = False
        epoch = self._current_epoch()
        # the value is read before the failure: what was confirmed before it failed is confirmed
        confirmed = self._confirmed.value
        failure = next((p.failure for p in self._positions if p.failure is not None), None)
        last = len(self._open) - RESOLVE_SLICE
        while self._by_offset:
            if len(self._open) <= last:
                self._check_soon()
                return
            offset, number, waiter = self._by_offset[0]
            if number not in self._open:
                heapq.heappop(self._by_offset)
            elif waiter.epoch != epoch:
                self._resolve(number, waiter, Outcome.FENCED)
            elif offset <= confirmed:
                self._resolve(number, waiter, Outcome.CONFIRMED)
            elif failure is not None:
                self._resolve(number, waiter, Outcome.FAILED, failure)
            else:
                break
        self._expire()

    def _check_soon(self) -> None:
        if not self._check_scheduled:
            self._check_scheduled = True
            self._loop.call_soon(self.check)

    def close(self) -> None:
        """Resolve the rest as timed out and listen no more."""
        for stop in self._stop_listening:
            stop()
        for _, number, waiter in self._by_offset:
            if number in self._open:
                self._resolve(number, waiter, Outcome.TIMED_OUT)
        self._expire()

    def _resolve(
        self, number: int, waiter: Waiter, outcome: Outcome, failure: StoreError | None = None
    ) -> None:
        self._open.discard(number)
        if not self._open:
            self._idle.set()
        waiter.resolve(outcome, failure)

    def _expire(self) -> None:
        now = self._loop.time()
        last = len(self._open) - RESOLVE_SLICE
        while self._by_deadline:
            if len(self._open) <= last:
                self._check_soon()
                return
            deadline, number, waiter = self._by_deadline[0]
            if number in self._open:
                if deadline > now:
                    break
                self._resolve(number, waiter, Outcome.TIMED_OUT)
            heapq.heappop(self._by_deadline)
        self._set_timer()

    def _set_timer(self) -> None:
        wanted = self._by_deadline[0][0] if self._by_deadline else None
        if self._timer is not None:
            if wanted is not None and self._timer.when() <= wanted:
                return  # it fires early and is set again then
            self._timer.cancel()
            self._timer = None
        if wanted is not None:
            self._timer = self._loop.call_at(wanted, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.check()

    def _on_change(self) -> None:
        # In the owner's thread. Who adds a waiter looks at the position afterwards, and the
        # position is set before this line, so one of the two always sees the other.
        if self._open and not self._check_scheduled:
            self._check_scheduled = True
            self._loop.call_soon_threadsafe(self.check)
