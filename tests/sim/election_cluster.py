"""Nodes that take roles: the replication of `ha_cluster`, with roles that change in a process.

    lead, follow, wait     what node/roles/elected_roles.py does, in one thread
    acknowledge, persist   the master's side under an elected term

Several nodes may believe to lead at a time; each has the puts that its clients wait for.
"""

from abc import ABC, abstractmethod
from dataclasses import replace

from fakes.stream import FakeStream
from ha.config import HaConfig
from ha.election.leases import HeldLease
from ha.election.record_keeper import ElectedKeeper
from ha.election.role_loop import RoleLoop
from ha.election.values import ClusterRecord, LeaderValue
from ha.errors import HaError
from ha.master import term as master_term
from ha.master.group import MasterGroup
from ha.master.record_keeper import DeposedError
from ha.master.session import MasterSession
from ha.master.term import WonTerm
from ha.protocol.frames import Hello, SlaveFrame
from ha.slave.session import Disconnect, SlaveSession
from ha.slave.store import SlaveStore
from ha.state import Member
from sim.election_nodes import (
    KEYS,
    Coordination,
    ElectedNode,
    ElectedStore,
    Process,
    drive,
    rules,
)
from sim.ha_cluster import Cluster
from sim.ha_nodes import NODES, MasterSide, Put, SimNode, SlaveSide, ViolationError, holds
from storage.config import FlushMode
from storage.errors import StoreError


