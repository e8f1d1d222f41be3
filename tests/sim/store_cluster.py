"""Processes and streams of a cluster of real stores: ha_cluster's code over real disks.

    client ──▶ master's MessageStore ──▶ group, sessions ──FakeStream──▶ session ──▶ MessageStore
                   files, clock                                            files, clock

Nothing of a store runs by itself here: dispatch, fsync, checkpoints and retention are events of
the world (store_world.py). A process dies where its disk says so: in the middle of any call.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random

from sim.ha_cluster import Cluster
from sim.ha_nodes import SlaveSide
from sim.store_disk import NodeDeathError, NodeFiles
from sim.store_ledger import Ledger
from sim.store_nodes import CONFIG, DIRECTORY, NodeClock, StoreMaster, StoreNode
from sim.store_requests import Producer  # noqa: TC001
from tandemlog.format.errors import FormatError
from tandemlog_server.ha.config import HaConfig, Replication, Role
from tandemlog_server.ha.errors import ChunkDamagedError, DivergedError, HaError, LogMovedError
from tandemlog_server.ha.master import term as master_term
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.metadata_sync import MetadataSource, TableCursor
from tandemlog_server.ha.replication_file import StateFile
from tandemlog_server.ha.slave.session import Disconnect, ReplaceTable
from tandemlog_server.ha.slave.store import SlaveStore
from tandemlog_server.ha.state import HaState, InSyncRecord, decode_state
from tandemlog_server.ha.store_port import GROUPS, TOPICS, tables_of
from tandemlog_server.storage.config import FlushMode, StoreConfig
from tandemlog_server.storage.errors import FlushFailedError, StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig


class StoreCluster(Cluster):
    """See the module. `size` nodes; one alone confirms for itself."""

    def __init__(self, seed: int, size: int, settings: StoreConfig = CONFIG) -> None:
        self.size = size
        self.settings = settings
        super().__init__(seed, settings.flush, min_in_sync=min(2, size))
        self.compare_s = self.prepare_s = 0.0
        self.record_s = (0.0, 0.0, 0.03, 0.15)
        self.history = deque(maxlen=300)
        self.ledger = Ledger()
        self.producers: list[Producer] = []
        self.newest_record = InSyncRecord()
        # whether producers are forgotten after their retention time
        self.forgets = False
        # whether the master's tables come late, as those that take long to encode
        self.tables_wait = False

    def make_nodes(self) -> dict[str, StoreNode]:
        nodes = {}
        for name in "abc"[: self.size]:
            clock = NodeClock(self.clock)
            nodes[name] = StoreNode(name, clock, NodeFiles(clock))
        return nodes

    @property
    def master(self) -> StoreNode:
        return self.nodes[self.master_name]

    def config(self, name: str) -> HaConfig:
        several = self.size > 1
        return replace(
            super().config(name),
            role=Role.MASTER if name == self.master_name else Role.SLAVE,
            mode=Replication.SYNC if several else Replication.ASYNC,
            chunk_bytes=1500,
            window_bytes=6000,
            log_first_bytes=6000,
            heartbeat_ms=5,
            dead_after_ms=300,
            replica_lag_time_ms=300,
            rejoin_ms=30,
            proof_bytes=256,
            checksum_block_bytes=1024,
            metadata_interval_ms=100,
        )

    # --- processes

    def state_file(self, node: StoreNode) -> StateFile:
        return StateFile(DIRECTORY, node.files)

    def load_state(self, node: StoreNode) -> HaState:
        """As the node does it at its start, but for the name of a new disk, which chance gives
        there."""
        file = self.state_file(node)
        if node.files.status(file.path) is None:
            file.save(HaState("sim", node.name, self.incarnation()))
        return file.load(self.config(node.name))

    def saver(self, node: StoreNode) -> Callable[[HaState], None]:
        return self.state_file(node).save

    def remember(self, node: StoreNode, state: HaState) -> None:
        self.state_file(node).save(state)
        node.master.state = state

    def state(self, node: StoreNode) -> HaState:
        """Of a master that is up."""
        return node.master.state

    def start(self, node: StoreNode) -> None:
        if node.store is not None:
            return
        node.lives += 1
        self.count("opens")
        try:
            with node.troubled():
                self.open(node)
        except (StoreError, HaError, OSError) as fault:  # of a real node the process ends
            self.note(f"{node.name} does not start: {fault}")
            self.count("failed opens")
            self.stop(node)

    def open(self, node: StoreNode) -> None:
        """Open the store and take the configured role. Raises StoreError and HaError."""
        node.refused_before = node.files.refused
        node.store = store = opened(self.settings, node.files, node.clock)
        node.lowest_confirm = 0
        state = self.load_state(node)
        config = self.config(node.name)
        said = "; ".join(store.recovery.lines())
        node.short |= bool(store.doubt) and self.settings.flush is FlushMode.ASYNC
        if node.name != self.master_name:
            stored = SlaveStore(
                store, state, self.saver(node), self.incarnation, config, node.clock
            )
            store.become_slave()
            node.slave = SlaveSide(stored, distrust=bool(store.epochs.note))
            self.note(f"{node.name} opens as slave: {said}")
            return
        term = master_term.begin_term(store, state, self.saver(node), config)
        own = master_term.own_position(store)
        group = MasterGroup(config, term.me, term.view, term.record, own, self.now)
        tables = MetadataSource(tables_of(store), node.clock)
        tables.refresh()
        versions = tables.versions()
        group.needed_tables = {kind: versions[kind] for kind in (TOPICS, GROUPS)}
        node.master = StoreMaster(group, tables=tables, state=term.state)
        self.note(f"{node.name} master of epoch {term.view.epoch} at {own}: {said}")
        self.positions(node)

    def stop(self, node: StoreNode) -> None:
        """The process is gone (SIGKILL); streams break."""
        super().stop(node)
        node.answers.clear()
        node.new_topics.clear()
        node.files.rest()

    def close(self, node: StoreNode) -> None:
        """The process ends as it should."""
        if node.store is not None:
            node.store.close()
        self.stop(node)

    def power_cut(self, node: StoreNode, kept: Random | None = None) -> None:
        held = node.log_bytes()
        node.files.rest(power=True, kept=kept or self.rng)
        if self.settings.flush is FlushMode.ASYNC and node.log_bytes() != held:
            node.short = True

    def on(self, node: StoreNode) -> "Process":
        """Around what a node's process does: it may die in it, or its disk may be in trouble."""
        return Process(self, node)

    def died(self, node: StoreNode, where: NodeDeathError) -> None:
        self.note(f"{node.name} dies in {where}")
        self.count("deaths")
        self.stop(node)
        if self.rng.random() < 0.5:
            self.power_cut(node)

    def guarded(self, node: StoreNode, call: Callable[[], object]) -> None:
        with self.on(node):
            call()

    # --- the slave's side

    def work(self, node: StoreNode, count: int) -> None:
        slave = node.slave
        if slave is None or slave.session is None or not slave.work:
            return
        batch = [slave.work.popleft() for _ in range(min(count, len(slave.work)))]
        session = slave.session
        try:
            with node.troubled():
                prepared, outcome = slave.stored.run_and_flush(batch)
        except DivergedError as diverged:
            self.note(f"{node.name} diverged: {diverged}")
            self.count("diverged")
            slave.distrust = True
            slave.work.clear()
            self.obey_slave(node, [Disconnect("diverged")])
            return
        except (ChunkDamagedError, LogMovedError) as fault:
            self.note(f"{node.name}: {fault}")
            slave.work.clear()
            self.obey_slave(node, [Disconnect(str(fault))])
            return
        except (StoreError, FormatError, OSError) as fault:
            self.note(f"{node.name} cannot store: {fault}")
            slave.work.clear()
            closed = session.state.value == "closed"
            self.obey_slave(node, session.failed(str(fault), self.now))
            if isinstance(fault, FlushFailedError):
                slave.broken = str(fault)
            elif not closed:
                self.obey_slave(node, [Disconnect("storing the master's bytes failed")])
            return
        slave.distrust &= not prepared
        done = session.prepared if prepared else session.stored
        self.obey_slave(node, done(outcome.durable, outcome.reput, self.now))
        for action in batch:
            if isinstance(action, ReplaceTable):
                table = action.update
                self.obey_slave(node, session.table_replaced(table.kind, table.version, self.now))

    # --- the master's side

    def pump(self, node: StoreNode) -> None:
        super().pump(node)
        master = node.master
        if master is None:
            return
        master.tables.refresh()
        self.settle_topics(node)
        for session, stream in master.streams:
            if session.streaming and not self.tables_wait:
                cursor = master.sent.setdefault(stream.serial, TableCursor(master.tables))
                while (frame := cursor.frame()) is not None:
                    stream.send_to_slave(frame)

    def create_topic(self, topic: str) -> None:
        """On the master; who asked for it is answered when it is safe."""
        store = self.master.store
        store.topics.create(TopicConfig(topic, 2, 2), self.master.clock.now_ms())
        self.master.new_topics.append((topic, store.topics.version))

    def settle_topics(self, node: StoreNode) -> None:
        """As replication_server.table_replicated."""
        group = node.master.group
        for topic, version in list(node.new_topics):
            if group.tables_held(TOPICS, version):
                node.new_topics.remove((topic, version))
                group.needed_tables[TOPICS] = max(group.needed_tables[TOPICS], version)
                self.ledger.topics.add(topic)

    def check_recorded(self, master: StoreNode) -> None:
        """Whether they really hold it a promotion shows."""

    def acknowledge(self, node: StoreNode) -> None:
        """Clients whose puts are confirmed get their answer, in the order in which they asked."""
        store = node.store
        if store is None or node.master is None:
            return
        confirm = node.master.group.tracker.value
        for request in list(node.answers):
            if request.result is None or request.result.end_offset > confirm:
                continue
            node.answers.remove(request)
            if request.acknowledged:
                self.ledger.acknowledge(request, request.result, store)
                continue
            producer = next(each for each in self.producers if each.name == request.producer)
            if producer.chain and producer.chain[0] is request and self.rng.random() < 0.9:
                producer.chain.popleft()
                producer.done.append(request)
                self.ledger.acknowledge(request, request.result, store)
                self.count("acked")

    def note(self, text: str) -> None:
        if not self.history or not self.history[-1].endswith(text):
            super().note(text)

    # --- whether it could go on

    def kept_state(self, node: StoreNode) -> HaState | None:
        """What the node's disk says of its part in the cluster."""
        data = node.files.peek(self.state_file(node).path)
        return None if data is None else decode_state(data)

    def read_record(self) -> None:
        """What the operators know of the in-sync set, as a running master shows it: the set that a
        term begins with names who has to follow, not who has."""
        state = self.kept_state(self.master)
        if state is not None and state.record.settled:
            known = self.newest_record
            self.newest_record = max(
                known, state.record, key=lambda each: (each.epoch, each.version)
            )

    def in_sync(self) -> list[StoreNode]:
        """Who may become master now: the newest set that a master has settled, on the disks that it
        names. No operator takes a master without fsync whose machine has stopped, before it has
        followed."""
        self.read_record()
        found = []
        for member in sorted(self.newest_record.members):
            node = self.nodes[member.node_id]
            held = self.kept_state(node)
            if held is not None and held.incarnation == member.incarnation and not node.short:
                found.append(node)
        return found


class Process:
    """See StoreCluster.on."""

    __slots__ = ("_cluster", "_node", "_trouble")

    def __init__(self, cluster: StoreCluster, node: StoreNode) -> None:
        self._cluster = cluster
        self._node = node
        self._trouble = node.troubled()

    def __enter__(self) -> None:
        self._trouble.__enter__()

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> bool:
        if fault is None:
            return False
        self._trouble.__exit__(kind, fault, trace)
        cluster, node = self._cluster, self._node
        if isinstance(fault, NodeDeathError) and fault.files is node.files:
            cluster.died(node, fault)
            return True
        if isinstance(fault, StoreError | HaError | OSError):
            cluster.note(f"{node.name}: {fault}")
            cluster.count("refused by the disk")
            return True
        return False


def opened(settings: StoreConfig, files: NodeFiles, clock: NodeClock) -> MessageStore:
    store = MessageStore.open(settings, files=files, clock=clock)
    store._cleaner._sleep = lambda seconds: None
    return store
