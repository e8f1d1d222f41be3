"""A coordinator in memory: the embedded one's state machine, a clock that is told, and faults.

    world = CoordinatorWorld(clock)
    client = world.client()
    client.faults.append(Fault.LOST_ANSWER)   # of its next call
    world.advance(5.0)                        # time for the leases
    world.deliver()                           # what was sent and delayed arrives now

Clients of one world see one store. Nothing here sleeps or reads a clock; every call gives way to
other tasks once, before it is carried out and once more before it is answered.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from fakes.clock import FakeClock
from fakes.coordinator_machines import EMPTY, MemoryDisk
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    LeaseLostError,
    UnknownOutcomeError,
)
from tandemlog_server.ha.coordinator.etcd_messages import (
    changes,
    found,
    listing,
    range_request,
    txn_request,
    txn_result,
    watch_request,
)
from tandemlog_server.ha.coordinator.values import (
    Changes,
    Found,
    KeyRange,
    Lease,
    Listing,
    Put,
    Txn,
    TxnResult,
    WatchUpdate,
)
from tandemlog_server.node.embedded_coordinator.coordinator_refusals import RefusedError
from tandemlog_server.node.embedded_coordinator.state_machine import StateMachine
from tandemlog_server.node.embedded_coordinator.watchers import Watchers
from tandemlog_server.storage.shares import Shares

T = TypeVar("T")
TICK_S = 0.1


class Fault(Enum):
    """What becomes of one call. Of a change, all but the first leave its outcome unknown."""

    UNREACHABLE = "it is never sent"
    LOST_REQUEST = "it is sent and never arrives"
    LOST_ANSWER = "it is carried out and the answer is lost"
    DELAYED = "it gets no answer and is carried out when the world delivers it"


class CoordinatorWorld:
    """See the module."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.delayed: deque[Callable[[], object]] = deque()
        self._ids = itertools.count(1001)
        self._disk = MemoryDisk(EMPTY)
        self._moved: set[asyncio.Event] = set()
        self.machine = self._started()

    def client(self) -> "FakeCoordinator":
        return FakeCoordinator(self)

    def advance(self, seconds: float) -> None:
        """Time passes, in ticks as the server's."""
        for _ in range(max(1, round(seconds / TICK_S))):
            self.clock.advance(TICK_S)
            self.machine.advance(self.clock.monotonic())
            self.saved()

    def deliver(self, count: int | None = None) -> None:
        """The oldest delayed changes arrive; all of them without `count`."""
        for _ in range(len(self.delayed) if count is None else count):
            with suppress(RefusedError):  # nobody waits for the answer
                self.delayed.popleft()()
            self.saved()

    def restart(self) -> None:
        """What was saved is read again; every lease has its whole time again."""
        self.machine = self._started()

    def compact(self, revision: int) -> None:
        self.machine.compact(pb.CompactionRequest(revision=revision), self.clock.monotonic())
        self.saved()

    def saved(self) -> None:
        """After whatever may have changed something."""
        self._disk.commit(self.machine.pop_changes())
        for each in self._moved:
            each.set()

    def listen(self, event: asyncio.Event) -> None:
        self._moved.add(event)

    def unlisten(self, event: asyncio.Event) -> None:
        self._moved.discard(event)

    def _started(self) -> StateMachine:
        return StateMachine(self._disk.saved, self.clock.monotonic(), lambda: next(self._ids))


