"""The gRPC server of a node: our services, and the standard health and reflection.

All calls pass the door (call_door.py), except replication, which has bounds of its own and asks
for the proof of a node (ha/protocol/proof.py). gRPC itself has two bounds that matter here,
and both would drop calls silently: how many wait to be accepted (1,000 by default, above it some
are cancelled at random), and how large a message may be. So the first is set above the limit of the
door, which refuses with a reason, and the second is the size of a put.
"""

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from tandemlog.format.constants import MAX_GRPC_MESSAGE
from tandemlog.v1 import admin_pb2, broker_pb2, replication_pb2, transaction_pb2, work_pb2
from tandemlog_server.ha.protocol.proof import NodeProof, Prove, ProvenCall, proven_service
from tandemlog_server.ha.protocol.replication_service import METHOD, Context, ReplicationService

from ..access.access_refusals import NotKnownError
from ..access.caller import Who
from ..access.doorkeeper import Doorkeeper
from ..process.connection_census import OPTIONS, ConnectionCensus
from ..process.machine_bounds import GRPC_CONNECTIONS
from ..process.tasks import cancelled
from ..scrub.scrub_methods import ScrubMethods
from ..security.served_tls import ServedTls
from ..settings.host_port import split_endpoint
from ..settings.listen_endpoints import ListenError
from .admin_service import AdminService
from .broker_service import BrokerService
from .call_door import CallDoor, Handler, proofs_of
from .data_session import DataMethods
from .master_answers import speaks
from .permissions import ADMIN, BROKER, REPLICATION, TRANSACTIONS, WORK, rule_of
from .strangers import StrangerInterceptor, refuse
from .transaction_service import TransactionService
from .work_methods import WorkMethods

logger = logging.getLogger(__name__)

CALLS_OF_A_CONNECTION = 1_024
"""Under way at one time; a client keeps further ones back by itself."""
WATCHES = 64
"""Of health, by callers that need no identity; and a quarter of all streams at most."""
_COLUMNS_BYTES = 12 << 20
"""Of a put, beside its records: the longest table of topics has 8 MiB."""
_OPTIONS = (
    *OPTIONS,
    ("grpc.max_send_message_length", MAX_GRPC_MESSAGE),
    ("grpc.max_concurrent_streams", CALLS_OF_A_CONNECTION),
    # a connection whose client has gone elsewhere is closed; a client opens another one by itself
    ("grpc.max_connection_idle_ms", 600_000),
)
SERVICES = (BROKER, ADMIN, WORK, TRANSACTIONS, REPLICATION)


def largest_put(max_batch_size: int) -> int:
    """Bytes of the largest encoded put, whose records may have `max_batch_size`."""
    return max_batch_size + _COLUMNS_BYTES


class GrpcServer:
    """See the module. `max_batch_size` is the bytes of the largest put's records; without `tls`
    everything travels in plain text. `connections` are taken at a time."""

    def __init__(
        self,
        broker: BrokerService,
        admin: AdminService,
        work: WorkMethods,
        transactions: TransactionService,
        replication: ReplicationService,
        scrub: ScrubMethods,
        door: CallDoor,
        *,
        max_batch_size: int,
        tls: ServedTls | None = None,
        connections: int = GRPC_CONNECTIONS,
    ) -> None:
        self._tls = tls
        self._keeper = door.keeper
        self._connections = connections
        self._looking: asyncio.Task[None] | None = None
        most = ("grpc.max_receive_message_length", largest_put(max_batch_size))
        many = ("grpc.max_allowed_incoming_connections", connections)
        options = (*_OPTIONS, most, many)
        watches = min(WATCHES, door.max_streams // 4)
        first = (StrangerInterceptor(door.keeper, watches),) if door.keeper.active else ()
        self._server = aio.server(options=options, interceptors=first)
        _serve(self._server, BROKER, _broker_handlers(broker, door))
        _serve(self._server, ADMIN, _unary_handlers(admin_pb2, "Admin", admin, door))
        _serve(self._server, WORK, _unary_handlers(work_pb2, "Work", work, door))
        more = _unary_handlers(transaction_pb2, "Transactions", transactions, door)
        _serve(self._server, TRANSACTIONS, more)
        rule_of(REPLICATION, METHOD)
        speaks(REPLICATION, METHOD)
        proven_service(replication, proof_by(door.keeper)).add_to(self._server)
        # its other methods have one request, and pass the door
        others_of = _unary_handlers(replication_pb2, "Replication", scrub, door)
        _serve(self._server, REPLICATION, others_of)
        self._health = HealthService()
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        others: Any = _Others(self._server, door)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, others)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            reflection.aio.ReflectionServicer(names), others
        )

    async def start(self, endpoint: str) -> None:
        """Listen on host:port and serve. Raises ListenError."""
        try:
            if self._tls is None:
                self._server.add_insecure_port(endpoint)
            else:
                self._server.add_secure_port(endpoint, self._tls.grpc_credentials())
        except RuntimeError as error:
            raise ListenError(f"listen: cannot listen on {endpoint}") from error
        await self._server.start()
        census = ConnectionCensus(self._keeper, split_endpoint(endpoint)[1], self._connections)
        self._looking = asyncio.create_task(census.run(), name="connections")
        for name in ("", *SERVICES):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def say_not_serving(self) -> None:
        """Health checks answer NOT_SERVING from here on."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; end those that are open after `grace_s`."""
        if self._looking is not None:
            await cancelled(self._looking)
        await self._server.stop(grace_s)


