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
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.errors import HaError, StateFileError
from tandemlog_server.ha.master.master import ReplicationMaster
from tandemlog_server.ha.master.members import NO_MASTER, own_status
from tandemlog_server.ha.master.term import end_term
from tandemlog_server.rocketmq.follow.address import BrokerAddress
from tandemlog_server.rocketmq.follow.follower import BrokerFollower
from tandemlog_server.rocketmq.follow.note import Following, FollowingFile, TakenOver
from tandemlog_server.rocketmq.follow.takeover import obstacle
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.disk.files import FileSystem
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore

from ..error_status import RequestRefusedError
from ..process.tasks import to_its_end
from ..settings.sections import FollowingSection
from .master_role import MasterRole
from .relay_role import RelayRole
from .rocketmq_serving import RocketmqServing
from .role_switch import ReplicationSwitch, RoleSwitch
from .waiting_role import WaitingRole

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
    """See the module. Lives in one event loop: `prepare`, `start`, then `close`. `fatal` hears of
    what only an operator can mend."""

    def __init__(
        self,
        address: BrokerAddress,
        store: MessageStore,
        config: HaConfig,
        clock: Clock,
        section: FollowingSection,
        *,
        brokers: RocketmqServing,
        max_unconfirmed_bytes: int,
        timeout_ms: int,
        fatal: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._max_unconfirmed_bytes = max_unconfirmed_bytes
        self._timeout_ms = timeout_ms
        self._fatal = fatal
        self._brokers = brokers
        self._file = FollowingFile(store.config.directory, store.files)
        self._note: Following | None = None
        self._master: ReplicationMaster | None = None
        self._unlisten: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._address = address
        self._section = section
        self._started_at = clock.monotonic()
        self.replication = ReplicationSwitch(config.node_id)
        self.follower = self._new_follower()
        self.switch = RoleSwitch(WaitingRole("this node is starting", self._rows))

    def _new_follower(self) -> BrokerFollower:
        return BrokerFollower(
            self._address,
            self._store,
            self._store.files,
            self._clock,
            self,
            offsets_interval_s=self._section.offsets_interval_ms / 1000,
            tables_interval_s=self._section.tables_interval_ms / 1000,
        )

    def _rows(self, reason: str) -> Sequence[common_pb2.NodeStatus]:
        """This node alone, between two terms."""
        row = own_status(
            self._store,
            self._config,
            epoch=0,
            incarnation="",
            uptime_s=self._clock.monotonic() - self._started_at,
        )
        row.role, row.state, row.detail = common_pb2.SLAVE, NO_MASTER, reason
        return [row]

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
            await self._lead()
        else:
            if self._brokers.endpoints is not None:
                logger.warning("%s", NOT_SERVED_YET)
            await self._begin_relay()

    def start(self) -> None:
        """Follow, once everything else of the node is set up."""
        if not self.taken_over and self._task is None:
            self._task = asyncio.create_task(self.follower.run(), name="follow-broker")
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """End the role, after a takeover that is under way; the store stays open."""
        async with self._changing:
            await self._stop_following()
            await self._end_term("this node is stopping")

    async def lead(self) -> None:
        """See RelayHost in follower.py."""
        if self._master is None:
            await self._begin_relay()

    async def rebuild(self, change: Callable[[], None]) -> None:
        """See RelayHost in follower.py."""
        await to_its_end(self._rebuild(change))

    async def _rebuild(self, change: Callable[[], None]) -> None:
        await self._end_term(f"this node makes its log equal to that of {self.follower.title}")
        try:
            await asyncio.to_thread(change)
        finally:
            await self._begin_relay()

    async def takeover(self, *, force: bool, dry_run: bool) -> Takeover:
        """Become the master if nothing is left to wait for; once more after that says the same.
        Raises what the store raises; the node then follows on, or is about to become the master
        with the next call or start."""
        async with self._changing:
            return await to_its_end(self._takeover(force=force, dry_run=dry_run))

    async def _takeover(self, *, force: bool, dry_run: bool) -> Takeover:
        if self.taken_over:
            if self._master is None:
                await self._lead()
            return self._outcome("", self.follower.state.broker_end)
        look = await self.follower.look()
        reason = obstacle(look, force=force)
        if reason or dry_run:
            return self._outcome(reason or DRY_RUN, look.broker_end)
        await self._stop_following()
        try:
            if self._store.log.wrote.value != look.durable:
                # what was under way has ended, and changed the log
                await self._follow_on()
                return self._outcome("the log has just changed", look.broker_end)
            await self._end_term(f"this node takes over from {look.broker}")
            await self._note_takeover()
        except BaseException:
            await self._follow_on()
            raise
        await self._lead()
        logger.warning(
            "this node has taken over from %s: master in epoch %s from %d on",
            look.broker, self.switch.epoch(), look.durable,
        )  # fmt: skip
        return self._outcome("", look.broker_end)

    async def _note_takeover(self) -> None:
        note = await asyncio.to_thread(self._file.load)
        assert note is not None, "a node that has not followed has an obstacle"
        over = TakenOver(self._store.log.wrote.value, self._clock.now_ms())
        note = replace(note, taken_over=over)
        await asyncio.to_thread(self._file.save, note)
        self._note = note

    async def _follow_on(self) -> None:
        """Follow again: nothing has come of a takeover."""
        if self.taken_over or self._task is not None:
            return
        self.follower = self._new_follower()
        if self._master is not None:
            await self._end_term(f"this node follows {self.follower.title} again")
        with contextlib.suppress(StoreError, HaError):  # the follower tries again
            await self._begin_relay()
        self.start()

    def _outcome(self, waits_for: str, broker_end: int | None) -> Takeover:
        over = None if self._note is None else self._note.taken_over
        return Takeover(
            waits_for=waits_for,
            broker=self.follower.title,
            end_offset=self._store.log.wrote.value if over is None else over.end_offset,
            broker_end=broker_end,
            epoch=self.switch.epoch() or 0,
            last_stored_ms=self._store.log.store_timestamp,
            taken_ms=0 if over is None else over.at_ms,
        )

    # ---- terms

    async def _begin_relay(self) -> None:
        await self._begin_term(Role.RELAY)
        self.switch.set(RelayRole(self.follower, lambda: self._master))

    async def _lead(self) -> None:
        master = await self._begin_term(Role.MASTER)
        self.switch.set(
            MasterRole(
                self._store,
                master,
                max_unconfirmed_bytes=self._max_unconfirmed_bytes,
                timeout_ms=self._timeout_ms,
            )
        )
        await self._brokers.begin(master)

    async def _begin_term(self, role: Role) -> ReplicationMaster:
        master = ReplicationMaster(
            self._store,
            replace(self._config, role=role),
            self._clock,
            files=self._store.files,
            own=self.follower.counted if role is Role.RELAY else None,
        )
        try:
            await master.start()
        except BaseException:
            await master.close()
            raise
        self._master = master
        self._unlisten = self._store.topics.listen(master.metadata_changed)
        self.replication.set(master.servicer)
        return master

    async def _end_term(self, reason: str) -> None:
        """From the first line on nothing is acknowledged."""
        master, self._master = self._master, None
        self.switch.set(WaitingRole(reason, self._rows))
        self.replication.set(None)
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        await self._brokers.end()
        if master is not None:
            await asyncio.to_thread(end_term, self._store)
            await master.close()

    async def _stop_following(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # not awaited itself: a cancel of this call would cut its own end short
            await asyncio.wait({task})

    def _ended(self, task: asyncio.Task[None]) -> None:
        # it runs until it is cancelled; any other end is one that only an operator can mend
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fatal(problem)


async def takeover_of(roles: FollowingRoles | None, *, force: bool, dry_run: bool) -> Takeover:
    """Raises RequestRefusedError without roles: the node follows no broker."""
    if roles is None:
        raise RequestRefusedError(
            common_pb2.CHANGE_REFUSED,
            "this node follows no RocketMQ broker (follow is not in its configuration)",
        )
    return await roles.takeover(force=force, dry_run=dry_run)


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
