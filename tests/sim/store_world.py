"""Clients, time and misfortune around real stores. A step is one event that a seed chooses.

    work        puts, retries, replication, fsync, dispatch, checkpoints, reading, retention
    misfortune  processes that die anywhere, power cuts, full disks, calls that fail, clocks that
                jump, promotions, fresh disks, streams that break, new topics, restarts

A full disk and a call that fails may last until after the next open, so that opens meet them too.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

from fakes.stream import FakeStream
from sim.ha_nodes import ViolationError
from sim.store_checks import check_promotion
from sim.store_clients import Clients
from sim.store_nodes import CONFIG, HOUR_S, StoreNode
from tandemlog_server.ha.protocol.frames import decode_master_frame
from tandemlog_server.ha.slave.session import Disconnect
from tandemlog_server.storage.config import FlushMode, StoreConfig
from tandemlog_server.storage.errors import CorruptStoreError
from tandemlog_server.storage.message_store import MessageStore

SIZES = (1, 1, 2, 3, 3)
DAY_S = 24 * HOUR_S
FAR_JUMPS = bool(os.environ.get("TANDEMLOG_SIM_FAR_JUMPS"))
"""Clocks that jump by days and years too."""


class StoreWorld(Clients):
    """See the module."""

    def __init__(
        self, seed: int, settings: StoreConfig | None = None, size: int | None = None
    ) -> None:
        chosen = Random(f"size of {seed}")
        size = size or chosen.choice(SIZES)
        super().__init__(seed, size, settings or some_settings(seed, size))
        self.seed = seed
        self.number = 0
        # who has followed in the term of the master that is up, or was last
        self.heard: frozenset[str] = frozenset()
        # the stores of all nodes at the begin
        self.stores: dict[str, str] = {}
        self.events: list[tuple[float, Callable[[], None]]] = self.make_events(chosen)
        self.total = sum(weight for weight, _ in self.events)

    def make_events(self, chosen: Random) -> list[tuple[float, Callable[[], None]]]:
        """Every world has misfortunes of its own: with all of them at once little would happen."""
        work = [
            (24.0, self.put),
            (10.0, self.flush_master),
            (10.0, self.dispatch),
            (6.0, self.checkpoint),
            (8.0, self.read),
            (2.0, self.save_offsets),
            (16.0 if self.size > 1 else 0.0, self.replicate),
            (4.0 if self.size > 1 else 0.0, self.persist_set),
            (20.0, self.start_one),
        ]
        several = self.size > 1
        misfortune = [
            (1.5, self.kill),
            (1.5, self.lose_power),
            (1.5, self.doom),
            (2.0, self.fill_disk),
            (2.0, self.fail_a_call),
            (1.0, self.restart),
            (1.0, self.expire),
            (0.7, self.jump),
            (0.7, self.new_topic),
            (1.5 if several else 0.0, self.promote),
            (0.7 if several else 0.0, self.fresh_disk),
            (1.0 if several else 0.0, self.cut_stream),
            (0.3, self.ask),
            (0.6, self.rot),
        ]
        return work + [
            (weight * chosen.choice((0.0, 0.5, 1.0, 2.0)), event) for weight, event in misfortune
        ]

    def begin(self) -> None:
        """Everybody is there, and the set is whole."""
        for node in self.nodes.values():
            self.start(node)
        for topic in self.topics:
            self.create_topic(topic)
        self.heal()
        self.stores = {name: self.incarnation_of(node) for name, node in self.nodes.items()}

    def step(self) -> None:
        self.clock.advance(self.rng.choice((0.0, 0.001, 0.01, 0.05)))
        at = self.rng.random() * self.total
        for weight, event in self.events:
            at -= weight
            if at < 0:
                event()
                break
        self.check()

    def any_node(self) -> StoreNode:
        return self.nodes[self.rng.choice(sorted(self.nodes))]

    def any_slave(self) -> StoreNode | None:
        slaves = [node for node in self.nodes.values() if node.name != self.master_name]
        return self.rng.choice(slaves) if slaves else None

    # --- work

    def flush_master(self) -> None:
        node = self.master
        with self.on(node):
            if node.store is not None:
                node.store.flush()
                self.positions(node)

    def dispatch(self) -> None:
        node = self.any_node()
        for _ in range(self.rng.randint(1, 3)):
            self.dispatch_on(node)

    def dispatch_on(self, node: StoreNode) -> None:
        store = node.store
        if store is None or store.reput.failure is not None:
            return
        with self.on(node):
            try:
                store.reput._retry_index()
                store.reput.run_once()
            except CorruptStoreError as fault:
                store.reput._fail(fault)
                if not node.damaged:
                    raise ViolationError(f"{node.name}: dispatch stops: {fault}") from fault

    def task(self, node: StoreNode, name: str) -> None:
        with self.on(node):
            if node.store is not None:
                next(each for each in node.store._keeper.tasks if each.name == name).turn()

    def checkpoint(self) -> None:
        self.task(self.any_node(), "checkpoint")

    def save_offsets(self) -> None:
        self.task(self.any_node(), "consumer-offsets")

    def replicate(self) -> None:
        for node in self.nodes.values():
            if node is not self.master and self.rng.random() < 0.7:
                self.exchange(node, self.rng.choice((1, 2, 4, 8)))

    def exchange(self, node: StoreNode, rounds: int) -> None:
        """Frames go both ways, a few at a time."""
        for _ in range(rounds):
            with self.on(node):
                self.connect(node)
            with self.on(self.master):
                self.pump(self.master)
            stream = node.slave.stream if node.slave is not None else None
            if stream is None:
                return
            frames, actions, answers = (self.rng.randint(1, most) for most in (5, 8, 4))
            with self.on(node):
                for _ in range(frames):
                    self.slave_hears(node, stream)
                self.work(node, actions)
                if node.slave is not None and node.slave.session is not None:
                    self.obey_slave(node, node.slave.session.tick(self.now))
            with self.on(self.master):
                for _ in range(answers):
                    self.master_hears(stream)
            self.clock.advance(0.001)

    def slave_hears(self, node: StoreNode, stream: FakeStream) -> None:
        slave = node.slave
        if slave is None or slave.session is None or slave.stream is not stream:
            return
        if stream.to_slave:
            frame = decode_master_frame(stream.to_slave.popleft())
            self.obey_slave(node, slave.session.receive(frame, self.now))
        elif not stream.master_open:
            self.obey_slave(node, [Disconnect("the stream ended")])

    def master_hears(self, stream: FakeStream) -> None:
        master = self.master.master
        for session, each in master.streams if master is not None else []:
            if each is stream:
                self.deliver(self.master, session, stream)
                return
        stream.to_master.clear()

    def persist_set(self) -> None:
        with self.on(self.master):
            self.persist(self.master)

    def start_one(self) -> None:
        for node in self.nodes.values():
            if node.store is None and self.rng.random() < 0.7:
                with self.on(node):
                    self.start(node)
                if self.rng.random() < 0.5:
                    node.files.empty()

    # --- misfortune

    def kill(self) -> None:
        node = self.any_node()
        self.note(f"{node.name} is killed")
        self.stop(node)

    def lose_power(self) -> None:
        node = self.any_node()
        self.note(f"{node.name} loses power")
        self.stop(node)
        self.power_cut(node)

    def doom(self) -> None:
        """It dies in a call soon; one that is down, in its next open."""
        node = self.any_node()
        node.files.die_in = self.rng.choice((3, 10, 30, 100, 300))
        node.files.die_in = self.rng.randint(0, node.files.die_in)

    def fill_disk(self) -> None:
        node = self.any_node()
        if node.files.full and self.rng.random() < 0.7:
            node.files.empty()
            return
        left = self.rng.randint(0, self.rng.choice((100, 1000, 10_000)))
        self.note(f"{node.name} has {left} bytes left")
        node.files.fill(left)

    def fail_a_call(self) -> None:
        node = self.any_node()
        node.files.fail_number = self.rng.choice((5, 28, 28))
        node.files.fail_in = self.rng.randint(0, self.rng.choice((2, 10, 40)))
        self.note(f"{node.name}: call {node.files.fail_in} fails ({node.files.fail_number})")

    def restart(self) -> None:
        node = self.any_node()
        self.note(f"{node.name} is closed")
        with self.on(node):
            self.close(node)

    def expire(self) -> None:
        """Time passes: what is old goes, on every node that is up."""
        self.clock.advance(self.rng.choice((0.3, 1.1, 1.1, 2.0)) * HOUR_S)
        for node in self.nodes.values():
            self.retain(node)
            if self.forgets:
                self.task(node, "producers")

    def retain(self, node: StoreNode) -> None:
        began = node.log_begin
        self.task(node, "retention")
        if not node.files.full:  # that of a full disk does not ask for the age
            self.ledger.check_age(began, node.log_begin, self.now, HOUR_S)
        self.ledger.dropped = max(self.ledger.dropped, node.log_begin)
        with self.on(node):
            self.positions(node)

    def jump(self) -> None:
        """Forward or back, by minutes or hours, or it is set right again."""
        node = self.any_node()
        far = (4 * DAY_S, 10 * 365 * DAY_S) if FAR_JUMPS else ()
        most_s = self.rng.choice((0.0, 300.0, 3 * HOUR_S, 3 * HOUR_S, *far))
        node.clock.wrong_ms = round(self.rng.uniform(-1, 1) * most_s * 1000)
        self.note(f"{node.name}: its clock is wrong by {node.clock.wrong_ms} ms")

    def new_topic(self) -> None:
        self.topics.append(f"T{len(self.topics)}")

    def promote(self) -> None:
        """The operator stops all, names another of the in-sync set, and starts them again."""
        candidates = [node for node in self.in_sync() if node is not self.master]
        if candidates:
            chosen = self.rng.choice(candidates)
            if chosen.name not in self.heard:
                self.count("promoted too soon")
            self.lead(chosen)

    def lead(self, node: StoreNode) -> None:
        for each in self.nodes.values():
            fate = self.rng.random()
            with self.on(each):
                self.close(each) if fate < 0.4 else self.stop(each)
            if fate > 0.8:
                self.power_cut(each)
        self.note(f"{node.name} becomes master")
        self.count("promoted")
        self.master_name = node.name
        self.heard = frozenset()

    def fresh_disk(self) -> None:
        node = self.any_slave()
        if node is not None and node is not self.master and self.can_spare_a_disk():
            self.give_fresh_disk(node)

    def can_spare_a_disk(self) -> bool:
        """Without fsync on the master a slave may hold the only copy that outlives its power."""
        if self.settings.flush is FlushMode.SYNC:
            return True
        if any(each.short for each in self.nodes.values()) or self.master.store is None:
            return False
        self.flush_master()
        store = self.master.store
        return store is not None and store.log.flushed.value == store.log.wrote.value

    def give_fresh_disk(self, node: StoreNode) -> None:
        self.note(f"{node.name} gets a fresh disk")
        self.count("fresh disks")
        node.short = False
        self.stop(node)
        node.files = type(node.files)(node.clock)
        node.damaged.clear()

    def cut_stream(self) -> None:
        if self.streams:
            self.rng.choice(self.streams).cut(self.rng)

    def ask(self) -> None:
        """Whoever is in sync could take over at this moment."""
        members = self.in_sync()
        if members:
            check_promotion(self, self.rng.choice(members), self.rng)

    def rot(self) -> None:
        """Whoever is in sync could take over, and lose the record that its disk damages and no
        other."""
        members = self.in_sync()
        if members:
            node = self.rng.choice(members)
            self.task(node, "checkpoint")
            check_promotion(self, node, self.rng, rots=True)

    # --- checks and the end

    def check(self) -> None:
        if self.master.master is not None:
            self.read_record()
            self.heard = frozenset(self.master.master.group._durable())
        for node in self.nodes.values():
            if node.store is None:
                continue
            confirmed = node.store.confirmed.value
            if confirmed < node.lowest_confirm and node.name == self.master_name:
                raise ViolationError(f"{node.name}: confirm {node.lowest_confirm} -> {confirmed}")
            node.lowest_confirm = confirmed
            if node.store.reputed.value > confirmed:
                raise ViolationError(f"{node.name} has dispatched what is not confirmed")
        self.streams = [each for each in self.streams if each.slave_open or each.master_open]

    def heal(self) -> None:
        """No more misfortune: everything must come together again."""
        for node in self.nodes.values():
            node.files.empty()
            node.files.die_in = node.files.fail_in = -1
        for number in range(400):
            self.clock.advance(0.01)
            for node in self.nodes.values():
                self.look_after(node, often=number % 8 == 0)
            self.flush_master()
            self.persist_set()
            self.obey_alarms()
            self.answer_all()
            if self.healed():
                for node in self.nodes.values():
                    node.short = False
                return
        raise ViolationError("the cluster does not heal")

    def obey_alarms(self) -> None:
        """The operator does what an alarm says."""
        alarms = self.master.master.group.alarms if self.master.master is not None else {}
        for name, alarm in alarms.items():
            self.note(f"an alarm: {alarm}")
            if "Restart" in alarm:
                self.stop(self.master)
                return
            if "when its machine stopped" in alarm or self.master.short:
                # it cut records of which nobody knows whether they were fsynced
                self.count("alarms obeyed")
                self.lead(self.nodes[name])
                return
            if self.obey(name, alarm):
                self.count("alarms obeyed")
                return
            raise ViolationError(f"an alarm of {name}, and no disk was lost: {alarm}")

    def obey(self, name: str, alarm: str) -> bool:
        """What is no violation: an alarm is the last defence against an operator's choice, and
        nothing is lost by doing what it says."""
        node = self.nodes[name]
        if "Make that slave the master" in alarm and self.counters.get("promoted too soon", 0):
            # the set that a term begins with names who has to be heard, not who holds everything
            self.lead(node)
            return True
        held, led = node.store, self.master.store
        replaced = self.stores[self.master_name] != self.incarnation_of(self.master)
        if "with another store" in alarm and replaced and held is not None and led is not None:
            # it has slept through a term in which the master's store started over
            if held.log.wrote.value > led.log.wrote.value:
                self.lead(node)
            else:
                self.give_fresh_disk(node)
            return True
        return False

    def incarnation_of(self, node: StoreNode) -> str:
        state = self.kept_state(node)
        return "" if state is None else state.incarnation

    def look_after(self, node: StoreNode, *, often: bool) -> None:
        broken = node.slave is not None and node.slave.broken
        if broken or (node.store is not None and node.store.failure is not None):
            self.stop(node)
        if node.store is None:
            with self.on(node):
                self.start(node)
        if often:
            self.retain(node)
        if node.slave is not None:
            self.exchange(node, 2)
        for _ in range(8):
            store = node.store
            if store is None or store.reputed.value >= store.confirmed.value:
                break
            self.dispatch_on(node)

    def healed(self) -> bool:
        master = self.master
        if master.store is None or master.master is None or any(p.chain for p in self.producers):
            return False
        end = master.store.log.wrote.value
        return len(master.master.group.set.members) == self.size and all(
            node.store is not None
            and node.store.log.flushed.value == end
            and node.store.confirmed.value == node.store.reputed.value == end
            for node in self.nodes.values()
        )

    def finish(self) -> None:
        """Everything heals, every node holds everything, and any of them could lead."""
        self.heal()
        for node in self.nodes.values():
            assert node.store is not None
            for check in (self.ledger.check_log, self.ledger.check_once, self.ledger.check_queues):
                try:
                    check(node.store)
                except ViolationError as broken:
                    raise ViolationError(f"{node.name}: {broken}") from broken
        self.ledger.check_offsets(self.master.store)
        self.check_equal()
        check_promotion(self, self.rng.choice(self.in_sync()), self.rng)

    def check_equal(self) -> None:
        """Logs are equal byte by byte."""
        stores = [node.store for node in self.nodes.values() if node.store is not None]
        low = max(store.log.min_offset for store in stores)
        logs = {bytes(b"".join(pieces(store, low))) for store in stores}
        if len(logs) > 1:
            raise ViolationError("the logs differ")

    def describe(self) -> str:
        rows = []
        for node in self.nodes.values():
            store = node.store
            where = "down"
            if store is not None:
                where = (
                    f"{store.log.min_offset}..{store.reputed.value}/{store.confirmed.value}/"
                    f"{store.log.flushed.value}/{store.log.wrote.value}"
                )
            rows.append(f"{node.name}: {where} {node.slave and node.slave.refused}")
        rows.append(f"step {self.number}, master {self.master_name}")
        return "\n".join([*rows, str(self.counters), "history:", *self.history])


def some_settings(seed: int, size: int) -> StoreConfig:
    """In a part of the worlds a CRC covers the whole record; in a part of those with replicas the
    master does not wait for its own fsync."""
    chosen = Random(f"settings of {seed}")
    property_crc, without_fsync = chosen.random() < 0.3, chosen.random() < 0.25
    flush = FlushMode.ASYNC if without_fsync and size > 1 else FlushMode.SYNC
    return replace(CONFIG, property_crc=property_crc, flush=flush)


def pieces(store: MessageStore, start: int) -> list[bytes]:
    found, log = [], store.log
    while start < log.wrote.value:
        piece = bytes(log.read(start, log.file_size))
        found.append(piece)
        start += len(piece)
    return found
