"""A process of the world of parked sends: the real door of RocketMQ's clients over a real store.

    End ─▶ RemotingServer's session ─▶ RemotingDoor ─▶ Forwarder ─┬─▶ SendMethods, PullMethods, ...
                                                       │          └─▶ parked, or MasterLink ─▶ End
                                 roles: a term with its lease, or none │
                                                       ▼
            the log of a real store, to and from the other nodes (parking_store.py)

What nodes know of each other is what they were sent by then, as in routes_world.py.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from sim.parking_network import Process
from sim.parking_roles import Alone, Term
from sim.parking_store import Disk, Sent, common_end, opened, pieces, take
from sim.routes_world import row
from sim.served_node import InlinePump, Turns
from tandemlog.v1 import common_pb2
from tandemlog_server.ha.master.node_status import CATCHING_UP, IN_SYNC, NO_MASTER, UNREACHABLE
from tandemlog_server.node.access.doorkeeper import open_to_all
from tandemlog_server.node.groups.group_coordinator import GroupCoordinator
from tandemlog_server.node.pulls.dispatch_wait import DispatchWait
from tandemlog_server.node.pulls.group_activity import GroupActivity
from tandemlog_server.node.pulls.known_queues import KnownQueues
from tandemlog_server.node.pulls.long_polling import LongPolling
from tandemlog_server.node.pulls.queue_reads import QueueReads
from tandemlog_server.node.pulls.reading import PullLimits
from tandemlog_server.node.puts.confirm_waiters import ConfirmWaiters
from tandemlog_server.node.puts.put_pump import PumpLimits
from tandemlog_server.node.remoting.cluster.cluster_nodes import ClusterNodes
from tandemlog_server.node.remoting.cluster.forwarding import Forwarder, ForwardingLimits
from tandemlog_server.node.remoting.cluster.route_methods import RouteMethods
from tandemlog_server.node.remoting.cluster.topic_creation import TopicCreation
from tandemlog_server.node.remoting.door.remoting_call import Method, RemotingCall
from tandemlog_server.node.remoting.door.remoting_door import RemotingDoor
from tandemlog_server.node.remoting.door.remoting_server import RemotingServer
from tandemlog_server.node.remoting.door.remoting_session import RemotingSession
from tandemlog_server.node.remoting.reads.cluster_readers import ClusterReaders
from tandemlog_server.node.remoting.reads.read_methods import read_methods
from tandemlog_server.node.remoting.sends.joint_sends import JointSends
from tandemlog_server.node.remoting.sends.repeated_sends import RepeatedSends
from tandemlog_server.node.remoting.sends.second_attempts import SecondAttempts
from tandemlog_server.node.remoting.sends.send_methods import SendMethods
from tandemlog_server.node.roles.role import CurrentRole
from tandemlog_server.node.services.call_door import CallDoor
from tandemlog_server.node.services.group_service import GroupService
from tandemlog_server.node.settings.sections import GroupsSection
from tandemlog_server.rocketmq.clients.broker_topics import broker_topics
from tandemlog_server.rocketmq.clients.routes import BrokerNames
from tandemlog_server.rocketmq.clients.stored_properties import BrokerFacts
from tandemlog_server.rocketmq.wire.remoting import Command

if TYPE_CHECKING:
    from sim.parking_world import Record, World

NAMES = ("n0", "n1", "n2")
BROKER = "b"
BEAT_S = 0.1
LEASE_S = 0.6
DEAD_S = 0.4
PUT_TIMEOUT_S = 5.0


class WatchedForwarder(Forwarder):
    """`waits`: since and until when requests are parked."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.waits: list[tuple[float, float]] = []

    async def _wait(self, until: float) -> bool:
        wait = self._loop.time(), until
        self.waits.append(wait)
        try:
            return await super()._wait(until)
        finally:
            self.waits.remove(wait)


class WatchedDoor(RemotingDoor):
    """Whose answers the world hears of."""

    answered: Callable[[RemotingCall, Command], None]

    def ended(
        self, call: RemotingCall, response: Command | None, problem: Exception | None
    ) -> Command | None:
        made = super().ended(call, response, problem)
        if made is not None:
            self.answered(call, made)
        return made


