"""The async shell of an election: keeps a lease, watches the keys, executes what the RoleLoop says.

    watch ──▶ snapshot ─┐                          ┌─▶ host: lead, follow, step down
    poll, 1 s ──────────┼─▶ RoleLoop.decide ─▶ step ┼─▶ coordinator: transaction, then look again
    lease, 1 s ─────────┘   (after every change)   └─▶ wait
    probes of the leader's port, when its stream has ended

Three tasks run side by side and are restarted if they fail: safety does not depend on any of them.
While the coordinator is away, the last snapshot is used: the role stays as it is, and no node is
elected.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace

from tandemlog_server.storage.clock import Clock

from ..config import HaConfig
from ..coordinator.coordinator import Coordinator
from ..coordinator.coordinator_errors import (
    CoordinatorError,
    CoordinatorUnavailableError,
    LeaseLostError,
    UnknownOutcomeError,
)
from ..master.term import WonTerm
from .elected_keeper import ElectedKeeper
from .election_config import ElectionConfig
from .held_lease import HeldLease
from .key_values import LeaderValue, MemberValue
from .keys import ClusterKeys
from .losses import Losses
from .planned_switch import PlannedSwitch
from .probe import port_is_closed
from .registration import Registration
from .resync import Resync
from .role_host import Identity, RoleHost, shown
from .role_loop import (
    ElectionRules,
    Follow,
    KeepLeading,
    Lead,
    Own,
    RoleLoop,
    Send,
    StartOver,
    Step,
    StepDown,
    Wait,
    distrust,
    is_foreign,
)
from .rolled_back import confirmed_by
from .snapshot import Snapshot, SnapshotBuilder
from .transactions import renew, show, tell_confirmed

logger = logging.getLogger(__name__)

POLL_S = 1.0
RESTART_S = 0.5
FAILED_TERM_S = 5.0
PROVE_S = 3.0
LATER = "how many is known, and in the history, once the master before is back with its disk"


class ElectionAgent:
    """See the module. `run` until it is cancelled; one event loop.

    `heard_at`: when the coordinator last answered anything; `accepted_at`: when a change of this
    node that it accepted was sent, which alone shows that an election could succeed; `refusal`: why
    it accepted none since. `since_boot` is a clock that runs while the machine sleeps, in seconds;
    `fresh_name` makes names that no other has had.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        host: RoleHost,
        identity: Identity,
        config: HaConfig,
        election: ElectionConfig,
        clock: Clock,
        since_boot: Callable[[], float],
        fresh_name: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self.keys = ClusterKeys(config.cluster_id)
        self.session = fresh_name()
        self.lease = HeldLease(election.margin_s)
        self.leading = 0
        self.why = "not started"
        self.heard_at: float | None = None
        self.accepted_at: float | None = None
        self.refusal = ""
        self._coordinator = coordinator
        self._host = host
        self._identity = identity
        self._election = election
        self._clock = clock
        self._since_boot = since_boot
        self._fresh_name = fresh_name
        self._uuid = identity.cluster_uuid
        rules = ElectionRules(
            config.mode,
            config.required,
            election.founders,
            election.lease_ttl_s + election.margin_s,
        )
        self._loop = RoleLoop(self.keys, rules)
        self._builder = SnapshotBuilder(self.keys)
        self._switch = PlannedSwitch(
            coordinator, self.keys, host, identity.node_id, config.mode, self._read_once
        )
        self.registration = Registration(
            coordinator, self.keys, host, identity, config.mode, self._read_keys, self._distrust
        )
        self.losses = Losses(coordinator, self.keys)
        self._resync = Resync(coordinator, self.keys, host, self._read_once)
        self._begun = 0
        self._following: LeaderValue | None = None
        self._has_role = False
        self._wake = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        self._failed_until = 0.0
        self._polled_at = float("-inf")

    @property
    def cluster_uuid(self) -> str:
        """The cluster that this node obeys; empty: none yet."""
        return self._uuid

    @property
    def snapshot(self) -> Snapshot:
        """The keys as this node saw them last."""
        return self._builder.snapshot

    def lease_fault(self) -> str:
        """Why this node may not count on being the only leader now; empty if it may."""
        if self.lease.remaining_s(self._since_boot()) > 0:
            return ""
        return "this master's lease at the coordinator has not been renewed in time"

    def stream_lost(self) -> None:
        """The stream to the leader has ended, or cannot be opened: is its port closed?"""
        if self._following is not None and self._probing is None:
            task = asyncio.create_task(self._probe(self._following), name="probe")
            self._probing = task
            task.add_done_callback(self._probed)

    def stream_back(self) -> None:
        """Replication from the leader works, so its port is open."""
        if self._following is not None:
            self._loop.port_is_open(self._following.epoch)

    def poll_now(self, reason: str) -> None:
        """Something was heard of a later term: read the keys now."""
        logger.info("looking at the cluster's record: %s", reason)
        self._polled_at = float("-inf")
        self._wake.set()

    async def run(self) -> None:
        """Take part until cancelled; the role that the node has then is the caller's to end."""
        async with asyncio.TaskGroup() as tasks:
            for task in (self._keep_lease, self._watch, self._decide):
                tasks.create_task(self._supervised(task), name=f"election{task.__name__}")

    async def resign(self) -> None:
        """Before a stop: the lease is given back, so that others elect at once."""
        with suppress(CoordinatorError, TimeoutError):
            async with asyncio.timeout(self._election.budget_s):
                await self.give_back()

    async def give_back(self) -> None:
        """A leader tells first how far the log is confirmed. Raises CoordinatorError."""
        try:
            if self.leading:
                with suppress(CoordinatorError):
                    await self._tell_confirmed(await self._read_once())
        finally:
            lease, self.lease.lease = self.lease.lease, None
        if lease is not None:
            await self._coordinator.revoke_lease(lease.lease_id)

    async def _supervised(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:
                logger.exception("a task of the election failed and is restarted")
                await asyncio.sleep(RESTART_S)

    # ---- the keys

    async def _watch(self) -> None:
        listing = await self._read()
        async with aclosing(
            self._coordinator.watch(self.keys.all, listing.revision + 1)
        ) as updates:
            async for update in updates:
                self._builder.apply(update)
                self.heard_at = self._since_boot()
                self._wake.set()

    async def _read(self) -> Snapshot:
        """All keys as they are now. Waits while the coordinator is away."""
        while True:
            try:
                return await self._read_once()
            except CoordinatorUnavailableError as error:
                await self._away(error)

    async def _away(self, error: CoordinatorUnavailableError) -> None:
        self.why = f"the coordinator cannot be reached: {error}"
        if not self._has_role:
            await self._wait(self.why)
        await asyncio.sleep(POLL_S)

    async def _read_once(self) -> Snapshot:
        self._polled_at = self._since_boot()
        snapshot = self._builder.apply(await self._coordinator.range(self.keys.all))
        self.heard_at = self._since_boot()
        self._wake.set()
        return snapshot

    async def _read_keys(self) -> SnapshotBuilder:
        await self._read_once()
        return self._builder

    # ---- the lease

    async def _keep_lease(self) -> None:
        while True:
            pause = await self.renew()
            await asyncio.sleep(pause)

    async def renew(self) -> float:
        """Renew once; how long until it is due again."""
        began = self._since_boot()
        try:
            await self._renew()
        except LeaseLostError as error:
            logger.warning("the lease was lost: %s", error)
            self.lease.lost()
            return 0.0
        except CoordinatorUnavailableError as error:
            self.refusal = str(error)
            logger.warning("the lease could not be renewed: %s", error)
        except UnknownOutcomeError as error:
            self.refusal = str(error)
            logger.info("a renewal got no answer")
        spent = self._since_boot() - began
        return max(0.05, self._election.renew_s - spent)

    async def _renew(self) -> None:
        if not self.snapshot.revision:
            await self._read_once()  # whose keys these are is not known before
        if self.lease.lease is None:
            self.lease.renewed(await self._coordinator.grant_lease(self._election.lease_ttl_s))
        else:
            self.lease.renewed(await self._coordinator.keep_alive(self.lease.lease_id))
        snapshot, me, lease_id = self.snapshot, self._member(), self.lease.lease_id
        leader, sent_at = snapshot.leader, self._since_boot()
        if leader is not None and (leader.session, leader.epoch) == (self.session, self.leading):
            txn = renew(self.keys, snapshot.leader_revision, me, lease_id)
            if (await self._coordinator.txn(txn)).succeeded:
                self.lease.proved(sent_at)
                self._accepted(sent_at)
                await self._tell_confirmed(snapshot)
            else:
                await self._read_once()
        elif self._should_show(snapshot, replace(me, lease=lease_id), sent_at):
            # a late put of the process before may have replaced it
            txn = show(self.keys, me, lease_id, self._builder.revision_of(self.keys.uuid))
            if (await self._coordinator.txn(txn)).succeeded:
                self._accepted(sent_at)
            else:
                await self._read_once()
        self._wake.set()

    def _should_show(self, snapshot: Snapshot, me: MemberValue, now: float) -> bool:
        """Whether to put what this node says of itself: it has changed, or it is time to find out
        whether the coordinator still accepts changes. A renewed lease and reads do not show that:
        an etcd without space gives both, and no election can succeed there."""
        if is_foreign(snapshot, self._uuid):
            return False  # there it would take the place of a node of another cluster
        if snapshot.members.get(me.node_id) != me:
            return True
        return self.accepted_at is None or now - self.accepted_at >= PROVE_S

    def _accepted(self, sent_at: float) -> None:
        self.accepted_at, self.refusal = sent_at, ""

    async def _tell_confirmed(self, snapshot: Snapshot) -> None:
        """By this a disk that is rolled back later is known."""
        leader, rules = snapshot.leader, self._loop.rules
        if leader is None or (leader.session, leader.epoch) != (self.session, self.leading):
            return
        confirmed = confirmed_by(self._host.own_log(), self.leading, snapshot)
        if rules.replication.waits and confirmed != snapshot.confirmed:
            await self._coordinator.txn(tell_confirmed(self.keys, snapshot, confirmed))

    def _member(self) -> MemberValue:
        identity, log = self._identity, self._host.own_log()
        obstacle = log.obstacle
        if not self._election.may_lead:
            obstacle = obstacle or "the configuration forbids it (coordinator.may_lead)"
        if self._since_boot() < self._failed_until:
            obstacle = obstacle or "its last attempt to lead failed"
        return shown(identity, log, self.session, self._election.priority, obstacle)

    # ---- decisions

    async def _decide(self) -> None:
        while True:
            if not self.registration.done:
                try:
                    await self.registration.step()
                except CoordinatorUnavailableError as error:
                    await self._away(error)
                    continue
                if not (self.registration.done or self._distrust(self.snapshot)):
                    continue
            pause = await self.turn()
            await self.losses.write()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _distrust(self, snapshot: Snapshot) -> str:
        return distrust(snapshot, self._own())

    def _own(self) -> Own:
        log = self._host.own_log()
        return Own(
            self._member(),
            self.leading,
            self._begun,
            self.lease.lease_id,
            self._uuid,
            store_fault=log.obstacle,
            epochs=log.epochs,
            started_over=self._resync.done,
        )

    async def turn(self) -> float:
        """Look, decide and act, once; how long to wait for something to change."""
        self._wake.clear()
        if self._since_boot() - self._polled_at >= POLL_S:
            try:
                await self._read_once()
                self._wake.clear()
            except CoordinatorUnavailableError as error:
                self.why = f"the coordinator cannot be reached: {error}"
        step = self._loop.decide(
            self.snapshot, self._own(), self._since_boot(), self._clock.now_ms(), self._fresh_name()
        )
        return await self._execute(step)

    async def _execute(self, step: Step) -> float:
        """Do it; how long to wait for something to change."""
        if isinstance(step, Lead):
            await self._lead(step)
        elif isinstance(step, Follow):
            await self._follow(step.leader)
        elif isinstance(step, StepDown):
            led = self.leading
            await self._step_down(step.reason)
            if led:
                return 0.0  # the next leader waits for this node too: follow it at once
        elif isinstance(step, StartOver):
            self._following = None
            await self._resync.run(step.request, self._member, self.lease.lease_id)
            return 0.0
        elif isinstance(step, Send):
            self.why = step.reason
            return await self._send(step)
        elif isinstance(step, KeepLeading):
            return await self._keep_leading(step)
        elif isinstance(step, Wait):
            if step.reason != self.why:
                self.why = step.reason
                logger.info("%s", step.reason)
            if step.leave or not self._has_role:
                await self._wait(step.reason)
            else:
                self._host.say_why(step.reason)
            return min(step.seconds, POLL_S)
        return POLL_S

    async def _lead(self, step: Lead) -> None:
        record = step.record
        self._begun = record.epoch
        logger.info("won epoch %d: %s", record.epoch, record.reason)
        if record.unclean_epoch == record.epoch:
            logger.warning("epoch %d may lack acknowledged messages: %s", record.epoch, LATER)
        won = WonTerm(
            record.epoch, record.version, record.in_sync, record.known, record.unclean_epoch
        )
        keeper = ElectedKeeper(self._coordinator, self.keys, record, step.revision)
        self._following, self._has_role = None, True
        self._uuid = self.snapshot.uuid
        try:
            await self._host.lead(won, keeper, self._uuid)
        except Exception as error:
            logger.exception("epoch %d could not begin", record.epoch)
            self._failed_until = self._since_boot() + FAILED_TERM_S
            await self.resign()
            await self._wait(f"this node was elected and could not lead: {error}")
            return
        self.leading, self.why = record.epoch, ""

    async def _follow(self, leader: LeaderValue) -> None:
        following = self._following
        if following is not None and (following.session, following.epoch) == (
            leader.session,
            leader.epoch,
        ):
            return
        record = self.snapshot.record
        self._uuid = self.snapshot.uuid
        self._following = None  # until it works: what fails is tried again
        unclean_epoch = record.unclean_epoch if record is not None else 0
        await self._host.follow(leader, unclean_epoch, self._uuid)
        self._following, self._has_role, self.why = leader, True, ""

    async def _step_down(self, reason: str) -> None:
        logger.warning("stepping down: %s", reason)
        self._host.fence(reason)
        self._switch.end()
        self.leading = 0
        leader = self.snapshot.leader
        if leader is not None and leader.session == self.session:
            # no other node would elect while this one keeps the leader's key
            await self.resign()
        await self._wait(reason)

    async def _wait(self, reason: str) -> None:
        self._following, self._has_role = None, True
        await self._host.wait(reason)

    async def _send(self, step: Send) -> float:
        logger.info("%s: %s", step.doing, step.reason)
        try:
            result = await self._coordinator.txn(step.txn)
            if not result.succeeded:
                logger.info("another node was quicker, or the record has changed")
        except CoordinatorUnavailableError as error:
            logger.warning("the coordinator cannot be reached: %s", error)
            return 0.2
        except UnknownOutcomeError:
            logger.warning("the outcome of a transaction is unknown: looking at the record")
        except LeaseLostError:
            self.lease.lost()
            return 0.1
        with suppress(CoordinatorUnavailableError):
            await self._read_once()
        return 0.02

    async def _keep_leading(self, step: KeepLeading) -> float:
        self._host.keep_out(step.keep_out)
        if step.request is None:
            self._switch.end()
            return POLL_S
        now = self._since_boot()
        age_s = now - (self.heard_at if self.heard_at is not None else now)
        return await self._switch.step(
            step.request, self.snapshot, age_s, now, self._clock.now_ms()
        )

    # ---- is the leader's process gone?

    async def _probe(self, leader: LeaderValue) -> None:
        if await port_is_closed(leader.endpoint):
            logger.warning("the port of %s is closed: its process is gone", leader.node_id)
            self._loop.port_is_closed(leader.epoch)
            self._wake.set()
        else:
            self._loop.port_is_open(leader.epoch)

    def _probed(self, task: asyncio.Task[None]) -> None:
        self._probing = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("the leader's port could not be probed: %s", error)
