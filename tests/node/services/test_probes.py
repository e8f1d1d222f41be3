"""Calls that hold their request back: no stranger keeps others out by them, and each is counted."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fakes.secured_node import access_text, bearer, channel, running, settings, until
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.doorkeeper import Doorkeeper
from tandemlog_server.node.services.probes import READING
from tandemlog_server.node.services.strangers import StrangerInterceptor

CHECK = "/grpc.health.v1.Health/Check"
PULL = "/tandemlog.v1.Broker/Pull"


def opened(on: aio.Channel, path: str, metadata: Any = ()) -> Any:
    """A call whose request does not come."""
    return on.stream_unary(path)(metadata=metadata)


async def test_the_oldest_probe_that_holds_its_request_back_gives_way(tmp_path: Path) -> None:
    config = settings(tmp_path, access=access_text(a={}), security={"open_health": True})
    async with running(config) as node, channel(node) as on, channel(node) as other:
        stalled = [opened(on, CHECK) for _ in range(READING + 1)]
        for each in stalled:
            await each.wait_for_connection()
        ended, _ = await asyncio.wait(
            [asyncio.ensure_future(each.code()) for each in stalled],
            return_when=asyncio.FIRST_COMPLETED,
            timeout=10,
        )
        assert [each.result() for each in ended] == [StatusCode.UNAVAILABLE]
        # who sends its request is answered, however many do not
        answer = await health_pb2_grpc.HealthStub(other).Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_probe_without_a_request_ends_with_a_status(tmp_path: Path) -> None:
    config = settings(tmp_path, access=access_text(a={}), security={"open_health": True})
    async with running(config) as node, channel(node) as on:
        call = opened(on, CHECK)
        await call.done_writing()
        assert await call.code() is StatusCode.INVALID_ARGUMENT


async def test_watches_of_strangers_leave_room_for_puts(tmp_path: Path) -> None:
    config = settings(
        tmp_path,
        access=access_text(op={"admin": True}),
        security={"open_health": True},
        limits={"streams": 8},
    )
    async with running(config) as node, channel(node) as on, channel(node) as other:
        health = health_pb2_grpc.HealthStub(on)
        watches = []
        for _ in range(8):
            watches.append(health.Watch(health_pb2.HealthCheckRequest()))
            assert (await watches[-1].read()).status == health_pb2.HealthCheckResponse.SERVING
        assert await watches[0].code() is StatusCode.UNAVAILABLE
        await until(lambda: node._door.streams == 2)  # a quarter of all
        assert not watches[-1].done()
        puts: Any = other.stream_stream(
            "/tandemlog.v1.Broker/Append",
            response_deserializer=broker_pb2.AppendResponse.FromString,
        )(metadata=bearer("op"))
        await puts.write(b"")
        assert (await puts.read()).error.code == common_pb2.INVALID_ARGUMENT


async def test_a_call_counts_before_its_request_has_come(tmp_path: Path) -> None:
    """Else a caller could have any number of requests on their way, each as large as a put."""
    access = access_text(few={"read": ["t"], "limits": {"calls": 1}})
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        first = opened(on, PULL, bearer("few"))
        await until(lambda: node._door.calls == 1)
        answer = broker_pb2.PullResponse.FromString(await opened(on, PULL, bearer("few")))
        assert answer.error.code == common_pb2.BUSY
        assert answer.error.field == "calls"
        await first.done_writing()
        answer = broker_pb2.PullResponse.FromString(await first)
        assert (answer.error.code, answer.error.field) == (common_pb2.INVALID_ARGUMENT, "request")


@pytest.mark.parametrize("method", ["Check", "Watch"])
async def test_a_probes_request_is_not_received_before_it_has_a_place(method: str) -> None:
    asked: Any = type(
        "Details", (), {"method": f"/grpc.health.v1.Health/{method}", "invocation_metadata": ()}
    )()
    handlers: dict[str, Any] = {}

    class Server:
        def add_registered_method_handlers(self, _: str, given: dict[str, Any]) -> None:
            handlers.update(given)

        def add_generic_rpc_handlers(self, _: object) -> None: ...

    served: Any = Server()
    health_pb2_grpc.add_HealthServicer_to_server(health_pb2_grpc.HealthServicer(), served)

    async def found(_: object) -> Any:
        return handlers[method]

    keeper = Doorkeeper("c", monotonic=lambda: 0.0, certificates_required=True, open_health=True)
    handler: Any = await StrangerInterceptor(keeper).intercept_service(found, asked)
    assert handler.request_streaming
