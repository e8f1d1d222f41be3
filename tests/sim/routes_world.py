"""Consumers of RocketMQ with routes of up to 30 s ago, and masters that are killed: a simulation.

    Consumer ── 105, every 30 s ──▶ any node: ClusterNodes ─▶ placement ─▶ route
       │ which broker id each queue is read from, by the last answer
       └──── pull ──▶ the address of that id in its route: ClusterReaders ─▶ the next id

What nodes know is what the others have told them by then: a slave notices late that its master is
gone, a new master meets its slaves one by one, a restarted node is in sync after a while. Consumers
find the address of an id as RocketMQ's clients do. The checker knows who is up:

    no pull to a dead node    when a master is killed, nor later
    no reader of the master   once the cluster has been whole for SETTLED_S: it may be killed next

A master is killed ROUTE_S after the cluster is whole again, and later: within that time a second
kill can meet a route of before the first one that has no other node.
"""

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, cast

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.master.node_status import CATCHING_UP, IN_SYNC, NO_MASTER, UNREACHABLE
from tandemlog_server.node.remoting.cluster.cluster_nodes import ClusterNodes
from tandemlog_server.node.remoting.reads.cluster_readers import ClusterReaders
from tandemlog_server.rocketmq.clients.pull_requests import reader_of
from tandemlog_server.rocketmq.clients.routes import BrokerNames, route
from tandemlog_server.storage.metadata.topics import TopicConfig

NAMES = ("n0", "n1", "n2")
TOPIC = TopicConfig("t", 4, 4, 6)
CONSUMERS, QUEUES = 4, 4
ROUTE_S = 30.0
TICK_S = 0.1
SETTLED_S = 3.0
RUN_S = 300.0


class BrokenPromiseError(AssertionError):
    """What the checker found."""


class Role:
    """What a node takes itself for."""

    def __init__(self, epoch: int | None) -> None:
        self._epoch = epoch

    def epoch(self) -> int | None:
        return self._epoch


class Node:
    """`master`: whom it follows, or leads as; None while it knows none. `told`: whether it has rows
    of that master. `met`: the slaves that the master has met, and whether they are in sync."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.door = f"{name}:1"
        self.start()

    def start(self) -> None:
        """As a process that remembers nothing."""
        self.up = True
        self.role = Role(None)
        self.master: str | None = None
        self.told = self.lost = False
        self.met: dict[str, bool] = {}
        self.nodes = ClusterNodes(
            BrokerNames("C", "b"),
            cast("Any", self),
            self.rows,
            node_id=self.name,
            address=self.door,
            founders=NAMES,
            now=lambda: self.world.now,
        )
        self.readers = ClusterReaders(self.nodes, self.rows, lambda: self.world.now)

    def become(self, master: str | None) -> None:
        self.master, self.told, self.lost, self.met = master, False, False, {}
        self.role = Role(self.world.epoch if master == self.name else None)

    @property
    def leads(self) -> bool:
        return self.master == self.name

    def rows(self) -> list[common_pb2.NodeStatus]:
        """As the roles give them (master_role.py, slave_role.py, cluster_rows.py)."""
        world = self.world
        if self.master is None:
            return [
                row(each, NO_MASTER if each in world.leases else UNREACHABLE, each in world.leases)
                for each in NAMES
            ]
        if self.leads:
            return self.masters_rows()
        if not self.told:
            master = common_pb2.NodeStatus(
                node_id=f"{self.master}:0",
                endpoint=f"{self.master}:0",
                role=common_pb2.MASTER,
                state=UNREACHABLE,
            )
            return [master, row(self.name, CATCHING_UP)]
        rows = list(world.frames[self.master])
        if self.lost:
            rows = [each for each in rows if each.role != common_pb2.MASTER]
            rows.append(row(self.master, UNREACHABLE, master=True))
        return rows

    def masters_rows(self) -> list[common_pb2.NodeStatus]:
        rows = [row(self.name, "running", master=True)]
        for each in NAMES:
            if each != self.name:
                met = each in self.met
                state = (IN_SYNC if self.met[each] else CATCHING_UP) if met else UNREACHABLE
                rows.append(row(each, state, met))
        return rows


def row(
    name: str, state: str, known: bool = True, *, master: bool = False
) -> common_pb2.NodeStatus:
    return common_pb2.NodeStatus(
        node_id=name,
        endpoint=f"{name}:0" if known else "",
        rocketmq_endpoint=f"{name}:1" if known else "",
        role=common_pb2.MASTER if master else common_pb2.SLAVE,
        state=state,
    )


class Consumer:
    """As MQClientInstance and PullAPIWrapper; `which` has a broker id for each queue."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.which = dict.fromkeys(range(QUEUES), 0)
        self.table: dict[int, str] = {}
        self.next_route_at = world.random.uniform(0, ROUTE_S)

    def look(self) -> None:
        """Ask a name server that answers, and keep what it says."""
        node = self.world.random.choice([each for each in self.world.nodes.values() if each.up])
        document = json.loads(route(TOPIC, node.nodes.placement()))
        broker = next(each for each in document["brokerDatas"] if each["brokerName"] == "b")
        self.table = {int(number): address for number, address in broker["brokerAddrs"].items()}
        self.next_route_at = self.world.now + ROUTE_S

    def address(self, number: int) -> str:
        """findBrokerAddressInSubscribe: the id, the one above it, the first that there is."""
        found = self.table.get(number)
        if found is None and number:
            found = self.table.get(number + 1)
        return found or self.table[min(self.table)]

    def pull(self, queue: int) -> None:
        node = self.world.by_door[self.address(self.which[queue])]
        if not node.up:
            self.world.fail(
                f"consumer {self.number} reads queue {queue} from {node.name}, which is down: "
                f"broker {self.which[queue]} of {self.table}"
            )
        slaves = node.readers.slaves() or (node.readers.own(),)
        self.which[queue] = reader_of("t", queue, slaves)