class HealthService(health.aio.HealthServicer):  # type: ignore[misc]
    """The library's, and List: the state of every service that was ever set. The library registers
    List but does not implement it, so each call of it would end with a traceback in the log."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()

    async def set(self, service: str, status: Any) -> None:
        self._names.add(service)
        await super().set(service, status)

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = health_pb2.HealthListResponse()
        for name in sorted(self._names):
            check = health_pb2.HealthCheckRequest(service=name)
            answer.statuses[name].CopyFrom(await self.Check(check, context))
        return answer


class _Others:
    """A server, as generated code sees it that adds a service of another package."""

    def __init__(self, server: aio.Server, door: CallDoor) -> None:
        self._server = server
        self._door = door

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Older generated code asks for these; the registered ones are the same."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Handler]) -> None:
        rules = partial(rule_of, service)
        for name in handlers:
            speaks(service, name)
        _serve(self._server, service, self._door.foreign(handlers, rules))


def _serve(server: aio.Server, service: str, handlers: dict[str, Handler]) -> None:
    """Add the methods of a service in both ways that gRPC has. Registered ones are found without
    a search; older releases have those for threads alone, and see only the generic ones here."""
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_registered_method_handlers(service, handlers)


# These give bytes: they pass records without copies.
_ENCODED = {
    "Pull": "pull_bytes",
    "QueryByKey": "query_bytes",
    "GetByOffset": "by_offset_bytes",
}


def data_methods(broker: BrokerService, door: CallDoor) -> DataMethods:
    """What data connections carry, behind the door."""
    pull, append = "Pull", "Append"
    kinds = broker_pb2.PullRequest, broker_pb2.PullResponse
    return DataMethods(
        door.served(broker.pull_parts, *kinds, rule_of(BROKER, pull), pull, speaks(BROKER, pull)),
        door.served_stream(broker.append_bytes, rule_of(BROKER, append), append),
    )


def _broker_handlers(broker: BrokerService, door: CallDoor) -> dict[str, Handler]:
    handlers = _unary_handlers(broker_pb2, "Broker", broker, door)
    append, fetch = "Append", "FetchSegmentRange"
    handlers[append] = door.stream(
        broker.append_bytes, broker_pb2.AppendResponse, rule_of(BROKER, append), append
    )
    handlers[fetch] = door.unary_stream(
        broker.segment_bytes,
        broker_pb2.FetchSegmentRangeRequest,
        broker_pb2.SegmentChunk,
        rule_of(BROKER, fetch),
        fetch,
    )
    state = "FetchLogState"
    handlers[state] = door.unary_stream(
        broker.state_bytes,
        broker_pb2.FetchLogStateRequest,
        broker_pb2.LogStateChunk,
        rule_of(BROKER, state),
        state,
    )
    return handlers


def _unary_handlers(module: Any, name: str, service: object, door: CallDoor) -> dict[str, Handler]:
    """Of each method of the service that is no stream, with its messages in the protocol."""
    service_name = module.DESCRIPTOR.services_by_name[name].full_name
    return {
        method.name: door.unary(
            getattr(service, _ENCODED.get(method.name, method.name)),
            getattr(module, method.input_type.name),
            getattr(module, method.output_type.name),
            rule_of(service_name, method.name),
            method.name,
            speaks(service_name, method.name),
        )
        for method in module.DESCRIPTOR.services_by_name[name].methods
        if not method.server_streaming
    }


@dataclass(frozen=True, slots=True)
class _SlaveCall:
    """A stream of replication, whose caller is known."""

    keeper: Doorkeeper
    who: Who
    peer: str

    def proof(self) -> NodeProof:
        who = self.who
        try:
            self.keeper.renew(who)
        except NotKnownError as error:
            return NodeProof(who.identity.name, fault=str(error))
        return NodeProof(who.identity.name, who.nodes, who.proof_fault)

    def refused(self, reason: str) -> None:
        self.keeper.audit.refused(METHOD, self.who.identity.name, self.peer, reason)


def proof_by(keeper: Doorkeeper) -> Prove:
    """Asks `keeper` for the caller of a stream; one that is not known gets UNAUTHENTICATED."""

    async def prove(context: Context) -> ProvenCall | None:
        peer = context.peer()
        # while the stream is open, its connection is not idle
        keeper.streaming.add(peer)
        cast("Any", context).add_done_callback(lambda _: keeper.streaming.discard(peer))
        if not keeper.active:
            return None
        try:
            certificates = keeper.certificates_required
            who = keeper.identify(*proofs_of(cast("Any", context), certificates=certificates))
        except NotKnownError as error:
            keeper.audit.refused(METHOD, "", peer, str(error))
            await refuse(context, str(error))
        return _SlaveCall(keeper, who, peer)

    return prove
