"""What comes in by the door is counted, bounded, and refused by name; over a real gRPC server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.services.call_door import MAX_REQUEST_BYTES, CallDoor

BIG = 4 << 20


class Rig:
    """Three methods behind a door: Ranges answers, Big is never taken, Puts is a stream."""

    def __init__(self, **limits: Any) -> None:
        self.turns = ReadTurns(1, 64 << 20)
        self.door = CallDoor(self.turns, **{"max_calls": 8, "max_streams": 2, **limits})
        self.hold = asyncio.Event()
        self.hold.set()
        check = grpc.unary_unary_rpc_method_handler(
            self.check,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )
        messages = (broker_pb2.QueueRangesRequest, broker_pb2.QueueRangesResponse)
        self.handlers = {
            "Ranges": self.door.unary(self.ranges, *messages),
            "Big": self.door.unary(self.big, *messages),
            "Puts": self.door.stream(self.puts, broker_pb2.AppendResponse),
            **self.door.foreign({"Check": check}),
        }

    async def ranges(self, request: Any, caller: Caller) -> broker_pb2.QueueRangesResponse:
        await self.hold.wait()
        return broker_pb2.QueueRangesResponse(next_page=request.page)

    async def big(self, request: Any, caller: Caller) -> bytes:
        return await self.turns.run(caller, lambda: bytes(BIG), room=BIG, size_of=len)

    async def puts(self, requests: Any, _: Any) -> AsyncIterator[broker_pb2.AppendResponse]:
        async for _ in requests:
            yield broker_pb2.AppendResponse()

    async def check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[aio.Channel]:
        server = aio.server(options=[("grpc.max_receive_message_length", 8 << 20)])
        handlers: Any = self.handlers
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel
        finally:
            await server.stop(0)
            self.turns.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - gRPC ends calls without an event
            await asyncio.sleep(0.001)


async def ask(channel: aio.Channel, data: bytes) -> broker_pb2.QueueRangesResponse:
    call: Any = channel.unary_unary("/S/Ranges")
    return broker_pb2.QueueRangesResponse.FromString(await call(data))


async def test_a_request_that_is_none_is_refused_by_name() -> None:
    rig = Rig()
    async with rig.served() as channel:
        answer = await ask(channel, b"\xff\xff")
        assert answer.error.code == common_pb2.INVALID_ARGUMENT
        assert answer.error.message == "the request is not a valid QueueRangesRequest"
        good = broker_pb2.QueueRangesRequest(page="7")
        assert (await ask(channel, good.SerializeToString())).next_page == "7"
        await until(lambda: rig.door.calls == 0)


async def test_a_request_that_is_too_large_is_not_decoded() -> None:
    async with Rig().served() as channel:
        answer = await ask(channel, b"\x0a\x00" * (MAX_REQUEST_BYTES // 2 + 1))
        assert answer.error.code == common_pb2.INVALID_ARGUMENT
        assert answer.error.limit == MAX_REQUEST_BYTES
        assert answer.error.actual == MAX_REQUEST_BYTES + 2


async def test_calls_above_the_limit_are_refused_as_busy() -> None:
    rig = Rig(max_calls=3)  # of which one host has two
    rig.hold.clear()
    async with rig.served() as channel:
        waiting = [asyncio.ensure_future(ask(channel, b"")) for _ in range(2)]
        await until(lambda: rig.door.calls == 2)
        refused = await ask(channel, b"")
        assert refused.error.code == common_pb2.BUSY
        assert "limits.calls is 3 for all, 2 of it for one" in refused.error.message
        rig.hold.set()
        assert not any(answer.error.code for answer in await asyncio.gather(*waiting))
        await until(lambda: rig.door.calls == 0)


async def test_a_stream_above_the_limit_ends_with_a_status_that_says_why() -> None:
    rig = Rig(max_streams=1)
    async with rig.served() as channel:
        first: Any = channel.stream_stream("/S/Puts")()
        await first.write(b"")
        await first.read()
        with pytest.raises(aio.AioRpcError, match=r"limits\.streams is 1") as refused:
            await channel.stream_stream("/S/Puts")().read()
        assert refused.value.code() is StatusCode.UNAVAILABLE
        await first.done_writing()
        await until(lambda: rig.door.streams == 0)
        assert rig.door.calls == 0


async def test_an_answer_that_nobody_takes_ends_its_call_and_gives_its_room_back() -> None:
    rig = Rig(take_s=0.01)
    async with rig.served() as channel:
        big: Any = channel.unary_stream("/S/Big")
        call = big(b"")  # never read
        await until(lambda: rig.door.calls_total == 1 and rig.door.calls == 0)
        assert rig.turns.held_bytes == 0
        call.cancel()


async def test_what_a_call_holds_is_given_back_when_its_caller_is_gone() -> None:
    rig = Rig()
    async with rig.served() as channel:
        big: Any = channel.unary_stream("/S/Big")
        call = big(b"")
        await until(lambda: rig.turns.held_bytes == 2 * BIG)
        call.cancel()
        await until(lambda: rig.turns.held_bytes == 0)


async def test_a_method_of_others_refuses_by_a_status_and_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Rig().served() as channel:
        check: Any = channel.unary_unary("/S/Check")
        assert await check(b"")
        for data in (b"\xff\xff", b"\x0a\x00" * (1 << 20)):
            with pytest.raises(aio.AioRpcError) as refused:
                await check(data)
            assert refused.value.code() is StatusCode.INVALID_ARGUMENT
    assert not [record for record in caplog.records if record.exc_info]
