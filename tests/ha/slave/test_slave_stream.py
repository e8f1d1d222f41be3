"""How a stream ends: the reason is one line that a person can read."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc import aio

from fakes.clock import FakeClock
from fakes.fake_store import FakeDisk, FakeStore
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.ha.protocol.frames import Hello
from tandemlog_server.ha.slave.session import Disconnect, SlaveSession
from tandemlog_server.ha.slave.store import SlaveStore
from tandemlog_server.ha.slave.stream import SlaveStream, StoreThreads, rpc_end
from tandemlog_server.ha.state import HaState

CONFIG = HaConfig("c", "s", role=Role.SLAVE, master_endpoint="m:1")
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
def threads() -> Iterator[StoreThreads]:
    made = StoreThreads()
    yield made
    made.close()


def stream_of(threads: StoreThreads) -> SlaveStream:
    clock = FakeClock()
    stored = SlaveStore(
        FakeStore(FakeDisk()), HaState("c", "s", "i"), lambda _: None, lambda: "", CONFIG, clock
    )
    hello, me = stored.greeting(Hello("c", "s", ""), distrust=False)
    return SlaveStream(
        SlaveSession(hello, me, CONFIG, clock.monotonic()),
        stored,
        threads,
        CONFIG,
        clock,
        joined=lambda _: None,
        failed=lambda _: None,
        told=lambda _: None,
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


def test_a_status_without_details_says_so() -> None:
    bare = aio.AioRpcError(grpc.StatusCode.INTERNAL, aio.Metadata(), aio.Metadata())
    assert rpc_end(bare) == Disconnect("INTERNAL: no details")


def test_a_process_that_does_not_respond_is_told_apart() -> None:
    assert rpc_end(BROKEN) == Disconnect(REASON, silent=True)
