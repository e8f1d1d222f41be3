"""The roles of a node whose cluster elects: what the agent decides, done to the store.

follow   end the term before (terms.py) ▸ follow this leader
lead     end the term before ▸ a term in the epoch that was won ▸ puts
wait     end the term before
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.key_values import LeaderValue
from tandemlog_server.ha.election.role_host import OwnLog
from tandemlog_server.ha.master.record_keeper import RecordKeeper
from tandemlog_server.ha.master.term import WonTerm
from tandemlog_server.ha.replication_file import StateFile, new_incarnation
from tandemlog_server.ha.slave.store import set_log_aside
from tandemlog_server.ha.state import HaState, Member, started_over

from ..cluster_rows import rows_without_master, with_roster
from ..process.tasks import stopped, to_its_end, watched
from .master_role import MasterRole
from .slave_role import WaitingRole
from .terms import Terms

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ElectionNumbers:
    """What a scrape of /metrics asks an elected node for.

    `lease_remaining_s` is 0 on a node that does not lead; `coordinator_age_s` is -1 if the
    coordinator was never heard, `accepted_age_s` if it has accepted no change of this node;
    `record_epoch` is that of the cluster's record there, 0 if it is not known; `unclean_epoch` is
    the newest that may have begun without acknowledged messages, 0 if none did."""

    lease_remaining_s: float
    coordinator_age_s: float
    accepted_age_s: float
    record_epoch: int
    paused: bool
    terms_won: int
    incarnation_changes: int
    unclean_epoch: int = 0


class ElectedRoles:
    """See the module: a RoleHost. Lives in one event loop: `prepare`, then `agent` is set, then
    `start`, which lets it call, and `close`."""

    agent: ElectionAgent

    def __init__(self, terms: Terms) -> None:
        self.terms_won = 0
        self.incarnation_changes = 0
        self._terms = terms
        self._store = terms.store
        self._file = StateFile(terms.store.config.directory, terms.store.files)
        self._sending: asyncio.Task[None] | None = None
        self._taking_part: asyncio.Task[None] | None = None
        terms.rows = self._rows_without_master
        terms.fence("this node is starting")

    @property
    def state(self) -> HaState:
        """What this node remembers, as the present role has it."""
        state = self._terms.state
        assert state is not None, "prepare comes first"
        return state

    async def prepare(self) -> None:
        """Count this start, and doubt the disk if the store does: bytes that were acknowledged may
        be missing, so it is another disk from now on. Raises StateFileError."""
        self._terms.last_state = await asyncio.to_thread(self._prepared)

    def _prepared(self) -> HaState:
        state = self._file.load(self._terms.config)
        state = replace(state, starts=state.starts + 1)
        doubt = self._store.doubt
        if doubt:
            logger.warning("this disk joins as a new one, it may lack messages: %s", doubt)
            state = replace(state, incarnation=new_incarnation())
            self.incarnation_changes += 1
        self._file.save(state)
        if doubt:
            self._store.forget_doubt()
        self._store.become_slave()
        return state

    def start(self) -> None:
        """Take part, once everything else of the node is set up."""
        self._taking_part = watched(self.agent.run(), "election", self._terms.fatal)

    async def close(self) -> None:
        """The lease is given back first, so that the others elect while this node stops."""
        if self._taking_part is not None:
            await stopped(self._taking_part)
            self._taking_part = None
            self._terms.fence("this node is stopping")
            await self.agent.resign()
        await self.wait("this node is stopping")

    async def renew_incarnation(self, reason: str, starts: int) -> None:
        """This disk is not what it was: join as a new one. Durable on return."""
        logger.warning("this disk joins as a new one: %s", reason)
        incarnation = new_incarnation()
        await self._change(replace(self.state, incarnation=incarnation, starts=starts))
        self.incarnation_changes += 1

    async def start_over(self, reason: str, epoch: int) -> None:
        await self.wait(f"this node starts over: {reason}")
        fresh = started_over(self.state, new_incarnation(), epoch)

        def renew() -> None:
            self._file.save(fresh)
            self._terms.last_state = fresh

        # a stop meanwhile waits for it: the store must not be closed below the thread
        await to_its_end(asyncio.to_thread(set_log_aside, self._store, 0, reason, renew))

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
        await self.wait("this node is about to lead")
        await self._remember_cluster(cluster_uuid)
        await self._terms.lead(
            won,
            keeper,
            on_deposed=self.agent.poll_now,
            on_return=self.agent.losses.note,
            lease_fault=self.agent.lease_fault,
        )
        self.terms_won += 1

    async def follow(self, leader: LeaderValue, unclean_epoch: int, cluster_uuid: str) -> None:
        await self.wait(f"this node is about to follow {leader.node_id}")
        await self._remember_cluster(cluster_uuid)
        self._terms.follow(
            leader.endpoint,
            unclean_epoch=unclean_epoch,
            master_id=leader.node_id,
            on_lost=lambda _: self.agent.stream_lost(),
            on_joined=lambda _: self.agent.stream_back(),
        )
        self._terms.run_slave()

    async def wait(self, reason: str) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        await self._terms.wait(reason)

    def say_why(self, reason: str) -> None:
        role = self._terms.role
        if isinstance(role, WaitingRole):
            role.reason = reason

    def fence(self, reason: str) -> None:
        self._terms.fence(reason)

    def hold_puts(self, reason: str) -> None:
        role = self._terms.role
        if isinstance(role, MasterRole):
            role.held_back = reason
            if reason and self.tables_sent():
                self._sending = asyncio.create_task(self._terms.send_tables(), name="tables")

    def tables_sent(self) -> bool:
        return self._sending is None or self._sending.done()

    def durable_on(self, member: Member) -> int | None:
        master = self._terms.master
        return None if master is None else master.durable_on(member)

    def keep_out(self, node_id: str) -> None:
        if self._terms.master is not None:
            self._terms.master.keep_out(node_id)

    def log_end(self) -> int:
        return self._store.log.wrote.value

    def puts_under_way(self) -> int:
        return self._terms.puts_under_way()

    # ---- how

    async def _remember_cluster(self, cluster_uuid: str) -> None:
        if cluster_uuid and self.state.cluster_uuid != cluster_uuid:
            await self._change(replace(self.state, cluster_uuid=cluster_uuid))

    async def _change(self, state: HaState) -> None:
        """Only while no role runs: each has its own copy."""
        await to_its_end(asyncio.to_thread(self._file.save, state))
        self._terms.last_state = state

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        """All nodes that are known, by the role or by the coordinator's keys."""
        rows = self._terms.role.members()
        return with_roster(self.agent.snapshot, rows, self._terms.config.node_id)

    def _rows_without_master(self, reason: str) -> Sequence[common_pb2.NodeStatus]:
        node_id = self._terms.config.node_id
        return rows_without_master(self.agent.snapshot, self._store, self.state, node_id, reason)
