"""Which pull asks for which queues: lanes share the queues, and have one pull at a time each.

    much comes     lane a: q0 q2     the node reads for one lane while the client takes in the
                   lane b: q1 q3     answer of the other
    little comes   lane a: all       one long poll waits for all queues
                   lane b: rests

A pull costs a node about a millisecond, however little it finds. At the end of the queues every
message would wake the pulls of all lanes, so lanes join after some small answers in a row, and
divide again at the first large one. A pull that waits while its lane loses or gets queues is
cancelled and asked again: nothing is taken from an answer that comes too late.

A node reads the queues in the order of the pull until its answer is full. So those that were read
go to the end of their lane: each queue that a pull has named is read before any of them is read
again.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from ...format.calls import MAX_POSITIONS
from ..interruptible import Interruptible
from ..reading.positions import Queue
from ..reading.pulls import Pulled

SMALL_BYTES: Final = 256 << 10
LARGE_BYTES: Final = 1 << 20
JOIN_AFTER: Final = 16
"""Small answers in a row of both lanes."""


@dataclass(slots=True, eq=False)
class Lane:
    """Some of the queues, and the pull that is under way for them. `small`: so many answers in a
    row were small, and without doubt about a queue."""

    queues: deque[Queue] = field(default_factory=deque)
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    pull: Interruptible[Pulled] = field(default_factory=Interruptible)
    small: int = 0

    def turn(self, queues: Collection[Queue]) -> None:
        """These had their turn."""
        self.queues = deque(sorted(self.queues, key=set(queues).__contains__))

    def kick(self) -> None:
        """Ask again: what is asked for has changed."""
        self.filled.set()
        self.pull.interrupt()


class Lanes:
    """See the module. At most `most` of them, but more if a pull cannot name all queues of one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lanes: list[Lane] = []

    @property
    def busy(self) -> bool:
        """Whether one has queues."""
        return any(lane.queues for lane in self._lanes)

    def add(self, queues: Collection[Queue], all_queues: int) -> list[Lane]:
        """Share out `queues`, with which there are `all_queues`. Returns the lanes that are new."""
        wanted = max(1, min(self._most, len(queues)), -(-all_queues // MAX_POSITIONS))
        new = [Lane() for _ in range(wanted - len(self._lanes) if queues else 0)]
        self._lanes += new
        touched = set()
        for queue in queues:
            lane = min(self._lanes, key=lambda each: len(each.queues))
            lane.queues.append(queue)
            touched.add(lane)
        for lane in touched:
            lane.small = 0
            lane.kick()
        return new

    def remove(self, queues: AbstractSet[Queue]) -> None:
        for lane in self._lanes:
            if not queues.isdisjoint(lane.queues):
                lane.queues = deque(queue for queue in lane.queues if queue not in queues)

    def answered(self, lane: Lane, size: int) -> None:
        """The pull of `lane` is over, with `size` bytes of records."""
        lane.small = lane.small + 1 if size < SMALL_BYTES else 0
        if lane.small >= JOIN_AFTER:
            self._join(lane)
        elif size >= LARGE_BYTES:
            self._divide(lane)

    def _join(self, lane: Lane) -> None:
        for other in self._others(lane):
            together = len(lane.queues) + len(other.queues)
            if other.queues and other.small >= JOIN_AFTER and together <= MAX_POSITIONS:
                lane.queues += other.queues
                other.queues.clear()
                other.kick()

    def _divide(self, lane: Lane) -> None:
        resting = next((each for each in self._others(lane) if not each.queues), None)
        if resting is not None and len(lane.queues) > 1:
            for _ in range(len(lane.queues) // 2):
                resting.queues.append(lane.queues.popleft())
            resting.small = 0
            resting.kick()

    def _others(self, lane: Lane) -> Iterable[Lane]:
        return (each for each in self._lanes if each is not lane)
