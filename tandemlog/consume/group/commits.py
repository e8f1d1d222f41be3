"""Saving how far a stream has come, for its group.

    commit()                 all that was delivered ─┐
    commit(message | batch)  up to and with it ──────┼─▶ one at a time ─▶ the master
    every auto_commit_ms     all that is done ───────┘     refused rows: FencedMemberError

One at a time, in their order: a slow commit must not arrive after a newer one. A member's commit
carries its id and epoch, so that the master refuses the queues that are not its own any more.

Queues that a member has lost are kept with the id and epoch that it had, until the caller comes
back: what it still does with their messages is committed in the name of the former member. The
master accepts that unless another member has owned the queue since. So a caller that was away for
too long, alone in its group, does not get the same message for ever.
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
from ...v1 import broker_pb2
from ..progress import Progress, QueueProgress
from ..reading.cut_watch import CutWatch
from ..reading.positions import Positions, Queue
from ..received.received_batch import ReceivedBatch
from ..received.received_message import ReceivedMessage
from ..statistics import ConsumerCounters
from .membership import Membership

logger = logging.getLogger(__name__)

Identity = tuple[str, int]
"""Member id and epoch."""

Commit = ReceivedMessage | ReceivedBatch | Mapping[Queue, int]
"""What to commit: up to and including a message or a batch, or offsets by (topic, queue id)."""


class Committing(Protocol):
    """The stream; `membership` is None if it names its queues by hand."""

    @property
    def membership(self) -> Membership | None: ...

    @property
    def counters(self) -> ConsumerCounters: ...

    @property
    def log(self) -> CutWatch: ...

    def commit_failed(self, error: TandemlogError, offsets: dict[Queue, int]) -> None: ...


@dataclass(slots=True)
class _Lost:
    """A queue that was lost: its former owner, how far the caller is in it, the group's offset, and
    the term of the log that these are of."""

    former: Identity
    progress: QueueProgress
    committed: int | None
    log_term: tuple[int, int]


class Commits:
    """See the module; one event loop. Raises ClientClosedError without a group."""

    def __init__(
        self, positions: Positions, progress: Progress, group: str | None, stream: Committing
    ) -> None:
        self._positions = positions
        self._progress = progress
        self._group = group
        self._stream = stream
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
            return {what.queue: what.next_offset}
        return dict(what)

    def for_transaction(self, what: Commit | None) -> broker_pb2.CommitOffsetsRequest:
        """What `commit` would send, to be sent with a transaction. Raises ClientClosedError without
        a group, FencedMemberError for queues that are not this member's. Any thread."""
        member, log_term = self._stream.membership, self._stream.log.log_term
        offsets = self._progress.delivered if what is None else self.offsets_of(what)
        if self._group is None:
            raise ClientClosedError("there is nothing to commit without a group")
        if member is not None and (foreign := offsets.keys() - self._progress.queues):
            raise _not_owned(self._group, sorted(foreign))
        request = broker_pb2.CommitOffsetsRequest(
            group=self._group, log_epoch=log_term[0], term_id=log_term[1]
        )
        if member is not None:
            request.member_id, request.member_epoch = member.identity
        for (topic, queue_id), offset in sorted(offsets.items()):
            request.offsets.add(topic=topic, queue_id=queue_id, queue_offset=offset)
        return request

    async def commit(self, what: Commit | None = None) -> None:
        """Saves, for the group, what `offsets_of` says; raises FencedMemberError for queues that
        the group's master has given to another member, and LogCutError for messages that are not
        in the log any more."""
        await self._start(what, told=False)

    def commit_soon(self, what: Commit | None = None) -> asyncio.Task[None]:
        """Starts a commit of what `what` means now; where it fails, commit_failed hears of it
        too."""
        return self._start(what, told=True)

    def _start(self, what: Commit | None, *, told: bool) -> asyncio.Task[None]:
        """Tasks begin in the order in which they were made: so commits are sent in the order in
        which the caller asked for them. `told`: commit_failed hears of a failure."""
        log_term = self._stream.log.log_term  # not newer than the offsets
        offsets = self.offsets_of(what)
        self._acknowledge(offsets)

        async def work() -> None:
            try:
                await self._commit_offsets(offsets, log_term, named=what is not None)
            except TandemlogError as error:
                if told:
                    self._stream.commit_failed(error, offsets)
                raise

        task = asyncio.get_running_loop().create_task(work(), name="tandemlog-commit")
        self.under_way.add(task)
        task.add_done_callback(self._ended)
        return task

    def _acknowledge(self, offsets: Mapping[Queue, int]) -> None:
        """What is committed by hand is done, also where the caller has not come back yet."""
        self._progress.acknowledge(offsets)
        for queue in offsets.keys() & self._lost.keys():
            self._lost[queue].progress.acknowledge(offsets[queue])

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.under_way.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, as the callback has reported it already

    async def _commit_offsets(
        self, offsets: Mapping[Queue, int], log_term: tuple[int, int], *, named: bool
    ) -> None:
        """`named`: the caller asked for exactly these, whatever was committed before."""
        async with self._saving:
            lost = {queue: offset for queue, offset in offsets.items() if queue in self._lost}
            rest = {queue: offset for queue, offset in offsets.items() if queue not in lost}
            foreign = sorted(queue for queue in rest if queue not in self._progress.queues)
            not_owned = None
            if foreign and self._stream.membership is not None:
                not_owned = _not_owned(self._group or "", foreign)
            if not_owned is not None and named:
                raise not_owned
            if named and (cut := self._of_a_cut_log(rest)):
                raise _cut_off(self._group or "", cut)
            sent = rest if named else self._progress.to_commit(rest)
            await self._send(sent, log_term, named=named)
            await self._send_lost(lost, named=named)
            if not_owned is not None:  # it was given up while this commit waited for another one
                raise not_owned

    def _is_lost(self, queue: Queue, turns: Mapping[Queue, int]) -> bool:
        """Whether this queue was given away, or is read from another place, since `turns`."""
        return not turns[queue] or self._progress.turn(queue) != turns[queue]

    def _of_a_cut_log(self, offsets: Mapping[Queue, int]) -> list[Queue]:
        is_cut = self._progress.is_of_a_cut_log
        return [queue for queue, offset in offsets.items() if is_cut(queue, offset)]

    async def save_done(self, offsets: Mapping[Queue, int]) -> None:
        """As `save`; a failure is reported to commit_failed too."""
        try:
            await self.save(offsets)
        except TandemlogError as error:
            self._stream.commit_failed(error, dict(offsets))
            raise

    async def save(self, offsets: Mapping[Queue, int]) -> None:
        """Saves the offsets that the group does not have yet."""
        log_term = self._stream.log.log_term
        async with self._saving:
            await self._send(self._progress.to_commit(offsets), log_term)

    async def commit_starts(self, offsets: Mapping[Queue, int]) -> None:
        """Saves where the group begins in queues that this member is about to read. They may have
        been deleted a moment ago."""
        async with self._saving:
            log_term = self._stream.log.log_term
            try:
                await self._send(offsets, log_term)
            except (UnknownTopicError, UnknownQueueError):  # for one of them, so none is committed
                for queue, offset in offsets.items():
                    with contextlib.suppress(UnknownTopicError, UnknownQueueError):
                        await self._send({queue: offset}, log_term)

    # queues that were lost

    def lost(
        self, lost: Mapping[Queue, QueueProgress], committed: Mapping[Queue, int], former: Identity
    ) -> None:
        """The member `former` does not own these any more. `committed`: the group's offsets, as
        far as they are known."""
        for queue, progress in lost.items():
            self._lost[queue] = _Lost(
                former, progress, committed.get(queue), self._stream.log.log_term
            )

    def forget_lost(self, queues: Collection[Queue] | None = None) -> None:
        """The caller has no messages of these (None: of all) any more."""
        for queue in list(self._lost) if queues is None else queues:
            self._lost.pop(queue, None)

    async def save_lost(self) -> None:
        """Saves what is done of lost queues; if another member has owned one since, that is
        reported to commit_failed. Raises errors that may pass."""
        async with self._saving:
            done = {queue: each.progress.done for queue, each in self._lost.items()}
            try:
                await self._send_lost(done, named=False)
            except TandemlogError as error:
                if error.retryable:
                    raise
                self._stream.commit_failed(error, done)

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
            self._stream.counters.failed_commits += 1
            self.forget_lost(refused)
            raise _not_owned(self._group, sorted(refused))

    async def _send(
        self, offsets: Mapping[Queue, int], log_term: tuple[int, int], *, named: bool = False
    ) -> None:
        """If the master has another log than the one that was read, positions are compared first.
        For queues that were cut it then sends how far they are now, or raises LogCutError if the
        caller has named the offset. A queue that was lost meanwhile cannot be compared: what its
        offset is in this log is not known."""
        turns = {queue: self._progress.turn(queue) for queue in offsets}
        try:
            await self._send_once(offsets, log_term)
        except LogCutError as error:
            await self._stream.log.catch_up()
            now = self._stream.log.log_term
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
        """Until the answer has come it is not known whether the group has the old or the new
        offsets: after a send that fails, or is cancelled at any moment, the next one saves these
        again."""
        assert self._group is not None
        if not offsets:
            return
        member, epoch = self._stream.membership, self._progress.epoch
        for queue in offsets:
            self._progress.committed.pop(queue, None)
        try:
            identity = member.identity if member is not None else None
            await self._positions.commit(self._group, offsets, identity, log_term)
        except TandemlogError as error:
            if isinstance(error, OffsetOutOfRangeError):
                self._note_saved(offsets, error.refused or offsets, epoch)
            if isinstance(error, LogCutError):
                raise
            logger.warning("offsets not committed: group=%s %s", self._group, error)
            self._stream.counters.failed_commits += 1
            if isinstance(error, FencedMemberError):
                self._note_saved(offsets, error.refused or offsets, epoch)
                if member is not None:
                    member.check()
            raise
        self._stream.counters.commits += 1
        self._note_saved(offsets, (), epoch)

    def _note_saved(
        self, offsets: Mapping[Queue, int], refused: Collection[Queue], epoch: int
    ) -> None:
        saved = offsets.keys() - set(refused)
        self._progress.note_committed({queue: offsets[queue] for queue in saved}, epoch)


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