class FakeCoordinator:
    """One client. `faults` are those of its next calls, None for one that goes well; while
    `reachable` is False it can send nothing and its watches hear nothing."""

    def __init__(self, world: CoordinatorWorld) -> None:
        self.world = world
        self.faults: deque[Fault | None] = deque()
        self.reachable = True
        self._closed = False
        self._watches: set[asyncio.Event] = set()

    async def get(self, key: bytes) -> Found:
        request = range_request(KeyRange(key))
        return found(await self._call(lambda: self.world.machine.range(request, self._now())))

    async def range(self, keys: KeyRange) -> Listing:
        request = range_request(keys)
        return listing(await self._call(lambda: self.world.machine.range(request, self._now())))

    async def txn(self, txn: Txn) -> TxnResult:
        request = txn_request(txn)
        puts = [each for each in (*txn.then, *txn.otherwise) if isinstance(each, Put)]
        lease = next((each.lease for each in puts if each.lease), 0)
        answer = await self._call(
            lambda: self.world.machine.txn(request, self._now()),
            lease=lease,
            changes=txn.may_write,
        )
        return txn_result(answer)

    async def grant_lease(self, ttl_s: int) -> Lease:
        sent = self._now()
        request = pb.LeaseGrantRequest(TTL=ttl_s)
        answer = await self._call(lambda: self.world.machine.lease_grant(request, self._now()))
        return Lease(answer.ID, answer.TTL, sent)

    async def keep_alive(self, lease_id: int) -> Lease:
        sent = self._now()
        request = pb.LeaseKeepAliveRequest(ID=lease_id)
        answer = await self._call(lambda: self.world.machine.lease_keep_alive(request, self._now()))
        if answer.TTL <= 0:
            raise LeaseLostError(lease_id)
        return Lease(lease_id, answer.TTL, sent)

    async def revoke_lease(self, lease_id: int) -> None:
        request = pb.LeaseRevokeRequest(ID=lease_id)
        try:
            await self._call(lambda: self.world.machine.lease_revoke(request, self._now()))
        except LeaseLostError:
            return

    async def watch(self, keys: KeyRange, from_revision: int) -> AsyncGenerator[WatchUpdate, None]:
        if from_revision < 1:
            raise ValueError(f"a watch begins at a revision of at least 1, not {from_revision}")
        moved = asyncio.Event()
        self.world.listen(moved)
        self._watches.add(moved)
        following = from_revision
        try:
            while not self._closed:
                if self.reachable:
                    for update in self._due(keys, following):
                        following = update.revision + 1
                        yield update
                await moved.wait()
                moved.clear()
        finally:
            self.world.unlisten(moved)
            self._watches.discard(moved)

    async def close(self) -> None:
        self._closed = True
        for each in self._watches:
            each.set()

    def _due(self, keys: KeyRange, following: int) -> list[WatchUpdate]:
        machine = self.world.machine
        watchers = Watchers(machine, Shares(1))
        watchers.handle(watch_request(keys, following), machine.revision)
        updates: list[WatchUpdate] = []
        for each in watchers.due(machine.revision):
            if each is None:
                continue
            if each.canceled:
                answer = machine.range(range_request(keys), self._now())
                return [listing(answer)]
            last = each.events[-1].kv.mod_revision
            updates.append(Changes(last, changes(each.events)))
        return updates

    async def _call(self, request: Callable[[], T], *, lease: int = 0, changes: bool = False) -> T:
        await asyncio.sleep(0)
        fault = self.faults.popleft() if self.faults else None
        if self._closed or not self.reachable or fault is Fault.UNREACHABLE:
            raise CoordinatorUnavailableError("the coordinator is unavailable")
        if fault is Fault.DELAYED:
            self.world.delayed.append(request)
        if fault in (Fault.LOST_REQUEST, Fault.DELAYED):
            raise self._unanswered(changes)
        try:
            answer = request()
        except RefusedError as refusal:
            if refusal.code == "NOT_FOUND":
                raise LeaseLostError(lease, str(refusal)) from refusal
            raise CoordinatorRefusedError(str(refusal)) from refusal
        finally:
            self.world.saved()
        await asyncio.sleep(0)
        if fault is Fault.LOST_ANSWER:
            raise self._unanswered(changes)
        return answer

    @staticmethod
    def _unanswered(changes: bool) -> Exception:
        if changes:
            return UnknownOutcomeError("it was sent and not answered, it may be applied")
        return CoordinatorUnavailableError("the coordinator is unavailable")

    def _now(self) -> float:
        return self.world.clock.monotonic()
