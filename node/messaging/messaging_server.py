"""The gRPC server of the 5.x API: our methods under its official name.

The messages are of a package of our own (proto/tandemlog/rocketmq_v2), and only the path of a
method travels, so the handlers are registered by that. A method that is missing here gets gRPC's
UNIMPLEMENTED, and no client asks for one.

Connections are looked at as those of the node's own port are (connection_census.py), and clients
may ping as often as those of RocketMQ do.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import grpc
from grpc import aio

from ..access.doorkeeper import Doorkeeper
from ..process.connection_census import OPTIONS, ConnectionCensus
from ..process.tasks import stopped
from ..security.served_tls import ServedTls
from ..services.call_door import Handler
from ..settings.host_port import split_endpoint
from ..settings.listen_endpoints import ListenError
from .messaging_call import SERVICE

CALLS_OF_A_CONNECTION: Final = 1_024
ANSWER_BYTES: Final = 64 << 20
METADATA_BYTES: Final = 16 << 10
IDLE_MS: Final = 1_800_000
"""Clients close a connection by themselves after as long."""


class MessagingServer:
    """See the module. `largest` is the bytes of the largest request."""

    def __init__(
        self,
        handlers: dict[str, Handler],
        keeper: Doorkeeper,
        *,
        largest: int,
        connections: int,
        tls: ServedTls | None,
    ) -> None:
        self._keeper = keeper
        self._connections = connections
        self._tls = tls
        self._tasks: list[asyncio.Task[None]] = []
        self._on_drain: list[Callable[[], None]] = []
        self._on_stop: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._server = aio.server(
            options=(
                *OPTIONS,
                ("grpc.max_receive_message_length", largest),
                ("grpc.max_send_message_length", ANSWER_BYTES),
                ("grpc.max_metadata_size", METADATA_BYTES),
                ("grpc.max_concurrent_streams", CALLS_OF_A_CONNECTION),
                ("grpc.max_connection_idle_ms", IDLE_MS),
                ("grpc.max_allowed_incoming_connections", connections),
            )
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        self._server.add_registered_method_handlers(SERVICE, handlers)

    def on_drain(self, work: Callable[[], None]) -> None:
        """Done by the first step of a stop."""
        self._on_drain.append(work)

    def answer_parked(self) -> None:
        """The first step of a stop; connections stay open."""
        for work in self._on_drain:
            work()

    def on_stop(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Done when the server has stopped, in the opposite order."""
        self._on_stop.append(work)

    def run_beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """As long as the server serves."""
        self._tasks.append(asyncio.create_task(work, name=name))

    async def start(self, endpoint: str) -> None:
        """Listen on host:port and serve. Raises ListenError."""
        try:
            if self._tls is None:
                self._server.add_insecure_port(endpoint)
            else:
                self._server.add_secure_port(endpoint, self._tls.grpc_credentials())
        except RuntimeError as error:
            raise ListenError(
                f"rocketmq_clients.grpc_listen: cannot listen on {endpoint}"
            ) from error
        await self._server.start()
        census = ConnectionCensus(self._keeper, split_endpoint(endpoint)[1], self._connections)
        self.run_beside(census.run(), "rocketmq-grpc-connections")

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; end those that are open after `grace_s`."""
        for task in self._tasks:
            await stopped(task)
        await self._server.stop(grace_s)
        for work in reversed(self._on_stop):
            await work()
