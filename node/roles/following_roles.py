"""The roles of a node that follows a RocketMQ broker, until it takes over from it.

    relay      a term without puts ▸ the follower appends ▸ cut or set aside: the next relay term
    take over  nothing is left to wait for ▸ the follower ends ▸ the note of it is durable ▸ a
               master's term

A restart after the note was written begins as the master, whatever the configuration says: a broker
that is started again by mistake would otherwise cut what this node has acknowledged since.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from ha.config import HaConfig, Role
from ha.master.master import ReplicationMaster
from ha.rocketmq.follow.address import BrokerAddress
from ha.rocketmq.follow.follower import BrokerFollower
from ha.rocketmq.follow.note import Following, FollowingFile, TakenOver
from ha.rocketmq.follow.takeover import obstacle
from storage.clock import Clock
from storage.message_store import MessageStore
from tandemlog.v1 import common_pb2

from ..error_status import RequestRefusedError
from ..settings.following_section import FollowingSection
from .master_role import MasterRole
from .relay_role import RelayRole
from .rocketmq_serving import RocketmqServing
from .role_switch import ReplicationSwitch, RoleSwitch
from .waiting_role import WaitingRole

logger = logging.getLogger(__name__)


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
        self.replication = ReplicationSwitch(config.node_id)
        self.follower = BrokerFollower(
            address,
            store,
            store.files,
            clock,
            self,
            offsets_interval_s=section.offsets_interval_ms / 1000,
            tables_interval_s=section.tables_interval_ms / 1000,
        )
        self._relay = RelayRole(self.follower, lambda: self._master)
        self.switch = RoleSwitch(WaitingRole("this node is starting", lambda _: []))

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
            await self._begin_relay()

    def start(self) -> None:
        """Follow, once everything else of the node is set up."""
        if not self.taken_over:
            self._task = asyncio.create_task(self.follower.run(), name="follow-broker")
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """End the role; the store stays open."""
        await self._stop_following()
        await self._end_term("this node is stopping")

    async def lead(self) -> None:
        """See RelayHost in follower.py."""
        if self._master is None:
            await self._begin_relay()

    async def rebuild(self, change: Callable[[], None]) -> None:
        """See RelayHost in follower.py."""
        await self._end_term(f"this node makes its log equal to that of {self.follower.title}")
        try:
            await asyncio.to_thread(change)
        finally:
            await self._begin_relay()

    async def takeover(self, *, force: bool, dry_run: bool) -> Takeover:
        """Become the master if nothing is left to wait for; once more after that says the same.
        Raises RequestRefusedError if the node is neither following nor has taken over, and what
        the store raises."""
        async with self._changing:
            if not self.taken_over:
                look = await self.follower.look()
                reason = obstacle(look, force=force)
                if reason or dry_run:
                    return self._outcome(reason or "a dry run changes nothing", look.broker_end)
                await self._take_over()
            return self._outcome("", self.follower.state.broker_end)

    async def _take_over(self) -> None:
        await self._stop_following()
        await self._end_term(f"this node takes over from {self.follower.title}")
        note = await asyncio.to_thread(self._file.load)
        if note is None:
            await self._begin_relay()
            self.start()
            raise RequestRefusedError(
                common_pb2.CHANGE_REFUSED, "this node has not followed any broker yet"
            )
        over = TakenOver(self._store.log.wrote.value, self._clock.now_ms())
        note = replace(note, taken_over=over)
        await asyncio.to_thread(self._file.save, note)
        self._note = note
        await self._lead()
        logger.warning(
            "this node has taken over from %s: master in epoch %s from %d on",
            self.follower.title, self.switch.epoch(), over.end_offset,
        )  # fmt: skip

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
        self.switch.set(self._relay)

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
        self.switch.set(WaitingRole(reason, lambda _: []))
        self.replication.set(None)
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        await self._brokers.end()
        if master is not None:
            await asyncio.to_thread(self._store.become_slave)
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
