"""What chance brings too seldom: a leader that sleeps through an election, nodes that forget it.

Each is played with random details and raises ViolationError.
"""

from sim.election_nodes import KEYS, ElectedNode
from sim.election_world import ElectionWorld
from sim.ha_nodes import SimNode, ViolationError
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.coordinator.etcd_messages import txn_request
from tandemlog_server.ha.election.elected_keeper import ElectedKeeper
from tandemlog_server.ha.election.transactions import change_set
from tandemlog_server.ha.protocol.frames import Ack, decode_slave_frame
from tandemlog_server.storage.config import FlushMode


class Scene(ElectionWorld):
    """A world in which nothing happens by chance."""

    def __init__(
        self,
        seed: int,
        mode: Replication = Replication.SYNC,
        flush: FlushMode = FlushMode.SYNC,
    ) -> None:
        super().__init__(seed, flush, mode)
        self.coordination.trouble = 0.0
        self.compare_s = self.prepare_s = 0.0
        self.down: set[str] = set()
        self.records_wait = False
        for node in self.elected:
            self.start(node)

    def start(self, node: SimNode) -> None:
        if node.name not in self.down:
            super().start(node)

    def persist(self, node: SimNode) -> None:
        if not self.records_wait:
            super().persist(node)

    def take_down(self, *nodes: ElectedNode) -> None:
        for node in nodes:
            self.down.add(node.name)
            self.stop(node)

    def others(self, leader: ElectedNode) -> tuple[ElectedNode, ElectedNode]:
        """The two that do not lead, in random order."""
        first, second = self.rng.sample([each for each in self.elected if each is not leader], 2)
        return first, second

    def part(self, first: ElectedNode, second: ElectedNode, seconds: float) -> None:
        self.cuts[frozenset((first.name, second.name))] = self.now + seconds

    def calm_for(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.calm()

    def calm_until_healed(self) -> ElectedNode:
        for _ in range(2000):
            self.calm()
            leader = self.leader()
            if leader is not None and self.healed(leader):
                return leader
        raise ViolationError(f"no leader: {self.describe()}")

    def calm_until_led(self) -> ElectedNode:
        for _ in range(3000):
            self.calm()
            leader = self.leader()
            if leader is not None:
                return leader
        raise ViolationError(f"no leader: {self.describe()}")

    def calm_until_led_by_another(self, than: ElectedNode) -> ElectedNode:
        for _ in range(2000):
            self.calm()
            leader = self.leader()
            if leader is not None and leader is not than:
                return leader
        raise ViolationError(f"no other leader: {self.describe()}")

    def acknowledged(self, count: int) -> None:
        """That many more puts, at whichever node leads."""
        goal = len(self.acked) + count
        for _ in range(2000):
            if len(self.acked) >= goal:
                return
            self.put()
            self.calm()
        raise ViolationError(f"nothing is acknowledged: {self.describe()}")


def sleeping_leader(seed: int) -> ElectionWorld:
    """A leader stands still while another is elected; acknowledgements wait in its sockets."""
    world = Scene(seed)
    old = world.calm_until_healed()
    world.acknowledged(5)
    for _ in range(world.rng.randint(1, 4)):
        world.put()
        world.flush_node(old)
    for _ in range(world.rng.randint(10, 60)):
        world.pump(old)
        for node in world.elected:
            if node is not old and node.slave is not None and node.slave.session is not None:
                stream = node.slave.stream
                if stream is not None and stream.to_slave:
                    world.slave_hears(node, stream)
                world.work(node, 10)
    world.freeze(old, 60.0)
    world.calm_until_led_by_another(old)
    old.frozen_until = world.now
    for node in world.elected:
        if node.frozen_at:
            world.wake(node)
    master = old.master
    while master is not None and any(stream.to_master for _, stream in master.streams):
        for session, stream in [*master.streams]:
            world.deliver(old, session, stream)
    for _ in range(3):
        world.clock.advance(0.01)
        world.renew(old)
    world.finish()
    return world


def forgotten_epoch(seed: int) -> ElectionWorld:
    """The followers of a new leader restart, hear first what the coordinator said long ago, and
    find the leader of that time."""
    world = Scene(seed)
    old = world.calm_until_healed()
    world.acknowledged(5)
    stale = world.coordination.now()
    world.freeze(old, 60.0)
    world.calm_until_led_by_another(old)
    world.acknowledged(5)
    others = [each for each in world.elected if each is not old]
    for node in others:
        world.stop(node)
        world.start(node)
    old.frozen_until = world.now
    world.wake(old)
    for node in others:
        assert node.process is not None
        node.process.agent._builder.apply(stale)
        node.process.agent._polled_at = world.now  # as if it had been told that
        world.decide(node)
    for _ in range(200):
        world.clock.advance(0.01)
        world.coordination.pass_time()
        for node in others:
            world.connect(node)
            world.work(node, 10)
        world.put()
        world.flush_node(old)
        world.pump(old)
        for _ in range(6):
            world.move_a_frame()
        world.check()
    world.finish()
    return world


def lost_tail(seed: int) -> ElectionWorld:
    """A member comes back without the end of its log, and for a while it is the only one up."""
    world = Scene(seed)
    leader = world.calm_until_healed()
    world.acknowledged(8)
    node, other = world.others(leader)
    world.stop(node)
    disk = node.disk
    del disk.data[len(disk.data) // 2 :]
    disk.cut_torn_tail()
    disk.durable = disk.end
    disk.confirmed = min(disk.confirmed, disk.end)
    disk.doubt = "a power cut"
    if seed % 2:
        world.take_down(leader, other)
        world.calm_for(10.0)
        world.down.clear()
    world.finish()
    return world


def joined_unknowingly(seed: int) -> ElectionWorld:
    """A node is in the recorded set, and the leader does not know it: the answer was lost, and the
    coordinator cannot be reached."""
    world = Scene(seed)
    leader = world.calm_until_healed()
    node, _ = world.others(leader)
    world.take_down(node)
    world.calm_for(4.0)
    world.acknowledged(3)
    world.down.clear()
    world.records_wait = True
    world.calm_for(5.0)
    world.records_wait = False
    master, process = leader.master, leader.process
    assert master is not None
    assert process is not None
    record = master.persisting
    assert record is not None
    assert any(each.node_id == node.name for each in record.members)
    assert isinstance(process.keeper, ElectedKeeper)
    held, revision = process.keeper.latest, process.keeper._revision
    txn = change_set(KEYS, held, revision, record)
    world.coordination.world.machine.txn(txn_request(txn), world.now)
    world.coordination.cut[leader.name] = world.now + 5.0
    world.part(leader, node, 5.0)
    for _ in range(80):
        world.put()
        world.calm()
    world.finish()
    return world


def acknowledged_before(seed: int) -> ElectionWorld:
    """A slave has acknowledged bytes in one epoch that it truncates in the next, and that
    acknowledgement comes again."""
    world = Scene(seed)
    old = world.calm_until_healed()
    slave, following = world.others(old)
    world.acknowledged(3)
    world.part(old, following, 60.0)
    for _ in range(8):
        world.put()
        world.calm()
    world.calm_for(0.5)
    stale = [data for name, data in world.stale_acks if name == slave.name][-1]
    world.take_down(old, slave)
    world.calm_until_led_by_another(old)
    world.down = {old.name}
    world.acknowledged(1)
    world.part(slave, following, 2.0)
    world.put()
    world.flush_node(following)
    ack = decode_slave_frame(stale)
    assert isinstance(ack, Ack)
    assert following.master is not None
    for session, stream in [*following.master.streams]:
        if session.streaming:
            stream.to_master.clear()
            stream.to_master.append(stale)
            world.deliver(following, session, stream)
    world.down.clear()
    world.finish()
    return world
