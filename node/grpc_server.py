"""The gRPC server of a node: our services, and the standard health and reflection."""

import logging
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ha.replication_service import ReplicationService
from tandemlog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    replication_pb2,
)

from .broker_service import BrokerService
from .endpoints import ListenError
from .health_service import HealthService

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 64 << 20
_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # two nodes on one port would share its connections without a word
    ("grpc.so_reuseport", 0),
    # clients may ping a quiet connection every 10 s, also while no call is open
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    # a host that is gone without a word must not hold its streams until TCP gives up
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
BROKER = broker_pb2.DESCRIPTOR.services_by_name["Broker"].full_name
SERVICES = (
    BROKER,
    admin_pb2.DESCRIPTOR.services_by_name["Admin"].full_name,
    replication_pb2.DESCRIPTOR.services_by_name["Replication"].full_name,
)


class GrpcServer:
    """See the module."""

    def __init__(
        self,
        broker: BrokerService,
        admin: admin_pb2_grpc.AdminServicer,
        replication: ReplicationService,
    ) -> None:
        self._server = aio.server(options=_OPTIONS)
        broker_pb2_grpc.add_BrokerServicer_to_server(broker, self._server)
        # after the generated ones of the same names, whose place they take
        self._server.add_registered_method_handlers(BROKER, _raw_handlers(broker))
        admin_pb2_grpc.add_AdminServicer_to_server(admin, self._server)
        replication.add_to(self._server)
        self._health = HealthService()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self, endpoint: str) -> None:
        """Listen on host:port and serve. Raises ListenError."""
        try:
            self._server.add_insecure_port(endpoint)
        except RuntimeError as problem:
            raise ListenError(f"listen: cannot listen on {endpoint}") from problem
        await self._server.start()
        for name in ("", *SERVICES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def say_not_serving(self) -> None:
        """Health checks answer NOT_SERVING from here on."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; end those that are open after `grace_s`."""
        await self._server.stop(grace_s)


def _raw_handlers(broker: BrokerService) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
    """The methods that pass record bytes without copies, by name."""
    return {
        "Append": grpc.stream_stream_rpc_method_handler(
            broker.append_bytes,
            response_serializer=broker_pb2.AppendResponse.SerializeToString,
        ),
        "Pull": grpc.unary_unary_rpc_method_handler(
            broker.pull_bytes, request_deserializer=broker_pb2.PullRequest.FromString
        ),
        "FetchSegmentRange": grpc.unary_stream_rpc_method_handler(
            broker.segment_bytes,
            request_deserializer=broker_pb2.FetchSegmentRangeRequest.FromString,
        ),
    }
