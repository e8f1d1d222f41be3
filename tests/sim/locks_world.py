"""Clients of RocketMQ that lock queues, and masters that change: a seeded simulation.

    Client ── 41, 42: late, lost ──▶ Node (LockMethods, a loop of its own) ── owners ──▶ in-sync set
      │ trusts for 30 s after the answer   │ stopped, goes on, calls itself master         │
      └── hands requests to ───────────────┘ another node, which hands them on      next master

A node that is stopped is a loop that is not run: what it was about to answer goes out when it goes
on, long after another one was elected. A client hears no answer later than its timeout after it
asked. The checker knows what clients trust, and nothing of how locks are granted:

    one owner     two clients never trust the lock of one queue at one time
    no starving   once the faults end, who wants a queue alone has it
"""

import heapq
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, cast

from fakes.clock import FakeClock
from sim.world_loop import WorldLoop, world_time
from tandemlog.v1 import common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError, not_sure
from tandemlog_server.node.remoting.clients.lock_methods import LockMethods
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall
from tandemlog_server.node.roles.role import CurrentRole
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.clients.handed_on import HANDED_ON
from tandemlog_server.rocketmq.wire.remoting import ONEWAY_FLAG, Command

NODES = ("x", "y", "z")
CLIENTS = 4
QUEUES = 3
LEASE_S = 3.0
TIMEOUT_S = 3.0
TRUST_S = 30.0
RENEW_S = 20.0
FAULTS_S = 250.0
CALM_S = 180.0
TICK_S = 0.5


class BrokenPromiseError(AssertionError):
    """What the checker found."""


class Link:
    """A connection, as LockMethods sees it."""

    def __init__(self) -> None:
        self.closed = False
        self.peer = "ipv4:10.0.0.1:1"
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        self.closed = True
        for callback in self._callbacks:
            callback()


class Table:
    """The rows of locks on one node."""

    def __init__(self) -> None:
        self.rows: dict[str, object] = {}
        self.version = 0

    def lock_rows(self) -> dict[str, object]:
        return self.rows

    def update_locks(
        self, rows: dict[str, object | None], now_ms: int, allowed: Callable[[], bool]
    ) -> bool:
        if not allowed():
            return False
        changed = {**self.rows, **rows}
        self.rows = {name: row for name, row in changed.items() if row is not None}
        self.version += 1
        return True


class Role:
    """What a node takes itself for."""

    def __init__(self, node: "Node", epoch: int | None) -> None:
        self._node = node
        self._epoch = epoch

    def epoch(self) -> int | None:
        return self._epoch

    async def leads(self) -> int:
        if self._epoch is None:
            raise RequestRefusedError(common_pb2.NOT_MASTER, "no master")
        world = self._node.world
        if world.now < self._node.lease_until:
            return self._epoch
        if not await self._node.asked(lambda: world.epoch == self._epoch):
            raise not_sure()
        return self._epoch

    async def confirm_table(self, table: str, version: int | None = None) -> None:
        node, world = self._node, self._node.world
        assert self._epoch is not None
        version, waits_until = node.table.version, world.now + 5.0
        while world.now < waits_until:
            if world.epoch == self._epoch:
                others = world.in_sync - {node.name}
            else:
                others = set(NODES) - {node.name}  # none of which will take it
            if all(node.acked.get(each, (0, 0)) >= (self._epoch, version) for each in others):
                return
            await node.asked(lambda: True)
        raise RequestRefusedError(common_pb2.OUTCOME_UNKNOWN, "not confirmed")


class Node:
    """See the module."""

    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name = world, name
        self.loop = WorldLoop(world.clock)
        self.table = Table()
        self.table_epoch = 0
        self.paused = False
        self.lease_until = 0.0
        self.acked: dict[str, tuple[int, int]] = {}
        self.links: dict[str, Link] = {}
        self.current = CurrentRole(cast("Any", Role(self, None)))
        self.group_members = self.table
        self.clock = world.clock
        self.methods = LockMethods(cast("Any", self), self.current, world.clock.monotonic)
        self.loop.begin(self.methods.run())

    def take_role(self, epoch: int | None) -> None:
        if self.current.role.epoch() != epoch:
            self.acked = {}
            self.current.set(cast("Any", Role(self, epoch)))

    async def asked(self, question: Callable[[], bool]) -> bool:
        """The answer of another node to a question, true at some moment after now."""
        answer = self.loop.create_future()
        world = self.world
        world.after(world.delay(), lambda: world.after(world.delay(), partial(heard, question())))

        def heard(said: bool) -> None:
            if not answer.done():
                answer.set_result(said)

        return bool(await answer)

    def link_of(self, peer: str) -> Link:
        link = self.links.get(peer)
        if link is None or link.closed:
            link = self.links[peer] = Link()
        return link

    def serve(self, peer: str, request: Command, answer: Callable[[Command | None], None]) -> None:
        """A frame has come; of a node that stands still it is in the socket."""
        if self.current.role.epoch() is None:
            leader = self.world.nodes[self.world.leader]
            if leader is not self:
                marked = replace(request, flag=request.flag | HANDED_ON)
                onward = partial(leader.serve, f"node {self.name}", marked, answer)
                self.world.send(self.name, leader.name, onward)
                if self.world.faulty and self.world.chance.random() < 0.1:
                    self.world.after(1.0, onward)  # the link was lost: once more
            return
        self.loop.begin(self._serve(self.link_of(peer), request, answer))

    async def _serve(
        self, link: Link, request: Command, answer: Callable[[Command | None], None]
    ) -> None:
        call = RemotingCall(request, Caller(peer=link.peer), cast("Any", link))
        try:
            if request.code == RequestCode.LOCK_BATCH_MQ:
                answer(await self.methods.lock(call))
            else:
                await self.methods.unlock(call)
        except RequestRefusedError:
            self.world.seen["refused"] += 1
            answer(None)


