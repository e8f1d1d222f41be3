"""The roles of a node that follows a RocketMQ broker, until it takes over from it.

    relay      a term without puts ▸ the follower appends ▸ cut or set aside: the next relay term
    take over  nothing is left to wait for ▸ the follower ends ▸ the note of it is durable ▸ a
               master's term

A restart after the note was written begins as the master, whatever the configuration says: a broker
that is started again by mistake would otherwise cut what this node has acknowledged since. For the
same reason a store that follows is not started with another role (`check_follows`).

A change of the log, and a takeover, run to their end once they have begun, even if the one who
asked for them is gone: a thread that cuts the log cannot be called back.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandemlog.cluster.takeover import DRY_RUN
from tandemlog.v1 import common_pb2
from tandemlog_server.ha.errors import HaError, StateFileError
from tandemlog_server.rocketmq.follow.address import BrokerAddress
from tandemlog_server.rocketmq.follow.follower import BrokerFollower
from tandemlog_server.rocketmq.follow.following_file import Following, FollowingFile, TakenOver
from tandemlog_server.rocketmq.follow.takeover import obstacle
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.errors import StoreError

from ..process.tasks import stopped, to_its_end, watched
from ..settings.sections import FollowingSection
from .relay_role import RelayRole
from .terms import Terms

logger = logging.getLogger(__name__)

NOT_SERVED_YET = (
    "rocketmq.listen: nothing listens there before this node has taken over (tandemlog takeover): "
    "while it follows a broker, no broker can follow it. Let slave brokers follow that broker"
)


@dataclass(frozen=True, slots=True)
class Takeover:
    """What came of a request to take over. `waits_for` is empty if this node is the master now.
    Offsets are positions in the log, `broker_end` None if the broker was never asked; times are
    wall-clock milliseconds, `last_stored_ms` that of the newest message."""

    waits_for: str
    broker: str
    end_offset: int
    broker_end: int | None
    epoch: int
    last_stored_ms: int
    taken_ms: int


class FollowingRoles:
    """See the module. Lives in one event loop: `prepare`, `start`, then `close`."""

    def __init__(self, terms: Terms, address: BrokerAddress, section: FollowingSection) -> None:
        self._terms = terms
        self._store = terms.store
        self._file = FollowingFile(terms.store.config.directory, terms.store.files)
        self._note: Following | None = None
        self._task: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._address = address
        self._section = section
        self.follower = self._new_follower()

    def _new_follower(self) -> BrokerFollower:
        return BrokerFollower(
            self._address,
            self._store,
            self._store.files,
            self._terms.clock,
            self,
            offsets_interval_s=self._section.offsets_interval_ms / 1000,
            tables_interval_s=self._section.tables_interval_ms / 1000,
        )

    @property
    def taken_over(self) -> bool:
        return self._note is not None and self._note.taken_over is not None

    async def prepare(self) -> None:
        """Take the role. Raises StateFileError and what the store raises."""
        self._note = await asyncio.to_thread(self._file.load)
        if self._note is not None and self.taken_over:
            logger.warning(
                "this node took over from %s and is the master now; it does not follow any more. "
                "Remove follow from its configuration",
                self._note.title,
            )
            await self._terms.lead()
        else:
            if self._terms.brokers.endpoints is not None:
                logger.warning("%s", NOT_SERVED_YET)
            await self._terms.relay(self.follower)

    def start(self) -> None:
        """Follow, once everything else of the node is set up."""
        if not self.taken_over and self._task is None:
            self._task = watched(self.follower.run(), "follow-broker", self._terms.fatal)

    async def close(self) -> None:
        """End the role, after a takeover that is under way; the store stays open."""
        async with self._changing:
            await self._stop_following()
            await self._terms.close()

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return self._terms.role.members()

    async def lead(self) -> None:
        """See RelayHost in follower.py."""
        if isinstance(self._terms.role, RelayRole):
            return
        if self._terms.running is not None:
            await self._terms.wait("the end of the last term has failed before")
        await self._terms.relay(self.follower)

    async def rebuild(self, change: Callable[[], None]) -> None:
        """See RelayHost in follower.py."""
        await to_its_end(self._rebuild(change))

    async def _rebuild(self, change: Callable[[], None]) -> None:
        await self._terms.wait(f"this node makes its log equal to that of {self.follower.title}")
        try:
            await asyncio.to_thread(change)
        finally:
            await self._terms.relay(self.follower)

    async def takeover(self, *, force: bool, dry_run: bool) -> Takeover:
        """Become the master if nothing is left to wait for; once more after that says the same.
        Raises what the store raises; the node then follows on, or is about to become the master
        with the next call or start."""
        async with self._changing:
            return await to_its_end(self._takeover(force=force, dry_run=dry_run))

    async def _takeover(self, *, force: bool, dry_run: bool) -> Takeover:
        if self.taken_over:
            if self._terms.running is None:
                await self._terms.lead()
            return self._outcome("", self.follower.state.broker_end)
        look = await self.follower.observe()
        reason = obstacle(look, force=force)
        if reason or dry_run:
            return self._outcome(reason or DRY_RUN, look.broker_end)
        await self._stop_following()
        try:
            if self._store.log.wrote.value != look.durable:
                # what was under way has ended, and changed the log
                await self._follow_on()
                return self._outcome("the log has just changed", look.broker_end)
            await self._terms.wait(f"this node takes over from {look.broker}")
            await self._note_takeover()
        except BaseException:
            await self._follow_on()
            raise
        await self._terms.lead()
        logger.warning(
            "this node has taken over from %s: master in epoch %s from %d on",
            look.broker, self._terms.role.epoch(), look.durable,
        )  # fmt: skip
        return self._outcome("", look.broker_end)

    async def _note_takeover(self) -> None:
        note = await asyncio.to_thread(self._file.load)
        assert note is not None, "a node that has not followed has an obstacle"
        over = TakenOver(self._store.log.wrote.value, self._terms.clock.now_ms())
        note = replace(note, taken_over=over)
        await asyncio.to_thread(self._file.save, note)
        self._note = note

    async def _follow_on(self) -> None:
        """Follow again: nothing has come of a takeover."""
        if self.taken_over or self._task is not None:
            return
        self.follower = self._new_follower()
        try:
            with contextlib.suppress(StoreError, HaError, OSError):  # the follower tries again
                await self._terms.wait(f"this node follows {self.follower.title} again")
                await self._terms.relay(self.follower)
        finally:
            self.start()

    def _outcome(self, waits_for: str, broker_end: int | None) -> Takeover:
        over = None if self._note is None else self._note.taken_over
        return Takeover(
            waits_for=waits_for,
            broker=self.follower.title,
            end_offset=self._store.log.wrote.value if over is None else over.end_offset,
            broker_end=broker_end,
            epoch=self._terms.role.epoch() or 0,
            last_stored_ms=self._store.log.store_timestamp,
            taken_ms=0 if over is None else over.at_ms,
        )

    async def _stop_following(self) -> None:
        if self._task is not None:
            await stopped(self._task)
            self._task = None  # only now: who is cancelled here leaves the rest to the next stop


def serves_after_takeover(directory: Path, files: FileSystem) -> bool:
    """Whether the store there has not taken over yet. Raises StateFileError."""
    note = FollowingFile(directory, files).load()
    return note is None or note.taken_over is None


def check_follows(directory: Path, files: FileSystem) -> None:
    """Raises StateFileError if the store there follows a broker: with another role it would take
    what the next time of following cuts."""
    note = FollowingFile(directory, files).load()
    if note is not None and note.taken_over is None:
        raise StateFileError(
            f"{directory} follows {note.title}, but follow is not in the configuration: put it "
            "back, or end the following first (tandemlog takeover, with --force if the broker is "
            "gone)"
        )
