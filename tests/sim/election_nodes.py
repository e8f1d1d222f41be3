"""What a cluster that elects is made of: a process on a node, and the coordinator as it sees it.

The coordinator's state machine is the real one. What a node asks it may never arrive, be carried
out without an answer, or be carried out much later; what it hears of changes may be old.
"""

from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from fakes.clock import FakeClock
from fakes.fake_coordinator import CoordinatorWorld, FakeCoordinator, Fault
from fakes.fake_store import Buffer, FakeDisk, FakeIntake, FakeStore
from sim.ha_nodes import NODES, Put, SimNode
from tandemlog_server.ha.coordinator.etcd_messages import listing, range_request
from tandemlog_server.ha.coordinator.values import Listing
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.election_config import ElectionConfig
from tandemlog_server.ha.election.key_values import ClusterRecord, LeaderValue
from tandemlog_server.ha.election.keys import ClusterKeys
from tandemlog_server.ha.election.snapshot import Snapshot, SnapshotBuilder
from tandemlog_server.ha.master.record_keeper import RecordKeeper
from tandemlog_server.storage.errors import StoreError

T = TypeVar("T")
KEYS = ClusterKeys("sim")
ELECTION = ElectionConfig(founders=frozenset(NODES))


def drive(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing but its turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as done:
            result: T = done.value
            return result


@dataclass
class Process:
    """What a node remembers from its start on. `woke`: it stood still for long, and what it had
    confirmed before; it has heard of nothing since."""

    client: FakeCoordinator
    agent: ElectionAgent
    following: LeaderValue | None = None
    keeper: RecordKeeper | None = None
    held_back: str = ""
    pending: list[Put] = field(default_factory=list)
    renew_at: float = 0.0
    woke: int | None = None


@dataclass
class ElectedNode(SimNode):
    """A node; `process` is None while it is down. A machine without power refuses nothing.
    `other_disk`: its disk was put back or wiped, and has its old name as yet; `backup` is an image
    of the disk, taken while the node was running; `overruled`: it may show what was given up."""

    process: Process | None = None
    has_power: bool = True
    other_disk: bool = False
    overruled: bool = False
    backup: FakeDisk | None = None
    frozen_until: float = 0.0
    frozen_at: float = 0.0
    read_to: int = 0
    began_at: int = 0

    @property
    def leads(self) -> int:
        """The epoch in which it believes to lead, 0 for none."""
        return self.process.agent.leading if self.process is not None else 0


class WholeRecords(FakeIntake):
    """As the real intake: the beginning of a record waits in memory for its end. A slave that
    becomes the leader does not open its store again, which would cut a torn record off."""

    def __init__(self, store: FakeStore) -> None:
        super().__init__(store)
        self._rest = b""

    def take(self, offset: int, data: Buffer, damaged_until: int = 0) -> None:
        end = self._store.log.wrote.value + len(self._rest)
        if offset != end:
            raise StoreError(f"raw bytes at {offset}, the log ends at {end}")
        held = self._rest + bytes(data)
        whole = FakeDisk(data=bytearray(held))
        whole.cut_torn_tail()
        if whole.data:
            self._store.append_raw(self._store.log.wrote.value, bytes(whole.data))
        self._rest = held[len(whole.data) :]


class ElectedStore(FakeStore):
    """A store whose role changes while it is open."""

    def raw_intake(self) -> WholeRecords:
        return WholeRecords(self)


class Coordination:
    """The coordinator, and who can reach it."""

    def __init__(self, clock: FakeClock, rng: Random) -> None:
        self.world = CoordinatorWorld(clock)
        self.cut: dict[str, float] = {}
        self.listings: deque[Listing] = deque(maxlen=15)
        self.trouble = rng.choice((0.0, 0.03, 0.12))
        self._rng = rng
        self._clock = clock
        self._seen = Snapshot()

    def client(self) -> FakeCoordinator:
        return self.world.client()

    def pass_time(self) -> None:
        """Leases end; what changed since the last call may be told."""
        machine = self.world.machine
        machine.advance(self._clock.monotonic())
        self.world.saved()
        if not self.listings or self.listings[-1].revision != machine.revision:
            self.listings.append(self.now())

    def now(self) -> Listing:
        """All keys as they are."""
        machine = self.world.machine
        return listing(machine.range(range_request(KEYS.all), self._clock.monotonic()))

    def snapshot(self) -> Snapshot:
        """What a listing shows now; it is read again only if something has changed."""
        if self._seen.revision != self.world.machine.revision:
            self._seen = SnapshotBuilder(KEYS).apply(self.now())
        return self._seen

    def record(self) -> ClusterRecord | None:
        return self.snapshot().record

    def reachable(self, name: str) -> bool:
        return self.cut.get(name, 0.0) <= self._clock.monotonic()

    def arm(self, name: str, client: FakeCoordinator) -> None:
        """What will become of this node's next calls."""
        client.reachable = self.reachable(name)
        client.faults.clear()
        for _ in range(3):
            broken = self._rng.random() < self.trouble
            client.faults.append(self._rng.choice(list(Fault)) if broken else None)
        if client.faults[0] in (Fault.LOST_ANSWER, Fault.DELAYED) and self._rng.random() < 0.5:
            # and what became of it cannot be read for a while
            client.faults[1] = client.faults[2] = Fault.UNREACHABLE
            self.cut[name] = self._clock.monotonic() + self._rng.random() * 4

    def deliver(self) -> None:
        """Something that was delayed arrives, in any order."""
        delayed = self.world.delayed
        if delayed:
            delayed.rotate(self._rng.randrange(len(delayed)))
            self.world.deliver(1)
