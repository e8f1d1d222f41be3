"""What chance brings too seldom: a leader that sleeps through an election, nodes that forget it.

Each is played with random details and raises ViolationError.
"""

from ha.coordinator.values import Listing
from sim.election_nodes import ElectedNode
from sim.election_world import ElectionWorld
from sim.ha_nodes import ViolationError
from storage.config import FlushMode


class Scene(ElectionWorld):
    """A world in which nothing happens by chance."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, FlushMode.SYNC)
        self.coordination.trouble = 0.0
        self.compare_s = self.prepare_s = 0.0
        for node in self.elected:
            self.start(node)

    def calm_until_healed(self) -> ElectedNode:
        for _ in range(2000):
            self.calm()
            leader = self.leader()
            if leader is not None and self.healed(leader):
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
    stale: Listing = world.coordination.now()
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
        node.process.builder.take(stale)
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
