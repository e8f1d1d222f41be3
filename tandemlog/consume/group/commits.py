"""Saving how far a stream has come, for its group.

    commit()                 all that was delivered ─┐
    commit(message | batch)  up to and with it ──────┼─▶ one at a time ─▶ the master
    every auto_commit_ms     all that is done ───────┘     refused rows: FencedMemberError

One at a time: a slow commit must not arrive after a newer one. A member's commit carries its id and
epoch, so that the master refuses the queues that are not its own any more.

Queues that a member has lost are kept with the id and epoch that it had, until the caller comes
back: what it still does with their messages is committed as by the former member, which the master
accepts unless another one has owned the queue since. So a caller that was away for too long, alone
in its group, does not get the same message for ever.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from ...errors import (
    ClientClosedError,
    FencedMemberError,
    LogCutError,
    OffsetOutOfRangeError,
    TandemlogError,
    UnknownQueueError,
    UnknownTopicError,
)
from ..progress import Progress, QueueProgress
from ..reading.positions import Positions, Queue
from ..received.received_batch import ReceivedBatch
from ..received.received_message import ReceivedMessage
from ..statistics import ConsumerCounters

logger = logging.getLogger(__name__)

Identity = tuple[str, int]
"""Member id and epoch."""

Commit = ReceivedMessage | ReceivedBatch | Mapping[Queue, int]
"""What to commit: up to and including a message or a batch, or offsets by (topic, queue id)."""


class Member(Protocol):
    """The stream's membership."""

    @property
    def identity(self) -> tuple[str, int]: ...

    def check(self) -> None:
        """The master refused what this member believed to own."""


class Log(Protocol):
    """Which log is read."""

    @property
    def log_term(self) -> tuple[int, int]: ...

    async def catch_up(self) -> None:
        """Compare the positions with the master's log: queues that were cut continue elsewhere."""


class Committing(Protocol):
    """Whose commits these are; `membership` is None where it names its queues by hand."""

    @property
    def membership(self) -> Member | None: ...

    @property
    def counters(self) -> ConsumerCounters: ...

    @property
    def log(self) -> Log: ...

    def commit_failed(self, error: TandemlogError, offsets: dict[Queue, int]) -> None: ...


@dataclass(slots=True)
class _Lost:
    """A queue that was lost: by whom, how far its caller is in it, what the group has, and
    the log of all that."""

    former: Identity
    progress: QueueProgress
    committed: int | None
    log_term: tuple[int, int]