class Client:
    """See the module. `trust` by queue: until when."""

    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name = world, name
        self.wanted: set[int] = set()
        self.trust: dict[int, float] = {}
        self.given_up: Counter[int] = Counter()
        self.master = "x"

    def rebalance(self) -> None:
        world = self.world
        if world.faulty:
            wanted = {each for each in range(QUEUES) if world.chance.random() < 0.5}
        else:
            mine = int(self.name[1:])
            wanted = {each for each in range(QUEUES) if each % CLIENTS == mine}
        left = self.wanted - wanted
        for queue in left:
            self.trust.pop(queue, None)
            self.given_up[queue] += 1
        self.wanted = wanted
        if left and world.chance.random() < 0.7:
            self._ask(RequestCode.UNLOCK_BATCH_MQ, left, ONEWAY_FLAG)
        self.lock()
        world.after(world.chance.uniform(3, 40), self.rebalance)

    def renew(self) -> None:
        self.lock()
        self.world.after(RENEW_S, self.renew)

    def look(self) -> None:
        """The route is asked for again."""
        self.master = self.world.leader
        self.world.after(self.world.chance.uniform(1, 30), self.look)

    def lock(self) -> None:
        if self.wanted:
            self._ask(RequestCode.LOCK_BATCH_MQ, self.wanted, 0)

    def _ask(self, code: int, queues: set[int], flag: int) -> None:
        world = self.world
        rows = [{"topic": "t", "brokerName": "b", "queueId": each} for each in sorted(queues)]
        body = {"consumerGroup": "g", "clientId": self.name, "mqSet": rows}
        request = Command(code, flag=flag, body=json.dumps(body).encode())
        before = {each: self.given_up[each] for each in queues}
        node = world.nodes[
            world.chance.choice(NODES) if world.chance.random() < 0.1 else self.master
        ]
        heard = partial(self._heard, world.now, before)
        answer = partial(world.send, node.name, self.name, one_of=heard)
        world.send(self.name, node.name, partial(node.serve, self.name, request, answer))

    def _heard(self, asked_at: float, before: dict[int, int], response: Command | None) -> None:
        world = self.world
        if world.now > asked_at + TIMEOUT_S:
            world.seen["too late"] += 1
            return
        if response is None:
            return
        rows = json.loads(response.body)["lockOKMQSet"]
        granted = {row["queueId"] for row in rows}
        for queue, given_up in before.items():
            if given_up != self.given_up[queue]:
                continue
            if queue not in granted:
                self.trust.pop(queue, None)
                world.seen["not granted"] += 1
                continue
            self.trust[queue] = world.now + TRUST_S
            world.seen["granted"] += 1
            world.check(self, queue)


