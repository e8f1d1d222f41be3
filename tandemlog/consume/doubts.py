"""What a node's answer about a queue means, and when something that a node lacks is lost.

    THERE    the node has it: continue
    BEHIND   its queue ends before: not yet. A slave may be behind, so this says nothing of the
             cluster; only its master may say that no node has it
    GONE     it has it no more, or a hole there. Another node may keep older files, or have a whole
             copy: lost once every node that may be read from lacks it, or after a while the master

Only the master of the newest known epoch may decide that (Topology.authority). While it is away
nothing counts as lost: a reader waits. Pure: no I/O, no clock.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from ..cluster.topology import ReadFrom, Topology
from ..v1 import broker_pb2

QueueT = TypeVar("QueueT", bound=Hashable)

AT_END: Final = frozenset(
    {
        broker_pb2.NO_MATCHED_LOGIC_QUEUE,
        broker_pb2.NO_MESSAGE_IN_QUEUE,
        broker_pb2.OFFSET_OVERFLOW_ONE,
    }
)
"""Nothing there now: the queue ends here, or before."""
_GONE: Final = frozenset(
    {
        broker_pb2.OFFSET_TOO_SMALL,
        broker_pb2.OFFSET_FOUND_NULL,
        broker_pb2.MESSAGE_WAS_REMOVING,
    }
)


class Kind(Enum):
    """See the module."""

    THERE = auto()
    BEHIND = auto()
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Said:
    """What a node said of an offset; the node continues at `following`, its queue holds
    `min_offset`..`max_offset`."""

    kind: Kind
    following: int
    min_offset: int
    max_offset: int


def judge(
    part: broker_pb2.QueueRecords,
    offset: int,
    *,
    wanted: int | None = None,
    filtered: bool,
    first_offset: int | None = None,
) -> Said:
    """What an answer says of `offset`. `wanted`: messages up to there are known to be in the
    cluster. `filtered`: records may be left out. `first_offset` is that of the first record."""
    following = max(part.next_offset, offset)
    kind = Kind.THERE
    if part.status == broker_pb2.OFFSET_OVERFLOW_BADLY:
        kind = Kind.BEHIND
    elif part.status in AT_END:
        if offset > part.max_offset or (wanted is not None and following < wanted):
            kind = Kind.BEHIND
    elif part.status in _GONE:
        kind = Kind.GONE
    elif not filtered and first_offset is not None and first_offset > offset:
        kind, following = Kind.GONE, first_offset
    if kind is Kind.GONE:
        following = max(following, offset + 1)
    return Said(kind, following, part.min_offset, part.max_offset)


class Doubts(Generic[QueueT]):
    """What the nodes said of the offset at which each queue stands."""

    def __init__(self) -> None:
        self._said: dict[QueueT, dict[str, Said]] = {}
        self._since: dict[QueueT, float] = {}

    def __bool__(self) -> bool:
        return bool(self._said)

    def note(self, queue: QueueT, endpoint: str, said: Said, now: float) -> None:
        """The node at `endpoint` does not have the queue's next message."""
        self._said.setdefault(queue, {})[endpoint] = said
        self._since.setdefault(queue, now)

    def settle(self, queue: QueueT) -> None:
        """The queue continues."""
        self._said.pop(queue, None)
        self._since.pop(queue, None)

    def seconds(self, queue: QueueT, now: float) -> float:
        """For how long the queue has stood."""
        return now - self._since.get(queue, now)

    def again(self, queue: QueueT, now: float) -> None:
        """The master has the message: the nodes that lack it get their time again."""
        self._since[queue] = now

    def said_by(self, queue: QueueT, endpoint: str) -> Said | None:
        return self._said.get(queue, {}).get(endpoint)

    def is_behind(self, queue: QueueT) -> bool:
        """Whether no node says more than that its queue ends before."""
        return all(each.kind is Kind.BEHIND for each in self._said.get(queue, {}).values())

    def gone(self, queue: QueueT, must_say: Collection[str] | None) -> Said | None:
        """The messages before `following` are in none of the nodes `must_say`; None while they may
        be. None for `must_say`: no node that knows can be asked."""
        said = self._said.get(queue, {})
        if not must_say or not said.keys() >= set(must_say):
            return None
        found = [each for each in said.values() if each.kind is Kind.GONE]
        return min(found, key=lambda each: each.following) if found else None


def who_must_say(
    topology: Topology, read_from: ReadFrom, *, patient: bool = True
) -> frozenset[str] | None:
    """The endpoints of all nodes that may have what a node lacks: those that can be read now,
    including the master unless only slaves are read. None while that master is not there. When
    `patient` is false, the master alone decides: some node may never respond."""
    if read_from is not ReadFrom.SLAVE:
        if topology.authority is None:
            return None
        if not patient:
            return frozenset({topology.authority.endpoint})
    nodes = [each for each in topology.candidates(read_from) if each.reachable]
    return frozenset(each.endpoint for each in nodes) or None
