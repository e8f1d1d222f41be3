"""Long polls of one queue, parked without a task: what RocketMQ's push consumers do all day.

    begin ─▶ the queue ends there ─▶ parked ◀── LongPolling: set() ── a message, or its time is over
                                        │
              the queue has moved, or the wait is over ─▶ read in the loop  ─▶ answered
                                                          not in memory     ─▶ a task reads on

A consumer has one parked pull for each of its queues, and gets most messages one by one. A task, a
thread and their turns would cost ten times as much as such a message. What is answered, when, and
what is counted is as in QueueReads.read, whose rules these are. Who wants some tags only waits so
too; a task looks at what has come then, and waits on if there is no such tag.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol

from ..access.caller import Caller
from .long_polling import LongPolling
from .reading import Encode, Made, Place, Wanted
from .waiting_places import WaitingPlaces

Answered = Callable[[Made | None, Exception | None], None]
"""Takes the answer, or why there is none; neither for a pull that was given up. Called once."""


class Reads(Protocol):
    """What QueueReads does for a pull that is parked."""

    @property
    def closed(self) -> bool: ...
    @property
    def interrupts(self) -> int:
        """How often all waits were ended."""

    def at_end(self, place: Place, queue: int) -> bool:
        """Whether the queue of that number ends at that place. Raises for one that cannot be
        read."""

    def number(self, place: Place) -> int:
        """Of its queue; UNKNOWN_QUEUE before the first message. Raises RequestRefusedError where
        there is no such queue."""

    def read_now(
        self, wanted: Wanted, caller: Caller, encode: Encode[Made], *, wait: bool = True
    ) -> Made | None: ...

    async def read(self, wanted: Wanted, caller: Caller, encode: Encode[Made]) -> Made: ...


@dataclass(slots=True, eq=False)
class ParkedRead(Generic[Made]):
    """A pull that waits; `deadline` by the loop's clock. `queue`: the number with which it waits;
    `task`: the one that reads for it."""

    wanted: Wanted
    caller: Caller
    encode: Encode[Made]
    answered: Answered[Made]
    queue: int
    deadline: float
    interrupts: int
    look: Callable[["ParkedRead[Made]"], None]
    task: asyncio.Task[Made] | None = None

    def set(self) -> None:
        """Something happened for which it waits (the Waiter of long_polling.py)."""
        self.look(self)


class ParkedReads:
    """See the module. Belongs to the loop."""

    def __init__(self, reads: Reads, polling: LongPolling, places: WaitingPlaces) -> None:
        self._reads = reads
        self._polling = polling
        self._places = places
        self._reading: set[asyncio.Task[Any]] = set()

    def park(
        self,
        wanted: Wanted,
        wait_ms: int,
        caller: Caller,
        encode: Encode[Made],
        answered: Answered[Made],
    ) -> ParkedRead[Made] | None:
        """Let a pull of one queue wait there for `wait_ms`, until `answered`, which is never called
        before this returns; None, and nothing is begun, if its queue does not end at its place.
        Raises RequestRefusedError and OverLimitError as QueueReads.read."""
        reads, place = self._reads, wanted.places[0]
        queue = reads.number(place)
        if reads.closed or wait_ms <= 0 or not reads.at_end(place, queue):
            return None
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        parked = ParkedRead(
            wanted, caller, encode, answered, queue, deadline, reads.interrupts, self._look
        )
        self._places.take(caller.holder, 1)
        try:
            caller.begin_long_poll()
        except BaseException:
            self._places.give_back(caller.holder, 1)
            raise
        self._polling.enter(parked, (queue,), deadline)
        try:
            waits = self._waits(parked)
        except BaseException:
            self._leave(parked)
            raise
        if waits:
            return parked
        self._leave(parked)
        return None

    def end(self, parked: ParkedRead[Made]) -> None:
        """Answer it with what there is, if it still waits: its client may be gone. One that is
        read by a task is given up."""
        if self._polling.has(parked):
            self._leave(parked)
            self._answer(parked, over=True)
        elif parked.task is not None:
            parked.task.cancel()

    def _look(self, parked: ParkedRead[Made]) -> None:
        reads = self._reads
        try:
            over = (
                reads.closed
                or parked.interrupts != reads.interrupts
                or asyncio.get_running_loop().time() >= parked.deadline
            )
            if not over and self._waits(parked):
                return
        except Exception as problem:
            self._leave(parked)
            parked.answered(None, problem)
            return
        self._leave(parked)
        self._answer(parked, over=over)

    def _waits(self, parked: ParkedRead[Made]) -> bool:
        """Whether the queue ends at the place of a pull that has entered. Reput may give the queue
        its number at any moment, and tells who waits for that number only: so the look comes after
        the pull has entered with the number that the queue has."""
        place = parked.wanted.places[0]
        while (queue := self._reads.number(place)) != parked.queue:
            self._polling.leave(parked, (parked.queue,))
            parked.queue = queue
            self._polling.enter(parked, (queue,), parked.deadline)
        return self._reads.at_end(place, queue)

    def _leave(self, parked: ParkedRead[Made]) -> None:
        self._polling.leave(parked, (parked.queue,))
        self._places.give_back(parked.caller.holder, 1)
        parked.caller.end_long_poll()

    def _answer(self, parked: ParkedRead[Made], *, over: bool) -> None:
        try:
            answer = self._reads.read_now(
                parked.wanted, parked.caller, parked.encode, wait=not over
            )
        except Exception as problem:
            parked.answered(None, problem)
            return
        if answer is not None:
            parked.answered(answer, None)
            return
        task = asyncio.get_running_loop().create_task(self._read(parked, over=over))
        parked.task = task
        self._reading.add(task)
        task.add_done_callback(partial(self._was_read, parked))

    async def _read(self, parked: ParkedRead[Made], *, over: bool) -> Made:
        left_s = 0.0 if over else parked.deadline - asyncio.get_running_loop().time()
        wanted = replace(parked.wanted, wait_ms=max(0, round(1000 * left_s)))
        return await self._reads.read(wanted, parked.caller, parked.encode)

    def _was_read(self, parked: ParkedRead[Made], task: asyncio.Task[Made]) -> None:
        self._reading.discard(task)
        if task.cancelled():
            parked.answered(None, None)
        elif isinstance(problem := task.exception(), Exception):
            parked.answered(None, problem)
        else:
            parked.answered(task.result(), None)
