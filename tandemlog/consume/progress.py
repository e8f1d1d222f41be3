"""How far a stream has come in each queue, and what it may still deliver.

    turn        the number of a queue's present reading: seek, resume and a new assignment begin
                another one; a batch that was read in an older turn is dropped
    progress    how far the caller is in a queue; seek and a new assignment begin another one, so
                what a thread still writes to the old one does not count
      delivered    handed to the caller: what a commit by hand saves
      done         the caller came back for more, or has committed it: what the automatic commit
                   saves, so that a message whose handling was cut short comes again
    committed   what the group is known to have, by the word of the newest master: one that was
                elected since may lack the last commits, which are saved again. Until something is
                delivered, the progress is the offset where reading began, so that a commit saves
                that too
    leaving     queues that are being given up, or paused: nothing more of them is delivered
    in hand     the queue of the messages that the caller has now

Two threads meet here without a lock: the caller's, which delivers, and the loop's, which takes
queues away. The caller first says what it takes in hand and then checks whether it may; the loop
first says that a queue is leaving and then checks whether it is in hand. So at least one of them
sees the other.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping

from .passage import Passage
from .reading.positions import Queue


class QueueProgress:
    """How far the caller is in a queue, from a turn on, and where it began. The caller's thread
    sets the offsets, or has a passage count them."""

    __slots__ = ("_acknowledged", "_delivered", "_done", "_passage", "begun", "since")

    def __init__(self, since: int, offset: int = 0) -> None:
        self.since = since
        self.begun = offset
        self._delivered = offset
        self._done = offset
        self._acknowledged = 0
        self._passage: Passage | None = None

    @property
    def delivered(self) -> int:
        passage = self._passage
        passed = 0 if passage is None else passage.passed
        return self._delivered if passage is None or not passed else passage.offsets[passed - 1]

    @delivered.setter
    def delivered(self, offset: int) -> None:
        self.count(None)
        self._delivered = offset

    @property
    def done(self) -> int:
        """The last message that passed is still in the caller's hands, unless it was committed."""
        passage = self._passage
        passed = 0 if passage is None else passage.passed
        done = self._done if passage is None or passed < 2 else passage.offsets[passed - 2]
        return max(done, self._acknowledged)

    @done.setter
    def done(self, offset: int) -> None:
        self.count(None)
        self._done = offset

    def acknowledge(self, offset: int) -> None:
        """The caller commits up to there by hand: of what it has, that is done."""
        self._acknowledged = max(self._acknowledged, min(offset, self.delivered))

    def count(self, passage: Passage | None) -> None:
        """From now on `passage` says how far the caller is; what the one before said stays."""
        if self._passage is not None:
            self._delivered, self._done = self.delivered, self.done
        self._passage = passage


