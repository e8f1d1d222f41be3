"""A world that elects, with real clients in it: producers, members of groups, readers.

    ElectionWorld: nodes, streams, the coordinator, misfortune
      + each process serves (served_node.py), each client is the real one (served_clients.py)
      + sieges: nodes are cut from the coordinator alone, for long
            one or two of them      whoever is elected meanwhile is killed, again and again
            all of them             all else is well, so all goes on (but elections)
      + members of groups that die and come again

Every loop runs after every step, those of processes that stand still excepted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sim.election_nodes import ElectedNode, Process
from sim.election_world import ElectionWorld
from sim.ha_nodes import NODES, Put, SimNode, ViolationError, piece
from sim.served_clients import Client, Producer, Reader
from sim.served_node import Service
from sim.served_promises import Promises
from sim.served_store import QUEUES, ServedStore
from tandemlog.consume.reading.positions import EARLIEST, LATEST
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog.v1 import admin_pb2, common_pb2
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.election.key_values import LeaderValue
from tandemlog_server.ha.master.metadata_sync import MetadataSource, TableCursor
from tandemlog_server.ha.master.record_keeper import RecordKeeper
from tandemlog_server.ha.master.term import WonTerm
from tandemlog_server.ha.slave.session import ReplaceTable, StoreAction
from tandemlog_server.ha.state import HaState
from tandemlog_server.ha.store_port import PROMISED_TABLES, tables_of
from tandemlog_server.node.puts.put_stream import PendingPut
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.puts.put_path import PutResult

ROUNDS = 50
ANSWERED_WITHIN_S = 75.0
READ_WITHIN_S = 60.0


@dataclass
class ServedNode(ElectedNode):
    """A node whose process serves clients; `files` are those of its tables, which a master sends
    to each stream."""

    service: Service | None = None
    files: MemoryFiles = field(default_factory=MemoryFiles)
    tables: MetadataSource | None = None
    cursors: dict[int, TableCursor] = field(default_factory=dict)
    taken: list[ReplaceTable] = field(default_factory=list)


@dataclass
class Siege:
    """Nodes that cannot reach the coordinator until then; how many leaders are still killed, and
    when the next one is, counted from when it leads."""

    until: float
    cut: tuple[str, ...]
    kills: int = 0
    after_s: float = 0.0
    leads: str = ""
    since: float = 0.0

    @property
    def of_all(self) -> bool:
        return len(self.cut) == len(NODES)


class ServedNodes(ElectionWorld):
    """Nodes that serve, and tables that travel beside the log."""

    calm_s = 0.05
    least_record = 400  # a client may send the very same one again

    def make_nodes(self) -> dict[str, SimNode]:
        nodes = super().make_nodes()
        return {name: ServedNode(name, nodes[name].disk) for name in NODES}

    def served(self, node: SimNode) -> ServedNode:
        assert isinstance(node, ServedNode)
        return node

    @property
    def services(self) -> list[Service]:
        found = [self.served(node).service for node in self.elected]
        return [service for service in found if service is not None]

    def service_of(self, node: SimNode) -> Service:
        service = self.served(node).service
        assert service is not None
        return service

    def find(self, endpoint: str) -> Service | None:
        """What answers there."""
        return self.served(self.nodes[endpoint.partition(":")[0]]).service

    # --- processes

    def new_store(self, node: ElectedNode) -> ServedStore:
        files = self.served(node).files
        return ServedStore(node.disk, node.before, self.flush, self.clock, files, self.new_term_id)

    def new_term_id(self) -> int:
        self.serial += 1
        return self.serial

    def new_process(self, node: ElectedNode, state: HaState) -> Process:
        served = self.served(node)
        assert isinstance(node.store, ServedStore)
        served.service = Service(
            node.store,
            self.clock,
            appended=lambda: self.positions(node),
            promised=lambda put, result: self.promised(served, put, result),
            describe=lambda: self.describe_cluster(served),
            answering=lambda method, request: self.answering(served, method, request),
        )
        return super().new_process(node, state)

    def promised(self, node: ServedNode, pending: PendingPut, result: PutResult) -> None:
        """The answer PUT_OK leaves the node."""
        if not result.segments:
            return
        start = result.segments[0].physical_offset
        put = Put(start, result.end_offset, piece(node.disk, start, result.end_offset))
        self.promise(node, put)

    def answering(self, node: ServedNode, method: str, request: Any) -> Callable[[Any], None]:
        """A question has come to this node; what is to be called with the answer."""
        return lambda answer: None

    def acknowledge(self, node: SimNode) -> None:
        """The service does."""
        service = self.served(node).service
        if service is not None and service.replication is not None and node.master is not None:
            service.replication.look()

    def stop(self, node: SimNode) -> None:
        super().stop(node)
        served = self.served(node)
        served.tables = None
        served.cursors.clear()
        served.taken.clear()
        if served.service is not None:
            service, served.service = served.service, None
            service.end()

    def lose_disk(self, node: SimNode) -> None:
        super().lose_disk(node)
        self.served(node).files = MemoryFiles()

    # --- roles

    def end_role(self, node: ElectedNode) -> None:
        self.service_of(node).fence("the role ends")
        self.served(node).tables = None
        super().end_role(node)

    def fence(self, node: ElectedNode, reason: str) -> None:
        super().fence(node, reason)
        self.service_of(node).fence(reason)

    def hold_puts(self, node: ElectedNode, reason: str) -> None:
        super().hold_puts(node, reason)
        self.service_of(node).hold_puts(reason)

    def lead(self, node: ElectedNode, won: WonTerm, keeper: RecordKeeper, uuid: str) -> None:
        super().lead(node, won, keeper, uuid)
        served, master, process = self.served(node), node.master, node.process
        assert master is not None
        assert process is not None
        assert isinstance(node.store, ServedStore)
        served.tables = MetadataSource(tables_of(node.store), self.clock)
        served.cursors.clear()
        served.tables.refresh()
        versions = served.tables.versions()
        master.group.needed_tables = {kind: versions[kind] for kind in PROMISED_TABLES}
        self.service_of(node).lead(master.group, self.config(node.name), process.agent.lease_fault)

    def follow(self, node: ElectedNode, leader: LeaderValue, unclean_epoch: int, uuid: str) -> None:
        super().follow(node, leader, unclean_epoch, uuid)
        self.service_of(node).follow(leader)

    def describe_cluster(self, node: ServedNode) -> admin_pb2.DescribeClusterResponse:
        """As the admin service: the node's own row, and whom it takes for the master."""
        process, master = node.process, node.master
        assert process is not None
        own = common_pb2.NodeStatus(
            node_id=node.name,
            endpoint=f"{node.name}:1",
            role=common_pb2.SLAVE if master is None else common_pb2.MASTER,
            epoch=self.state(node).accepted_epoch if master is None else master.group.view.epoch,
        )
        rows, leads = [own], "" if master is None else node.name
        if master is None and process.following is not None:
            leader = process.following
            leads = leader.node_id
            rows.append(
                common_pb2.NodeStatus(
                    node_id=leads,
                    endpoint=f"{leads}:1",
                    role=common_pb2.MASTER,
                    epoch=leader.epoch,
                )
            )
        return admin_pb2.DescribeClusterResponse(
            cluster_id="sim", answered_by=node.name, master_id=leads, nodes=rows
        )

    # --- tables beside the log

    def pump(self, node: SimNode) -> None:
        super().pump(node)
        served, master = self.served(node), node.master
        if master is None or served.tables is None:
            return
        served.tables.refresh()
        for session, stream in master.streams:
            if session.streaming:
                cursor = served.cursors.setdefault(stream.serial, TableCursor(served.tables))
                while (frame := cursor.frame()) is not None:
                    stream.send_to_slave(frame)

    def connect(self, node: SimNode) -> None:
        if node.slave is not None and node.slave.session is None:
            self.served(node).taken.clear()
        super().connect(node)

    def ran(self, node: SimNode, batch: list[StoreAction]) -> None:
        taken = self.served(node).taken
        taken += [each for each in batch if isinstance(each, ReplaceTable)]

    def settled(self, node: SimNode) -> None:
        taken, slave = self.served(node).taken, node.slave
        for each in taken:
            if slave is not None and slave.session is not None:
                table = each.update
                self.obey_slave(
                    node, slave.session.table_replaced(table.kind, table.version, self.now)
                )
        taken.clear()


