"""A master and its slaves in one thread: the real protocol code, a seeded world around it.

    client puts ──▶ master's FakeStore ──▶ group, sessions ──FakeStream──▶ session ──▶ FakeStore
                                                                           (SlaveStore)

This module moves frames and store calls as the gRPC shells do; `ha_world` decides when, breaks
things, and checks. What was acknowledged to a client is kept here and compared with the disks.
"""

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from random import Random

from fakes.clock import FakeClock
from fakes.fake_store import FakeDisk, FakeStore
from fakes.stream import FakeStream
from sim.ha_nodes import (
    NODES,
    Comparison,
    CrashError,
    MasterSide,
    Put,
    SimNode,
    SlaveSide,
    ViolationError,
    holds,
)
from tandemlog.v1.common_pb2 import NodeStatus
from tandemlog_server.ha.config import HaConfig, Replication, Role
from tandemlog_server.ha.errors import DivergedError
from tandemlog_server.ha.master import term as master_term
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.session import (
    Close,
    MasterAction,
    MasterSession,
    SendAnswer,
    SendChunk,
    SendPrologue,
    SendRefusal,
)
from tandemlog_server.ha.protocol.frames import (
    Ack,
    Hello,
    MemberList,
    SlaveFrame,
    decode_slave_frame,
    encode_master_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.handshake import proven_prefix
from tandemlog_server.ha.protocol.log_crc import log_crc
from tandemlog_server.ha.protocol.prologue import prologue_frames
from tandemlog_server.ha.slave.session import (
    Disconnect,
    Prepared,
    SeeMembers,
    Send,
    SlaveAction,
    SlaveSession,
    StoreAction,
)
from tandemlog_server.ha.slave.store import SlaveStore
from tandemlog_server.ha.state import HaState, Member, decode_state, encode_state
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.errors import StoreError

known_state = lru_cache(maxsize=256)(decode_state)


class Cluster:
    """See the module."""

    def __init__(self, seed: int, flush: FlushMode, *, min_in_sync: int = 2) -> None:
        self.rng = Random(seed)
        self.flush = flush
        self.min_in_sync = min_in_sync
        self.clock = FakeClock()
        self.nodes = self.make_nodes()
        self.master_name = "a"
        self.streams: list[FakeStream] = []
        self.stale_acks: list[tuple[str, bytes]] = []
        self.pending: list[Put] = []
        self.lost: dict[Member, FakeDisk] = {}
        self.acked: dict[int, Put] = {}
        self.history: deque[str] = deque(maxlen=60)
        self.counters: dict[str, int] = {}
        self.serial = 0
        self.trouble = self.rng.choice((0.05, 0.2, 0.6))
        # in some worlds every comparison, or every preparation, takes longer than a silent peer is
        # given
        disks = Random(f"disks of {seed}")
        self.record_s = (0.0, 0.0, 0.3, 1.5)
        self.compare_s = disks.choice((0.0, 0.0, 5.0))
        self.prepare_s = disks.choice((0.0, 0.0, 0.0, 4.0))

    def make_nodes(self) -> dict[str, SimNode]:
        return {name: SimNode(name, FakeDisk(file_size=512)) for name in NODES}

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def config(self, name: str) -> HaConfig:
        return HaConfig(
            cluster_id="sim",
            node_id=name,
            role=Role.MASTER if name == self.master_name else Role.SLAVE,
            endpoint=f"{name}:1",
            master_endpoint=f"{self.master_name}:1",
            mode=Replication.SYNC,
            min_in_sync=self.min_in_sync,
            chunk_bytes=100,
            window_bytes=400,
            proof_bytes=64,
            checksum_block_bytes=64,
            log_first_bytes=300,
            log_first_ms=500,
        )

    # --- processes

    def state(self, node: SimNode) -> HaState:
        if node.disk.state:
            return known_state(node.disk.state)
        state = HaState("sim", node.name, self.incarnation())
        node.disk.state = encode_state(state)
        return state

    def remember(self, node: SimNode, state: HaState) -> None:
        """The master's state, durable on return."""
        node.disk.state = encode_state(state)

    def incarnation(self) -> str:
        self.serial += 1
        return f"i{self.serial}"

    def saver(self, node: SimNode) -> Callable[[HaState], None]:
        def save(state: HaState) -> None:
            node.before("save")
            if state.incarnation != self.state(node).incarnation:
                self.remember_lost(node)
            node.disk.state = encode_state(state)

        return save

    def power_cut(self, node: SimNode, kept: Random | None = None) -> None:
        node.disk.power_cut(kept or self.rng)

    def remember_lost(self, node: SimNode) -> None:
        """The disk of this incarnation goes: what it held is kept for the checks."""
        if node.disk.state:
            member = Member(node.name, self.state(node).incarnation)
            self.lost[member] = copy.deepcopy(node.disk)

    def lose_disk(self, node: SimNode) -> None:
        self.remember_lost(node)
        node.disk.wipe()

    def start(self, node: SimNode) -> None:
        if node.store is not None:
            return
        node.lives += 1
        node.store = FakeStore(node.disk, node.before, self.flush)
        node.lowest_confirm = node.store.confirmed.value
        state = self.state(node)
        if node.name != self.master_name:
            node.slave = SlaveSide(
                SlaveStore(
                    node.store,
                    state,
                    self.saver(node),
                    self.incarnation,
                    self.config(node.name),
                    self.clock,
                )
            )
            return
        config = self.config(node.name)
        term = master_term.begin_term(node.store, state, self.saver(node), config)
        own = master_term.own_position(node.store)
        node.master = MasterSide(
            MasterGroup(config, term.me, term.view, term.record, own, self.now)
        )
        self.note(f"{node.name} master of epoch {term.view.epoch} at {node.store.log.wrote.value}")

    def stop(self, node: SimNode) -> None:
        """The process is gone; streams break."""
        if node.master is not None:
            for _, stream in node.master.streams:
                stream.cut(self.rng)
            self.pending.clear()
        if node.slave is not None and node.slave.stream is not None:
            node.slave.stream.cut(self.rng)
        node.store = node.master = node.slave = None
        node.crash_in = -1

    def guarded(self, node: SimNode, call: Callable[[], None]) -> None:
        try:
            call()
        except CrashError as crash:
            self.note(f"{node.name} dies in {crash}")
            self.stop(node)
            if self.rng.random() < 0.5:
                self.power_cut(node)

    # --- the slave's side

    def connect(self, node: SimNode) -> None:
        slave, master = node.slave, self.nodes[self.master_name].master
        if slave is None or slave.session is not None or self.now < slave.retry_at:
            return
        if master is None:
            slave.retry_at = self.now + 0.2
            return
        config = self.config(node.name)
        hello = Hello("sim", node.name, "", endpoint=f"{node.name}:1")
        hello, me = slave.stored.greeting(hello, distrust=slave.distrust)
        self.serial += 1
        stream = FakeStream(self.serial)
        self.streams.append(stream)
        slave.stream = stream
        slave.session = SlaveSession(hello, me, config, self.now)
        slave.work.clear()
        slave.busy_until = 0.0
        master.streams.append((master.group.open(self.now), stream))
        self.obey_slave(node, slave.session.start(self.now))

    def obey_slave(self, node: SimNode, actions: list[SlaveAction]) -> None:
        slave = node.slave
        if slave is None:
            return
        for action in actions:
            if isinstance(action, Send):
                data = encode_slave_frame(action.frame)
                if isinstance(action.frame, Ack):
                    self.stale_acks.append((node.name, data))
                    del self.stale_acks[:-200]
                if slave.stream is not None:
                    slave.stream.send_to_master(data)
            elif isinstance(action, Disconnect):
                self.disconnect(node, action)
            elif not isinstance(action, SeeMembers):
                slave.work.append(action)
                if isinstance(action, Prepared):
                    slave.busy_until = self.now + self.prepare_s

    def disconnect(self, node: SimNode, why: Disconnect) -> None:
        slave = node.slave
        if slave is None or slave.session is None:
            return
        self.note(f"{node.name} disconnects: {why.reason}")
        slave.busy_until = 0.0
        while slave.work and slave.session.state.value == "closed" and node.store is not None:
            # what was received is stored before the next hello, as the worker does
            self.work(node, len(slave.work))
            if node.slave is not slave:
                return
        if slave.stream is not None:
            slave.stream.slave_open = False
        slave.session = slave.stream = None
        slave.refused = why.reason if why.refused else ""
        slave.retry_at = self.now + (1.0 if why.refused else self.rng.random() * 0.3)

    def work(self, node: SimNode, count: int) -> None:
        slave = node.slave
        if slave is None or slave.session is None or not (slave.work or slave.unsettled):
            return
        if self.now < slave.busy_until:
            return
        batch = [slave.work.popleft() for _ in range(min(count, len(slave.work)))]
        session = slave.session
        self.ran(node, batch)
        try:
            prepared = slave.stored.run(batch)
            if not prepared and self.rng.random() < 0.3:
                slave.unsettled = True  # the flush thread is slower
                return
            slave.unsettled = False
            outcome = slave.stored.flush()
        except DivergedError as diverged:
            self.note(f"{node.name} diverged: {diverged}")
            self.count("diverged")
            slave.distrust = True
            slave.work.clear()
            self.obey_slave(node, [Disconnect("diverged")])
            return
        except StoreError as fault:
            slave.broken = str(fault)
            slave.work.clear()
            self.obey_slave(node, session.failed(str(fault), self.now))
            return
        if prepared:
            slave.distrust = False
            self.obey_slave(node, session.prepared(outcome.durable, outcome.reput, self.now))
        else:
            self.obey_slave(node, session.stored(outcome.durable, outcome.reput, self.now))
        self.settled(node)

    def ran(self, node: SimNode, batch: list[StoreAction]) -> None:
        """A slave's store executes these."""

    def settled(self, node: SimNode) -> None:
        """What it has executed is durable."""

    # --- the master's side

    def obey_master(
        self, node: SimNode, session: MasterSession, stream: FakeStream, actions: list[MasterAction]
    ) -> None:
        store = node.store
        if store is None:
            return
        for action in actions:
            if isinstance(action, SendAnswer):
                answer = action.answer
                crc = self.proof_crc(store, answer.proof_start, answer.offset)
                stream.send_to_slave(encode_master_frame(replace(answer, proof_crc=crc)))
            elif isinstance(action, SendPrologue):
                for frame in prologue_frames(store, action.offset):
                    stream.send_to_slave(frame)
            elif isinstance(action, SendRefusal):
                self.count("refused")
                stream.send_to_slave(encode_master_frame(action.refusal))
            elif isinstance(action, SendChunk):
                data = store.log.read(action.offset, action.length) if action.length else b""
                stream.send_to_slave(encode_master_frame(action.frame(data, self.clock.now_ms())))
            elif isinstance(action, Close):
                stream.master_open = False

    def proof_crc(self, store: FakeStore, start: int, end: int) -> int:
        return log_crc(store, start, end)

    def positions(self, node: SimNode) -> None:
        store, master = node.store, node.master
        if store is None or master is None:
            return
        confirm = master.group.positions(
            own=master_term.own_position(store),
            end=store.log.committed.value,
            minimum=store.log.min_offset,
            now=self.clock.monotonic(),
        )
        store.advance_confirmed(confirm)
        self.acknowledge(node)

    def acknowledge(self, node: SimNode) -> None:
        """Clients whose puts are confirmed get their answer: now the promise holds."""
        store, master = node.store, node.master
        if store is None or master is None:
            return
        confirm = master.group.tracker.value
        for put in [put for put in self.pending if put.end <= confirm]:
            self.pending.remove(put)
            held = self.acked.get(put.start)
            if held is not None and held != put:
                raise ViolationError(f"two records acknowledged at {put.start}")
            self.acked[put.start] = put
            self.count("acked")
            self.check_members(node, put)

    def check_recorded(self, master: SimNode) -> None:
        """All that is acknowledged is durable on the set that was just recorded."""
        for put in self.acked.values():
            if put.start >= master.disk.start:
                self.check_members(master, put)

    def check_members(self, master: SimNode, put: Put) -> None:
        """An acknowledged record is durable on every member of the record on disk."""
        members = decode_state(master.disk.state).record.members
        if len(members) < self.min_in_sync:
            raise ViolationError(f"acknowledged {put.start} with the set {members}")
        for member in members:
            node = self.nodes[member.node_id]
            state = self.state(node)
            disk = node.disk
            if state.incarnation != member.incarnation:
                # it may have been lost since it acknowledged
                disk = self.lost.get(member, FakeDisk())
            if put.start < disk.start:
                continue  # its master had dropped that by retention
            written = node is master and self.flush is FlushMode.ASYNC
            end = disk.end if written else disk.durable
            if end < put.end or not holds(disk, put):
                raise ViolationError(
                    f"acknowledged {put.start}..{put.end} is not on {member}, which holds "
                    f"{disk.start}..{end}"
                )

    def deliver(self, node: SimNode, session: MasterSession, stream: FakeStream) -> None:
        """One frame of a slave reaches the master."""
        master = node.master
        if master is None or not stream.to_master:
            return
        frame = decode_slave_frame(stream.to_master.popleft())
        if isinstance(frame, Hello) and frame.checksums and node.store is not None:
            store = node.store
            proven = proven_prefix(
                frame.checksums, master.group.view, lambda start, end: log_crc(store, start, end)
            )
            frame = replace(frame, proven=proven)
            if self.compare_s:
                done_at = self.now + self.compare_s
                master.comparing[session] = Comparison(frame, done_at, self.now)
                return
        self.hear(node, master, session, stream, frame)

    def hear(
        self,
        node: SimNode,
        master: MasterSide,
        session: MasterSession,
        stream: FakeStream,
        frame: SlaveFrame,
    ) -> None:
        """One frame of a slave is taken in."""
        if session.state.value == "closed":
            return
        self.obey_master(node, session, stream, master.group.receive(session, frame, self.now))
        if master.group.seen_epoch > master.group.view.epoch:
            seen = master.group.seen_epoch
            self.remember(node, replace(self.state(node), accepted_epoch=seen))
        self.positions(node)

    def compare(
        self, node: SimNode, master: MasterSide, session: MasterSession, stream: FakeStream
    ) -> None:
        """Go on with a comparison that takes its time."""
        comparison = master.comparing[session]
        if self.now >= comparison.done_at:
            del master.comparing[session]
            self.count("slow comparisons")
            self.hear(node, master, session, stream, comparison.hello)
        elif self.now - comparison.shown_at >= 0.3:
            comparison.shown_at = self.now
            self.show_life(stream)

    def show_life(self, stream: FakeStream) -> None:
        stream.send_to_slave(encode_master_frame(MemberList(())))

    def pump(self, node: SimNode) -> None:
        """Everything that the master's loop does between two events."""
        master = node.master
        if master is None:
            return
        for session, stream in list(master.streams):
            if session in master.comparing:
                self.compare(node, master, session, stream)
            else:
                self.obey_master(node, session, stream, session.tick(self.now))
            if stream.master_open and self.rng.random() < 0.8:
                self.obey_master(node, session, stream, session.pump(self.now))
            ended = not stream.slave_open and not stream.to_master
            if ended or not stream.master_open:
                master.group.closed(session, "the stream ended")
                stream.master_open = False
                master.comparing.pop(session, None)
                master.streams.remove((session, stream))
        store = node.store
        waits = master.group.config.mode.waits
        due = store is not None and waits and master.idleness.is_due(store.log, self.now)
        if due and store is not None and store.count_flushed():
            master.idleness.noted()
        record = master.group.tick(self.now)
        if record is not None:
            master.persisting = record
            master.persist_at = self.now + self.rng.choice(self.record_s)

    def persist(self, node: SimNode) -> None:
        """The two halves of recording a set: on disk, then known."""
        master = node.master
        if master is None:
            return
        if master.persisting is not None:
            record = master.persisting
            self.note(f"{node.name} records {sorted(m.node_id for m in record.members)}")
            self.remember(node, replace(self.state(node), record=record))
            master.persisting, master.written = None, record
            self.check_recorded(node)
        elif master.written is not None and self.now >= master.persist_at:
            record, master.written = master.written, None
            master.group.persisted(record)
            self.tell_members(master)
            self.positions(node)

    def tell_members(self, master: MasterSide) -> None:
        """As the list of members does every second."""
        rows = [NodeStatus(node_id=each.node_id, in_sync=True) for each in master.group.set.members]
        frame = encode_master_frame(MemberList(tuple(rows)))
        for session, stream in master.streams:
            if session.streaming:
                stream.send_to_slave(frame)

    # --- what happened

    def note(self, text: str) -> None:
        self.history.append(f"{self.now:.3f} {text}")

    def count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1
