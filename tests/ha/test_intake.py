"""The shell of a slave and a follower on a disk that is slow, full or broken, and a connection that
ends anywhere; and the pauses between two connections."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest

from fakes.clock import FakeClock
from fakes.replicas import eventually
from tandemlog_server.ha import intake
from tandemlog_server.ha.errors import HaError
from tandemlog_server.ha.intake import Intake, StoreThreads, follow_forever
from tandemlog_server.storage.errors import DiskFullError, FlushFailedError

PIECE = b"x" * 10
LAST = b"the end"
TIMEOUT_S = 30


class Gate:
    """Where a thread waits until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.opened.set()

    def close(self) -> None:
        self.entered.clear()
        self.opened.clear()

    def open(self) -> None:
        self.opened.set()

    def pass_through(self) -> None:
        self.entered.set()
        assert self.opened.wait(TIMEOUT_S)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, TIMEOUT_S)


class Disk:
    """A store whose writes and flushes can be held up and can fail."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.batches: list[int] = []
        self.flushes: list[int] = []
        self.write_gate, self.flush_gate = Gate(), Gate()
        self.fails: dict[str, Exception] = {}

    def run(self, work: Sequence[bytes]) -> bool:
        self.write_gate.pass_through()
        if "run" in self.fails:
            raise self.fails.pop("run")
        self.written += work
        self.batches.append(len(work))
        return True

    def flush(self) -> int:
        done = len(self.written)
        self.flush_gate.pass_through()
        if "flush" in self.fails:
            raise self.fails["flush"]
        self.flushes.append(done)
        return done

    def run_and_flush(self, work: Sequence[bytes]) -> tuple[bool, int]:
        return self.run(work), self.flush()


class Decisions:
    """A session that passes on what it hears, and counts its ticks."""

    def __init__(self) -> None:
        self.ticks = self.pauses = 0
        self.ticked = asyncio.Event()

    def start(self, _: float) -> list[Any]:
        return []

    def tick(self, _: float) -> list[Any]:
        self.ticks += 1
        self.ticked.set()
        return []

    def stand_still(self, _: float) -> None:
        self.pauses += 1

    async def next_tick(self) -> None:
        for _ in range(2):
            self.ticked.clear()
            await asyncio.wait_for(self.ticked.wait(), TIMEOUT_S)


class Taker(Intake[Decisions, Disk, str]):
    """A protocol of pieces of log, and numbers that acknowledge them."""

    BROKEN = (ConnectionError,)

    def __init__(self, disk: Disk, threads: StoreThreads) -> None:
        super().__init__(Decisions(), disk, threads, FakeClock(), batch_bytes=1 << 20)
        self.disk = disk
        self.incoming: list[bytes | Exception | None] = []
        self.has_incoming = asyncio.Event()
        self.reads = 0
        self.acks: list[int] = []
        self.faults = 0
        self.stays = False

    def feed(self, *pieces: bytes | Exception | None) -> None:
        self.incoming += pieces
        self.has_incoming.set()

    async def run(self) -> str:
        return await self._serve()

    async def _received(self) -> list[bytes]:
        while self.reads == len(self.incoming):
            self.has_incoming.clear()
            await self.has_incoming.wait()
        piece = self.incoming[self.reads]
        self.reads += 1
        await asyncio.sleep(0)
        if isinstance(piece, Exception):
            raise piece
        if piece is None:
            self.end("closed")
            return []
        return [piece]

    async def _transmit(self, frame: bytes) -> None:
        self.acks.append(int(frame))

    def _broken(self, error: Exception) -> str:
        return f"broken: {error}"

    def _obey(self, actions: Sequence[bytes]) -> None:
        for action in actions:
            self._add(action, len(action))
            if action == LAST:
                self.end("over")

    async def _fault(self, error: Exception) -> None:
        self.faults += 1
        if not self.stays:
            await super()._fault(error)

    def _durable(self, done: int) -> None:
        self.followed = True
        self._put_out("ack", b"%d" % done)

    def _last_work(self, rest: list[bytes]) -> Callable[[], object] | None:
        return partial(self.disk.run_and_flush, rest)

    async def has_acked(self, count: int) -> None:
        await eventually(lambda: bool(self.acks) and self.acks[-1] >= count)

    async def has_read(self, count: int) -> None:
        await eventually(lambda: self.reads >= count)
        await turns()


async def turns() -> None:
    """Let the loop do what it can without another thread."""
    for _ in range(100):
        await asyncio.sleep(0)


class Rig:
    def __init__(self) -> None:
        self.disk = Disk()
        self.threads = StoreThreads()
        self.taker = Taker(self.disk, self.threads)
        self.running = asyncio.create_task(self.taker.run())

    async def followed(self) -> None:
        self.taker.feed(PIECE)
        await self.taker.has_acked(1)

    async def result(self) -> str:
        return await asyncio.wait_for(self.running, TIMEOUT_S)


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(intake, "TICK_S", 0.0)
    made = Rig()
    yield made
    made.disk.write_gate.open()
    made.disk.flush_gate.open()
    made.running.cancel()
    await asyncio.gather(made.running, return_exceptions=True)
    await made.threads.close()


async def test_what_came_during_a_write_is_the_next_batch(rig: Rig) -> None:
    rig.disk.write_gate.close()
    rig.taker.feed(PIECE)
    await rig.disk.write_gate.reached()
    rig.taker.feed(PIECE, PIECE, PIECE)
    await rig.taker.has_read(4)
    rig.disk.write_gate.open()
    await rig.taker.has_acked(4)
    assert rig.disk.batches == [1, 3]


async def test_a_slow_flush_holds_up_no_write_and_the_next_one_is_for_all_of_them(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FLUSH_APART_BYTES", 1)
    await rig.followed()
    rig.disk.flush_gate.close()
    for count in (2, 3, 4):
        rig.taker.feed(PIECE)
        await eventually(lambda: len(rig.disk.written) == count)  # noqa: B023
        await rig.disk.flush_gate.reached()
    await turns()
    assert rig.taker.acks == [1]
    rig.disk.flush_gate.open()
    await rig.taker.has_acked(4)
    assert rig.disk.flushes == [1, 2, 4]


async def test_what_is_being_written_counts_as_waiting(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "READ_AHEAD_BYTES", 3 * len(PIECE))
    rig.disk.write_gate.close()
    rig.taker.feed(PIECE)
    await rig.disk.write_gate.reached()
    rig.taker.feed(*[PIECE] * 20)
    await rig.taker.has_read(4)
    assert rig.taker.reads == 4
    rig.disk.write_gate.open()
    await rig.taker.has_acked(21)


async def test_a_silence_while_nothing_is_read_is_the_own_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "READ_AHEAD_BYTES", len(PIECE))
    session = rig.taker.session
    rig.disk.write_gate.close()
    rig.taker.feed(PIECE)
    await rig.disk.write_gate.reached()
    await session.next_tick()
    assert session.pauses == 0, "there is room, so it is the other side that is silent"
    rig.taker.feed(PIECE)
    await rig.taker.has_read(2)
    await session.next_tick()
    assert session.pauses > 0
    rig.disk.write_gate.open()
    await rig.taker.has_acked(2)
    paused = session.pauses
    await session.next_tick()
    assert session.pauses == paused


@pytest.mark.parametrize("apart", [False, True])
async def test_after_a_failed_flush_nothing_is_acknowledged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    monkeypatch.setattr(intake, "FLUSH_APART_BYTES", 1 if apart else 1 << 30)
    await rig.followed()
    rig.disk.fails["flush"] = FlushFailedError("fdatasync of the log failed: EIO")
    rig.taker.feed(PIECE)
    with pytest.raises(FlushFailedError, match="EIO"):
        await rig.result()
    assert rig.taker.acks == [1]


async def test_a_full_disk_ends_the_stream_and_what_waited_is_not_stored(rig: Rig) -> None:
    await rig.followed()
    rig.disk.write_gate.close()
    rig.taker.feed(PIECE)
    await rig.disk.write_gate.reached()
    rig.taker.feed(PIECE, PIECE)
    await rig.taker.has_read(4)
    rig.disk.fails["run"] = DiskFullError("the disk is full")
    rig.disk.write_gate.open()
    with pytest.raises(DiskFullError, match="full"):
        await rig.result()
    assert len(rig.disk.written) == 1
    assert rig.taker.acks == [1]


@pytest.mark.parametrize("how", [None, ConnectionResetError("reset")])
async def test_what_waits_behind_a_batch_that_fails_as_the_stream_ends_is_not_stored(
    rig: Rig, how: Exception | None
) -> None:
    await rig.followed()
    rig.disk.write_gate.close()
    rig.taker.feed(b"1")
    await rig.disk.write_gate.reached()
    rig.taker.feed(b"2", b"3", how)
    await rig.taker.has_read(5)
    rig.disk.fails["run"] = DiskFullError("the disk is full")
    rig.disk.write_gate.open()
    with pytest.raises(DiskFullError, match="full"):
        await rig.result()
    assert rig.disk.written == [PIECE]


async def test_after_a_failed_batch_a_stream_that_stays_stores_and_acknowledges_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FLUSH_APART_BYTES", 1)
    rig.taker.stays = True
    await rig.followed()
    rig.disk.flush_gate.close()
    rig.taker.feed(PIECE)
    await rig.disk.flush_gate.reached()
    rig.disk.fails["run"] = DiskFullError("the disk is full")
    rig.taker.feed(PIECE)
    await eventually(lambda: rig.taker.faults == 1)
    rig.taker.feed(PIECE, PIECE)
    await rig.taker.has_read(5)
    rig.disk.flush_gate.open()
    await rig.threads.wait()
    await turns()
    assert len(rig.disk.written) == 2
    assert rig.taker.acks == [1]
    assert not rig.running.done()


async def test_a_stop_does_not_wait_for_the_disk_and_gives_it_nothing_more(rig: Rig) -> None:
    rig.disk.write_gate.close()
    rig.taker.feed(PIECE)
    await rig.disk.write_gate.reached()
    rig.taker.feed(PIECE, PIECE)
    await rig.taker.has_read(3)
    rig.running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rig.result()
    waiting = asyncio.create_task(rig.threads.wait())
    await turns()
    assert not waiting.done(), "the next stream begins when the thread has ended its write"
    rig.disk.write_gate.open()
    await asyncio.wait_for(waiting, TIMEOUT_S)
    assert len(rig.disk.written) == 1


@pytest.mark.parametrize("how", [None, ConnectionResetError("reset")])
async def test_what_came_before_the_end_is_stored_behind_what_the_thread_is_at(
    rig: Rig, how: Exception | None
) -> None:
    await rig.followed()
    rig.disk.write_gate.close()
    rig.taker.feed(b"1")
    await rig.disk.write_gate.reached()
    rig.taker.feed(b"2", b"3", how)
    await rig.taker.has_read(5)
    assert not rig.running.done()
    rig.disk.write_gate.open()
    assert await rig.result() == ("closed" if how is None else "broken: reset")
    assert rig.disk.written == [PIECE, b"1", b"2", b"3"]
    assert rig.disk.flushes[-1] == 4


async def test_work_that_comes_with_the_end_is_left_for_the_end(rig: Rig) -> None:
    """As of a log that starts over: the end hears whether it could be set aside."""
    rig.disk.fails["run"] = DiskFullError("the disk is full")
    rig.taker.feed(LAST)
    with pytest.raises(DiskFullError):
        await rig.result()
    assert rig.taker.faults == 0


class StopError(Exception):
    """The end of the test."""


async def test_pauses_grow_until_a_connection_works_and_an_operator_is_asked_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(round(seconds, 3))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    refused = HaError("an operator must act")
    ends = chain(
        repeat(HaError("no"), 4), [None], [OSError("down")], repeat(refused, 2), [StopError()]
    )

    async def follow() -> None:
        end = next(ends)
        if end is not None:
            raise end

    with pytest.raises(StopError):
        await follow_forever(follow, 0.1, 0.5, lambda error: 10.0 if error is refused else None)
    assert pauses == [0.2, 0.3, 0.5, 0.6, 0.1, 0.2, 10.0, 10.0]