class ServedWorld(ServedNodes):
    """See the module."""

    def __init__(self, seed: int, flush: FlushMode, mode: Replication = Replication.SYNC) -> None:
        super().__init__(seed, flush, mode)
        self.expires = 0.0
        self.may_force = False
        chosen = Random(f"clients of {seed}")
        self.besieged = chosen.random() < 0.7
        self.orphaned = chosen.random() < 0.3
        self.curious = 0.05 if chosen.random() < 0.3 else 0.0
        self.siege: Siege | None = None
        self.leading: tuple[str, int] = "", 0
        self.unwell_at = 0.0
        self.promises = Promises(self)
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.names = 0
        self.wanted = self.some_readers(chosen)

    def begin(self) -> None:
        """Nodes and clients start."""
        for node in self.elected:
            self.start(node)
        self.producers += [Producer(f"p{number}", self.clock, self.promises) for number in range(2)]
        for group, start in self.wanted:
            self.start_reader(group, start)

    def some_readers(self, chosen: Random) -> list[tuple[str | None, str]]:
        """The group that each belongs to, and where it starts."""
        found: list[tuple[str | None, str]] = [(None, EARLIEST)]
        found += [("g", EARLIEST)] * chosen.randint(1, 2)
        if chosen.random() < 0.4:
            found.append(("late", LATEST))
        return found

    @property
    def clients(self) -> list[Client]:
        return [*self.producers, *self.readers]

    def start_reader(self, group: str | None, start: str) -> None:
        self.names += 1
        name = f"{group or 'alone'}-{self.names}"
        self.readers.append(Reader(name, self.clock, self.promises, group, start))

    def answering(self, node: ServedNode, method: str, request: Any) -> Callable[[Any], None]:
        return self.promises.answering(node, method, request)

    def promised(self, node: ServedNode, pending: PendingPut, result: PutResult) -> None:
        super().promised(node, pending, result)
        self.promises.acknowledged(node)

    def check_leader(self, node: ElectedNode) -> None:
        super().check_leader(node)
        if isinstance(node.store, ServedStore):
            self.promises.check_leader(node, node.store)

    # --- the loops

    def run_loops(self) -> None:
        """Every process that does not stand still, until all is quiet."""
        for _ in range(ROUNDS):
            busy = False
            for client in self.clients:
                if client.loop.is_ready:
                    busy = True
                    client.loop.run_ready()
            for node in self.elected:
                service = self.served(node).service
                if service is not None and self.awake(node) and service.loop.is_ready:
                    busy = True
                    self.guarded(node, service.loop.run_ready)
            if not busy:
                return
        raise ViolationError("nodes and clients do not come to rest")

    # --- events

    def put(self) -> None:
        producer = self.rng.choice(self.producers)
        if producer.waiting < 6:
            self.serial += 1
            producer.send(b"m%d" % self.serial, self.rng.randrange(QUEUES))

    def step(self) -> None:
        siege = self.siege
        if siege is None:
            if self.rng.random() < 0.01 and (self.besieged or self.orphaned):
                self.lay_siege()
            super().step()
        elif siege.of_all:
            if self.rng.random() < 0.2:
                self.put()
            self.clock.advance(0.05)
            self.calm()
        else:
            self.press(siege)
            if self.leader() is None:
                self.clock.advance(self.rng.choice((0.0, 0.0, 0.02, 0.1)))
            super().step()
        if siege is not None and self.now >= siege.until:
            self.siege = None
        if self.rng.random() < self.curious:
            self.promises.ask()
        self.run_loops()
        self.look_how_all_are()

    def calm(self) -> None:
        super().calm()
        self.run_loops()

    def look_how_all_are(self) -> None:
        """Whether nothing but the coordinator is away, and since when."""
        leader = next(
            (each for each in self.elected if each.master and each.leads == self.leading[1]), None
        )
        well = (
            leader is not None
            and self.mode.waits
            and leader.master is not None
            and not leader.master.group.acts_alone()
            and self.leading == (leader.name, leader.leads)
            and all(self.awake(each) for each in self.elected)
            and all(each is leader or (each.slave and each.slave.session) for each in self.elected)
            and not any(until > self.now for until in self.cuts.values())
            and not any(each.frozen_until > self.now for each in self.streams)
        )
        newest = max(self.elected, key=lambda each: each.leads if each.master else 0)
        if not well or newest.leads != self.leading[1]:
            self.unwell_at = self.now
        self.leading = newest.name, newest.leads
        self.promises.look()

    def misfortune(self, node: ElectedNode) -> None:
        if self.siege is not None and self.rng.random() < 0.7:
            return  # it is misfortune enough
        kind = self.rng.random()
        if kind < 0.08:
            self.break_a_stream()
        elif kind < 0.16:
            self.kill_a_reader()
        else:
            super().misfortune(node)

    def break_a_stream(self) -> None:
        """A connection between a producer and a node; answers are lost with it."""
        streams = [stream for service in self.services for stream in service.streams]
        if streams:
            self.rng.choice(streams).break_off("connection reset")

    def kill_a_reader(self) -> None:
        """Another process takes its place."""
        members = [each for each in self.readers if each.group is not None]
        if members:
            member = self.rng.choice(members)
            self.note(f"{member.name} is killed")
            self.count("readers killed")
            self.readers.remove(member)
            member.kill()
            self.promises.gone(member)
            self.start_reader(member.group, str(member.start))

    def lay_siege(self) -> None:
        until = self.now + self.rng.uniform(15.0, 40.0)
        if self.orphaned and (not self.besieged or self.rng.random() < 0.3):
            self.siege = Siege(until + 20.0, NODES)
            self.count("the coordinator alone is away")
        else:
            leader = self.leader()
            cut = [leader.name] if leader is not None and self.rng.random() < 0.8 else []
            others = [name for name in NODES if name not in cut]
            cut += self.rng.sample(others, self.rng.randint(0, 2 - len(cut)) or (not cut))
            kills, after_s = self.rng.randint(1, 3), self.rng.uniform(0.0, 3.0)
            self.siege = Siege(until, tuple(cut), kills, after_s)
            self.count("sieges")
        self.note(f"{self.siege.cut} are cut from the coordinator until {self.siege.until:.3f}")
        self.keep_cut(self.siege)

    def keep_cut(self, siege: Siege) -> None:
        for name in siege.cut:
            self.coordination.cut[name] = max(self.coordination.cut.get(name, 0.0), siege.until)

    def press(self, siege: Siege) -> None:
        """Whoever is elected in the siege is killed."""
        self.keep_cut(siege)
        leader = self.leader()
        if leader is None or leader.name in siege.cut:
            siege.leads = ""
        elif siege.leads != leader.name:
            siege.leads, siege.since = leader.name, self.now
        elif siege.kills and self.now - siege.since >= siege.after_s:
            siege.kills -= 1
            siege.after_s = self.rng.uniform(0.0, 3.0)
            self.note(f"{leader.name} is killed in the siege")
            self.count("leaders killed in a siege")
            self.stop(leader)

    # --- the end

    def heal(self) -> None:
        """Nodes heal, then all clients have what is theirs."""
        self.siege = None
        super().heal()
        self.calm_until(lambda: not any(each.waiting for each in self.producers), ANSWERED_WITHIN_S)
        waiting = {each.name: each.waiting for each in self.producers if each.waiting}
        if waiting:
            raise ViolationError(f"producers get no answers: {waiting}")
        super().heal()
        leader = self.leader()
        assert leader is not None
        assert isinstance(leader.store, ServedStore)
        store = leader.store
        self.calm_until(lambda: not self.promises.unread(store), READ_WITHIN_S)
        self.promises.check_read(store)

    def calm_until(self, done: Callable[[], bool], seconds: float) -> None:
        until = self.now + seconds
        while self.now < until and not done():
            self.calm()

    def close(self) -> None:
        for node in self.elected:
            self.stop(node)
        for client in self.clients:
            client.kill()
