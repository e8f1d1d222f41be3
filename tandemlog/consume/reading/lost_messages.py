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
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from ..received.received_batch import ReceivedBatch

QueueT = TypeVar("QueueT", bound=Hashable)

_AT_END: Final = frozenset({"NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE", "OFFSET_OVERFLOW_ONE"})
"""Nothing there now: the queue ends here, or before."""
_GONE: Final = frozenset({"OFFSET_TOO_SMALL", "OFFSET_FOUND_NULL", "MESSAGE_WAS_REMOVING"})


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


def judge(batch: ReceivedBatch, offset: int, *, wanted: int | None = None, filtered: bool) -> Said:
    """What an answer says of `offset`. `wanted`: messages up to there are known to be in the
    cluster. `filtered`: records may be left out."""
    following = max(batch.next_offset, offset)
    kind = Kind.THERE
    if batch.status == "OFFSET_OVERFLOW_BADLY":
        kind = Kind.BEHIND
    elif batch.status in _AT_END:
        if offset > batch.max_offset or (wanted is not None and following < wanted):
            kind = Kind.BEHIND
    elif batch.status in _GONE:
        kind = Kind.GONE
    elif not filtered and _has_holes(batch, offset) and batch[0].queue_offset > offset:
        kind, following = Kind.GONE, batch[0].queue_offset
    if kind is Kind.GONE:
        following = max(following, offset + 1)
    return Said(kind, following, batch.min_offset, batch.max_offset)


def take(
    batch: ReceivedBatch,
    offset: int,
    *,
    end: int | None = None,
    of_log: int | None = None,
    filtered: bool,
) -> tuple[ReceivedBatch | None, Said]:
    """What of an answer for `offset` counts, and what it says (see `judge`): the messages before
    `end`, and without a filter those before the first that is missing, with which the next answer
    begins. None if the queue does not move. From `of_log` on the node has messages that are not of
    the cluster's log: there it is behind."""
    if of_log is not None:
        batch = batch.before(of_log)
    said = judge(batch, offset, wanted=end, filtered=filtered)
    gone = said.kind is Kind.GONE
    if of_log is not None:
        said = replace(said, kind=Kind.BEHIND)
    following = said.following if end is None else min(said.following, end)
    if gone or following <= offset:
        return None, said
    if not filtered and _has_holes(batch, offset):
        expected = range(offset, offset + len(batch))
        numbered = zip(expected, batch.queue_offsets, strict=True)
        hole = next((wanted for wanted, found in numbered if wanted != found), expected.stop)
        following = min(following, hole)
    if batch.next_offset == following:
        return batch, said
    cut = len(batch) and batch.next_offset > following
    return batch.before(following) if cut else replace(batch, next_offset=following), said


def _has_holes(batch: ReceivedBatch, offset: int) -> bool:
    """Whether records may be missing among those of an answer without a filter."""
    return 0 < len(batch) != batch.next_offset - offset


class Doubts(Generic[QueueT]):
    """What the nodes said of the offset at which each queue stands."""

    def __init__(self) -> None:
        self._said: dict[QueueT, dict[str, Said]] = {}
        self._since: dict[QueueT, float] = {}

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
