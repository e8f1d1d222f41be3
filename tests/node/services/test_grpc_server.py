"""Health and reflection, which the port of a node has beside its own services."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fakes.inner_node import config, running, stubs
from tandemlog_server.node.node import Node


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(config(tmp_path / "n0")) as node:
        yield node


async def test_health_and_reflection(master: Node) -> None:
    async with stubs(master) as channel:
        health = health_pb2_grpc.HealthStub(channel.channel)
        for service in ("", "tandemlog.v1.Broker"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        everything = await health.List(health_pb2.HealthListRequest())
        assert "tandemlog.v1.Broker" in everything.statuses
        call = reflection_pb2_grpc.ServerReflectionStub(channel.channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        names = {each.name for each in (await call.read()).list_services_response.service}
    assert {"tandemlog.v1.Broker", "tandemlog.v1.Admin", "tandemlog.v1.Replication"} <= names


async def test_health_is_watched_and_reflection_refuses_what_is_no_request(master: Node) -> None:
    async with stubs(master) as channel:
        watch = health_pb2_grpc.HealthStub(channel.channel).Watch(health_pb2.HealthCheckRequest())
        async with asyncio.timeout(10):
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        call: Any = channel.channel.stream_stream(path)()
        await call.write(b"\xff\xff")
        with pytest.raises(aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