class World:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.clock = FakeClock()
        self.seen: Counter[str] = Counter()
        self.log: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.faulty = True
        self.began = self.now
        self.epoch, self.leader, self.lease_until = 0, "x", 0.0
        self.in_sync = set(NODES)
        self.nodes = {name: Node(self, name) for name in NODES}
        self.clients = [Client(self, f"c{number}") for number in range(CLIENTS)]

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + seconds, self._count, work))

    def delay(self) -> float:
        if self.faulty and self.chance.random() < 0.05:
            return self.chance.uniform(0.5, 6.0)
        return self.chance.uniform(0.001, 0.05)

    def send(
        self,
        sender: str,
        receiver: str,
        work: Callable[[], None] | Command | None = None,
        one_of: Callable[[Command | None], None] | None = None,
    ) -> None:
        """A frame on its way; with `one_of`, `work` is what it is called with."""
        if self.faulty and self.chance.random() < 0.05:
            self.seen["lost"] += 1
            return
        arrive = partial(one_of, cast("Command | None", work)) if one_of else work
        assert callable(arrive)
        self.after(self.delay(), partial(self._arrive, receiver, arrive))

    def _arrive(self, receiver: str, work: Callable[[], None]) -> None:
        node = self.nodes.get(receiver)
        if node is not None and node.paused:
            self.after(TICK_S, partial(self._arrive, receiver, work))
        else:
            work()

    def check(self, client: Client, queue: int) -> None:
        for other in self.clients:
            if other is not client and other.trust.get(queue, 0.0) > self.now:
                raise BrokenPromiseError(
                    f"{self.now - self.began:.2f}: {client.name} and {other.name} trust their "
                    f"locks of queue {queue}"
                )
        self.log.append(f"{self.now - self.began:.3f} {client.name} {queue}")

    # ---- masters

    def _elect(self) -> None:
        """A new master once the lease is over; a master that runs renews it."""
        master = self.nodes[self.leader]
        if not master.paused and master.current.role.epoch() == self.epoch and self.epoch:
            if not self.faulty or self.chance.random() > 0.02:
                self.lease_until = self.now + LEASE_S
                master.lease_until = self.lease_until
        elif self.now >= self.lease_until:
            ready = sorted(each for each in self.in_sync if not self.nodes[each].paused)
            if ready:
                self._lead(self.chance.choice(ready))
        self.after(0.5, self._elect)

    def _lead(self, name: str) -> None:
        self.seen["elected"] += 1
        self.epoch += 1
        self.leader, self.in_sync = name, {name}
        self.lease_until = self.now + LEASE_S
        node = self.nodes[name]
        node.take_role(self.epoch)
        node.lease_until, node.table_epoch = self.lease_until, self.epoch

    def _replicate(self) -> None:
        for node in self.nodes.values():
            epoch = node.current.role.epoch()
            if epoch is None or node.paused:
                continue
            for other in self.nodes.values():
                if other is not node:
                    copy = dict(node.table.rows), node.table.version
                    self.send(node.name, other.name, partial(self._take, node, other, epoch, *copy))
        self.after(0.4, self._replicate)

    def _take(
        self, master: Node, node: Node, epoch: int, rows: dict[str, object], version: int
    ) -> None:
        if epoch < node.table_epoch:
            # it hears so of the newer master
            self.send(node.name, master.name, partial(self._deposed, master, node.table_epoch))
            return
        if node.current.role.epoch() is not None:
            node.take_role(None)
        if (epoch, version) >= (node.table_epoch, node.table.version) or epoch > node.table_epoch:
            node.table.rows, node.table.version, node.table_epoch = rows, version, epoch
        held = node.table_epoch, node.table.version
        self.send(node.name, master.name, partial(self._acked, master, node.name, held))

    def _acked(self, master: Node, name: str, held: tuple[int, int]) -> None:
        epoch = master.current.role.epoch()
        if epoch is None or held[0] != epoch:
            return
        master.acked[name] = max(master.acked.get(name, (0, 0)), held)
        if self.epoch == epoch and held[1] == master.table.version:
            self.in_sync.add(name)

    def _deposed(self, node: Node, epoch: int) -> None:
        own = node.current.role.epoch()
        if own is not None and own < epoch:
            node.take_role(None)

    def _shrink(self) -> None:
        """A slave that stands still holds nobody up for long."""
        master = self.nodes[self.leader]
        if not master.paused and master.current.role.epoch() == self.epoch:
            self.in_sync -= {each.name for each in self.nodes.values() if each.paused}
        self.after(2.0, self._shrink)

    # ---- faults

    def _pause(self) -> None:
        if self.faulty:
            likely = self.leader if self.chance.random() < 0.7 else self.chance.choice(NODES)
            node = self.nodes[likely]
            if not node.paused and sum(each.paused for each in self.nodes.values()) < 2:
                node.paused = True
                self.seen["pause"] += 1
                self.after(self.chance.choice((1.0, 5.0, 20.0, 50.0)), partial(self._wake, node))
            self.after(self.chance.uniform(5, 40), self._pause)

    def _wake(self, node: Node) -> None:
        node.paused = False

    def _cut(self) -> None:
        if self.faulty:
            node = self.nodes[self.chance.choice(NODES)]
            if node.links and not node.paused:
                self.seen["cut"] += 1
                node.links[self.chance.choice(sorted(node.links))].close()
            self.after(self.chance.uniform(1, 20), self._cut)

    # ---- the run

    def run(self) -> None:
        for begin in (self._elect, self._replicate, self._shrink, self._pause, self._cut):
            begin()
        for client in self.clients:
            self.after(self.chance.uniform(1, 5), client.rebalance)
            self.after(self.chance.uniform(5, 25), client.renew)
            client.look()
        self._until(self.began + FAULTS_S)
        self.faulty = False
        self._until(self.now + CALM_S)
        for queue in range(QUEUES):
            owner = self.clients[queue % CLIENTS]
            if owner.trust.get(queue, 0.0) <= self.now:
                raise BrokenPromiseError(f"nobody has queue {queue} at the end")

    def _until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            at, _, work = heapq.heappop(self._events)
            while self.now + TICK_S < at:
                self.clock.advance(TICK_S)
                self._run_nodes()
            self.clock.advance(max(at - self.now, 0.0))
            work()
            self._run_nodes()

    def _run_nodes(self) -> None:
        for node in self.nodes.values():
            if not node.paused:
                node.loop.run_ready()


def play(seed: int) -> World:
    """Raises BrokenPromiseError."""
    world = World(seed)
    with world_time(world.clock, seed):
        try:
            world.run()
        finally:
            for node in world.nodes.values():
                node.loop.abandon()
    return world
