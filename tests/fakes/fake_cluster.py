"""A cluster in this process: real gRPC servers over one log in memory.

    FakeCluster ── FakeNode (master) ─┐
                ── FakeNode (slave)  ─┴─ FakeLog

All nodes share the log, so a change of master loses nothing. `running_cluster` runs one in a
thread of its own, for synchronous clients.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import grpc
from grpc import aio

from fakes.fake_groups import FakeGroups
from fakes.fake_log import FakeLog
from fakes.fake_node import FakeNode
from fakes.fake_work import FakeWork


class TokenGuard(aio.ServerInterceptor):
    """Refuses calls without one of the cluster's tokens, before a handler sees them."""

    def __init__(self, cluster: "FakeCluster") -> None:
        self._cluster = cluster

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        sent = dict(details.invocation_metadata).get("authorization", "")
        if sent.removeprefix("Bearer ") in (self._cluster.tokens or ()):
            return await continuation(details)

        async def refuse(_: Any, context: Any) -> None:
            self._cluster.refused.set()
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown token")

        handler = await continuation(details)
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(refuse)
        return grpc.unary_unary_rpc_method_handler(refuse)


class FakeCluster:
    """A master "n0" and slaves "n1", ...; use with `async with`."""

    def __init__(
        self,
        slaves: int = 0,
        *,
        credentials: grpc.ServerCredentials | None = None,
        tokens: set[str] | None = None,
    ) -> None:
        """`tokens`: the ones that are let in; None: no token is looked at."""
        self.credentials, self.tokens = credentials, tokens
        self.guards = [] if tokens is None else [TokenGuard(self)]
        self.refused = asyncio.Event()
        self.log = FakeLog()
        self.groups = FakeGroups(self.log)
        self.work = FakeWork(self.log)
        self.master_id = "n0"
        self.epoch = 1
        # calls that it lacks answer UNIMPLEMENTED, as those of any servicer
        new_node: Callable[[FakeCluster, str], FakeNode] = FakeNode
        self.nodes = {f"n{number}": new_node(self, f"n{number}") for number in range(slaves + 1)}
        self._appended = asyncio.Event()

    async def __aenter__(self) -> "FakeCluster":
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.stop() for node in self.nodes.values()))

    @property
    def master(self) -> FakeNode:
        return self.nodes[self.master_id]

    @property
    def endpoints(self) -> list[str]:
        return [node.endpoint for node in self.nodes.values()]

    def promote(self, node_id: str) -> None:
        """Makes `node_id` the master; nobody with ""."""
        self.master_id = node_id
        self.epoch += 1
        self.groups.changed()

    async def appended(self) -> None:
        event, self._appended = self._appended, asyncio.Event()
        event.set()

    async def next_append(self) -> None:
        await self._appended.wait()


class ThreadedCluster:
    """A FakeCluster in its own thread; `call` runs something in it and waits."""

    def __init__(self, cluster: FakeCluster, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = cluster
        self._loop = loop

    @property
    def log(self) -> FakeLog:
        return self.cluster.log

    @property
    def endpoints(self) -> list[str]:
        return self.cluster.endpoints

    def call(self, function: Callable[[], Any]) -> Any:
        async def run() -> Any:
            result = function()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)


@contextmanager
def running_cluster(slaves: int = 0, **protection: Any) -> Iterator[ThreadedCluster]:
    """A cluster for synchronous clients."""
    loop = _cluster_loop()

    async def make() -> FakeCluster:
        return await FakeCluster(slaves, **protection).__aenter__()

    cluster = asyncio.run_coroutine_threadsafe(make(), loop).result(10)
    try:
        yield ThreadedCluster(cluster, loop)
    finally:
        asyncio.run_coroutine_threadsafe(cluster.__aexit__(), loop).result(10)


@cache
def _cluster_loop() -> asyncio.AbstractEventLoop:
    """One for all tests: gRPC does not like loops that close."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="fake-cluster", daemon=True).start()
    return loop
