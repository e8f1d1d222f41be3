"""A master and its slaves in one thread: the real protocol code, a seeded world around it.

    SimNode   a disk (FakeDisk) and, while it is up, a store with a master's group or a slave's
              session on it
    Cluster   streams, time, clients, an operator, and the checks after every step

A step is one random event: a put, an fsync, one frame of one stream delivered, a slave's store
working off a few actions, a tick, a cut, a kill (page cache kept), a power cut (only what was
fsynced is kept), a lost disk, retention, a record persisted. What was acknowledged to a client is
kept here and compared with the disks.
"""

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from fakes.clock import FakeClock
from fakes.fake_store import FakeDisk, FakeStore
from fakes.stream import FakeStream
from ha import master_term
from ha.config import HaConfig, Replication, Role
from ha.errors import DivergedError
from ha.frames import (
    Ack,
    Hello,
    decode_master_frame,
    decode_slave_frame,
    encode_master_frame,
    encode_slave_frame,
)
from ha.handshake import proven_prefix
from ha.master_group import MasterGroup
from ha.master_session import Close, MasterAction, MasterSession, SendAnswer, SendChunk, SendRefusal
from ha.slave_session import Disconnect, SeeMembers, Send, SlaveAction, SlaveSession, StoreAction
from ha.slave_store import SlaveStore, log_crc
from ha.state import HaState, InSyncRecord, decode_state, encode_state
from storage.config import FlushMode
from storage.errors import StoreError

NODES = ("a", "b", "c")


class Violation(AssertionError):
    """A promise of the protocol is broken."""


class Crash(Exception):
    """The process dies inside a call of the store."""


@dataclass
class MasterSide:
    """A master's term."""

    group: MasterGroup
    streams: list[tuple[MasterSession, FakeStream]] = field(default_factory=list)
    persisting: InSyncRecord | None = None
    written: InSyncRecord | None = None


@dataclass
class SlaveSide:
    """A slave's process."""

    stored: SlaveStore
    session: SlaveSession | None = None
    stream: FakeStream | None = None
    work: deque[StoreAction] = field(default_factory=deque)
    distrust: bool = False
    retry_at: float = 0.0
    refused: str = ""
    broken: str = ""


@dataclass
class SimNode:
    """One node; `store` is None while it is down."""

    name: str
    disk: FakeDisk
    store: FakeStore | None = None
    master: MasterSide | None = None
    slave: SlaveSide | None = None
    lives: int = 0
    crash_in: int = -1
    lowest_confirm: int = 0

    def before(self, call: str) -> None:
        if self.crash_in == 0:
            self.crash_in = -1
            raise Crash(call)
        if self.crash_in > 0:
            self.crash_in -= 1


@dataclass(frozen=True)
class Put:
    """A record that a client waits for."""

    start: int
    end: int
    data: bytes


