"""What an election stands on, without an event loop: one machine of a coordinator, and values.

keys = SyncCoordinator()
keys.found("a", "b", "c")             # a leads epoch 1, all three are in sync and up
keys.txn(win(KEYS, keys.snapshot(), ...))
"""

from fakes.fake_coordinator import CoordinatorWorld
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.coordinator.etcd_messages import (
    listing,
    range_request,
    txn_request,
    txn_result,
)
from tandemlog_server.ha.coordinator.values import Delete, KeyRange, Put, Txn, TxnResult
from tandemlog_server.ha.election.key_values import (
    ClusterRecord,
    LeaderValue,
    MemberValue,
    encode,
)
from tandemlog_server.ha.election.keys import ClusterKeys
from tandemlog_server.ha.election.snapshot import Snapshot, SnapshotBuilder
from tandemlog_server.ha.election.transactions import Candidate
from tandemlog_server.ha.state import Member

KEYS = ClusterKeys("c")
TTL_S = 6


def disk(name: str, incarnation: str = "1") -> Member:
    return Member(name, incarnation)


def up(name: str, incarnation: str = "1", *, end: int = 100, lease: int = 0) -> MemberValue:
    """A node that is up, in its first session."""
    return MemberValue(
        name, incarnation, f"{name}-1", f"{name}:1", last_epoch=1, end_offset=end, lease=lease
    )


def record(leader: str = "a", *names: str, epoch: int = 1) -> ClusterRecord:
    """Led by the first session of `leader`; the leader and `names` are in sync."""
    members = frozenset(disk(name) for name in (leader, *names))
    return ClusterRecord(epoch, disk(leader), f"{leader}-1", members)


class SyncCoordinator:
    """See the module."""

    def __init__(self, world: CoordinatorWorld | None = None) -> None:
        self.world = world or CoordinatorWorld()

    @property
    def now(self) -> float:
        return self.world.clock.monotonic()

    def lease(self) -> int:
        return self.world.machine.lease_grant(pb.LeaseGrantRequest(TTL=TTL_S), self.now).ID

    def end(self, lease: int) -> None:
        self.world.machine.lease_revoke(pb.LeaseRevokeRequest(ID=lease), self.now)
        self.world.saved()

    def txn(self, txn: Txn) -> TxnResult:
        result = txn_result(self.world.machine.txn(txn_request(txn), self.now))
        self.world.saved()
        return result

    def put(self, key: bytes, value: object, lease: int = 0) -> int:
        """Returns the revision."""
        data = value if isinstance(value, bytes) else encode(value)
        return self.txn(Txn(then=(Put(key, data, lease),))).revision

    def delete(self, key: bytes) -> None:
        self.txn(Txn(then=(Delete(KeyRange(key)),)))

    def snapshot(self) -> Snapshot:
        answer = self.world.machine.range(range_request(KEYS.all), self.now)
        return SnapshotBuilder(KEYS).apply(listing(answer))

    def record(self) -> ClusterRecord:
        found = self.snapshot().record
        assert found is not None
        return found

    def join(self, name: str, incarnation: str = "1", *, end: int = 100) -> Candidate:
        """A node is up, on a lease of its own."""
        me = up(name, incarnation, end=end, lease=self.lease())
        self.put(KEYS.member(name), me, me.lease)
        return Candidate(me, me.lease)

    def found(self, leader: str, *names: str) -> dict[str, Candidate]:
        """A cluster in epoch 1: everyone named is up and in sync."""
        nodes = {name: self.join(name) for name in (leader, *names)}
        self.put(KEYS.uuid, b"uuid")
        self.put(KEYS.state, record(leader, *names))
        value = LeaderValue(leader, f"{leader}-1", 1, f"{leader}:1")
        self.put(KEYS.leader, value, nodes[leader].lease)
        return nodes
