"""A follower sets its log aside: in which order, and what becomes of the request."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fakes.election import KEYS, SyncCoordinator, up
from fakes.fake_coordinator import CoordinatorWorld, Fault
from fakes.fake_store import FakeDisk, FakeStore
from tandemlog.format.files.epochs import EpochTable
from tandemlog_server.ha.coordinator.coordinator_errors import CoordinatorUnavailableError
from tandemlog_server.ha.election.key_values import REINIT, MemberValue, RequestValue
from tandemlog_server.ha.election.resync import Resync
from tandemlog_server.ha.election.snapshot import Snapshot
from tandemlog_server.ha.slave.store import set_log_aside
from tandemlog_server.ha.state import Member
from tandemlog_server.storage.errors import FlushFailedError, StoreReadOnlyError

REQUEST = RequestValue(REINIT, "b", "r")


class Host:
    """A node whose disk is another one once it has started over; `fails` is raised instead."""

    def __init__(self) -> None:
        self.incarnation = "1"
        self.fails: Exception | None = None
        self.starts = 0
        self.follows = True

    async def wait(self, reason: str) -> None:
        self.follows = False

    async def start_over(self, reason: str, epoch: int) -> None:
        assert not self.follows
        self.starts += 1
        if self.fails is not None:
            raise self.fails
        self.incarnation = "2"


class Bench:
    """The keys of a cluster that `a` leads; `b` is asked to start over, and has left the set."""

    reachable = True

    def __init__(self) -> None:
        self.world = CoordinatorWorld()
        self.keys = SyncCoordinator(self.world)
        self.keys.found("a", "b", "c")
        self.keys.put(KEYS.request, REQUEST, self.keys.lease())
        self.client, self.host = self.world.client(), Host()
        self.lease = self.keys.snapshot().members["b"].lease
        self.in_set("a", "c")
        self.resync = Resync(self.client, KEYS, self.host, self.look)  # type: ignore[arg-type]

    def in_set(self, *names: str) -> None:
        record = self.keys.snapshot().record
        assert record is not None
        members = frozenset(Member(name, "1") for name in names)
        self.keys.put(KEYS.state, replace(record, in_sync=members))

    async def look(self) -> Snapshot:
        if not self.reachable:
            raise CoordinatorUnavailableError("cut off")
        return self.keys.snapshot()

    def me(self) -> MemberValue:
        return up("b", self.host.incarnation, end=0)

    async def run(self) -> Snapshot:
        await self.resync.run(REQUEST, self.me, self.lease)
        return self.keys.snapshot()


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_the_request_ends_in_the_moment_that_shows_the_new_disk(bench: Bench) -> None:
    after = await bench.run()
    assert after.request is None
    assert after.members["b"].incarnation == "2"
    assert after.members["b"].lease == bench.lease
    assert bench.resync.done == "r"


async def test_a_log_that_stays_is_told_in_the_request(bench: Bench) -> None:
    bench.host.fails = StoreReadOnlyError("the disk is full")
    after = await bench.run()
    assert after.request is not None
    assert "the log could not be set aside" in after.request.outcome
    assert "the disk is full" in after.request.outcome
    assert after.members["b"].incarnation == "1"


async def test_a_request_that_was_withdrawn_meanwhile_is_not_written_again(bench: Bench) -> None:
    bench.keys.delete(KEYS.request)
    after = await bench.run()
    assert after.request is None
    assert (bench.host.starts, after.members["b"].incarnation) == (0, "1")


async def test_a_node_that_has_joined_again_meanwhile_keeps_its_log(bench: Bench) -> None:
    """The leader drops `c` as soon as `b` is in: then `b` has the second copy."""
    bench.in_set("a", "b")
    assert (await bench.run()).request == REQUEST
    assert (bench.host.starts, bench.resync.done) == (0, "")


async def test_force_is_for_a_node_that_cannot_leave_the_set(bench: Bench) -> None:
    bench.in_set("a", "b")
    forced = replace(REQUEST, force=True)
    bench.keys.put(KEYS.request, forced, bench.keys.lease())
    await bench.resync.run(forced, bench.me, bench.lease)
    assert bench.host.starts == 1


async def test_nothing_is_set_aside_by_an_old_record(bench: Bench) -> None:
    bench.reachable = False
    await bench.run()
    assert (bench.host.starts, bench.resync.done) == (0, "")


async def test_a_coordinator_that_is_away_does_not_make_it_start_over_again(bench: Bench) -> None:
    bench.client.faults.append(Fault.UNREACHABLE)
    after = await bench.run()
    assert after.request == REQUEST
    assert (bench.host.starts, bench.resync.done) == (1, "r")


# ---- the log


def filled(calls: list[str]) -> FakeStore:
    store = FakeStore(FakeDisk(), calls.append)
    store.become_master(3)
    store.append(b"x" * 96)
    store.flush()
    store.become_slave()
    calls.clear()
    return store


def save(calls: list[str]) -> Callable[[], None]:
    return lambda: calls.append("new incarnation")


def test_the_incarnation_is_another_one_before_the_log_goes() -> None:
    """A crash between the two leaves a disk that no acknowledgement of the old one speaks for."""
    calls: list[str] = []
    store = filled(calls)
    set_log_aside(store, 0, "asked for", save(calls))
    assert calls[0] == "new incarnation"
    assert "reset" in calls[1]
    assert (store.log.wrote.value, store.epochs.table) == (0, EpochTable(()))


def test_a_store_that_has_failed_stays_as_it_is() -> None:
    calls: list[str] = []
    store = filled(calls)
    store.log.flushed.failure = FlushFailedError("EIO")
    with pytest.raises(FlushFailedError):
        set_log_aside(store, 0, "asked for", save(calls))
    assert not calls
