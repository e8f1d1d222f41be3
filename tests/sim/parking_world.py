"""Clients of RocketMQ whose sends and pulls wait on nodes that fail: a seeded simulation.

    Producer ──┐                        ┌── n0: door, forwarder, sends, pulls, log
    Producer ──┼── Network: late, cut, ─┼── n1       │ lease, set in sync
    Consumer ──┘   lost, out of reach   └── n2 ── Coordinator: epoch, leader, lease, set

All of a node's door is the real code, and so is its log; what is simulated is the network, the
election and the stream between logs. Nodes are killed and start again, stand still and go on, are
out of reach of all or of some, are stopped as planned, or give the lead up.

    for FAULTS_S      all of that, at any time
    then, at rest     the master stops as planned   no send fails, no pull
                      the next one is lost          no send fails (save where it stands still)
                      LAST_S without sends          everybody has everything
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from sim.parking_checks import Checks
from sim.parking_clients import PULL_S, REST_S, Consumer, Producer
from sim.parking_network import Network, Process, WorldClock
from sim.parking_node import LEASE_S, NAMES, Node
from sim.parking_store import Disk
from sim.world_loop import world_time
from tandemlog.testing.memory_files import MemoryFiles

COORDINATOR = "k"
SESSION_S = 0.5
FAULTS_S = 25.0
LAST_S = 4.0
LOOK_S = 0.25


class BrokenPromiseError(AssertionError):
    """What the checker found."""


@dataclass(frozen=True)
class Record:
    """What the coordinator has. `led`: whether the leader's lease holds."""

    epoch: int
    leader: str
    members: frozenset[str]
    version: int
    led: bool = True


