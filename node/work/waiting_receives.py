"""Receives that found nothing wait here for work in one of their topics.

    (group, topic) ─▶ waiters, the longest wait first
    work for n queues ─▶ the first n are woken
    woken, and found nothing for itself (other queues, its share is used up) ─▶ the next one is

So one message wakes one consumer, not all of them, and none is lost on a consumer that may not have
it. Belongs to the loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Place = tuple[str, str]
"""Group and topic."""


class Waiter:
    """One receive that waits for `places`; `woken_by` is the number of the last news it heard."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        self.event = asyncio.Event()
        self.woken_by = 0


class WaitingReceives:
    """See the module."""

    def __init__(self) -> None:
        self._waiting: dict[Place, OrderedDict[Waiter, None]] = {}
        self._news = 0
        self.count = 0

    @contextmanager
    def waiting(self, waiter: Waiter) -> Iterator[None]:
        """Its event is set when there is work, or at `wake_all`."""
        waiter.event.clear()
        waiter.woken_by = self._news
        for place in waiter.places:
            self._waiting.setdefault(place, OrderedDict())[waiter] = None
        self.count += 1
        try:
            yield
        except BaseException:
            self._remove(waiter)
            if waiter.event.is_set():
                self.pass_on(waiter)
            raise
        else:
            self._remove(waiter)

    def of_group(self, group: str) -> int:
        """How many wait for the group."""
        return len(
            {each for place in self._waiting if place[0] == group for each in self._waiting[place]}
        )

    def of_place(self, place: Place) -> int:
        """How many wait for the topic of the group."""
        return len(self._waiting.get(place, ()))

    def _remove(self, waiter: Waiter) -> None:
        self.count -= 1
        for place in waiter.places:
            waiters = self._waiting[place]
            del waiters[waiter]
            if not waiters:
                del self._waiting[place]

    def wake(self, place: Place, count: int) -> None:
        """There is work in `count` queues."""
        if place in self._waiting:
            self._news += 1
            self._wake(place, count)

    def pass_on(self, waiter: Waiter) -> None:
        """There may be work, and it is not for this one: others hear of it that have not."""
        for place in waiter.places:
            self._wake(place, 1)

    def _wake(self, place: Place, count: int) -> None:
        for waiter in self._waiting.get(place, ()):
            if count <= 0:
                return
            if waiter.woken_by < self._news and not waiter.event.is_set():
                waiter.woken_by = self._news
                waiter.event.set()
                count -= 1

    def wake_all(self) -> None:
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.event.set()
