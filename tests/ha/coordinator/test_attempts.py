"""Calls whose token the coordinator no longer knows, as after its restart: each gets in again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import aio

from fakes.replicas import eventually
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.coordinator.etcd_client import EtcdCoordinator
from tandemlog_server.ha.coordinator.methods import AUTHENTICATE, RANGE, Method
from tandemlog_server.ha.coordinator.options import CoordinatorOptions


class Etcd:
    """It knows the tokens of the logins since its last restart. While `gate` is closed it lets
    reads wait, and refuses those whose token it then does not know."""

    def __init__(self) -> None:
        self.logins = 0
        self.reads = 0
        self.tokens: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    def restart(self) -> None:
        self.tokens.clear()

    async def start(self) -> str:
        self.server = aio.server()
        for method, answer in ((AUTHENTICATE, self._log_in), (RANGE, self._range)):
            self._serve(method, answer)
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        return f"127.0.0.1:{port}"

    def _serve(self, method: Method[Any, Any], answer: Any) -> None:
        handler = grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=method.request.FromString,
            response_serializer=method.answer.SerializeToString,
        )
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(method.full_service, {method.name: handler}),)
        )

    async def _log_in(self, _request: Any, _context: Any) -> pb.AuthenticateResponse:
        self.logins += 1
        token = f"token {self.logins}"
        self.tokens.add(token)
        return pb.AuthenticateResponse(token=token)

    async def _range(self, _request: Any, context: Any) -> pb.RangeResponse:
        self.reads += 1
        await self.gate.wait()
        if dict(context.invocation_metadata())["token"] not in self.tokens:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
        header = pb.ResponseHeader(cluster_id=1, member_id=1, revision=1, raft_term=1)
        return pb.RangeResponse(header=header)

    async def waiting(self, count: int) -> None:
        await eventually(lambda: self.reads >= count)


@pytest.fixture
async def etcd() -> AsyncIterator[Etcd]:
    each = Etcd()
    yield each
    each.gate.set()
    await each.server.stop(None)


@pytest.fixture
async def client(etcd: Etcd) -> AsyncIterator[EtcdCoordinator]:
    options = CoordinatorOptions(
        (await etcd.start(),), user="n", password="p", attempt_s=20.0, budget_s=20.0
    )
    connected = EtcdCoordinator(options)
    yield connected
    await connected.close()


async def test_a_restart_right_after_a_login_refuses_no_call(
    etcd: Etcd, client: EtcdCoordinator
) -> None:
    for logins in (1, 2, 3):
        await client.get(b"k")
        assert etcd.logins == logins
        etcd.restart()


async def test_calls_that_were_refused_together_log_in_once(
    etcd: Etcd, client: EtcdCoordinator
) -> None:
    await client.get(b"k")
    etcd.gate.clear()
    calls = [asyncio.ensure_future(client.get(b"k")) for _ in range(3)]
    await etcd.waiting(4)
    etcd.restart()
    etcd.gate.set()
    await asyncio.gather(*calls)
    assert etcd.logins == 2


async def test_a_call_that_was_refused_late_uses_the_login_of_another_one(
    etcd: Etcd, client: EtcdCoordinator
) -> None:
    await client.get(b"k")
    etcd.gate.clear()
    late = asyncio.ensure_future(client.get(b"k"))
    await etcd.waiting(2)
    etcd.restart()
    held, etcd.gate = etcd.gate, asyncio.Event()
    etcd.gate.set()
    await client.get(b"k")
    held.set()
    await late
    assert etcd.logins == 2