class ElectionCluster(Cluster, ABC):
    """See the module."""

    def __init__(self, seed: int, flush: FlushMode) -> None:
        super().__init__(seed, flush)
        self.coordination = Coordination(self.clock, self.rng)
        self.cuts: dict[frozenset[str], float] = {}
        self.ends: dict[int, tuple[str, str]] = {}
        self.trouble = self.rng.choice((0.1, 0.2, 0.5))
        self.leaders: dict[int, str] = {}
        self.read = bytearray()

    @property
    def elected(self) -> list[ElectedNode]:
        return [each for each in self.nodes.values() if isinstance(each, ElectedNode)]

    def make_nodes(self) -> dict[str, SimNode]:
        disks = super().make_nodes()
        return {name: ElectedNode(name, disks[name].disk) for name in NODES}

    def config(self, name: str) -> HaConfig:
        return replace(super().config(name), chunk_bytes=300, window_bytes=1200)

    def node(self, name: str) -> ElectedNode:
        found = self.nodes[name]
        assert isinstance(found, ElectedNode)
        return found

    def awake(self, node: ElectedNode) -> bool:
        return node.process is not None and node.frozen_until <= self.now

    def linked(self, first: str, second: str) -> bool:
        return self.cuts.get(frozenset((first, second)), 0.0) <= self.now

    # --- processes

    def start(self, node: SimNode) -> None:
        """As ElectedRoles.prepare: a disk that may lack bytes is another disk."""
        assert isinstance(node, ElectedNode)
        if node.store is not None:
            return
        node.lives += 1
        node.has_power, node.read_to = True, 0
        store = ElectedStore(node.disk, node.before, self.flush)
        state = self.state(node)
        if store.doubt:
            self.count("doubts")
            self.saver(node)(replace(state, incarnation=self.incarnation()))
            store.settle_doubt()
        store.become_slave()
        node.store = store
        self.serial += 1
        config = self.config(node.name)
        node.process = Process(
            session=self.new_session(node),
            client=self.coordination.client(),
            loop=RoleLoop(KEYS, rules(config.replication, config.required)),
        )

    def new_session(self, node: SimNode) -> str:
        return f"s{self.serial}"

    def stop(self, node: SimNode) -> None:
        assert isinstance(node, ElectedNode)
        if node.master is not None:
            for _, stream in node.master.streams:
                stream.cut(self.rng)
        if node.slave is not None and node.slave.stream is not None:
            node.slave.stream.cut(self.rng)
        node.store = node.master = node.slave = node.process = None
        node.crash_in, node.frozen_at, node.frozen_until = -1, 0.0, 0.0

    # --- roles

    def end_role(self, node: ElectedNode) -> None:
        """From here on nothing is acknowledged; what a slave was at ends, or is given up."""
        process, store, slave = node.process, node.store, node.slave
        if process is None or store is None:
            return
        process.pending.clear()
        process.leading, process.keeper, process.switching = 0, None, None
        process.held_back = False
        if node.master is not None:
            store.become_slave()
            for _, stream in node.master.streams:
                stream.master_open = False
            node.master = None
        if slave is not None:
            if slave.session is not None and self.rng.random() < 0.7:
                self.work(node, self.rng.randint(0, len(slave.work)))
            if slave.stream is not None:
                slave.stream.slave_open = False
            node.slave = None

    def belong(self, node: ElectedNode, uuid: str) -> None:
        state = self.state(node)
        if uuid and state.cluster_uuid != uuid:
            self.saver(node)(replace(state, cluster_uuid=uuid))

    def lead(self, node: ElectedNode, record: ClusterRecord, revision: int) -> None:
        process, store = node.process, node.store
        assert process is not None
        assert store is not None
        process.begun = record.epoch
        self.end_role(node)
        process.following, process.has_role = None, True
        self.belong(node, process.snapshot.uuid)
        won = WonTerm(
            record.epoch, record.version, record.in_sync, record.known, record.unclean_epoch
        )
        config = self.config(node.name)
        try:
            term = master_term.begin_term(store, self.state(node), self.saver(node), config, won)
        except (HaError, StoreError) as error:
            self.note(f"{node.name} could not lead epoch {record.epoch}: {error}")
            process.failed_until = self.now + 5.0
            process.lease = HeldLease(1.0)
            return
        own = master_term.own_position(store)
        node.master = MasterSide(
            MasterGroup(config, term.me, term.view, term.record, own, self.now)
        )
        process.keeper = ElectedKeeper(process.client, KEYS, record, revision)
        process.leading = record.epoch
        self.count("terms")
        self.note(f"{node.name} leads epoch {record.epoch} at {store.log.wrote.value}")
        self.leads_alone(node, record.epoch)
        self.check_leader(node)
        self.check_recorded(node)

    def follow(self, node: ElectedNode, leader: LeaderValue) -> None:
        process, store = node.process, node.store
        assert process is not None
        assert store is not None
        before = process.following
        if before is not None and (before.session, before.epoch) == (leader.session, leader.epoch):
            return
        record = process.snapshot.record
        self.end_role(node)
        self.belong(node, process.snapshot.uuid)
        process.following, process.has_role = leader, True
        self.note(f"{node.name} follows {leader.node_id} in epoch {leader.epoch}")
        node.slave = SlaveSide(
            SlaveStore(
                store,
                self.state(node),
                self.saver(node),
                self.incarnation,
                self.config(node.name),
                self.clock,
                unclean_epoch=0 if record is None else record.unclean_epoch,
            )
        )

    def wait(self, node: ElectedNode) -> None:
        assert node.process is not None
        self.end_role(node)
        node.process.following, node.process.has_role = None, True

    # --- the slave's side

    def connect(self, node: SimNode) -> None:
        assert isinstance(node, ElectedNode)
        process, slave = node.process, node.slave
        if process is None or slave is None or slave.session is not None:
            return
        if self.now < slave.retry_at or process.following is None:
            return
        target = self.node(process.following.node_id)
        if target.master is None or not self.linked(node.name, target.name):
            slave.retry_at = self.now + 0.2
            self.probe(node)
            return
        config = self.config(node.name)
        hello = Hello("sim", node.name, "", endpoint=f"{node.name}:1")
        hello, me = slave.stored.greeting(hello, distrust=slave.distrust)
        self.serial += 1
        stream = FakeStream(self.serial)
        self.ends[stream.serial] = node.name, target.name
        self.streams.append(stream)
        slave.stream = stream
        slave.session = SlaveSession(hello, me, config, self.now)
        slave.work.clear()
        slave.busy_until = 0.0
        target.master.streams.append((target.master.group.open(self.now), stream))
        self.obey_slave(node, slave.session.start(self.now))

    def disconnect(self, node: SimNode, why: Disconnect) -> None:
        super().disconnect(node, why)
        assert isinstance(node, ElectedNode)
        self.probe(node)

    def probe(self, node: ElectedNode) -> None:
        """Is the leader's port closed? Only a machine that is up and linked refuses."""
        process = node.process
        if process is None or process.following is None:
            return
        leader = process.following
        target = self.node(leader.node_id)
        if target.store is None and target.has_power and self.linked(node.name, target.name):
            process.loop.port_is_closed(leader.epoch)
        else:
            process.loop.port_is_open(leader.epoch)

    # --- the master's side

    def hear(
        self,
        node: SimNode,
        master: MasterSide,
        session: MasterSession,
        stream: FakeStream,
        frame: SlaveFrame,
    ) -> None:
        assert isinstance(node, ElectedNode)
        if session.state.value == "closed" or node.process is None:
            return
        self.obey_master(node, session, stream, master.group.receive(session, frame, self.now))
        if isinstance(frame, Hello) and session.streaming:
            node.process.woke = None
        if master.group.alarms:
            raise ViolationError(f"{node.name} was elected, and lacks: {master.group.alarms}")
        if master.group.seen_epoch > master.group.view.epoch:
            master.group.seen_epoch = master.group.view.epoch
            self.look_soon(node)
        self.positions(node)

    @abstractmethod
    def look_soon(self, node: ElectedNode) -> None:
        """The node reads the keys before anything else."""

    def persist(self, node: SimNode) -> None:
        """One try to record the set that the master proposes."""
        assert isinstance(node, ElectedNode)
        master, process = node.master, node.process
        if master is None or process is None or process.keeper is None:
            return
        record = master.persisting
        if record is None:
            return
        self.coordination.arm(node.name, process.client)
        try:
            recorded = drive(process.keeper.record(record))
        except DeposedError as deposed:
            self.note(f"{node.name} was replaced: {deposed}")
            self.look_soon(node)
            return
        if not recorded:
            self.count("unknown outcomes")
            return
        self.note(f"{node.name} records {sorted(m.node_id for m in record.members)}")
        process.woke = None
        self.saver(node)(replace(self.state(node), record=record))
        master.persisting = None
        master.group.persisted(record)
        self.check_recorded(node)
        self.tell_members(master)
        self.positions(node)

    def acknowledge(self, node: SimNode) -> None:
        """As MasterRole: what is confirmed is told to clients, if this node may count on its
        term."""
        assert isinstance(node, ElectedNode)
        master, process = node.master, node.process
        if master is None or process is None:
            return
        group = master.group
        if group.stood_still(self.now):
            return
        if group.acts_alone() and process.lease.remaining_s(self.now) <= 0:
            return
        for put in [put for put in process.pending if put.end <= group.tracker.value]:
            process.pending.remove(put)
            held = self.acked.get(put.start)
            if held is not None and held != put:
                raise ViolationError(f"two records acknowledged at {put.start}")
            if process.woke is not None and put.end > process.woke:
                raise ViolationError(f"{node.name} woke up and acknowledged {put.start} at once")
            self.leads_alone(node, group.view.epoch)
            self.acked[put.start] = put
            self.count("acked")
            self.check_members(node, put)

    # --- checks

    def leads_alone(self, node: ElectedNode, epoch: int) -> None:
        if self.leaders.setdefault(epoch, node.name) != node.name:
            raise ViolationError(f"{self.leaders[epoch]} and {node.name} lead epoch {epoch}")

    def check_members(self, master: SimNode, put: Put) -> None:
        """An acknowledged record is durable on every node that may be elected now."""
        record = self.coordination.record()
        assert record is not None
        if len(record.in_sync) < self.min_in_sync:
            raise ViolationError(f"acknowledged {put.start} with the set {record.in_sync}")
        for member in record.in_sync:
            self.check_member(member, put)

    def check_recorded(self, master: SimNode) -> None:
        """All that is acknowledged is on the nodes that may be elected now."""
        record = self.coordination.record()
        assert record is not None
        if self.acked and len(record.in_sync) < self.min_in_sync:
            raise ViolationError(f"the set has shrunk to {record.in_sync}")
        for member in record.in_sync:
            for put in self.acked.values():
                self.check_member(member, put)

    def check_member(self, member: Member, put: Put) -> None:
        node = self.node(member.node_id)
        disk = node.disk
        if self.state(node).incarnation != member.incarnation or disk.doubt:
            return  # it cannot be elected any more
        end = disk.end if disk.counts_unflushed else disk.durable
        if end < put.end or not holds(disk, put):
            raise ViolationError(
                f"acknowledged {put.start}..{put.end} is not on {member}, which holds 0..{end}"
            )

    def check_leader(self, node: ElectedNode) -> None:
        """A term begins with all that was acknowledged, and all that any node has read."""
        for put in self.acked.values():
            if not holds(node.disk, put):
                raise ViolationError(
                    f"acknowledged {put.start}..{put.end} is not on {node.name}, which leads"
                )
        if node.disk.data[: len(self.read)] != self.read:
            raise ViolationError(f"{node.name} leads without what was read before")
