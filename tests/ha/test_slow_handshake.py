"""Logs that take longer to compare, or to cut, than a silent peer is given: the stream goes on.

Master and slave share one clock that the test moves, so no test waits for the time it is about.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.replicas import TIMEOUT_S, Replica, eventually
from tandemlog_server.ha.intake import StoreThreads
from tandemlog_server.ha.master import stream
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.session import MasterSession
from tandemlog_server.ha.slave import store

STEPS = 12
STEP_S = 0.5
"""Together six times what a silent peer is given."""


class Gate:
    """Wraps a function: every call waits until the gate is open."""

    def __init__(self, behind: Callable[..., Any]) -> None:
        self.calls = 0
        self._behind = behind
        self._open = threading.Event()

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        assert self._open.wait(2 * TIMEOUT_S), "the test has not opened the gate"
        return self._behind(*args)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gates() -> Iterator[list[Gate]]:
    made: list[Gate] = []
    yield made
    for gate in made:
        gate.open()


@pytest.fixture
def gated(gates: list[Gate], monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], Gate]:
    def put(place: Any, name: str) -> Gate:
        gate = Gate(getattr(place, name))
        gates.append(gate)
        monkeypatch.setattr(place, name, gate)
        return gate

    return put


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def pair(
    tmp_path: Path, clock: FakeClock, gates: list[Gate]
) -> AsyncIterator[tuple[Replica, Replica]]:
    master = Replica(tmp_path, "m", clock=clock)
    slave = Replica(tmp_path, "s", clock=clock, checksum_block_bytes=1000)
    await master.lead()
    yield master, slave
    for gate in gates:
        gate.open()
    try:
        await slave.stop()
    finally:
        await master.stop()


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[MasterSession]:
    """Every session that a master opens."""
    opened: list[MasterSession] = []
    original = MasterGroup.open

    def noted(group: MasterGroup, now: float) -> MasterSession:
        opened.append(original(group, now))
        return opened[-1]

    monkeypatch.setattr(MasterGroup, "open", noted)
    return opened


async def copied(master: Replica, slave: Replica) -> None:
    """The slave's store becomes a copy of the master's log without epochs."""
    for _ in range(5):
        master.put(10)
    await slave.open()
    slave.store.append_raw(0, master.log()[:6000])
    slave.store.flush()
    await slave.stop()


async def caught_up(slave: Replica, master: Replica, clock: FakeClock) -> None:
    """As time goes on."""
    end = master.store.log.wrote.value

    def so() -> bool:
        clock.advance(0.01)
        return slave.store.log.flushed.value == end == slave.store.confirmed.value

    await eventually(so)
    assert slave.log() == master.log()


async def test_a_slow_comparison_does_not_end_the_stream(
    pair: tuple[Replica, Replica],
    clock: FakeClock,
    gated: Callable[[Any, str], Gate],
    streams: list[MasterSession],
) -> None:
    master, slave = pair
    await copied(master, slave)
    compare = gated(stream, "proven_prefix")
    await slave.follow(master)
    await eventually(lambda: compare.calls == 1)
    for _ in range(STEPS):
        clock.advance(STEP_S)
        uptime = clock.monotonic() - master.master._started_at
        await eventually(lambda up=uptime: _told_uptime(slave) >= up)  # type: ignore[misc]
    compare.open()
    await caught_up(slave, master, clock)
    assert len(streams) == compare.calls == 1
    assert not list(slave.store_config.directory.glob("resync-*"))


def _told_uptime(slave: Replica) -> float:
    """What the slave heard last: how long the master is up."""
    rows = slave.slave.members()
    return rows[0].uptime_seconds if rows[0].node_id == "m" else -1.0


async def test_a_slow_preparation_does_not_end_the_stream(
    pair: tuple[Replica, Replica],
    clock: FakeClock,
    gated: Callable[[Any, str], Gate],
    streams: list[MasterSession],
) -> None:
    master, slave = pair
    await slave.follow(master)
    master.put(10)
    await caught_up(slave, master, clock)
    await slave.stop()
    prepare = gated(store, "log_crc")
    await slave.follow(master)
    await eventually(lambda: prepare.calls == 1)
    before = len(streams)
    for _ in range(STEPS):
        clock.advance(STEP_S)
        now = clock.monotonic()
        await eventually(lambda now=now: streams[-1].heard_at == now)  # type: ignore[misc]
        row = master.master.members()[1]
        assert row.detail.startswith("preparing")
    prepare.open()
    master.put(10)
    await caught_up(slave, master, clock)
    assert len(streams) == before
    assert not master.master.members()[1].detail.startswith("preparing")


async def test_a_comparison_for_which_nobody_waits_any_more_stops(
    pair: tuple[Replica, Replica],
    gated: Callable[[Any, str], Gate],
    streams: list[MasterSession],
) -> None:
    master, slave = pair
    await copied(master, slave)
    read = gated(stream, "log_crc")
    await slave.follow(master)
    await eventually(lambda: read.calls == 1)
    await slave.stop()
    await eventually(lambda: streams[0].closed_reason != "")
    read.open()
    await master.master.long_read(lambda: None)
    assert read.calls == 1, "the first block was under way, the others are not read"


async def test_a_slave_that_stops_reads_its_log_no_further(
    pair: tuple[Replica, Replica],
    gated: Callable[[Any, str], Gate],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = pair
    await copied(master, slave)
    read = gated(store, "log_crc")
    close = StoreThreads.close

    async def opens_then_closes(threads: StoreThreads) -> None:
        read.open()
        await close(threads)

    monkeypatch.setattr(StoreThreads, "close", opens_then_closes)
    await slave.follow(master)
    await eventually(lambda: read.calls == 1)
    await slave.stop()
    assert read.calls == 1, "the first block was under way, the others are not read"


async def test_a_first_stream_lasts(
    pair: tuple[Replica, Replica], clock: FakeClock, streams: list[MasterSession]
) -> None:
    master, slave = pair
    await slave.follow(master)
    master.put(10)
    await caught_up(slave, master, clock)
    assert _told_uptime(slave) >= 0.0
    assert len(streams) == 1
