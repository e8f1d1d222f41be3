"""The coordinator of another cluster, to which a wrong address leads a node that has its own.

    own coordinator    uuid, record, rows of a, b, c
    the other one      another uuid and record, rows of other nodes a, b, c: nothing changes there
                       or nothing at all (new, or its data was lost): no cluster begins there

Both clusters have one name, and their nodes have the same names. A process that started there stays
until an operator has corrected the address and starts it again; a client of the coordinator that
has spoken to one never goes on with another (ha/coordinator/guard.py).
"""

from abc import ABC
from random import Random

from fakes.clock import FakeClock
from fakes.fake_coordinator import CoordinatorWorld, FakeCoordinator
from sim.election_losses import ElectionLosses
from sim.election_nodes import KEYS, ElectedNode
from sim.ha_nodes import NODES, ViolationError
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.coordinator.etcd_messages import listing, range_request, txn_request
from tandemlog_server.ha.coordinator.values import KeyValue, Put, Txn
from tandemlog_server.ha.election.key_values import (
    FORCED,
    REINIT,
    SWITCHOVER,
    ClusterRecord,
    LeaderValue,
    MemberValue,
    RequestValue,
    RosterValue,
    encode,
)
from tandemlog_server.ha.state import HaState, Member
from tandemlog_server.storage.config import FlushMode

OTHER_CLUSTER = "another cluster"


def other_member(name: str) -> MemberValue:
    """Another machine of that name, with a longer log than any here."""
    return MemberValue(
        name, f"other-{name}", f"other-session-{name}", f"other-{name}:1", end_offset=1 << 40
    )


def other_keys(rng: Random) -> tuple[Put, ...]:
    """Of a cluster that is well, or has no leader at the moment, or whose operator asks for
    something. It has fewer epochs and starts than the own one, or more."""
    epoch, starts = rng.choice((1, 3, 50)), rng.choice((0, 2, 100))
    leader = other_member(rng.choice(NODES))
    record = ClusterRecord(
        epoch,
        leader.member,
        leader.session,
        frozenset(Member(name, f"other-{name}") for name in NODES),
        known=frozenset(NODES),
    )
    puts = [Put(KEYS.uuid, OTHER_CLUSTER.encode()), Put(KEYS.state, encode(record))]
    for name in NODES:
        puts.append(Put(KEYS.in_roster(name), encode(RosterValue(starts))))
        if rng.random() < 0.8:
            puts.append(Put(KEYS.member(name), encode(other_member(name))))
    if rng.random() < 0.5:
        value = LeaderValue(leader.node_id, leader.session, epoch, leader.endpoint)
        puts.append(Put(KEYS.leader, encode(value)))
    if rng.random() < 0.5:
        request = RequestValue(rng.choice((FORCED, REINIT, SWITCHOVER)), rng.choice(NODES), "other")
        puts.append(Put(KEYS.request, encode(request)))
    return tuple(puts)


class ForeignCoordinator:
    """See the module."""

    def __init__(self, clock: FakeClock, rng: Random) -> None:
        self._clock = clock
        self.world = CoordinatorWorld(clock)
        self.holds_a_cluster = rng.random() < 0.7
        if self.holds_a_cluster:
            self.world.machine.txn(txn_request(Txn(then=other_keys(rng))), clock.monotonic())
            self.world.saved()
        self._before, self._checked = self._keys(), self.world.machine.revision

    def check(self) -> None:
        """Raises ViolationError if a node of the own cluster has changed what is not its own."""
        machine = self.world.machine
        machine.advance(self._clock.monotonic())
        self.world.saved()
        if machine.revision == self._checked:
            return
        self._checked = machine.revision
        after = self._keys()
        if not self.holds_a_cluster:  # a node that finds no cluster may say that it is there
            after = {key: kv for key, kv in after.items() if not key.startswith(KEYS.members)}
        changed = {key for key, _ in after.items() ^ self._before.items()}
        if changed:
            raise ViolationError(f"keys of another cluster were changed: {sorted(changed)}")

    def _keys(self) -> dict[bytes, KeyValue]:
        found = self.world.machine.range(range_request(KEYS.all), self._clock.monotonic())
        return {kv.key: kv for kv in listing(found).kvs}


class ElectionStrays(ElectionLosses, ABC):
    """Nodes whose configuration names that coordinator for a while. `share`: of the starts."""

    def __init__(self, seed: int, flush: FlushMode, mode: Replication = Replication.SYNC) -> None:
        super().__init__(seed, flush, mode)
        self.chance = Random(f"strays {seed}")
        self.share = self.chance.choice((0.0, 0.0, 0.1, 0.3))
        self.foreign = ForeignCoordinator(self.clock, self.chance)
        self.corrected_at: dict[str, float] = {}

    def new_client(self, node: ElectedNode, state: HaState) -> FakeCoordinator:
        """A node without a cluster would be right to join the other one."""
        self.corrected_at.pop(node.name, None)
        lost = state.cluster_uuid and self.forcing is None and self.chance.random() < self.share
        if not lost:
            return super().new_client(node, state)
        self.corrected_at[node.name] = self.now + self.chance.random() * 15
        self.note(f"{node.name} starts at the coordinator of another cluster")
        self.count("starts at another coordinator")
        return self.foreign.world.client()

    def check(self) -> None:
        if self.share:
            self.foreign.check()

    def strays(self, node: ElectedNode) -> bool:
        return node.process is not None and node.process.client.world is self.foreign.world

    def correct_addresses(self) -> None:
        """Whoever has been there for long enough is stopped; its next start is another one. What
        it sent may arrive later."""
        if self.foreign.world.delayed and self.chance.random() < 0.1:
            self.foreign.world.deliver(1)
        for node in self.elected:
            if self.strays(node) and self.corrected_at[node.name] <= self.now:
                self.stop(node)

    def correct_all(self) -> None:
        self.foreign.check()
        self.share = 0.0
        self.corrected_at = dict.fromkeys(self.corrected_at, self.now)
        self.correct_addresses()

    def hear_keys(self, node: ElectedNode) -> None:
        if not self.strays(node):
            super().hear_keys(node)