class Cluster:
    """See the module."""

    def __init__(
        self, seed: int, flush: FlushMode, *, min_in_sync: int = 2, old_data: bool = False
    ) -> None:
        self.rng = Random(seed)
        self.flush = flush
        self.min_in_sync = min_in_sync
        self.clock = FakeClock()
        self.nodes = {name: SimNode(name, FakeDisk(file_size=512)) for name in NODES}
        self.master_name = "a"
        self.streams: list[FakeStream] = []
        self.stale_acks: list[tuple[str, bytes]] = []
        self.pending: list[Put] = []
        self.acked: dict[int, Put] = {}
        self.history: deque[str] = deque(maxlen=60)
        self.counters: dict[str, int] = {}
        self.serial = 0
        if old_data:
            self._old_data()

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def config(self, name: str) -> HaConfig:
        return HaConfig(
            cluster_id="sim",
            node_id=name,
            role=Role.MASTER if name == self.master_name else Role.SLAVE,
            endpoint=name,
            master_endpoint=self.master_name,
            replication=Replication.SYNC,
            min_in_sync=self.min_in_sync,
            chunk_bytes=100,
            window_bytes=400,
            proof_bytes=64,
            checksum_block_bytes=64,
        )

    # --- processes

    def state(self, node: SimNode) -> HaState:
        if node.disk.state:
            return decode_state(node.disk.state)
        state = HaState("sim", node.name, self.incarnation())
        node.disk.state = encode_state(state)
        return state

    def incarnation(self) -> str:
        self.serial += 1
        return f"i{self.serial}"

    def saver(self, node: SimNode) -> Callable[[HaState], None]:
        def save(state: HaState) -> None:
            node.before("save")
            node.disk.state = encode_state(state)

        return save

    def start(self, node: SimNode) -> None:
        if node.store is not None:
            return
        node.lives += 1
        node.store = FakeStore(node.disk, node.before, self.flush)
        node.lowest_confirm = node.store.confirmed.value
        state = self.state(node)
        if node.name != self.master_name:
            node.slave = SlaveSide(
                SlaveStore(node.store, state, self.saver(node), self.incarnation)
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
        except Crash as crash:
            self.note(f"{node.name} dies in {crash}")
            self.stop(node)
            if self.rng.random() < 0.5:
                node.disk.power_cut(self.rng)

    # --- the slave's side

    def connect(self, node: SimNode) -> None:
        slave, master = node.slave, self.nodes[self.master_name].master
        if slave is None or slave.session is not None or self.now < slave.retry_at:
            return
        if master is None:
            slave.retry_at = self.now + 0.2
            return
        config = self.config(node.name)
        hello = Hello("sim", node.name, "", endpoint=node.name)
        hello, me = slave.stored.greeting(hello, distrust=slave.distrust, block=64)
        self.serial += 1
        stream = FakeStream(self.serial)
        self.streams.append(stream)
        slave.stream = stream
        slave.session = SlaveSession(hello, me, config, self.now)
        slave.work.clear()
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

    def disconnect(self, node: SimNode, why: Disconnect) -> None:
        slave = node.slave
        if slave is None or slave.session is None:
            return
        self.note(f"{node.name} disconnects: {why.reason}")
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
        if slave is None or not slave.work or slave.session is None:
            return
        batch = [slave.work.popleft() for _ in range(min(count, len(slave.work)))]
        session = slave.session
        try:
            outcome = slave.stored.run(batch)
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
        if outcome.prepared:
            slave.distrust = False
            self.obey_slave(node, session.prepared(outcome.durable, outcome.reput, self.now))
        else:
            self.obey_slave(node, session.stored(outcome.durable, outcome.reput, self.now))

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
                crc = log_crc(store, answer.proof_start, answer.offset)
                stream.send_to_slave(encode_master_frame(replace(answer, proof_crc=crc)))
            elif isinstance(action, SendRefusal):
                self.count("refused")
                stream.send_to_slave(encode_master_frame(action.refusal))
            elif isinstance(action, SendChunk):
                data = store.log.read(action.offset, action.length) if action.length else b""
                stream.send_to_slave(encode_master_frame(action.frame(data, self.clock.now_ms())))
            elif isinstance(action, Close):
                stream.master_open = False

    def positions(self, node: SimNode) -> None:
        store, master = node.store, node.master
        if store is None or master is None:
            return
        confirm = master.group.positions(
            own=master_term.own_position(store),
            end=store.log.committed.value,
            minimum=store.log.min_offset,
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
                raise Violation(f"two records acknowledged at {put.start}")
            self.acked[put.start] = put
            self.count("acked")
            self.check_members(node, put)

    def check_members(self, master: SimNode, put: Put) -> None:
        """An acknowledged record is durable on every member of the record on disk."""
        members = decode_state(master.disk.state).record.members
        if len(members) < self.min_in_sync:
            raise Violation(f"acknowledged {put.start} with the set {members}")
        for member in members:
            node = self.nodes[member.node_id]
            state = self.state(node)
            if state.incarnation != member.incarnation:
                raise Violation(f"acknowledged {put.start} by a former disk of {node.name}")
            written = node is master and self.flush is FlushMode.ASYNC
            end = node.disk.end if written else node.disk.durable
            if end < put.end or not holds(node.disk, put):
                raise Violation(
                    f"acknowledged {put.start}..{put.end} is not on {node.name}, which holds "
                    f"{node.disk.start}..{end}"
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
        if session.state.value == "closed":
            return
        self.obey_master(node, session, stream, master.group.receive(session, frame, self.now))
        if master.group.seen_epoch > master.group.view.epoch:
            state = replace(self.state(node), accepted_epoch=master.group.seen_epoch)
            node.disk.state = encode_state(state)
        self.positions(node)

    def pump(self, node: SimNode) -> None:
        """Everything that the master's loop does between two events."""
        master = node.master
        if master is None:
            return
        for session, stream in list(master.streams):
            self.obey_master(node, session, stream, session.tick(self.now))
            if stream.master_open and self.rng.random() < 0.8:
                self.obey_master(node, session, stream, session.pump(self.now))
            ended = not stream.slave_open and not stream.to_master
            if ended or not stream.master_open:
                master.group.closed(session, "the stream ended")
                stream.master_open = False
                master.streams.remove((session, stream))
        record = master.group.tick(self.now)
        if record is not None:
            master.persisting = record

    def persist(self, node: SimNode) -> None:
        """The two halves of recording a set: on disk, then known."""
        master = node.master
        if master is None:
            return
        if master.persisting is not None:
            record, master.persisting = master.persisting, None
            self.note(f"{node.name} records {sorted(m.node_id for m in record.members)}")
            node.disk.state = encode_state(replace(self.state(node), record=record))
            master.written = record
        elif master.written is not None:
            record, master.written = master.written, None
            master.group.persisted(record)
            self.positions(node)

    # --- events

    def put(self) -> None:
        node = self.nodes[self.master_name]
        if node.store is None or node.master is None:
            return
        if node.master.group.admission(self.now) is not None:
            self.count("not admitted")
            return
        self.serial += 1
        payload = f"{self.serial}:".encode() + self.rng.randbytes(self.rng.randint(1, 120))
        start, end = node.store.append(payload)
        base = node.disk.start
        self.pending.append(Put(start, end, bytes(node.disk.data[start - base : end - base])))
        self.positions(node)

    def flush_master(self) -> None:
        node = self.nodes[self.master_name]
        if node.store is not None and node.master is not None:
            self.guarded(node, lambda: flushed(node.store))
            self.positions(node)

    def step(self) -> None:
        self.clock.advance(self.rng.choice((0.0, 0.001, 0.01, 0.05)))
        node = self.nodes[self.rng.choice(NODES)]
        kind = self.rng.random()
        if kind < 0.12:
            self.put()
        elif kind < 0.18:
            self.flush_master()
        elif kind < 0.42:
            self.pump(self.nodes[self.master_name])
        elif kind < 0.66:
            self.move_a_frame()
        elif kind < 0.82:
            self.guarded(node, lambda: self.work(node, self.rng.randint(1, 6)))
        elif kind < 0.90:
            self.guarded(node, lambda: self.connect(node))
            if node.slave is not None and node.slave.session is not None:
                session = node.slave.session
                self.guarded(node, lambda: self.obey_slave(node, session.tick(self.now)))
        elif kind < 0.94:
            self.persist(self.nodes[self.master_name])
        elif kind < 0.985:
            self.start_with_crashes(node)
        else:
            self.misfortune(node)
        self.check()

    def start_with_crashes(self, node: SimNode) -> None:
        if node.store is None:
            self.guarded(node, lambda: self.start(node))

    def move_a_frame(self) -> None:
        self.streams = [
            each
            for each in self.streams
            if (each.slave_open or each.to_master) and (each.master_open or each.to_slave)
        ]
        live = [each for each in self.streams if each.frozen_until <= self.now]
        if not live:
            return
        stream = self.rng.choice(live)
        if stream.to_master and (not stream.to_slave or self.rng.random() < 0.5):
            master = self.nodes[self.master_name]
            for session, each in master.master.streams if master.master else []:
                if each is stream:
                    self.deliver(master, session, stream)
                    return
            stream.to_master.clear()
            return
        for node in self.nodes.values():
            slave = node.slave
            if slave is None or slave.stream is not stream or slave.session is None:
                continue
            if stream.to_slave:
                frame = decode_master_frame(stream.to_slave.popleft())
                actions = slave.session.receive(frame, self.now)
                self.guarded(node, lambda: self.obey_slave(node, actions))
            elif not stream.master_open:
                self.guarded(node, lambda: self.obey_slave(node, [Disconnect("the stream ended")]))
            return
        stream.to_slave.clear()

    def misfortune(self, node: SimNode) -> None:
        kind = self.rng.random()
        if kind < 0.25 and self.streams:
            self.rng.choice(self.streams).cut(self.rng)
        elif kind < 0.40 and self.streams:
            self.rng.choice(self.streams).frozen_until = self.now + self.rng.random() * 5
        elif kind < 0.50:
            self.note(f"{node.name} killed")
            self.stop(node)
        elif kind < 0.60:
            self.note(f"{node.name} loses power")
            self.stop(node)
            node.disk.power_cut(self.rng)
        elif kind < 0.68:
            node.crash_in = self.rng.randint(0, 6)
        elif kind < 0.74:
            self.retention()
        elif kind < 0.82:
            self.replay_ack()
        elif kind < 0.86:
            self.lose_slave_disk(node)
        elif kind < 0.92:
            self.lose_master_disk()
        elif kind < 0.97:
            self.operator()
        else:
            self.clock.advance(self.rng.random() * 4)

    def replay_ack(self) -> None:
        """A proxy delivers an old acknowledgement on a newer stream of the same node."""
        master = self.nodes[self.master_name].master
        if master is None or not self.stale_acks:
            return
        name, data = self.rng.choice(self.stale_acks)
        for session, stream in master.streams:
            if session.hello is not None and session.hello.node_id == name:
                stream.to_master.appendleft(data)
                return

    def retention(self) -> None:
        node = self.nodes[self.master_name]
        if node.store is not None and node.disk.end - node.disk.start > 1500:
            limit = min(node.store.confirmed.value, node.disk.end - 600)
            node.store.drop_before(self.rng.randint(node.disk.start, max(limit, node.disk.start)))
            self.positions(node)

    def replaceable(self, node: SimNode) -> bool:
        """Whether all that is acknowledged is durable on another node too: one failure a time."""
        return all(
            any(
                holds(other.disk, put) and other.disk.durable >= put.end
                for other in self.nodes.values()
                if other is not node
            )
            for put in self.acked.values()
            if put.start >= self.nodes[self.master_name].disk.start
        )

    def lose_slave_disk(self, node: SimNode) -> None:
        if node.name == self.master_name or not self.replaceable(node):
            return
        master = self.nodes[self.master_name]
        if not all(holds(master.disk, put) for put in self.acked.values()):
            return
        self.note(f"{node.name} loses its disk")
        self.stop(node)
        node.disk.wipe()

    def lose_master_disk(self) -> None:
        """The master comes back empty, or the operator makes the best slave the master."""
        node = self.nodes[self.master_name]
        others = [each for each in self.nodes.values() if each is not node]
        if not self.replaceable(node):
            return
        if self.acked and not all(
            each.disk.state and self.state(each).accepted_epoch for each in others
        ):
            return
        self.note(f"{node.name} (master) loses its disk")
        self.count("master disk lost")
        self.stop(node)
        node.disk.wipe()
        if self.acked and self.rng.random() < 0.6:
            self.promote()

    def operator(self) -> None:
        """Someone looks at the alarms."""
        master = self.nodes[self.master_name].master
        if master is None:
            return
        refused = any(each.slave and each.slave.refused for each in self.nodes.values())
        if master.group.alarms or (refused and self.rng.random() < 0.3):
            self.promote()

    def promote(self) -> None:
        """The node with the newest epoch, then the longest log, becomes the master."""

        def rank(node: SimNode) -> tuple[int, int]:
            # an epoch in which nothing was written proves nothing: a wiped master has those too
            if node.disk.end == node.disk.start:
                return (-1, 0)
            last = node.disk.epochs.epoch_of(node.disk.end - 1)
            return (-1 if last is None else last, node.disk.end)

        refused = [node for node in self.nodes.values() if node.slave and node.slave.refused]
        for node in self.nodes.values():
            self.stop(node)
            node.disk.cut_torn_tail()
        best = max(self.nodes.values(), key=rank)
        if best.name == self.master_name:
            # nobody holds more than the master: those that it refused start over
            for node in refused:
                node.disk.wipe()
        self.note(f"operator: {best.name} becomes master")
        self.count("promoted")
        self.master_name = best.name

    # --- checks

    def check(self) -> None:
        for node in self.nodes.values():
            if node.store is None:
                continue
            confirmed = node.store.confirmed.value
            if confirmed < node.lowest_confirm and not node.disk.aside:
                raise Violation(f"{node.name}: confirm {node.lowest_confirm} -> {confirmed}")
            node.lowest_confirm = confirmed
            if node.slave is not None and confirmed > node.disk.durable:
                raise Violation(f"{node.name} confirms {confirmed}, has {node.disk.durable}")
        self.check_equal()

    def check_equal(self) -> None:
        """Logs are equal byte by byte up to the lower confirm offset of any two nodes."""
        up = [node for node in self.nodes.values() if node.store is not None]
        for first, second in zip(up, up[1:] + up[:1], strict=True):
            if first.store is None or second.store is None:
                continue
            low = max(first.disk.start, second.disk.start)
            high = min(first.store.confirmed.value, second.store.confirmed.value)
            if low < high and piece(first.disk, low, high) != piece(second.disk, low, high):
                raise Violation(f"{first.name} and {second.name} differ below {high}")

    def check_acked(self, node: SimNode) -> None:
        for put in self.acked.values():
            if put.start >= node.disk.start and not holds(node.disk, put):
                raise Violation(f"acknowledged {put.start}..{put.end} is not on {node.name}")

    def heal(self) -> None:
        """No more misfortune: everything must come together again."""
        for _ in range(6000):
            self.clock.advance(0.01)
            for node in self.nodes.values():
                node.crash_in = -1
                if node.slave is not None and node.slave.broken:
                    self.stop(node)
                self.start(node)
                self.connect(node)
                self.work(node, 100)
                if node.slave is not None and node.slave.session is not None:
                    self.obey_slave(node, node.slave.session.tick(self.now))
            for stream in self.streams:
                stream.frozen_until = 0.0
            master = self.nodes[self.master_name]
            flushed(master.store)
            self.positions(master)
            self.pump(master)
            for _ in range(6):
                self.move_a_frame()
            self.persist(master)
            self.check()
            if master.master is not None and master.master.group.alarms:
                self.promote()
            elif self.healed(master):
                return
        raise Violation(f"the cluster does not heal: {self.describe()}")

    def healed(self, master: SimNode) -> bool:
        if master.master is None or master.store is None:
            return False
        together = len(master.master.group.set.members) == len(NODES)
        return together and all(
            node.store is not None
            and node.disk.durable == master.disk.end
            and node.store.confirmed.value == master.disk.end
            for node in self.nodes.values()
        )

    def finish(self) -> None:
        self.heal()
        for node in self.nodes.values():
            self.check_acked(node)

    def describe(self) -> str:
        rows = []
        for node in self.nodes.values():
            extra = ""
            if node.slave is not None:
                state = node.slave.session.state.value if node.slave.session else "none"
                extra = f" session={state} refused={node.slave.refused!r}"
            if node.master is not None:
                members = sorted(each.node_id for each in node.master.group.set.members)
                extra = f" master set={members} alarms={node.master.group.alarms}"
            rows.append(
                f"{node.name}: {node.disk.start}..{node.disk.durable}/{node.disk.end} "
                f"{node.disk.epochs}{extra}"
            )
        return "\n".join([*rows, "history:", *self.history])

    def note(self, text: str) -> None:
        self.history.append(f"{self.now:.3f} {text}")

    def count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1

    def _old_data(self) -> None:
        """Stores without epochs: the master's, a copy of its beginning, one that went its way."""
        master = FakeStore(self.nodes["a"].disk)
        master.master = True
        for _ in range(self.rng.randint(1, 30)):
            master.append(self.rng.randbytes(self.rng.randint(1, 120)))
        master.flush()
        data = bytes(master.disk.data)
        for name in ("b", "c"):
            disk = self.nodes[name].disk
            kept = self.rng.randint(0, len(data))
            disk.data += data[:kept]
            disk.cut_torn_tail()
            if self.rng.random() < 0.5:
                store = FakeStore(disk)
                store.master = True
                for _ in range(self.rng.randint(1, 5)):
                    store.append(self.rng.randbytes(60))
            disk.durable = disk.end


def flushed(store: FakeStore | None) -> None:
    if store is not None:
        store.flush()


def piece(disk: FakeDisk, low: int, high: int) -> bytes:
    return bytes(disk.data[low - disk.start : high - disk.start])


def holds(disk: FakeDisk, put: Put) -> bool:
    return piece(disk, put.start, put.end) == put.data if put.start >= disk.start else False


def digest(cluster: Cluster) -> int:
    """One number for a whole run: the same seed must give the same."""
    state = [
        (node.name, bytes(node.disk.data), node.disk.epochs) for node in cluster.nodes.values()
    ]
    return zlib.crc32(repr((state, sorted(cluster.acked), cluster.counters)).encode())
