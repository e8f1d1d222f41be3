"""What a node's answer about a queue means, and when messages that a node lacks are lost.

    THERE    the node has it: continue
    BEHIND   its queue ends before: not yet. A slave may be behind, so this says nothing of the
             cluster; only its master may say that no node has it
    GONE     it does not have it any more, or has a hole there. Another node may keep older files,
             or have a whole copy: the message is lost once every node that may be read from lacks
             it, or after a while if the master does

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
class Verdict:
    """What a node's answer says of an offset: the node continues at `next_offset`, its queue holds
    `min_offset`..`max_offset`."""

    kind: Kind
    next_offset: int
    min_offset: int
    max_offset: int


def judge(
    batch: ReceivedBatch, offset: int, *, wanted: int | None = None, filtered: bool
) -> Verdict:
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
    return Verdict(kind, following, batch.min_offset, batch.max_offset)


def accept(
    batch: ReceivedBatch,
    offset: int,
    *,
    end: int | None = None,
    of_log: int | None = None,
    filtered: bool,
) -> tuple[ReceivedBatch | None, Verdict]:
    """The messages of an answer for `offset` that count, and what it says (see `judge`). Those
    before `end` count, and without a filter those before the first that is missing: the next answer
    begins with that. None if the queue does not move. From `of_log` on the node has messages that
    are not of the cluster's log: there it is behind."""
    if of_log is not None:
        batch = batch.before(of_log)
    verdict = judge(batch, offset, wanted=end, filtered=filtered)
    is_gone = verdict.kind is Kind.GONE
    if of_log is not None:
        verdict = replace(verdict, kind=Kind.BEHIND)
    following = verdict.next_offset if end is None else min(verdict.next_offset, end)
    if is_gone or following <= offset:
        return None, verdict
    if not filtered and _has_holes(batch, offset):
        expected = range(offset, offset + len(batch))
        pairs = zip(expected, batch.queue_offsets, strict=True)
        hole = next((wanted for wanted, actual in pairs if wanted != actual), expected.stop)
        following = min(following, hole)
    if batch.next_offset == following:
        return batch, verdict
    cut = len(batch) and batch.next_offset > following
    return batch.before(following) if cut else replace(batch, next_offset=following), verdict


def _has_holes(batch: ReceivedBatch, offset: int) -> bool:
    """Whether records may be missing among those of an answer without a filter."""
    return 0 < len(batch) != batch.next_offset - offset


class Verdicts(Generic[QueueT]):
    """By queue, what the nodes said of its next offset."""

    def __init__(self) -> None:
        self._verdicts: dict[QueueT, dict[str, Verdict]] = {}
        self._since: dict[QueueT, float] = {}

    def note(self, queue: QueueT, endpoint: str, verdict: Verdict, now: float) -> None:
        """The node at `endpoint` does not have the queue's next message."""
        self._verdicts.setdefault(queue, {})[endpoint] = verdict
        self._since.setdefault(queue, now)

    def clear(self, queue: QueueT) -> None:
        """The queue continues."""
        self._verdicts.pop(queue, None)
        self._since.pop(queue, None)

    def seconds(self, queue: QueueT, now: float) -> float:
        """For how long the queue has not moved."""
        return now - self._since.get(queue, now)

    def start_over(self, queue: QueueT, now: float) -> None:
        """The master has the message: the nodes that lack it get their time again."""
        self._since[queue] = now

    def of(self, queue: QueueT, endpoint: str) -> Verdict | None:
        return self._verdicts.get(queue, {}).get(endpoint)

    def is_behind(self, queue: QueueT) -> bool:
        """Whether no node says more than that its queue ends before."""
        return all(each.kind is Kind.BEHIND for each in self._verdicts.get(queue, {}).values())

    def lost(self, queue: QueueT, deciders: Collection[str] | None) -> Verdict | None:
        """What says that none of the nodes `deciders` has the messages before its `next_offset`;
        None while one may have them. None for `deciders`: no node that knows can be asked."""
        verdicts = self._verdicts.get(queue, {})
        if not deciders or not verdicts.keys() >= set(deciders):
            return None
        gone = [each for each in verdicts.values() if each.kind is Kind.GONE]
        return min(gone, key=lambda each: each.next_offset, default=None)