class Commits:
    """See the module; one event loop. Raises ClientClosedError without a group."""

    def __init__(
        self, positions: Positions, progress: Progress, group: str | None, of: Committing
    ) -> None:
        self._positions = positions
        self._progress = progress
        self._group = group
        self._of = of
        self._saving = asyncio.Lock()
        self._lost: dict[Queue, _Lost] = {}
        self.under_way: set[asyncio.Task[None]] = set()

    def offsets_of(self, what: Commit | None) -> dict[Queue, int]:
        """What a commit of `what` saves; None: everything delivered so far. Any thread."""
        if self._group is None:
            raise ClientClosedError("there is nothing to commit without a group")
        if what is None:
            lost = {queue: each.progress.delivered for queue, each in list(self._lost.items())}
            return {**lost, **self._progress.delivered}
        if isinstance(what, ReceivedMessage):
            return {(what.topic, what.queue_id): what.queue_offset + 1}
        if isinstance(what, ReceivedBatch):
            return {(what.topic, what.queue_id): what.next_offset}
        return dict(what)

    async def commit(self, what: Commit | None = None) -> None:
        """Saves, for the group, what `offsets_of` says; raises FencedMemberError for queues that
        the group's master has given to another member, and LogCutError for messages that are not
        in the log any more."""
        log_term = self._of.log.log_term  # not newer than the offsets
        await self._commit_offsets(self.offsets_of(what), log_term, named=what is not None)

    def commit_soon(self, what: Commit | None = None) -> asyncio.Task[None]:
        """Starts a commit of what `what` means now; where it fails, commit_failed hears of it
        too."""
        log_term = self._of.log.log_term
        offsets = self.offsets_of(what)

        async def work() -> None:
            try:
                await self._commit_offsets(offsets, log_term, named=what is not None)
            except TandemlogError as error:
                self._of.commit_failed(error, offsets)
                raise

        task = asyncio.get_running_loop().create_task(work(), name="tandemlog-commit-soon")
        self.under_way.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.under_way.discard(task)
        if not task.cancelled():
            task.exception()  # who does not look at the future was told by the callback

    async def _commit_offsets(
        self, offsets: Mapping[Queue, int], log_term: tuple[int, int], *, named: bool
    ) -> None:
        """`named`: the caller asked for these, whatever was committed before."""
        async with self._saving:
            lost = {queue: offset for queue, offset in offsets.items() if queue in self._lost}
            rest = {queue: offset for queue, offset in offsets.items() if queue not in lost}
            strange = sorted(queue for queue in rest if queue not in self._progress.queues)
            gone = None
            if strange and self._of.membership is not None:
                gone = _not_owned(self._group or "", strange)
            if gone is not None and named:
                raise gone
            if named and (cut := self._of_a_cut_log(rest)):
                raise _cut_off(self._group or "", cut)
            sent = rest if named else self._progress.to_commit(rest)
            await self._send(sent, log_term, named=named)
            await self._send_lost(lost, named=named)
            if gone is not None:  # given up while this commit waited for another one
                raise gone

    def _is_lost(self, queue: Queue, turns: Mapping[Queue, int]) -> bool:
        """Whether this queue is not read any more as it was then."""
        return not turns[queue] or self._progress.turn(queue) != turns[queue]

    def _of_a_cut_log(self, offsets: Mapping[Queue, int]) -> list[Queue]:
        is_cut = self._progress.is_of_a_cut_log
        return [queue for queue, offset in offsets.items() if is_cut(queue, offset)]

    async def save_done(self, offsets: Mapping[Queue, int]) -> None:
        """As `save`, and commit_failed hears of a failure."""
        try:
            await self.save(offsets)
        except TandemlogError as error:
            self._of.commit_failed(error, dict(offsets))
            raise

    async def save(self, offsets: Mapping[Queue, int]) -> None:
        """Those that the group does not have yet."""
        log_term = self._of.log.log_term
        async with self._saving:
            await self._send(self._progress.to_commit(offsets), log_term)

    async def place(self, offsets: Mapping[Queue, int]) -> None:
        """Where the group begins in queues that this member is about to read, and which may have
        been deleted a moment ago."""
        async with self._saving:
            log_term = self._of.log.log_term
            try:
                await self._send(offsets, log_term)
            except (UnknownTopicError, UnknownQueueError):  # one of them, and none is committed
                for queue, offset in offsets.items():
                    with contextlib.suppress(UnknownTopicError, UnknownQueueError):
                        await self._send({queue: offset}, log_term)

    # queues that were lost

    def lost(
        self, lost: Mapping[Queue, QueueProgress], committed: Mapping[Queue, int], former: Identity
    ) -> None:
        """A member that was `former` does not own these any more, of which it is known what the
        group has `committed`."""
        for queue, progress in lost.items():
            self._lost[queue] = _Lost(former, progress, committed.get(queue), self._of.log.log_term)

    def forget_lost(self, queues: Collection[Queue] | None = None) -> None:
        """Nothing of these (all) is in the caller's hands any more."""
        for queue in list(self._lost) if queues is None else queues:
            self._lost.pop(queue, None)

    async def save_lost(self) -> None:
        """What is done of lost queues; commit_failed hears of those that another member has owned
        since. Raises what may pass."""
        async with self._saving:
            done = {queue: each.progress.done for queue, each in self._lost.items()}
            try:
                await self._send_lost(done, named=False)
            except TandemlogError as error:
                if error.retryable:
                    raise
                self._of.commit_failed(error, done)

    async def _send_lost(self, offsets: Mapping[Queue, int], *, named: bool) -> None:
        assert self._group is not None
        by_former: dict[tuple[Identity, tuple[int, int]], dict[Queue, int]] = {}
        for queue, offset in offsets.items():
            each = self._lost[queue]
            if named or each.committed != offset:
                by_former.setdefault((each.former, each.log_term), {})[queue] = offset
        refused: list[Queue] = []
        for (former, log_term), part in by_former.items():
            try:
                await self._positions.commit(self._group, part, former, log_term)
            except (FencedMemberError, OffsetOutOfRangeError) as error:
                refused += error.refused or part
            for queue in part.keys() - set(refused):
                if queue in self._lost:
                    self._lost[queue].committed = part[queue]
        if refused:
            self._of.counters.failed_commits += 1
            self.forget_lost(refused)
            raise _not_owned(self._group, sorted(refused))

    async def _send(
        self, offsets: Mapping[Queue, int], log_term: tuple[int, int], *, named: bool = False
    ) -> None:
        """Where the master has another log than the one that was read, positions are compared
        first. Of queues that were cut it sends how far they are then, or raises LogCutError where
        the caller has named an offset. A queue that was lost meanwhile has nothing to compare:
        what its offset is in this log is not known."""
        turns = {queue: self._progress.turn(queue) for queue in offsets}
        try:
            await self._send_once(offsets, log_term)
        except LogCutError as error:
            await self._of.log.catch_up()
            now = self._of.log.log_term
            if now == log_term:
                raise
            cut = self._of_a_cut_log({queue: offsets[queue] for queue in error.refused})
            lost = [each for each in error.refused if self._is_lost(each, turns)]
            done = self._progress.done
            rest = {each: offsets[each] for each in error.refused if each not in {*cut, *lost}}
            if not named:
                rest.update((each, done[each]) for each in cut if each in done)
            await self._send_once(rest, now)
            if named and (cut or lost):
                raise _cut_off(self._group or "", sorted({*cut, *lost})) from error

    async def _send_once(self, offsets: Mapping[Queue, int], log_term: tuple[int, int]) -> None:
        """Until the answer has come it is not known which of the two offsets the group has: a send
        that fails, or is cancelled at any moment, leaves the next one to save these."""
        assert self._group is not None
        if not offsets:
            return
        member, epoch = self._of.membership, self._progress.epoch
        for queue in offsets:
            self._progress.committed.pop(queue, None)
        try:
            identity = member.identity if member is not None else None
            await self._positions.commit(self._group, offsets, identity, log_term)
        except TandemlogError as error:
            if isinstance(error, OffsetOutOfRangeError):
                self._saved(offsets, error.refused or offsets, epoch)
            if isinstance(error, LogCutError):
                raise
            logger.warning("offsets not committed: group=%s %s", self._group, error)
            self._of.counters.failed_commits += 1
            if isinstance(error, FencedMemberError):
                self._saved(offsets, error.refused or offsets, epoch)
                if member is not None:
                    member.check()
            raise
        self._of.counters.commits += 1
        self._saved(offsets, (), epoch)

    def _saved(self, offsets: Mapping[Queue, int], refused: Collection[Queue], epoch: int) -> None:
        saved = offsets.keys() - set(refused)
        self._progress.know({queue: offsets[queue] for queue in saved}, epoch)


def _cut_off(group: str, queues: Collection[Queue]) -> LogCutError:
    names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in queues)
    error = LogCutError(
        f"group {group}: the log was cut below the messages of {names} that this commit is of: "
        "they are lost, the stream continues with those that are there in their place",
        field="queue_offset",
    )
    error.refused = tuple(queues)
    return error


def _not_owned(group: str, queues: Collection[Queue]) -> FencedMemberError:
    names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in queues)
    error = FencedMemberError(
        f"group {group}: this member does not own {names} (any more), so nothing is committed of "
        "it: the session timed out, the queues moved to another member, or the program was away "
        "for longer than max_poll_interval_ms; their messages come again, to the queue's owner",
        field="queue_id",
    )
    error.refused = tuple(queues)
    return error
