"""A cluster that elects, in a seeded world: time, clients, misfortune, an operator, and the checks.

A step is one random event, as in `ha_world`. In addition processes stand still for shorter and
longer than a lease and wake up with all that they remember, links between nodes and to the
coordinator are cut, transactions are lost or carried out late, and leaderships are handed over.
"""

from functools import partial

from fakes.stream import FakeStream
from sim.election_foreign import ElectionStrays
from sim.election_nodes import KEYS, ElectedNode
from sim.ha_nodes import NODES, Put, SimNode, ViolationError, piece
from sim.ha_world import flushed
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.election.key_values import REINIT, SWITCHOVER, RequestValue, SettingsValue
from tandemlog_server.ha.protocol.frames import decode_master_frame
from tandemlog_server.ha.slave.session import Disconnect
from tandemlog_server.storage.config import FlushMode

ELECTED_WITHIN_S = 20.0
HEALED_WITHIN_S = 40.0


class ElectionWorld(ElectionStrays):
    """See the module."""

    calm_s = 0.02
    """Of a moment in which all is well."""

    def __init__(self, seed: int, flush: FlushMode, mode: Replication = Replication.SYNC) -> None:
        super().__init__(seed, flush, mode)
        self.expires = self.rng.choice((0.0, 0.0, 0.3))
        self.may_force = self.rng.random() < 0.3

    # --- events

    def put(self) -> None:
        """A client puts to a node that it believes to lead."""
        leading = [each for each in self.elected if each.master and self.awake(each)]
        if leading:
            node = self.rng.choice(leading)
            self.guarded(node, lambda: self.put_at(node))  # it may have to note that it counts

    def put_at(self, node: ElectedNode) -> None:
        store, master, process = node.store, node.master, node.process
        if store is None or master is None or process is None or process.held_back:
            return
        waits = self.rng.random() < 0.8
        alone = master.group.acts_alone() and process.agent.lease_fault()
        if alone or (waits and master.group.admission(self.now) is not None):
            self.count("not admitted")
            return
        self.serial += 1
        payload = f"{self.serial}:".encode() + self.rng.randbytes(self.rng.randint(1, 120))
        start, end = store.append(payload)
        if waits:
            process.pending.append(Put(start, end, piece(node.disk, start, end)))
        self.positions(node)

    def step(self) -> None:
        self.clock.advance(self.rng.choice((0.0, 0.001, 0.005, 0.03)))
        self.coordination.pass_time()
        node = self.node(self.rng.choice(NODES))
        self.keep_leases()
        self.follow_up()
        self.correct_addresses()
        kind = self.rng.random()
        leading = [each for each in self.elected if each.master]
        if leading and (0.10 < kind < 0.34 or 0.80 < kind < 0.84 or kind > 0.99):
            node = self.rng.choice(leading)
        if kind < 0.10:
            self.put()
        elif kind < 0.963:
            if node.process is None:
                if self.rng.random() < 0.08:
                    self.guarded(node, lambda: self.start(node))
            elif self.awake(node):
                self.turn(node, kind)
        elif kind < 0.967:
            self.replay_ack()
        elif kind < 0.975:
            self.coordination.deliver()
        elif kind < 0.98:
            self.operator()
        elif self.rng.random() < self.trouble:
            self.misfortune(node)
        self.check()

    def keep_leases(self) -> None:
        for node in self.elected:
            if node.frozen_at and self.awake(node):
                self.wake(node)
            if self.awake(node):
                self.guarded(node, partial(self.renew, node))

    def turn(self, node: ElectedNode, kind: float) -> None:
        """Something that a process does by itself."""
        if kind < 0.105:
            self.expire(node) if self.rng.random() < self.expires else self.back_up(node)
        elif kind < 0.16:
            if self.flush is FlushMode.SYNC or self.rng.random() < 0.1:
                self.flush_node(node)
        elif kind < 0.34:
            self.guarded(node, lambda: self.pump(node))  # a master that rests notes it
        elif kind < 0.58:
            self.move_a_frame()
        elif kind < 0.72:
            self.guarded(node, lambda: self.work(node, self.rng.randint(1, 6)))
        elif kind < 0.80:
            self.guarded(node, lambda: self.connect(node))
            self.guarded(node, lambda: self.tick(node))
        elif kind < 0.84:
            self.guarded(node, lambda: self.persist(node))
        else:
            self.guarded(node, lambda: self.look(node))

    def tick(self, node: SimNode) -> None:
        if node.slave is not None and node.slave.session is not None:
            self.obey_slave(node, node.slave.session.tick(self.now))

    def flush_node(self, node: ElectedNode) -> None:
        if node.master is not None:
            self.guarded(node, lambda: flushed(node.store))
            self.positions(node)

    def move_a_frame(self) -> None:
        self.streams = [
            each
            for each in self.streams
            if (each.slave_open or each.to_master) and (each.master_open or each.to_slave)
        ]
        live = [each for each in self.streams if self.passes(each)]
        if not live:
            return
        stream = self.rng.choice(live)
        slave, master = (self.node(name) for name in self.ends[stream.serial])
        if stream.to_master and (not stream.to_slave or self.rng.random() < 0.5):
            if not self.awake(master):
                return
            for session, each in master.master.streams if master.master else []:
                if each is stream:
                    self.guarded(master, partial(self.deliver, master, session, stream))
                    return
            stream.to_master.clear()
        elif slave.slave is None or slave.slave.stream is not stream:
            stream.to_slave.clear()
        elif self.awake(slave):
            self.guarded(slave, partial(self.slave_hears, slave, stream))

    def passes(self, stream: FakeStream) -> bool:
        return stream.frozen_until <= self.now and self.linked(*self.ends[stream.serial])

    def slave_hears(self, node: SimNode, stream: FakeStream) -> None:
        if node.slave is None or node.slave.session is None:
            return
        if stream.to_slave:
            frame = decode_master_frame(stream.to_slave.popleft())
            self.obey_slave(node, node.slave.session.receive(frame, self.now))
        elif not stream.master_open:
            self.obey_slave(node, [Disconnect("the stream ended")])

    def replay_ack(self) -> None:
        """A proxy delivers an old acknowledgement on a newer stream of the same node."""
        if not self.stale_acks:
            return
        name, data = self.rng.choice(self.stale_acks)
        streams = [each for node in self.elected if node.master for each in node.master.streams]
        for session, stream in streams:
            if session.hello is not None and session.hello.node_id == name:
                stream.to_master.appendleft(data)

    # --- misfortune

    def misfortune(self, node: ElectedNode) -> None:
        kind = self.rng.random()
        if kind < 0.12 and self.streams:
            self.rng.choice(self.streams).cut(self.rng)
        elif kind < 0.20 and self.streams:
            self.rng.choice(self.streams).frozen_until = self.now + self.rng.random() * 5
        elif kind < 0.28:
            self.note(f"{node.name} killed")
            self.stop(node)
        elif kind < 0.36:
            self.note(f"{node.name} loses power")
            self.stop(node)
            self.power_cut(node)
        elif kind < 0.42:
            node.crash_in = self.rng.randint(0, 6)
        elif kind < 0.64:
            self.freeze(node, self.rng.choice((0.5, 2.0, 5.0, 8.0, 9.0, 12.0)))
        elif kind < 0.74:
            other = self.rng.choice([name for name in NODES if name != node.name])
            self.cuts[frozenset((node.name, other))] = self.now + self.rng.random() * 12
        elif kind < 0.84:
            self.coordination.cut[node.name] = self.now + self.rng.random() * 15
        elif kind < 0.90:
            until = self.now + self.rng.random() * 10
            self.coordination.cut.update(dict.fromkeys(NODES, until))
        elif kind < 0.93:
            self.coordination.world.restart()
        elif kind < 0.965:
            self.put_back(node)
        elif kind < 0.975:
            self.wipe(node)
        elif kind < 0.98 and self.outlives_rack():
            self.cut_rack()
        elif kind < 0.985 and self.may_force:
            self.force(node)
        else:
            self.clock.advance(self.rng.random())

    def freeze(self, node: ElectedNode, seconds: float) -> None:
        """SIGSTOP: the process keeps what it remembers, its sockets what comes in."""
        if not self.awake(node):
            return
        self.note(f"{node.name} stands still for {seconds} s")
        self.count("pauses")
        node.frozen_at, node.frozen_until = self.now, self.now + seconds

    def wake(self, node: ElectedNode) -> None:
        stood_ms = (self.now - node.frozen_at) * 1000 if node.frozen_at else 0.0
        node.frozen_at = node.frozen_until = 0.0
        long = stood_ms > self.config(node.name).dead_after_ms
        if long and node.master is not None and node.process is not None:
            node.process.woke = node.master.group.tracker.value
            self.count("zombies")

    def operator(self) -> None:
        kind = self.rng.random()
        target = self.rng.choice(("", *NODES))
        self.serial += 1
        if kind < 0.8:
            wanted = REINIT if target and kind < 0.15 else SWITCHOVER
            self.set_key(KEYS.request, RequestValue(wanted, target, f"{self.serial}"))
        else:
            self.set_key(KEYS.settings, SettingsValue(paused=kind < 0.9))

    # --- checks

    def check(self) -> None:
        super().check()
        for node in self.elected:
            store = node.store
            if store is None or self.is_overruled(node):
                continue
            confirmed = store.confirmed.value
            if node.disk.start < node.began_at:
                node.read_to = 0  # an empty log begins where its master's does
            node.began_at = node.disk.start
            if confirmed < node.read_to:
                raise ViolationError(f"{node.name}: confirm {node.read_to} -> {confirmed}")
            # by the master that it was
            written = node.disk.counts_unflushed or not self.mode.waits
            if node.slave is not None and not written and confirmed > node.disk.durable:
                raise ViolationError(f"{node.name} confirms {confirmed}, has {node.disk.durable}")
            if confirmed > max(node.read_to, node.disk.start):
                self.check_read(node, confirmed)

    def check_read(self, node: ElectedNode, confirmed: int) -> None:
        """What readers may read now is what readers have read."""
        low = max(node.read_to, node.disk.start)
        if low > len(self.read):
            raise ViolationError(f"{node.name} begins at {low}, read was up to {len(self.read)}")
        read = piece(node.disk, low, confirmed)
        known = bytes(self.read[low:confirmed])
        if read[: len(known)] != known:
            raise ViolationError(f"{node.name} shows other bytes in {low}..{confirmed}")
        self.read += read[len(known) :]
        node.read_to = confirmed

    # --- the end

    def heal(self) -> None:
        """No more misfortune: a leader within some seconds, and all have everything."""
        self.cuts.clear()
        self.coordination.cut.clear()
        self.coordination.trouble = 0.0
        self.set_key(KEYS.settings, SettingsValue())
        self.delete_key(KEYS.request)  # the lease of a request ends
        self.stop_forcing()
        self.correct_all()
        began, elected = self.now, False
        for node in self.elected:
            self.wake(node)
        while self.now - began < HEALED_WITHIN_S:
            self.calm()
            leader = self.leader()
            elected = elected or leader is not None
            if not elected and self.now - began > ELECTED_WITHIN_S:
                raise ViolationError(f"no leader is elected: {self.describe()}")
            if leader is not None and self.healed(leader):
                self.check_leader(leader)
                return
        raise ViolationError(f"the cluster does not heal: {self.describe()}")

    def calm(self) -> None:
        """A moment in which every node does all that it should."""
        self.clock.advance(self.calm_s)
        self.coordination.pass_time()
        self.coordination.deliver()
        for stream in self.streams:
            stream.frozen_until = 0.0
        self.keep_leases()
        for node in self.elected:
            if node.frozen_at:
                continue
            node.crash_in = -1
            if node.slave is not None and node.slave.broken:
                self.stop(node)
            self.start(node)
            if self.rng.random() < 0.3:
                self.look(node)
            self.connect(node)
            self.work(node, 100)
            self.tick(node)
            self.flush_node(node)
            self.pump(node)
            for _ in range(6):
                self.move_a_frame()
            self.persist(node)
        self.check()

    def found(self) -> None:
        """A cluster in which all is well."""
        for _ in range(1000):
            self.calm()
            leader = self.leader()
            if leader is not None and self.healed(leader):
                return

    def leader(self) -> ElectedNode | None:
        record = self.coordination.record()
        if record is None:
            return None
        node = self.node(record.leader.node_id)
        return node if node.leads == record.epoch else None

    def healed(self, leader: ElectedNode) -> bool:
        record = self.coordination.record()
        current = {(name, self.state(self.node(name)).incarnation) for name in NODES}
        return (
            record is not None
            and {(each.node_id, each.incarnation) for each in record.in_sync} == current
            and all(
                node.store is not None
                and node.disk.durable == leader.disk.end
                and node.store.confirmed.value == leader.disk.end
                for node in self.elected
            )
        )

    def finish(self) -> None:
        self.heal()
        for node in self.elected:
            self.check_leader(node)

    def describe(self) -> str:
        rows = [repr(self.coordination.record())]
        for node in self.elected:
            process = node.process
            session = node.slave.session.state.value if node.slave and node.slave.session else ""
            refused = node.slave.refused if node.slave else ""
            follows = process.following.epoch if process and process.following else 0
            rows.append(
                f"{node.name}: {node.disk.durable}/{node.disk.end} {node.disk.epochs} leads "
                f"{node.leads} follows {follows} {session} {refused!r} "
                f"accepted {self.state(node).accepted_epoch} {self.state(node).incarnation}"
            )
        return "\n".join([*rows, "history:", *self.history])


def play(seed: int, steps: int = 2500, mode: Replication = Replication.SYNC) -> ElectionWorld:
    """One world; its flush mode, and whether the cluster is founded before misfortune begins,
    follow from the seed. Raises ViolationError."""
    world = ElectionWorld(seed, FlushMode.SYNC if seed % 2 else FlushMode.ASYNC, mode)
    for node in world.elected:
        world.start(node)
    if seed % 4:
        world.found()
    for _ in range(steps):
        world.step()
    world.finish()
    return world
