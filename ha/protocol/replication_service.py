"""The gRPC service of replication: one method, whose messages pass as bytes.

The generated stubs would make a message object of every megabyte of log; `frames` makes and reads
the same bytes with one copy. Service and method are those of replication.proto.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import grpc
from grpc import aio

from tandemlog.v1 import replication_pb2

from .frames import Refusal, encode_master_frame

SERVICE = replication_pb2.DESCRIPTOR.services_by_name["Replication"].full_name
METHOD = "Replicate"
PATH = f"/{SERVICE}/{METHOD}"

Context: TypeAlias = "aio.ServicerContext[bytes, bytes]"
Replicate: TypeAlias = Callable[[AsyncIterator[bytes], Context], Awaitable[None]]


class ReplicationService:
    """What a node puts on its gRPC server; `replicate` serves one stream."""

    def __init__(self, replicate: Replicate) -> None:
        self.replicate = replicate

    def add_to(self, server: aio.Server) -> None:
        """Serve Replication on `server`; before it starts."""
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
            self.replicate
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
        )


def refusing_service(reason: Callable[[], str]) -> ReplicationService:
    """The service of a node that no slave can follow; every stream ends with the reason."""

    async def refuse(requests: AsyncIterator[bytes], context: Context) -> None:
        await context.write(encode_master_frame(Refusal(reason(), retry=True)))

    return ReplicationService(refuse)
