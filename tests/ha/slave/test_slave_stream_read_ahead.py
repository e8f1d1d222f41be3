"""A slave whose disk is slow stops reading, goes on when it can, and is not thought dead."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from fakes.clock import FakeClock
from fakes.fake_store import FakeDisk, FakeStore, record
from tandemlog.format.fast_crc import crc32
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.ha import intake
from tandemlog_server.ha.config import HaConfig, Role
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
from tandemlog_server.ha.slave.session import SlaveSession
from tandemlog_server.ha.slave.store import SlaveStore
from tandemlog_server.ha.slave.stream import SlaveStream
from tandemlog_server.ha.state import HaState

CONFIG = HaConfig("c", "s", role=Role.SLAVE, master_endpoint="m:1", flush_batch_bytes=1)
RECORD = record(b"x" * 96)
CHUNKS = 20


class Call:
    """A master that sends whatever is read."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.frames = list(frames)
        self.reads = 0
        self.all_durable = asyncio.Event()

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        if self.reads == len(self.frames):
            await asyncio.Event().wait()
        self.reads += 1
        return self.frames[self.reads - 1]

    async def write(self, data: bytes) -> None:
        frame = decode_slave_frame(data)
        if isinstance(frame, Ack) and frame.durable == CHUNKS * len(RECORD):
            self.all_durable.set()

    def cancel(self) -> None:
        return None


class SlowStore(FakeStore):
    """Its log takes bytes when `open` is set."""

    def __init__(self, disk: FakeDisk) -> None:
        super().__init__(disk)
        self.open = threading.Event()
        self.entered = threading.Event()

    def append_raw(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self.entered.set()
        self.open.wait()
        super().append_raw(offset, data)


async def run(store: SlowStore, threads: StoreThreads, clock: FakeClock) -> None:
    stored = SlaveStore(store, HaState("c", "s", "i"), lambda _: None, lambda: "", CONFIG, clock)
    hello, me = stored.greeting(Hello("c", "s", ""), distrust=False)
    answer = Answer(
        HelloAction.CONTINUE, 0, master_id="m", master_incarnation="mi", epoch=1,
        epochs=(EpochEntry(1, 0),), file_size=4096, max_offset=CHUNKS * len(RECORD),
    )  # fmt: skip
    chunks = [
        Chunk(number * len(RECORD), 1, 0, 0, CHUNKS * len(RECORD), 0, 1, RECORD, crc32(RECORD))
        for number in range(CHUNKS)
    ]
    call = Call([encode_master_frame(answer), *map(encode_chunk, chunks)])
    session = SlaveSession(hello, me, CONFIG, clock.monotonic())
    stream = SlaveStream(
        session, stored, threads, CONFIG, clock,
        joined=lambda _: None, failed=lambda _: None, members_came=lambda _: None,
    )  # fmt: skip
    running = asyncio.create_task(stream.run(call))  # type: ignore[arg-type]
    assert await asyncio.to_thread(store.entered.wait, 30)
    for _ in range(1000):
        await asyncio.sleep(0)
    # the answer, what is being written, and what may wait: not all there is
    assert call.reads <= 1 + 1 + intake.READ_AHEAD_BYTES // len(RECORD) + 1
    clock.advance(CONFIG.dead_after_ms / 1000 + 1)
    await asyncio.sleep(2 * intake.TICK_S)
    assert not running.done()
    store.open.set()
    await asyncio.wait_for(call.all_durable.wait(), 30)
    assert call.reads == 1 + CHUNKS
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_no_more_is_read_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "READ_AHEAD_BYTES", 3 * len(RECORD))
    monkeypatch.setattr(intake, "TICK_S", 0.01)
    store, threads = SlowStore(FakeDisk()), StoreThreads()
    try:
        asyncio.run(run(store, threads, FakeClock()))
    finally:
        store.open.set()
        asyncio.run(threads.close())
