"""Nodes that take roles: the replication of `ha_cluster`, with roles that change in a process.

    lead, follow, wait     what node/roles/elected_roles.py does, in one thread
    acknowledge, persist   the master's side under an elected term

Several nodes may believe to lead at a time; each has the puts that its clients wait for.
"""

from abc import ABC, abstractmethod
from dataclasses import replace

from fakes.fake_store import FakeDisk
from fakes.stream import FakeStream
from sim.election_nodes import Coordination, ElectedNode, ElectedStore, Process, drive
from sim.ha_cluster import Cluster
from sim.ha_nodes import NODES, MasterSide, Put, SimNode, SlaveSide, ViolationError, holds, piece
from tandemlog_server.ha.config import HaConfig, Replication
from tandemlog_server.ha.election.key_values import LeaderValue
from tandemlog_server.ha.master import term as master_term
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.record_keeper import DeposedError, RecordKeeper
from tandemlog_server.ha.master.session import MasterSession
from tandemlog_server.ha.master.term import WonTerm
from tandemlog_server.ha.protocol.frames import Hello, SlaveFrame
from tandemlog_server.ha.protocol.versions import OURS
from tandemlog_server.ha.slave.session import Disconnect, SlaveSession
from tandemlog_server.ha.slave.store import SlaveStore, set_log_aside
from tandemlog_server.ha.state import HaState, Member, started_over
from tandemlog_server.storage.config import FlushMode


