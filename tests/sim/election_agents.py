"""The real ElectionAgent of each node, driven call by call; what it asks of its node is done here.

    world ─▶ agent.renew, agent.registration.step, agent.turn ─▶ coordinator: the real machine
                                  └─▶ NodeHost ─▶ roles of election_cluster

Only the loops are the simulation's: which node acts next, and when. Each call to the coordinator
may fail or be executed late.
"""

from contextlib import suppress

from fakes.fake_coordinator import FakeCoordinator
from sim.election_cluster import ElectionCluster
from sim.election_nodes import ELECTION, ElectedNode, Process, drive
from sim.ha_nodes import ViolationError
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorError,
    CoordinatorUnavailableError,
)
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.key_values import LeaderValue
from tandemlog_server.ha.election.role_host import Identity, OwnLog
from tandemlog_server.ha.master.record_keeper import RecordKeeper
from tandemlog_server.ha.master.term import WonTerm
from tandemlog_server.ha.state import HaState, Member


class NodeHost:
    """A RoleHost: what ElectedRoles does, in one thread."""

    def __init__(self, cluster: ElectionCluster, node: ElectedNode) -> None:
        self._cluster = cluster
        self._node = node

    def own_log(self) -> OwnLog:
        state, store = self._cluster.state(self._node), self._node.store
        assert store is not None
        table = store.epochs.table
        return OwnLog(
            incarnation=state.incarnation,
            accepted_epoch=state.accepted_epoch,
            last_epoch=0 if table.last is None else table.last.epoch,
            end_offset=store.log.wrote.value,
            epochs=table,
            confirm_offset=store.confirmed.value,
        )

    async def lead(self, won: WonTerm, keeper: RecordKeeper, cluster_uuid: str) -> None:
        self._cluster.lead(self._node, won, keeper, cluster_uuid)

    async def follow(self, leader: LeaderValue, unclean_epoch: int, cluster_uuid: str) -> None:
        self._cluster.follow(self._node, leader, unclean_epoch, cluster_uuid)

    async def wait(self, reason: str) -> None:
        self._cluster.end_role(self._node)

    def say_why(self, reason: str) -> None:
        return

    def fence(self, reason: str) -> None:
        self._cluster.fence(self._node, reason)

    def hold_puts(self, reason: str) -> None:
        self._cluster.hold_puts(self._node, reason)

    def tables_sent(self) -> bool:
        return True

    def durable_on(self, member: Member) -> int | None:
        master = self._node.master
        if master is None or member.node_id not in master.group.sessions:
            return None
        return master.group.tracker.durable(member)

    def log_end(self) -> int:
        assert self._node.store is not None
        return self._node.store.log.wrote.value

    def puts_under_way(self) -> int:
        return 0

    def keep_out(self, node_id: str) -> None:
        if self._node.master is not None:
            self._node.master.group.set.kept_out = node_id

    async def start_over(self, reason: str, epoch: int) -> None:
        self._cluster.start_over(self._node, reason, epoch)

    async def renew_incarnation(self, reason: str, starts: int) -> None:
        self._cluster.renew_incarnation(self._node, reason, starts)


class SimAgent(ElectionAgent):
    """One without a limit of time, for which there has to be an event loop."""

    async def resign(self) -> None:
        with suppress(CoordinatorError):
            await self.give_back()


class ElectionAgents(ElectionCluster):
    """See the module."""

    def new_process(self, node: ElectedNode, state: HaState) -> Process:
        client = self.new_client(node, state)
        identity = Identity(
            node.name, f"{node.name}:1", "", "", state.cluster_uuid, starts=state.starts
        )
        agent = SimAgent(
            client,
            NodeHost(self, node),
            identity,
            self.config(node.name),
            ELECTION,
            self.clock,
            self.clock.monotonic,
            lambda: self.new_name(node),
        )
        return Process(client, agent)

    def new_client(self, node: ElectedNode, state: HaState) -> FakeCoordinator:
        """Of the coordinator that its configuration names."""
        return self.coordination.client()

    def arm(self, node: ElectedNode) -> ElectionAgent:
        """Its next calls may fail."""
        process = node.process
        assert process is not None
        self.coordination.arm(node.name, process.client)
        return process.agent

    # --- the keys

    def hear_keys(self, node: ElectedNode) -> None:
        """The watch tells something, perhaps long after it was changed."""
        process, listings = node.process, self.coordination.listings
        if process is not None and listings and self.coordination.reachable(node.name):
            process.agent._builder.apply(self.rng.choice(listings))

    def look_soon(self, node: ElectedNode) -> None:
        if node.process is not None:
            node.process.agent.poll_now("the simulation says it")

    def has_heard(self, process: Process) -> None:
        """Whether it has read the keys just now: what it does from here on is its own fault."""
        if process.agent.heard_at == self.now:
            process.woke = None

    # --- the three tasks

    def renew(self, node: ElectedNode) -> None:
        process = node.process
        if process is None or self.now < process.renew_at:
            return
        before = process.agent.lease._proved_at
        process.renew_at = self.now + drive(self.arm(node).renew())
        self.has_heard(process)
        if process.agent.lease._proved_at not in (None, before):
            self.check_proof(node)

    def check_proof(self, node: ElectedNode) -> None:
        """The coordinator has executed what only the leader can change."""
        record = self.coordination.record()
        if record is None or (record.leader.node_id, record.epoch) != (node.name, node.leads):
            raise ViolationError(f"{node.name} renewed epoch {node.leads}, the record is {record}")

    def look(self, node: ElectedNode) -> None:
        """One turn of the agent, with what it knows now or has just read."""
        process = node.process
        if process is None or node.store is None:
            return
        agent = process.agent
        if not agent.registration.done:
            with suppress(CoordinatorUnavailableError):
                drive(self.arm(node).registration.step())
            if agent.registration.done or not agent._distrust(agent.snapshot):
                return
        if self.rng.random() < 0.5:
            self.look_soon(node)
        else:
            self.hear_keys(node)
        self.decide(node)

    def decide(self, node: ElectedNode) -> None:
        """By what it knows."""
        process = node.process
        assert process is not None
        led = process.agent.leading
        drive(self.arm(node).turn())
        self.has_heard(process)
        if process.agent.leading not in (0, led):
            self.check_term(node)
