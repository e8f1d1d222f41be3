"""How a stream ends: the reason is one line that a person can read; and what the master hears of a
disk that fails."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc import aio

from fakes.clock import FakeClock
from fakes.fake_store import FakeDisk, FakeStore, record
from tandemlog.format.fast_crc import crc32
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.ha import intake
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.errors import HaError, ProtocolError
from tandemlog_server.ha.intake import StoreThreads
from tandemlog_server.ha.protocol.chunk_codec import Chunk, encode_chunk
from tandemlog_server.ha.protocol.frames import (
    Ack,
    Answer,
    Hello,
    HelloAction,
    decode_slave_frame,
    encode_master_frame,
)
from tandemlog_server.ha.slave import stream as slave_stream
from tandemlog_server.ha.slave.session import Disconnect, SlaveSession
from tandemlog_server.ha.slave.store import SlaveStore
from tandemlog_server.ha.slave.stream import SlaveStream, rpc_end
from tandemlog_server.ha.state import HaState
from tandemlog_server.storage.errors import DiskFullError

CONFIG = HaConfig("c", "s", role=Role.SLAVE, master_endpoint="m:1")
RECORD = record(b"x" * 96)
BROKEN = aio.AioRpcError(
    grpc.StatusCode.UNAVAILABLE,
    aio.Metadata(),
    aio.Metadata(),
    details="failed to connect:\n  connection refused",
    debug_error_string="a long story\nof several lines",
)
REASON = "UNAVAILABLE: failed to connect: connection refused"


class BrokenCall:
    """A call of which one half fails, and the other waits for ever."""

    def __init__(self, half: str, fault: Exception) -> None:
        self._half = half
        self._fault = fault

    async def _do(self, half: str) -> Any:
        if half == self._half:
            raise self._fault
        await asyncio.Event().wait()

    async def read(self) -> Any:
        return await self._do("read")

    async def write(self, data: bytes) -> None:
        await self._do("write")

    def cancel(self) -> None:
        return None


class Garbage(BrokenCall):
    async def read(self) -> bytes:
        return b"no frame"


@pytest.fixture
async def threads() -> AsyncIterator[StoreThreads]:
    made = StoreThreads()
    yield made
    await made.close()


def stream_of(
    threads: StoreThreads,
    disk: FakeDisk | None = None,
    before: Callable[[str], None] = lambda _: None,
) -> SlaveStream:
    clock = FakeClock()
    stored = SlaveStore(
        FakeStore(disk or FakeDisk(), before),
        HaState("c", "s", "i"), lambda _: None, lambda: "", CONFIG, clock,
    )  # fmt: skip
    hello, me = stored.greeting(Hello("c", "s", ""), distrust=False)
    return SlaveStream(
        SlaveSession(hello, me, CONFIG, clock.monotonic()),
        stored,
        threads,
        CONFIG,
        clock,
        joined=lambda _: None,
        failed=lambda _: None,
        members_came=lambda _: None,
    )


async def ended(call: BrokenCall, threads: StoreThreads) -> str:
    why = await stream_of(threads).run(call)  # type: ignore[arg-type]
    return why.reason


@pytest.mark.parametrize("half", ["read", "write"])
async def test_a_stream_that_breaks_says_why_in_one_line(half: str, threads: StoreThreads) -> None:
    assert await ended(BrokenCall(half, BROKEN), threads) == REASON


async def test_a_call_that_is_over_needs_no_more_words(threads: StoreThreads) -> None:
    over = asyncio.InvalidStateError("RPC already finished.")
    assert await ended(BrokenCall("write", over), threads) == "the stream to the master broke"


async def test_a_stream_that_is_over_holds_no_memory(threads: StoreThreads) -> None:
    """Its tasks, their error and the frames that the error holds were a ring, which only a full
    collection frees."""
    stream = stream_of(threads)
    gone = weakref.ref(stream)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ProtocolError) as said:
            await stream.run(Garbage("read", BROKEN))  # type: ignore[arg-type]
        del said, stream
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()


class Master:
    """It sends an answer and one chunk, and hears what the slave says."""

    def __init__(self) -> None:
        answer = Answer(
            HelloAction.CONTINUE, 0, master_id="m", master_incarnation="mi", epoch=1,
            epochs=(EpochEntry(1, 0),), file_size=4096, max_offset=len(RECORD),
        )  # fmt: skip
        chunk = Chunk(0, 1, 0, 0, len(RECORD), 0, 1, RECORD, crc32(RECORD))
        self._frames = iter([encode_master_frame(answer), encode_chunk(chunk)])
        self.has_joined, self.goes_on = asyncio.Event(), asyncio.Event()
        self.acks: list[Ack] = []
        self.told = asyncio.Event()
        self.answered = False

    async def read(self) -> bytes:
        if self.answered:
            await self.has_joined.wait()
            await self.goes_on.wait()
        self.answered = True
        frame = next(self._frames, None)
        if frame is None:
            await asyncio.Event().wait()
        assert frame is not None
        return frame

    async def write(self, data: bytes) -> None:
        frame = decode_slave_frame(data)
        if isinstance(frame, Ack):
            self.acks.append(frame)
            if not frame.state:
                self.has_joined.set()
            else:
                self.told.set()

    def cancel(self) -> None:
        return None


@pytest.mark.parametrize("apart", [False, True])
async def test_after_a_failed_fsync_the_stream_stays_and_acknowledges_nothing(
    threads: StoreThreads, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    monkeypatch.setattr(intake, "FLUSH_APART_BYTES", 1 if apart else 1 << 30)
    disk, master = FakeDisk(), Master()
    stream = stream_of(threads, disk)
    running = asyncio.create_task(stream.run(master))  # type: ignore[arg-type]
    await asyncio.wait_for(master.has_joined.wait(), 30)
    disk.fsync_fails = True
    master.goes_on.set()
    await asyncio.wait_for(master.told.wait(), 30)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not running.done()
    assert {ack.durable for ack in master.acks} == {0}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_full_disk_is_told_to_the_master_before_the_stream_ends(
    threads: StoreThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave_stream, "TICK_S", 0.01)
    full = DiskFullError("the disk is full")

    def fails(call: str) -> None:
        if call == "append_raw":
            raise full

    master = Master()
    master.goes_on.set()
    stream = stream_of(threads, FakeDisk(), fails)
    with pytest.raises(HaError, match=r"storing the master's bytes failed: .*disk is full"):
        await stream.run(master)  # type: ignore[arg-type]
    assert [ack.durable for ack in master.acks if "disk is full" in ack.state] == [0]


def test_a_status_without_details_says_so() -> None:
    bare = aio.AioRpcError(grpc.StatusCode.INTERNAL, aio.Metadata(), aio.Metadata())
    assert rpc_end(bare) == Disconnect("INTERNAL: no details")


def test_a_process_that_does_not_respond_is_told_apart() -> None:
    assert rpc_end(BROKEN) == Disconnect(REASON, silent=True)