class Progress:
    """See the module; offsets are queue offsets. `epoch()` is the newest epoch of a master that was
    heard of."""

    def __init__(self, epoch: Callable[[], int] = lambda: 0) -> None:
        self.committed: dict[Queue, int] = {}
        self._newest_epoch = epoch
        self._epoch = 0
        self.in_hand: Queue | None = None
        self._turns: dict[Queue, int] = {}
        self._by_queue: dict[Queue, QueueProgress] = {}
        self._leaving: frozenset[Queue] = frozenset()
        self._paused: frozenset[Queue] = frozenset()
        self._cut_up_to: dict[Queue, int] = {}
        self._numbers = itertools.count(1)

    # any thread; `list` takes the items at once, while the loop may add one

    @property
    def delivered(self) -> dict[Queue, int]:
        """By queue, the offset of the next message to deliver."""
        return {queue: each.delivered for queue, each in list(self._by_queue.items())}

    @property
    def done(self) -> dict[Queue, int]:
        """By queue, the offset after the last message that the caller came back from."""
        return {queue: each.done for queue, each in list(self._by_queue.items())}

    @property
    def moved(self) -> dict[Queue, int]:
        """As `delivered`, of the queues in which a message was delivered."""
        rows = list(self._by_queue.items())
        return {queue: each.delivered for queue, each in rows if each.delivered != each.begun}

    # the loop's thread

    @property
    def queues(self) -> frozenset[Queue]:
        """All that are read, paused ones too."""
        return frozenset(self._turns)

    @property
    def paused(self) -> frozenset[Queue]:
        return self._paused

    @property
    def leaving(self) -> frozenset[Queue]:
        return self._leaving

    def restart(self, queue: Queue, offset: int) -> None:
        """A new queue, or another place in it: what was done before does not count any more."""
        number = next(self._numbers)
        self._by_queue[queue] = QueueProgress(number, offset)
        self._turns[queue] = number

    def cut(self, queue: Queue, first: int) -> int:
        """What lies at or behind `first` is not in the log any more: the queue is read again from
        there, or from the place where the caller is, if that comes first. Returns that place."""
        before, position = self._by_queue.get(queue), self.position(queue)
        offset = min(position, first)
        self.restart(queue, offset)
        if before is not None:
            self._by_queue[queue].done = min(before.done, offset)
        self.committed.pop(queue, None)
        self._cut_up_to[queue] = max(position, self._cut_up_to.get(queue, 0))
        return offset

    def is_of_a_cut_log(self, queue: Queue, offset: int) -> bool:
        """Whether `offset` was reached in messages that are no longer in the log, and has not been
        reached again since."""
        return self.position(queue) < offset <= self._cut_up_to.get(queue, 0)

    def pause(self, queues: Iterable[Queue]) -> None:
        self._paused |= self.queues.intersection(queues)

    def resume(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """Those that were paused, with the offsets at which they continue."""
        resumed = self._paused.intersection(queues)
        self._paused -= resumed
        return self.again(resumed)

    def again(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """Those that were not read for a while, with the offsets at which they continue; what was
        read before and is not delivered yet does not count."""
        continued = self.queues.intersection(queues)
        for queue in continued:
            self._turns[queue] = next(self._numbers)
        return {queue: self.position(queue) for queue in continued}

    def leave(self, queues: Iterable[Queue]) -> None:
        """From now on nothing more of `queues` is delivered."""
        self._leaving |= self.queues.intersection(queues)

    def forget(self, queues: Iterable[Queue]) -> dict[Queue, QueueProgress]:
        """This stream does not read them any more. Returns how far the caller is in them."""
        forgotten = frozenset(queues)
        self._paused -= forgotten
        progress = {queue: self._by_queue.pop(queue) for queue in forgotten & self._by_queue.keys()}
        for queue in forgotten:
            self._turns.pop(queue, None)
            self.committed.pop(queue, None)
            self._cut_up_to.pop(queue, None)
        self._leaving -= forgotten
        return progress

    def position(self, queue: Queue) -> int:
        """The offset of the next message to deliver."""
        progress = self._by_queue.get(queue)
        return progress.delivered if progress is not None else 0

    def turn(self, queue: Queue) -> int:
        return self._turns.get(queue, 0)

    @property
    def epoch(self) -> int:
        """The newest epoch of a master, to be read before a question whose answer is for
        `note_committed`."""
        return self._newest_epoch()

    def note_committed(self, offsets: Mapping[Queue, int], epoch: int) -> None:
        """The group has these offsets, by the word of a master; before it was asked, the newest
        epoch was `epoch`. If there is a newer one by now, that says nothing."""
        self._forget_older()
        if epoch == self._epoch:
            self.committed.update(offsets)

    def acknowledge(self, offsets: Mapping[Queue, int]) -> None:
        """The caller commits these by hand; the automatic commit does not go back behind them."""
        for queue in offsets.keys() & self._by_queue.keys():
            self._by_queue[queue].acknowledge(offsets[queue])

    def _forget_older(self) -> None:
        newest = self.epoch
        if newest != self._epoch:
            self._epoch = newest
            self.committed.clear()

    def to_commit(self, offsets: Mapping[Queue, int]) -> dict[Queue, int]:
        """Those that the group does not have yet."""
        self._forget_older()
        return {
            queue: offset
            for queue, offset in offsets.items()
            if self.committed.get(queue) != offset and queue in self._turns
        }

    # the caller's thread

    def may_deliver(self, queue: Queue, turn: int) -> bool:
        """Whether a batch that was read in `turn` still counts."""
        return (
            self._turns.get(queue) == turn
            and queue not in self._leaving
            and queue not in self._paused
        )

    def start_delivery(self, queue: Queue, turn: int) -> bool:
        """The caller gets messages of `queue` in hand; False if it must not."""
        self.in_hand = queue
        if self.may_deliver(queue, turn):
            return True
        self.in_hand = None
        return False

    def progress_of(self, queue: Queue, turn: int) -> QueueProgress:
        """Where the caller of a batch that was read in `turn` notes how far it is; an unused one
        if that turn does not count any more."""
        progress = self._by_queue.get(queue)
        if progress is None or turn < progress.since:
            return QueueProgress(turn)
        return progress
