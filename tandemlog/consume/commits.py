"""Saving how far a stream has come, for its group.

    commit()                 all that was delivered ─┐
    commit(message | batch)  up to and with it ──────┼─▶ one at a time ─▶ the master
    every auto_commit_ms     all that is done ───────┘     refused rows: FencedMemberError

One at a time: a slow commit must not arrive after a newer one. A member's commit carries its id and
epoch, so that the master refuses the queues that are not its own any more.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from ..errors import ClientClosedError, FencedMemberError, TandemlogError
from .positions import Positions, Queue
from .progress import Progress
from .received import ReceivedBatch
from .received_message import ReceivedMessage
from .statistics import ConsumerCounters

logger = logging.getLogger(__name__)

Commit = ReceivedMessage | ReceivedBatch | Mapping[Queue, int]
"""What to commit: up to and including a message or a batch, or offsets by (topic, queue id)."""


class Member(Protocol):
    """The stream's membership."""

    @property
    def identity(self) -> tuple[str, int]: ...

    def check(self) -> None:
        """The master refused what this member believed to own."""


class Committing(Protocol):
    """Whose commits these are; `membership` is None where it names its queues by hand."""

    @property
    def membership(self) -> Member | None: ...

    @property
    def counters(self) -> ConsumerCounters: ...

    def commit_failed(self, error: TandemlogError, offsets: dict[Queue, int]) -> None: ...


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
        self.under_way: set[asyncio.Task[None]] = set()

    def offsets_of(self, what: Commit | None) -> dict[Queue, int]:
        """What a commit of `what` saves; None: everything delivered so far. Any thread."""
        if self._group is None:
            raise ClientClosedError("there is nothing to commit without a group")
        if what is None:
            return self._progress.delivered
        if isinstance(what, ReceivedMessage):
            return {(what.topic, what.queue_id): what.queue_offset + 1}
        if isinstance(what, ReceivedBatch):
            return {(what.topic, what.queue_id): what.next_offset}
        return dict(what)

    async def commit(self, what: Commit | None = None) -> None:
        """Saves, for the group, what `offsets_of` says; raises FencedMemberError for queues that
        the group's master has given to another member."""
        await self._commit_offsets(self.offsets_of(what), named=what is not None)

    def commit_soon(self, what: Commit | None = None) -> asyncio.Task[None]:
        """Starts a commit of what `what` means now; where it fails, commit_failed hears of it
        too."""
        offsets = self.offsets_of(what)

        async def work() -> None:
            try:
                await self._commit_offsets(offsets, named=what is not None)
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

    async def _commit_offsets(self, offsets: Mapping[Queue, int], *, named: bool) -> None:
        """`named`: the caller asked for these, whatever was committed before."""
        if not named:
            await self.save(offsets)
            return
        strange = sorted(queue for queue in offsets if queue not in self._progress.queues)
        if strange and self._of.membership is not None:
            raise _not_owned(self._group or "", strange)
        async with self._saving:
            await self._send(offsets)

    async def save_done(self, offsets: Mapping[Queue, int]) -> None:
        """As `save`, and commit_failed hears of a failure."""
        try:
            await self.save(offsets)
        except TandemlogError as error:
            self._of.commit_failed(error, dict(offsets))
            raise

    async def save(self, offsets: Mapping[Queue, int]) -> None:
        """Those that the group does not have yet."""
        async with self._saving:
            await self._send(self._progress.to_commit(offsets))

    async def _send(self, offsets: Mapping[Queue, int]) -> None:
        """Until the answer has come it is not known which of the two offsets the group has: a send
        that fails, or is cancelled at any moment, leaves the next one to save these."""
        assert self._group is not None
        if not offsets:
            return
        member = self._of.membership
        for queue in offsets:
            self._progress.committed.pop(queue, None)
        try:
            identity = member.identity if member is not None else None
            await self._positions.commit(self._group, offsets, identity)
        except TandemlogError as error:
            logger.warning("offsets not committed: group=%s %s", self._group, error)
            self._of.counters.failed_commits += 1
            if isinstance(error, FencedMemberError):
                self._saved(offsets, error.refused or offsets)
                if member is not None:
                    member.check()
            raise
        self._of.counters.commits += 1
        self._saved(offsets, ())

    def _saved(self, offsets: Mapping[Queue, int], refused: Collection[Queue]) -> None:
        for queue in offsets.keys() - set(refused):
            self._progress.committed[queue] = offsets[queue]


def _not_owned(group: str, queues: Collection[Queue]) -> FencedMemberError:
    names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in queues)
    error = FencedMemberError(
        f"group {group}: this member does not own {names} (any more), so nothing is committed",
        field="queue_id",
    )
    error.refused = tuple(queues)
    return error
