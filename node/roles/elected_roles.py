"""The roles of a node whose cluster elects: what the agent decides, done to the store.

    follow   stop the role before ▸ a ReplicationSlave of this leader
    lead     stop the role before ▸ a ReplicationMaster in the epoch that was won ▸ puts
    wait     stop the role before

Every change begins with a role that acknowledges nothing, and ends the one before completely, its
threads included, before the next one touches the log. The store stays open, reads continue.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.host import OwnLog
from tandemlog_server.ha.election.values import LeaderValue
from tandemlog_server.ha.master.group import Return
from tandemlog_server.ha.master.master import ReplicationMaster
from tandemlog_server.ha.master.record_keeper import RecordKeeper
from tandemlog_server.ha.master.term import WonTerm, end_term
from tandemlog_server.ha.slave.slave import ReplicationSlave
from tandemlog_server.ha.slave.store import set_log_aside
from tandemlog_server.ha.state import HaState, Member, started_over
from tandemlog_server.ha.state_file import StateFile, new_incarnation
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.message_store import MessageStore

from .master_role import MasterRole
from .rocketmq_serving import RocketmqServing
from .role_switch import ReplicationSwitch, RoleSwitch
from .slave_role import SlaveRole
from .waiting_role import WaitingRole

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentCalls:
    """What the roles tell the agent, and ask it."""

    stream_lost: Callable[[], None]
    stream_back: Callable[[], None]
    look_again: Callable[[str], None]
    lease_fault: Callable[[], str]
    note_return: Callable[[Return], None]

    @staticmethod
    def of(agent: ElectionAgent) -> "AgentCalls":
        return AgentCalls(
            agent.stream_lost,
            agent.stream_back,
            agent.look_again,
            agent.lease_fault,
            agent.losses.note,
        )


class ElectedRoles:
    """See the module: a RoleHost. Lives in one event loop; `fatal` hears of what only an operator
    can mend. `prepare`, then `agent` is set, then the agent calls."""

    agent: AgentCalls

    def __init__(
        self,
        store: MessageStore,
        config: HaConfig,
        clock: Clock,
        *,
        rows: Callable[[str], Sequence[common_pb2.NodeStatus]],
        brokers: RocketmqServing,
        max_unconfirmed_bytes: int,
        timeout_ms: int,
        fatal: Callable[[BaseException], None],
    ) -> None:
        self.count_puts: Callable[[], int] = lambda: 0
        self.switch = RoleSwitch(WaitingRole("this node is starting", rows))
        self.replication = ReplicationSwitch(config.node_id)
        self._store = store
        self._config = config
        self._clock = clock
        self._rows = rows
        self._brokers = brokers
        self._max_unconfirmed_bytes = max_unconfirmed_bytes
        self._timeout_ms = timeout_ms
        self._fatal = fatal
        self._file = StateFile(store.config.directory, store.files)
        self._state: HaState | None = None
        self._master: ReplicationMaster | None = None
        self._slave: ReplicationSlave | None = None
        self._following: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] | None = None
        self._sending: asyncio.Task[bool] | None = None
        self.terms_won = 0
        self.incarnation_changes = 0

    @property
    def state(self) -> HaState:
        """What this node remembers, as the present role has it."""
        state = self._state
        for role in (self._master, self._slave):
            if role is not None and role.ha_state is not None:
                state = role.ha_state
        assert state is not None, "prepare comes first"
        return state

    @property
    def master(self) -> ReplicationMaster | None:
        return self._master

    async def prepare(self) -> HaState:
        """Count this start, and doubt the disk if the store does: bytes that were acknowledged may
        be missing, so it is another disk from now on. Raises StateFileError."""
        self._state = await asyncio.to_thread(self._prepared)
        return self._state

    def _prepared(self) -> HaState:
        state = self._file.load(self._config)
        state = replace(state, starts=state.starts + 1)
        doubt = self._store.doubt
        if doubt:
            logger.warning("this disk joins as a new one, it may lack messages: %s", doubt)
            state = replace(state, incarnation=new_incarnation())
            self.incarnation_changes += 1
        self._file.save(state)
        if doubt:
            self._store.settle_doubt()
        self._store.become_slave()
        return state

    async def renew_incarnation(self, reason: str, starts: int) -> None:
        """This disk is not what it was: join as a new one. Durable on return."""
        logger.warning("this disk joins as a new one: %s", reason)
        incarnation = new_incarnation()
        await self._change(lambda state: replace(state, incarnation=incarnation, starts=starts))
        self.incarnation_changes += 1

    async def start_over(self, reason: str, epoch: int) -> None:
        await self._stop(f"this node starts over: {reason}")
        fresh = started_over(self.state, new_incarnation(), epoch)

        def renew() -> None:
            self._file.save(fresh)
            self._state = fresh

        await asyncio.to_thread(set_log_aside, self._store, 0, reason, renew)

    # ---- what the agent asks for

    def own_log(self) -> OwnLog:
        state, store = self.state, self._store
        last = store.epochs.table.last
        failure = store.failure
        return OwnLog(
            incarnation=state.incarnation,
            accepted_epoch=state.accepted_epoch,
            last_epoch=0 if last is None else last.epoch,
            end_offset=store.log.wrote.value,
            obstacle="" if failure is None else f"its store has failed: {failure}",
            epochs=store.epochs.table,
            confirm_offset=store.confirmed.value,
        )

    async def lead(self, won: WonTerm, keeper: RecordKeeper, cluster_uuid: str) -> None:
        await self._stop("this node is about to lead")
        await self._remember_cluster(cluster_uuid)
        master = ReplicationMaster(
            self._store,
            replace(self._config, role=Role.MASTER),
            self._clock,
            files=self._store.files,
            won=won,
            keeper=keeper,
            on_deposed=self.agent.look_again,
            on_return=self.agent.note_return,
        )
        try:
            await master.start()
        except BaseException:
            await master.close()
            raise
        self._master = master
        self.terms_won += 1
        self._unlisten = self._store.topics.listen(master.metadata_changed)
        self.replication.set(master.servicer)
        role = MasterRole(
            self._store,
            master,
            max_unconfirmed_bytes=self._max_unconfirmed_bytes,
            timeout_ms=self._timeout_ms,
            lease_fault=self.agent.lease_fault,
        )
        self.switch.set(role)
        await self._brokers.begin(master)

    async def follow(self, leader: LeaderValue, unclean_epoch: int, cluster_uuid: str) -> None:
        await self._stop(f"this node is about to follow {leader.node_id}")
        await self._remember_cluster(cluster_uuid)
        slave = ReplicationSlave(
            self._store,
            replace(self._config, role=Role.SLAVE, master_endpoint=leader.endpoint),
            self._clock,
            files=self._store.files,
            unclean_epoch=unclean_epoch,
            master_id=leader.node_id,
            on_lost=lambda _: self.agent.stream_lost(),
            on_joined=lambda _: self.agent.stream_back(),
        )
        self._slave = slave
        self._following = asyncio.create_task(slave.run(), name="replication")
        self._following.add_done_callback(self._following_ended)
        self.switch.set(SlaveRole(slave, leader.endpoint))

    async def wait(self, reason: str) -> None:
        await self._stop(reason)

    def say_why(self, reason: str) -> None:
        role = self.switch.current
        if isinstance(role, WaitingRole):
            role.reason = reason

    def fence(self, reason: str) -> None:
        self.switch.set(WaitingRole(reason, self._rows))

    def hold_puts(self, reason: str) -> None:
        role = self.switch.current
        if isinstance(role, MasterRole):
            role.held_back = reason
            if reason and self._master is not None and self.tables_sent():
                self._sending = asyncio.create_task(self._master.send_tables(), name="tables")

    def tables_sent(self) -> bool:
        return self._sending is None or self._sending.done()

    def durable_on(self, member: Member) -> int | None:
        master = self._master
        return None if master is None else master.durable_on(member)

    def keep_out(self, node_id: str) -> None:
        if self._master is not None:
            self._master.keep_out(node_id)

    def log_end(self) -> int:
        return self._store.log.wrote.value

    def puts_under_way(self) -> int:
        return self.count_puts()

    async def close(self) -> None:
        """End the role; the store stays open."""
        await self._stop("this node is stopping")

    # ---- how

    async def _stop(self, reason: str) -> None:
        """End what there is, completely; from the first line on nothing is acknowledged."""
        self.fence(reason)
        self.replication.set(None)
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
        master, slave, task = self._master, self._slave, self._following
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        await self._brokers.end()
        if master is not None:
            await asyncio.to_thread(end_term, self._store)
            await master.close()
            self._state, self._master = master.ha_state or self._state, None
        if task is not None:
            task.cancel()
            # not awaited itself: a cancel of this call would cut its own end short
            await asyncio.wait({task})
            self._following = None
        if slave is not None:
            self._state, self._slave = slave.ha_state or self._state, None

    async def _remember_cluster(self, cluster_uuid: str) -> None:
        if cluster_uuid and self.state.cluster_uuid != cluster_uuid:
            await self._change(lambda state: replace(state, cluster_uuid=cluster_uuid))

    async def _change(self, change: Callable[[HaState], HaState]) -> None:
        """Only while no role runs: each has its own copy."""
        state = change(self.state)
        await asyncio.to_thread(self._file.save, state)
        self._state = state

    def _following_ended(self, task: asyncio.Task[None]) -> None:
        # it runs until it is cancelled; any other end is one that only an operator can mend
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fatal(problem)