class Node(Process):
    """See the module. `members` is the set that the coordinator has, as far as this master knows,
    `wanted` the one that it asks for; `held` by node: up to where its log is this one, on disk."""

    def __init__(self, world: "World", name: str, disk: Disk) -> None:
        super().__init__(world.network, name)
        self.world, self.disk = world, disk
        self.door_address = f"{name}:1"
        self.clock = world.clock
        self.store = opened(disk, world.clock, f"10.0.0.1:{10_911 + NAMES.index(name)}")
        self.current = CurrentRole(Alone(self))
        self.ran_at = self.heard_at = self.thawed_at = world.now
        self.lease_until = 0.0
        self.master = ""
        self.aligned = False
        self.frames: list[common_pb2.NodeStatus] = []
        self.members: frozenset[str] = frozenset()
        self.version = 0
        self.wanted: frozenset[str] | None = None
        self.held: dict[str, int] = {}
        self.acked_at: dict[str, float] = {}
        self._pushing = self._flushing = self._dispatching = False
        self.tasks = self.loop.begin(self._begin())
        self.loop.run_ready()

    async def _begin(self) -> None:
        self._compose()
        self.loop.create_task(self._beat())
        self.server.run_beside(self.server._look(), "look")
        self.store.log.wrote.listen(self._wrote)
        self.store.confirmed.listen(self._confirmed)
        self._confirmed()

    def _compose(self) -> None:
        """As rocketmq_clients.py."""
        store, current, loop = self.store, self.current, self.loop
        turns: Any = Turns()
        positions = (store.confirmed, store.log.flushed)
        waiters = ConfirmWaiters(positions, lambda: current.role.epoch(), loop)
        current.on_change = waiters.check
        limits = PumpLimits(1 << 20, int(PUT_TIMEOUT_S * 1000))
        pump = InlinePump(
            store, current, waiters, loop, store_host=store.config.store_host, limits=limits
        )
        self.cluster = ClusterNodes(
            BrokerNames("C", BROKER), current, self.rows, node_id=self.host,
            address=self.door_address, founders=NAMES, now=loop.time,
        )  # fmt: skip
        repeated = RepeatedSends(store, current, waiters, lambda: PUT_TIMEOUT_S)
        limit = ForwardingLimits(requests=self.world.parked_most)
        self.forwarder = WatchedForwarder(self.cluster, repeated, limits=limit)
        self.joint = JointSends(
            pump, current, timeout_s=PUT_TIMEOUT_S, most_parked_bytes=self.world.parked_bytes
        )
        topics = TopicCreation(store, current, broker_topics("C", BROKER))
        self.attempts = SecondAttempts(store, current, loop.time)
        keys = count(1)
        sends = SendMethods(
            store, self.joint, topics, turns, BrokerFacts("C"), broker_name=BROKER,
            new_key=lambda: f"KEY{next(keys)}", attempts=self.attempts,
        )  # fmt: skip
        known = KnownQueues(store.topics, store.queue_table)
        groups = GroupCoordinator(store, current, self.clock.monotonic, GroupsSection())
        members = GroupService(
            store, groups, known, turns, GroupActivity(100, self.clock.monotonic)
        )
        polling = LongPolling(loop, lambda: store.queue_table.count)
        store.on_dispatch(lambda queues: polling.on_dispatch(queues.tolist()))
        reads = QueueReads(
            store.reader,
            polling,
            turns,
            check=known.check_queue,
            dense=store.queue_table.get,
            ends=store.queues.ends_of,
            dispatched=DispatchWait(store).confirmed,
            on_slave=lambda: current.role.epoch() is None,
            limits=PullLimits(max_bytes=1 << 20, max_wait_ms=60_000, long_polls=4_096),
            log_term=lambda: store.log_identity.newest,
        )
        readers = ClusterReaders(self.cluster, self.rows, loop.time)
        read = read_methods(
            store, reads, members, known, turns, current,
            subscribed=lambda group, topic: None, readers=readers,
        )  # fmt: skip
        routes = RouteMethods(store, self.cluster, topics, self.forwarder, turns)
        table: dict[int, Method] = {}
        for part in (sends, read.pulls, read.offsets, routes):
            table |= part.methods()
        calls = CallDoor(
            turns, max_calls=4_096, max_streams=16, keeper=open_to_all(self.clock.monotonic)
        )
        door = WatchedDoor(calls, table, self.forwarder)
        door.answered = partial(self.world.checks.answered, self)
        self.server = RemotingServer(door, calls.keeper.audit, frame_bytes=1 << 20)
        self.calls = calls
        for stop in (self.forwarder.close, self.joint.close, read.pulls.on_stop):
            self.server.on_stop(stop)
        current.listen(read.pulls.on_role_change)
        self.accept = self._session

    def _session(self) -> RemotingSession:
        server = self.server

        def on_begin(session: RemotingSession) -> None:
            server._sessions[session] = None
            server._shares.take(session.host)

        return RemotingSession(
            server._door,
            server._budget,
            server._strangers,
            largest=server._largest,
            left_out=lambda peer: None,
            on_begin=on_begin,
            on_end=server._ended,
        )

    @property
    def sessions(self) -> list[RemotingSession]:
        return list(self.server._sessions)

    # ---- roles

    @property
    def leads(self) -> bool:
        return isinstance(self.current.role, Term)

    @property
    def epoch(self) -> int:
        return self.disk.epoch

    def stood_still(self) -> bool:
        return self.world.now - self.ran_at > DEAD_S

    def leased(self) -> bool:
        return self.world.now < self.lease_until

    @property
    def in_force(self) -> frozenset[str]:
        return self.members | (self.wanted or frozenset())

    def rows(self) -> list[common_pb2.NodeStatus]:
        """As the roles give them."""
        if self.leads:
            rows = [row(self.host, "running", master=True)]
            for each in NAMES:
                if each != self.host:
                    there = self._is_there(each)
                    state = IN_SYNC if each in self.members else CATCHING_UP
                    rows.append(row(each, state if there else UNREACHABLE, there))
            return rows
        if not self.master:
            return [row(each, NO_MASTER if each == self.host else UNREACHABLE) for each in NAMES]
        lost = self.world.now - self.heard_at > DEAD_S
        if not self.frames:
            unmet = common_pb2.NodeStatus(
                node_id=f"{self.master}:0", endpoint=f"{self.master}:0",
                role=common_pb2.MASTER, state=UNREACHABLE,
            )  # fmt: skip
            return [unmet, row(self.host, CATCHING_UP)]
        if not lost:
            return self.frames
        others = [each for each in self.frames if each.role != common_pb2.MASTER]
        return [*others, row(self.master, UNREACHABLE, master=True)]

    def _is_there(self, name: str) -> bool:
        return self.world.now - self.acked_at.get(name, float("-inf")) < DEAD_S

    async def _beat(self) -> None:
        while True:
            if self.stood_still():
                self.held.clear()  # what came meanwhile is from before
            self.ran_at = self.world.now
            self.world.coordinator.renew(self)
            if self.leads:
                self._look_at_members()
                self.push()
            await asyncio.sleep(BEAT_S)

    def hear(self, record: "Record", asked_at: float) -> None:
        """The coordinator's answer."""
        if record.epoch < self.epoch:
            return
        if self.leads and record.epoch == self.epoch:
            if record.leader == self.host:
                self.lease_until = max(self.lease_until, asked_at + LEASE_S)
                self._settle(record)
            return
        if record.epoch > self.epoch:
            if record.leader == self.host:
                self._lead(record, asked_at)
            else:
                self.follow(record.epoch, record.leader)
        elif not record.led:
            self._wait()
        elif not self.master and record.leader != self.host:
            self.follow(record.epoch, record.leader)

    def _wait(self) -> None:
        """The lease of the master is over, and no other one is there."""
        if self.master and not self.leads and self.world.now - self.heard_at > DEAD_S:
            self.master, self.frames = "", []
            self.current.set(Alone(self))

    def _lead(self, record: "Record", asked_at: float) -> None:
        self.disk.epoch, self.master = record.epoch, self.host
        self.members, self.version, self.wanted = record.members, record.version, None
        self.held, self.acked_at = {}, {}
        self.lease_until = asked_at + LEASE_S
        self.store.become_master(record.epoch)
        self.world.checks.elected(self)
        self.current.set(Term(self, record.epoch))
        self.push()

    def follow(self, epoch: int, leader: str) -> None:
        if self.leads:
            self.step_down()
        self.disk.epoch = max(self.disk.epoch, epoch)
        self.master, self.aligned, self.frames = leader, False, []
        self.current.set(Alone(self))

    def step_down(self) -> None:
        """As a term ends: first a role without an epoch."""
        self.master, self.frames, self.aligned = "", [], False
        self.current.set(Alone(self))
        self.store.become_slave()
        self.store.flush()

    # ---- the set of a master

    def _look_at_members(self) -> None:
        now, store = self.world.now, self.store
        for name in NAMES:
            self.acked_at.setdefault(name, now)
        silent = {each for each in self.members if not self._is_there(each)} - {self.host}
        least = max(store.confirmed.value, store.epochs.table.entries[-1].start_offset)
        whole = {each for each, end in self.held.items() if end >= least and self._is_there(each)}
        if self.wanted is None:
            wanted = (self.members - silent) | whole
            self.wanted = frozenset(wanted) if wanted != self.members else None
        if self.wanted is not None:
            self.world.coordinator.change(self, self.wanted, self.version)

    def _settle(self, record: "Record") -> None:
        if record.version > self.version:
            self.members, self.version, self.wanted = record.members, record.version, None
            self._count_confirmed()
            self.push()

    def acked(self, name: str, epoch: int, end: int) -> None:
        """What a slave says of its log."""
        if not self.leads or epoch != self.epoch:
            if epoch > self.epoch:
                self.follow(epoch, "")
            return
        self.acked_at[name] = self.world.now
        first = name not in self.held
        self.held[name] = end
        self._count_confirmed()
        if first:
            self.push()

    def _count_confirmed(self) -> None:
        if not self.leads or self.stood_still():
            return
        ends = [self.held.get(each, 0) for each in self.in_force if each != self.host]
        end = min([*ends, self.store.log.flushed.value])
        if end > self.store.confirmed.value:
            self.store.advance_confirmed(end)

    # ---- the log

    def _wrote(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.loop.call_later(self.world.chance.uniform(0.0002, 0.004), self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self.store.flush()
        if self.leads:
            self._count_confirmed()
            self.push()
        elif self.master:
            self._acknowledge()

    def _confirmed(self) -> None:
        if not self._dispatching:
            self._dispatching = True
            slow = self.world.faulty and self.world.chance.random() < 0.05
            self.loop.call_later(
                self.world.chance.uniform(0.0, 1.0 if slow else 0.01), self._dispatch
            )
        if self.leads:
            self.push()

    def _dispatch(self) -> None:
        self._dispatching = False
        self.store.reput.run_to()

    def push(self) -> None:
        """Send what slaves do not have, a moment later."""
        if not self._pushing:
            self._pushing = True
            self.loop.call_later(self.world.chance.uniform(0.0001, 0.002), self._push)

    def _push(self) -> None:
        self._pushing = False
        if not self.leads:
            return
        entries, store = self.store.epochs.table.entries, self.store
        for name in NAMES:
            start = self.held.get(name)
            if name == self.host:
                continue
            cut = [] if start is None else pieces(store, start, entries)
            sent = Sent(self.host, self.epoch, entries, start, cut, store.confirmed.value)
            self.world.carry(self.host, name, partial(Node.take_log, sent=sent, rows=self.rows()))

    def take_log(self, sent: Sent, rows: list[common_pb2.NodeStatus]) -> None:
        """What a master has sent."""
        if sent.epoch < self.epoch:
            self.world.carry(self.host, sent.leader, lambda node: node.acked("", self.epoch, 0))
            return
        if sent.epoch > self.epoch or self.master != sent.leader:
            self.follow(sent.epoch, sent.leader)
        self.heard_at, self.frames = self.world.now, rows
        store = self.store
        if not self.aligned:
            end = common_end(store, sent.entries)
            if end < store.log.wrote.value:
                self.world.seen["truncated"] += 1
                store.truncate(end)
            self.aligned = True
        take(store, sent)
        confirmed = min(sent.confirmed, store.log.flushed.value)
        if confirmed > store.confirmed.value:
            store.advance_confirmed(confirmed)
        if not self._flushing:
            self._acknowledge()

    def _acknowledge(self) -> None:
        name, epoch, end = self.host, self.epoch, self.store.log.flushed.value
        if self.aligned:
            self.world.carry(name, self.master, lambda node: node.acked(name, epoch, end))