class ElectionCluster(Cluster, ABC):
    """See the module."""

    def __init__(self, seed: int, flush: FlushMode, mode: Replication = Replication.SYNC) -> None:
        super().__init__(seed, flush)
        self.mode = mode
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
        config = super().config(name)
        return replace(config, mode=self.mode, chunk_bytes=300, window_bytes=1200)

    @property
    def required(self) -> int:
        return self.config("a").required

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
        store = self.new_store(node)
        state = self.state(node)
        state = replace(state, starts=state.starts + 1)
        doubt = store.doubt
        if doubt:
            self.count("doubts")
            state = replace(state, incarnation=self.incarnation())
        self.saver(node)(state)
        if doubt:
            store.forget_doubt()
        store.become_slave()
        node.store = store
        node.process = self.new_process(node, state)

    def new_store(self, node: ElectedNode) -> ElectedStore:
        """Of what is on its disk."""
        return ElectedStore(node.disk, node.before, self.flush)

    @abstractmethod
    def new_process(self, node: ElectedNode, state: HaState) -> Process:
        """With an agent that has this state's identity."""

    def new_name(self, node: SimNode) -> str:
        """Of a session, or of the cluster."""
        self.serial += 1
        return f"s{self.serial}"

    def renew_incarnation(self, node: ElectedNode, reason: str, starts: int) -> None:
        if not node.other_disk:
            raise ViolationError(f"{node.name} has its disk, and takes it for another: {reason}")
        self.saver(node)(replace(self.state(node), incarnation=self.incarnation(), starts=starts))
        node.other_disk = False
        self.note(f"{node.name} joins as a new one: {reason}")
        self.count("joined as new")

    def start_over(self, node: ElectedNode, reason: str, epoch: int) -> None:
        """What an operator has asked for."""
        store, record = node.store, self.coordination.record()
        assert store is not None
        assert record is not None
        if Member(node.name, self.state(node).incarnation) in record.in_sync:
            raise ViolationError(f"{node.name} starts over in the in-sync set")
        self.end_role(node)
        fresh = started_over(self.state(node), self.incarnation(), epoch)
        set_log_aside(store, 0, reason, lambda: self.saver(node)(fresh))
        node.read_to = 0
        self.count("started over")
        self.note(f"{node.name} starts over")

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
        process.keeper = process.following = None
        process.held_back = ""
        if node.master is not None:
            master_term.end_term(store)
            for _, stream in node.master.streams:
                stream.master_open = False
            node.master = None
        if slave is not None:
            if slave.session is not None and self.rng.random() < 0.7:
                self.work(node, self.rng.randint(0, len(slave.work)))
            if slave.stream is not None:
                slave.stream.slave_open = False
            node.slave = None

    def fence(self, node: ElectedNode, reason: str) -> None:
        """Nothing is acknowledged any more."""
        if node.process is not None:
            node.process.pending.clear()

    def hold_puts(self, node: ElectedNode, reason: str) -> None:
        """Puts wait a moment; with no reason they go on."""
        if node.process is not None:
            node.process.held_back = reason

    def belong(self, node: ElectedNode, uuid: str) -> None:
        state = self.state(node)
        if uuid and state.cluster_uuid != uuid:
            self.saver(node)(replace(state, cluster_uuid=uuid))

    def lead(self, node: ElectedNode, won: WonTerm, keeper: RecordKeeper, uuid: str) -> None:
        process, store = node.process, node.store
        assert process is not None
        assert store is not None
        self.end_role(node)
        self.belong(node, uuid)
        config = self.config(node.name)
        term = master_term.begin_term(store, self.state(node), self.saver(node), config, won)
        own = master_term.own_position(store)
        node.master = MasterSide(
            MasterGroup(config, term.me, term.view, term.record, own, self.now)
        )
        process.keeper = keeper
        self.count("terms")
        self.note(f"{node.name} leads epoch {won.epoch} at {store.log.wrote.value}")

    def check_term(self, node: ElectedNode) -> None:
        """A term has begun."""
        self.leads_alone(node, node.leads)
        self.check_leader(node)
        self.check_recorded(node)

    def follow(self, node: ElectedNode, leader: LeaderValue, unclean_epoch: int, uuid: str) -> None:
        process, store = node.process, node.store
        assert process is not None
        assert store is not None
        self.end_role(node)
        self.belong(node, uuid)
        process.following = leader
        self.note(f"{node.name} follows {leader.node_id} in epoch {leader.epoch}")
        node.slave = SlaveSide(
            SlaveStore(
                store,
                self.state(node),
                self.saver(node),
                self.incarnation,
                self.config(node.name),
                self.clock,
                unclean_epoch=unclean_epoch,
            )
        )

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
        hello = Hello("sim", node.name, "", endpoint=f"{node.name}:1", build=OURS)
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
            process.agent._loop.port_is_closed(leader.epoch)
        else:
            process.agent._loop.port_is_open(leader.epoch)

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
        if group.acts_alone() and process.agent.lease_fault():
            return
        for put in [put for put in process.pending if put.end <= group.tracker.value]:
            process.pending.remove(put)
            self.promise(node, put)

    def promise(self, node: ElectedNode, put: Put) -> None:
        """A client is told that this is stored."""
        master, process = node.master, node.process
        assert master is not None
        assert process is not None
        held = self.acked.get(put.start)
        if held is not None and held != put:
            raise ViolationError(f"two records acknowledged at {put.start}")
        alone = master.group.acts_alone()  # then its lease still counts
        if process.woke is not None and put.end > process.woke and not alone:
            raise ViolationError(f"{node.name} woke up and acknowledged {put.start} at once")
        self.leads_alone(node, master.group.view.epoch)
        if alone:
            self.check_deposed(node, put)
        self.acked[put.start] = put
        self.count("acked")
        self.check_members(node, put)

    # --- checks

    @abstractmethod
    def check_deposed(self, node: ElectedNode, put: Put) -> None:
        """A node acknowledges alone."""

    @abstractmethod
    def shows(self, disk: FakeDisk) -> bool:
        """Whether it shows that this disk is not the member that its name says."""

    @abstractmethod
    def check_begin(self, node: ElectedNode) -> None:
        """Its log begins where retention has left it."""

    def leads_alone(self, node: ElectedNode, epoch: int) -> None:
        if self.leaders.setdefault(epoch, node.name) != node.name:
            raise ViolationError(f"{self.leaders[epoch]} and {node.name} lead epoch {epoch}")

    def check_members(self, master: SimNode, put: Put) -> None:
        """An acknowledged record is durable on every node that may be elected now."""
        record = self.coordination.record()
        assert record is not None
        if not self.mode.waits:
            return
        if len(record.in_sync) < self.required:
            raise ViolationError(f"acknowledged {put.start} with the set {record.in_sync}")
        for member in record.in_sync:
            self.check_member(member, put)

    def check_recorded(self, master: SimNode) -> None:
        """All that is acknowledged is on the nodes that may be elected now."""
        record = self.coordination.record()
        assert record is not None
        if not self.mode.waits:
            return
        if self.acked and len(record.in_sync) < self.required and not record.unclean_epoch:
            raise ViolationError(f"the set has shrunk to {record.in_sync}")
        for member in record.in_sync:
            for put in self.acked.values():
                self.check_member(member, put)

    def check_member(self, member: Member, put: Put) -> None:
        node = self.node(member.node_id)
        disk = node.disk
        if self.state(node).incarnation != member.incarnation or disk.doubt:
            return  # it cannot be elected any more
        if (node.other_disk and self.shows(disk)) or put.start < disk.start:
            return  # as before, or dropped by retention
        end = disk.end if disk.counts_unflushed else disk.durable
        if end < put.end or not holds(disk, put):
            raise ViolationError(
                f"acknowledged {put.start}..{put.end} is not on {member}, which holds 0..{end}"
            )

    def check_leader(self, node: ElectedNode) -> None:
        """A term begins with all that was acknowledged, and all that any node has read."""
        self.check_begin(node)
        for put in self.acked.values():
            if put.start >= node.disk.start and not holds(node.disk, put):
                raise ViolationError(
                    f"acknowledged {put.start}..{put.end} is not on {node.name}, which leads"
                )
        low = node.disk.start
        if piece(node.disk, low, len(self.read)) != self.read[low:]:
            raise ViolationError(f"{node.name} leads without what was read before")