class World:
    """A run; `log` has what happened."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.epoch = 1
        self.log: list[str] = []
        self.seen: Counter[str] = Counter()
        self.leases = set(NAMES)
        self.frames: dict[str, list[common_pb2.NodeStatus]] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self.whole_since: float | None = None
        self.nodes = {name: Node(self, name) for name in NAMES}
        self.by_door = {node.door: node for node in self.nodes.values()}
        self.consumers = [Consumer(self, number) for number in range(CONSUMERS)]

    def fail(self, problem: str) -> None:
        recent = "\n".join(self.log[-12:])
        raise BrokenPromiseError(f"at {self.now:.2f}: {problem}\n{recent}")

    def later(self, least: float, most: float, what: Callable[[], None]) -> None:
        self._made += 1
        self._due.append((self.now + self.random.uniform(least, most), self._made, what))

    def say(self, what: str) -> None:
        self.log.append(f"{self.now:.2f} {what}")

    # ---- masters

    def lead(self, name: str) -> None:
        self.epoch += 1
        self.say(f"{name} leads")
        self.seen["elected"] += 1
        for node in self.nodes.values():
            if node.up:
                node.become(name)
                if node.name != name:
                    self.follow(node, name)

    def follow(self, node: Node, master: str) -> None:
        self.later(0.02, 1.0, lambda: self._meet(node, master))

    def _meet(self, node: Node, master: str) -> None:
        leading = self.nodes[master]
        if not (node.up and leading.up and node.master == master and leading.leads):
            return
        leading.met[node.name] = False
        self._tell(leading)
        node.told = True
        self.later(0.05, 1.5, lambda: self._in_sync(node, leading))

    def _in_sync(self, node: Node, leading: Node) -> None:
        if node.name in leading.met and leading.leads and leading.up and node.up:
            leading.met[node.name] = True
            self._tell(leading)
            self.say(f"{node.name} is in sync")
            if leading.met == {each: True for each in NAMES if each != leading.name}:
                self.whole_since = self.now

    def _tell(self, leading: Node) -> None:
        self.frames[leading.name] = leading.masters_rows()

    def kill(self) -> None:
        master = next(each for each in self.nodes.values() if each.leads)
        self.say(f"kill {master.name}")
        self.seen["kill"] += 1
        self.whole_since = None
        master.up = False
        slaves = [each for each in self.nodes.values() if each.up]
        for slave in slaves:
            self.later(0.0, 0.2, lambda slave=slave: setattr(slave, "lost", True))  # type: ignore[misc]
        lease = self.random.uniform(0.1, 0.4)
        self.later(lease, lease, lambda: self._without(master.name, slaves))
        self.later(0.45, 1.5, lambda: self.lead(self.random.choice(slaves).name))
        self.later(1.6, 20.0, lambda: self._restart(master))

    def _without(self, master: str, slaves: list[Node]) -> None:
        self.leases.discard(master)
        for slave in slaves:
            slave.become(None)

    def _restart(self, node: Node) -> None:
        self.say(f"{node.name} is back")
        self.leases.add(node.name)
        node.start()
        leading = next(each for each in self.nodes.values() if each.up and each.leads)
        node.become(leading.name)
        self.follow(node, leading.name)

    # ---- time

    def run(self) -> None:
        self.lead(self.random.choice(NAMES))
        next_kill = 0.0
        while self.now < RUN_S:
            self.now = round(self.now + TICK_S, 3)
            for each in sorted(due for due in self._due if due[0] <= self.now):
                self._due.remove(each)
                each[2]()
            settled = self.whole_since is not None and self.now - self.whole_since > SETTLED_S
            self.seen["whole"] += settled
            for consumer in self.consumers if self.seen["whole"] else ():
                if self.now >= consumer.next_route_at or not consumer.table:
                    consumer.look()
                for queue in range(QUEUES):
                    consumer.pull(queue)
                    self.seen["pull"] += 1
                if settled:
                    self._check_readers(consumer)
            if settled and not next_kill:
                next_kill = self.now + self.random.uniform(ROUTE_S, 50.0)
            if settled and next_kill and self.now >= next_kill:
                next_kill = 0.0
                self.kill()

    def _check_readers(self, consumer: Consumer) -> None:
        for queue, number in consumer.which.items():
            if self.by_door[consumer.address(number)].leads:
                self.fail(
                    f"consumer {consumer.number} reads queue {queue} from the master: broker "
                    f"{number} of {consumer.table}"
                )


def play(seed: int) -> World:
    """One run. Raises BrokenPromiseError."""
    world = World(seed)
    world.run()
    return world
