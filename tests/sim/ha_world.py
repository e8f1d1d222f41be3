"""Time, clients, misfortune, an operator, and the checks after every step.

A step is one random event: a put, an fsync, one frame of one stream delivered, a slave's store
working off a few actions, a tick, a cut, a kill (page cache kept), a power cut (only what was
fsynced is kept), a lost disk, retention, a record persisted.
"""

import zlib
from collections.abc import Iterable
from functools import partial

from fakes.fake_store import FakeStore
from fakes.stream import FakeStream
from sim.ha_cluster import Cluster
from sim.ha_nodes import NODES, Put, SimNode, ViolationError, holds, piece
from tandemlog.format.files.epochs import EpochTable
from tandemlog_server.ha.master.master_group import STRANGER
from tandemlog_server.ha.protocol.frames import decode_master_frame
from tandemlog_server.ha.slave.session import Disconnect
from tandemlog_server.storage.config import FlushMode


class World(Cluster):
    """See the module."""

    # --- events

    def put(self) -> None:
        node = self.nodes[self.master_name]
        if node.store is None or node.master is None:
            return
        # a client may ask not to wait for slaves: its put is stored, never acknowledged as safe
        waits = self.rng.random() < 0.8
        if waits and node.master.group.admission(self.now) is not None:
            self.count("not admitted")
            return
        self.serial += 1
        payload = f"{self.serial}:".encode() + self.rng.randbytes(self.rng.randint(1, 120))
        start, end = node.store.append(payload)
        base = node.disk.start
        if waits:
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
            if self.flush is FlushMode.SYNC or self.rng.random() < 0.1:
                self.flush_master()
        elif kind < 0.42:
            master = self.nodes[self.master_name]
            self.guarded(master, lambda: self.pump(master))
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
        elif kind < 0.97:
            self.start_with_crashes(node)
        elif kind < 0.98:
            self.operator()
        elif kind < 0.985:
            self.replay_ack()
        elif self.rng.random() < self.trouble:
            self.misfortune(node)
        else:
            self.put()
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
            if node.slave is not None and node.slave.stream is stream:
                self.guarded(node, partial(self.slave_hears, node, stream))
                return
        stream.to_slave.clear()

    def slave_hears(self, node: SimNode, stream: FakeStream) -> None:
        """One frame of the master, or the end of the stream, reaches the slave."""
        if node.slave is None or node.slave.session is None:
            return
        if stream.to_slave:
            frame = decode_master_frame(stream.to_slave.popleft())
            self.obey_slave(node, node.slave.session.receive(frame, self.now))
        elif not stream.master_open:
            self.obey_slave(node, [Disconnect("the stream ended")])

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
            self.power_cut(node)
        elif kind < 0.68:
            node.crash_in = self.rng.randint(0, 6)
        elif kind < 0.74:
            self.retention()
        elif kind < 0.86:
            self.lose_slave_disk(node)
        elif kind < 0.90:
            self.lose_master_disk()
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
        for each in self.nodes.values():
            known = each.store.confirmed.value if each.store is not None else 0
            low, high = max(each.disk.start, master.disk.start), max(each.disk.confirmed, known)
            if piece(each.disk, low, high) != piece(master.disk, low, high):
                return  # the master has lost its disk already
        self.note(f"{node.name} loses its disk")
        self.stop(node)
        self.lose_disk(node)

    def lose_master_disk(self) -> None:
        """The master comes back empty, or the operator makes the best slave the master."""
        node = self.nodes[self.master_name]
        others = [each for each in self.nodes.values() if each is not node]
        if not self.replaceable(node):
            return
        # One failure at a time: the others remember this master, or there is nothing to remember.
        followed = {self.state(each).accepted_epoch > 0 for each in others}
        greeted = any(each.slave and each.slave.session for each in others)
        if len(followed) > 1 or (followed == {False} and greeted):
            return
        self.note(f"{node.name} (master) loses its disk")
        self.count("master disk lost")
        self.stop(node)
        self.lose_disk(node)
        if self.acked and self.rng.random() < 0.6:
            self.promote()

    def operator(self) -> None:
        """Someone looks at the alarms."""
        master = self.nodes[self.master_name].master
        if master is None:
            return
        if master.group.alarms:
            self.promote()

    def promote(self) -> None:
        """The node with the newest epoch, then the longest log, becomes the master.

        Among those whom the alarms name: a master that lacks something may have written since, so
        its newer epoch proves nothing.
        """

        def rank(node: SimNode) -> tuple[int, int]:
            # an epoch in which nothing was written proves nothing: a wiped master has those too
            if node.disk.end == node.disk.start:
                return (-1, 0)
            last = node.disk.epochs.entry_at(node.disk.end - 1)
            return (-1 if last is None else last.epoch, node.disk.end)

        refused = [node for node in self.nodes.values() if node.slave and node.slave.refused]
        master = self.nodes[self.master_name]
        candidates = self.candidates(master)
        for node in self.nodes.values():
            self.stop(node)
            node.disk.cut_torn_tail()
        best = max(candidates, key=rank)
        if best.name == self.master_name:
            # nobody holds more than the master: those that it refused start over
            for node in refused:
                self.lose_disk(node)
        self.note(f"operator: {best.name} becomes master")
        self.count("promoted")
        self.master_name = best.name

    def candidates(self, master: SimNode) -> list[SimNode]:
        """Who may become master, after what the alarms say."""
        alarms = master.master.group.alarms if master.master else {}
        ahead = [name for name, each in alarms.items() if "Make that slave" in each]
        if ahead:
            return [self.nodes[name] for name in ahead]
        others = [node for node in self.nodes.values() if node is not master]
        lost = any("another store" in each for each in alarms.values())
        if lost and any(node.disk.data for node in others):
            return others
        return list(self.nodes.values())

    # --- checks

    def check(self) -> None:
        for node in self.nodes.values():
            if node.store is None:
                continue
            confirmed = node.store.confirmed.value
            if confirmed < node.lowest_confirm and not node.disk.aside:
                raise ViolationError(f"{node.name}: confirm {node.lowest_confirm} -> {confirmed}")
            node.lowest_confirm = confirmed
            if node.slave is not None and confirmed > node.disk.durable:
                raise ViolationError(f"{node.name} confirms {confirmed}, has {node.disk.durable}")
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
                raise ViolationError(f"{first.name} and {second.name} differ below {high}")

    def check_acked(self, node: SimNode) -> None:
        for put in self.acked.values():
            if put.start >= node.disk.start and not holds(node.disk, put):
                raise ViolationError(f"acknowledged {put.start}..{put.end} is not on {node.name}")

    def heal(self) -> None:
        """No more misfortune: everything must come together again."""
        for _ in range(6000):
            for stream in self.streams:
                stream.frozen_until = 0.0
            master = self.nodes[self.master_name]
            self.calm(NODES)
            flushed(master.store)
            self.start_strangers_over()
            if master.master is not None and master.master.group.alarms:
                self.promote()
            elif self.healed(master):
                return
        raise ViolationError(f"the cluster does not heal: {self.describe()}")

    def start_strangers_over(self) -> None:
        """Slaves that the master refuses without an alarm, since it does not know them: by what it
        says, their stores are moved away. The checks tell whether that was right."""
        for node in self.nodes.values():
            if node.slave is not None and STRANGER in node.slave.refused:
                self.stop(node)
                self.lose_disk(node)
                self.count("strangers started over")

    def calm(self, names: Iterable[str]) -> None:
        """A hundredth of a second in which those of these names do all that they should."""
        self.clock.advance(0.01)
        for node in (self.nodes[name] for name in names):
            node.crash_in = -1
            if node.slave is not None and node.slave.broken:
                self.stop(node)
            self.start(node)
            self.connect(node)
            self.work(node, 100)
            if node.slave is not None and node.slave.session is not None:
                self.obey_slave(node, node.slave.session.tick(self.now))
        master = self.nodes[self.master_name]
        self.positions(master)
        self.pump(master)
        for _ in range(6):
            self.move_a_frame()
        self.persist(master)
        self.check()

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

    def give_old_data(self) -> None:
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
        if self.rng.random() < 0.5:
            # tables that agree although the bytes may not
            for node in self.nodes.values():
                if node.disk.data:
                    node.disk.epochs = EpochTable().append(1, 0)


def flushed(store: FakeStore | None) -> None:
    if store is not None:
        store.flush()


def digest(world: Cluster) -> int:
    """One number for a whole run: the same seed must give the same."""
    state = [(node.name, bytes(node.disk.data), node.disk.epochs) for node in world.nodes.values()]
    return zlib.crc32(repr((state, sorted(world.acked), world.counters)).encode())