class Coordinator:
    """One record that is changed by comparison, and who has given a sign of life."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.record = Record(0, NAMES[0], frozenset(NAMES), 0)
        self.lease_until = 0.0
        self._seen_at: dict[str, float] = {}

    def renew(self, node: Node) -> None:
        asked_at, leads, epoch = self.world.now, node.leads, node.epoch

        def asked() -> None:
            self._seen_at[node.host] = self.world.now
            if leads and node.host == self.record.leader and epoch == self.record.epoch:
                self.lease_until = self.world.now + LEASE_S
            led = self.world.now < self.lease_until
            self._answer(node, replace(self.record, led=led), asked_at)

        self._ask(node, asked)

    def change(self, node: Node, members: frozenset[str], version: int) -> None:
        epoch, asked_at = node.epoch, self.world.now

        def asked() -> None:
            if (self.record.epoch, self.record.version) == (epoch, version):
                self.record = replace(self.record, members=members, version=version + 1)
                self.world.say(f"in sync: {sorted(members)}")
            self._answer(node, self.record, asked_at)

        self._ask(node, asked)

    def resign(self, node: Node) -> None:
        if self.record.leader == node.host:
            self.lease_until = 0.0
            self._seen_at.pop(node.host, None)

    def _ask(self, node: Node, asked: Callable[[], None]) -> None:
        world = self.world
        if not world.network.is_cut(node.host, COORDINATOR):
            world.network.after(world.network.delay(), asked)

    def _answer(self, node: Node, record: Record, asked_at: float) -> None:
        world = self.world
        if not world.network.is_cut(node.host, COORDINATOR):
            world.network.after(
                world.network.delay(), partial(world.run_on, node, node.hear, record, asked_at)
            )

    def elect(self) -> None:
        world = self.world
        if world.now >= self.lease_until:
            ready = [
                each
                for each in sorted(self.record.members)
                if world.now - self._seen_at.get(each, -1.0) < SESSION_S
            ]
            if ready:
                leader = world.chance.choice(ready)
                self.record = Record(
                    self.record.epoch + 1, leader, frozenset(ready), self.record.version + 1
                )
                self.lease_until = world.now + LEASE_S
                world.say(f"elected: {leader} in {self.record.epoch}, with {ready}")
        world.network.after(0.05, self.elect)


class World:
    """See the module."""

    def __init__(self, seed: int, clock: WorldClock) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.clock = clock
        self.network = Network(self.clock, self.chance)
        self.seen: Counter[str] = Counter()
        self.log: list[str] = []
        self.faulty, self.sending = True, True
        self.quiet_since: float | None = None
        self.gone = ""
        self.armed: dict[Node, Callable[[], None]] = {}
        self.began = self.now
        self.min_in_sync = self.chance.choice((1, 2, 2))
        self.parked_most = self.chance.choice((3, 16_384, 16_384))
        self.parked_bytes = self.chance.choice((700, 1 << 20, 1 << 20))
        self.checks = Checks(self)
        self.network.processes[COORDINATOR] = Process(self.network, COORDINATOR)
        self.coordinator = Coordinator(self)
        self.doors = [f"{name}:1" for name in NAMES]
        self.disks = {name: Disk(MemoryFiles()) for name in NAMES}
        self.nodes: dict[str, Node] = {}
        for name in NAMES:
            self.network.processes[name] = self.network.processes[COORDINATOR]
        for name in NAMES:
            self.start(name)
        self.consumers = [Consumer(self, "c0")]
        self.clients = [Producer(self, "p0"), Producer(self, "p1"), *self.consumers]
        for client in self.clients:
            self.network.processes[client.host] = client

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    @property
    def is_narrow(self) -> bool:
        """Whether nodes have so little room that they refuse what waits."""
        return self.parked_most < 16 or self.parked_bytes < 1 << 16

    def say(self, what: str) -> None:
        self.log.append(f"{self.now - self.began:.3f} {what}")

    def fail(self, problem: str) -> None:
        recent = "\n".join(self.log[-30:])
        broken = BrokenPromiseError(f"at {self.now - self.began:.3f}: {problem}\n{recent}")
        self.network.problem = self.network.problem or broken
        raise broken

    def run_on(self, node: Node, work: Callable[..., object], *arguments: object) -> None:
        """In the loop of the node, if it still is that process."""
        if node.up:
            node.loop.call_soon(partial(work, *arguments))

    def carry(self, sender: str, receiver: str, work: Callable[[Node], object]) -> None:
        """A message between logs, which may be lost."""
        node = self.nodes.get(receiver)
        if node is None or self.network.is_cut(sender, receiver):
            return
        self.network.after(self.network.delay(), partial(self._arrive, sender, node, work))

    def _arrive(self, sender: str, node: Node, work: Callable[[Node], object]) -> None:
        if not self.network.is_cut(sender, node.host):
            self.run_on(node, work, node)

    # ---- processes

    def start(self, name: str) -> None:
        node = self.nodes[name] = Node(self, name, self.disks[name])
        self.network.processes[name] = node
        self.say(f"{name} starts")

    def _start_again(self, node: Node) -> None:
        if self.nodes[node.host] is node:
            self.start(node.host)

    def kill(self, node: Node) -> None:
        self.say(f"{node.host} is killed")
        self._count(node)
        node.reset_connections()
        node.store._lock_file.release()
        node.loop.abandon()
        node.disk.files.kill()
        back = self.chance.uniform(0.3, 6.0 if self.faulty else 1.0)
        self.network.after(back, partial(self._start_again, node))

    def freeze(self, node: Node, seconds: float = 0.0) -> None:
        node.frozen = True
        self.say(f"{node.host} stands still")
        seconds = seconds or self.chance.choice((0.2, 0.5, 1.5, 5.0))
        self.network.after(seconds, partial(self.thaw, node))

    def thaw(self, node: Node) -> None:
        if node.up and node.frozen:
            self.say(f"{node.host} goes on")
            node.frozen, node.thawed_at = False, self.now

    def stop(self, node: Node) -> None:
        """A planned stop, of a master behind a change of master."""

        async def stopping() -> None:
            node.server.answer_parked()
            if node.leads:
                node.step_down()
            await node.server.stop(1.0)
            self.network.after(0.0, partial(self._stopped, node))

        self.say(f"{node.host} stops")
        self.coordinator.resign(node)
        node.loop.begin(stopping())

    def _stopped(self, node: Node) -> None:
        if node.up:
            self.kill(node)

    def give_up(self, node: Node) -> None:
        """A switchover."""
        self.say(f"{node.host} gives the lead up")
        self.coordinator.resign(node)
        node.loop.call_soon(node.step_down)

    def part(self, node: Node) -> None:
        """Out of reach of all, of the other nodes, of the coordinator, or of clients."""
        others = [each for each in self.network.processes if each != node.host]
        nodes = [each for each in NAMES if each != node.host]
        clients = [each for each in others if each[0] in "pc"]
        chosen = self.chance.choice(
            (others, others, [*nodes, COORDINATOR], nodes, [COORDINATOR], clients)
        )
        self.say(f"{node.host} is apart from {chosen}")
        self.network.part(node.host, chosen)
        self.network.after(self.chance.choice((0.2, 1.0, 3.0, 8.0)), partial(self._join, node.host))

    def _join(self, name: str) -> None:
        self.say(f"{name} is joined")
        self.network.join(name, list(self.network.processes))

    def at_an_answer(self, node: Node) -> None:
        """The node has stored a send, and its answer is on its way: what was to come comes now."""
        if (work := self.armed.pop(node, None)) is not None:
            self.network.after(self.chance.choice((0.0, 0.001)), partial(self._strike, node, work))
        elif self.faulty and self.chance.random() < 0.03:
            self.network.after(0.0, self.cut)

    def _strike(self, node: Node, work: Callable[[], None]) -> None:
        if node.up and not node.frozen:
            work()

    def cut(self) -> None:
        """A connection, in the middle of an answer if there is one."""
        ends = [end for node in self.nodes.values() if node.up for end in node.ends]
        busy = [end for end in ends if end.coming or end.far.coming]
        if found := busy or ends:
            end = self.chance.choice(found)
            self.seen["cut"] += 1
            self.say(f"cut {end.process.host} {end.far.process.host}")
            end.far.cut()
            end.cut()

    # ---- the run

    def misfortune(self) -> None:
        if not self.faulty:
            return
        up = [each for each in self.nodes.values() if each.up and not each.frozen]
        leading = [each for each in up if each.leads]
        choices = leading if leading and self.chance.random() < 0.7 else up
        what = self.chance.choice(
            ("kill", "kill", "freeze", "part", "stop", "give up", "cut", "cut")
        )
        if what == "cut":
            self.cut()
        elif choices:
            node = self.chance.choice(choices)
            if what in ("kill", "freeze", "stop") and len(up) < 3:
                return self.network.after(self.chance.uniform(0.2, 1.0), self.misfortune)
            self.seen[what] += 1
            work = {"kill": self.kill, "freeze": self.freeze, "part": self.part,
                    "stop": self.stop, "give up": self.give_up}  # fmt: skip
            if node.leads and what in ("kill", "freeze", "part") and self.chance.random() < 0.7:
                self.armed[node] = partial(work[what], node)
            else:
                work[what](node)
        if self.chance.random() < 0.2:
            self.network.slow = self.chance.choice((0.0, 0.01, 0.05))
        self.network.after(self.chance.uniform(0.1, 4.0), self.misfortune)
        return None

    def look(self) -> None:
        self.checks.check_bounds()
        self.network.after(LOOK_S, self.look)

    def run(self) -> None:
        self.coordinator.elect()
        self.look()
        self.network.after(2.0, self.misfortune)
        self.network.run_until(self.began + FAULTS_S)
        self.heal()
        self.network.run_until(self.now + REST_S)
        for client in self.clients:  # a route of before may have one node alone, for 30 s
            client.loop.begin(client.look())
        self.network.run_until(self.now + LOOK_S)
        self.quiet_since = self.now
        self.stop(self.leading)
        self.network.run_until(self.now + REST_S)
        if self.seed % 2:
            self.gone = self.leading.host
            self.freeze(self.leading, REST_S)
        else:
            self.kill(self.leading)
        self.network.run_until(self.now + 2 * REST_S)
        self.sending = False
        self.network.run_until(self.now + LAST_S)
        if any(consumer.old for consumer in self.consumers):
            # 4.9.7 waits out the time of a pull whose connection has ended in order
            self.network.run_until(self.now + PULL_S)
        self.checks.check_end()
        for node in self.nodes.values():
            self._count(node)

    def _count(self, node: Node) -> None:
        """What a process has done in its time."""
        self.seen["handed on"] += node.forwarder.handed_on_total
        self.seen["repeated"] += node.forwarder.repeated_total
        self.seen["found"] += node.attempts.found_total

    @property
    def leading(self) -> Node:
        """The master, as the coordinator has it."""
        return self.nodes[self.coordinator.record.leader]

    def heal(self) -> None:
        self.say("all is well")
        self.faulty, self.network.slow = False, 0.0
        self.armed.clear()
        for node in self.nodes.values():
            self.thaw(node)
            self._join(node.host)
            if not node.up:
                self.start(node.host)

    def close(self) -> None:
        for process in self.network.processes.values():
            if not process.loop.is_closed():
                process.loop.abandon()


def play(seed: int) -> World:
    """One run. Raises BrokenPromiseError."""
    clock = WorldClock()
    with world_time(clock, seed):
        world = World(seed, clock)
        try:
            world.run()
        finally:
            world.close()
    return world
