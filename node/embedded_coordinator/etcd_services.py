"""etcd's services on gRPC: decode, let the machine answer, wait until it is durable, reply.

The loop is the one that calls the machine, so requests are carried out one after the other. An
exception that is no refusal may have left a request half applied: the process ends, and what the
disk holds is whole.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.coordinator import methods
from tandemlog_server.ha.coordinator.methods import Answer, Method, Request
from tandemlog_server.ha.coordinator.verdicts import AUTH_NOT_ENABLED

from .coordinator_door import CoordinatorDoor, received
from .coordinator_refusals import RefusedError, busy, over
from .journal import Journal
from .protection import Protection
from .state_machine import StateMachine
from .watch_stream import DurableRevision, WatchStream
from .watchers import Watchers

logger = logging.getLogger(__name__)

VERSION = "3.4.0-tandemlog"
"""Of the API; etcd's clients want a version of this form."""

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Handlers: TypeAlias = dict[Method[Any, Any], Handler]


class EtcdServices:
    """See the module. `monotonic` in seconds; `size` gives the bytes on disk."""

    def __init__(
        self,
        machine: StateMachine,
        journal: Journal,
        durable: DurableRevision,
        monotonic: Callable[[], float],
        size: Callable[[], int],
        endpoint: str,
        protection: Protection | None = None,
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._durable = durable
        self._monotonic = monotonic
        self._size = size
        self._endpoint = endpoint
        self._protection = protection
        self.door = CoordinatorDoor(machine.limits, protection)
        self._pace = asyncio.Lock()

    def add_to(self, server: aio.Server) -> None:
        """Serve on `server`; before it starts."""
        by_service: dict[str, dict[str, Handler]] = {}
        for method, handler in self._handlers().items():
            by_service.setdefault(method.full_service, {})[method.name] = handler
        for service, handlers in by_service.items():
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, handlers),)
            )

    def tick(self) -> None:
        """Time passes; to be called ten times a second."""
        try:
            self._machine.advance(self._monotonic())
            self._journal.add(self._machine.pop_changes())
        except Exception as error:
            self._journal.fail(error)
            raise

    def _handlers(self) -> Handlers:
        machine = self._machine
        unary: Iterable[tuple[Method[Any, Any], Callable[[Any, float], Any]]] = (
            (methods.RANGE, machine.range),
            (methods.PUT, machine.put),
            (methods.DELETE_RANGE, machine.delete_range),
            (methods.TXN, machine.txn),
            (methods.COMPACT, machine.compact),
            (methods.LEASE_GRANT, machine.lease_grant),
            (methods.LEASE_REVOKE, machine.lease_revoke),
            (methods.LEASE_TIME_TO_LIVE, machine.lease_time_to_live),
            (methods.LEASE_LEASES, machine.lease_leases),
            (methods.AUTHENTICATE, _no_authentication),
            (methods.STATUS, self._status),
            (methods.MEMBER_LIST, self._members),
        )
        handlers: Handlers = {method: self._unary(method, call) for method, call in unary}
        handlers[methods.LEASE_KEEP_ALIVE] = grpc.stream_stream_rpc_method_handler(self._keep_alive)
        handlers[methods.WATCH] = grpc.stream_stream_rpc_method_handler(self._watch)
        return handlers

    def _unary(
        self, method: Method[Request, Answer], call: Callable[[Request, float], Answer]
    ) -> Handler:
        async def serve(requests: AsyncIterator[bytes], context: Any) -> bytes:
            try:
                holder = self.door.admit(context)
                data = await received(requests)
            except RefusedError as refusal:
                await _refuse(context, refusal)
                raise
            return await self._answered(context, method, call, data, holder)

        # else gRPC would receive the request first, and count a call that sends none
        return grpc.stream_unary_rpc_method_handler(cast("Any", serve))

    async def _answered(
        self,
        context: Any,
        method: Method[Request, Answer],
        call: Callable[[Request, float], Answer],
        data: bytes,
        holder: str,
    ) -> bytes:
        refusal: RefusedError | None = None
        encoded = b""
        self.tick()  # what it changes is no request's
        try:
            request = self._decoded(method, data)
            self._check_disk(method)
            if method is methods.LEASE_GRANT:
                self.door.check_grant(holder, self._machine.leases.table)
            answer = call(request, self._monotonic())
            if isinstance(answer, pb.LeaseGrantResponse):
                self.door.granted(holder, answer.ID)
            encoded = answer.SerializeToString()
        except RefusedError as error:
            refusal = error
        except Exception as error:
            if not self._machine.untouched:
                self._journal.fail(error)
                raise
            logger.exception("a request failed, and has changed nothing: %s", method.path)
            refusal = RefusedError("INTERNAL", f"coordinator: the request failed: {error!r}")
        self._journal.add(self._machine.pop_changes())
        await self._journal.durable()
        if refusal is not None:
            await _refuse(context, refusal)
        return encoded

    def _decoded(self, method: Method[Request, Answer], data: bytes) -> Request:
        limit = self._machine.limits.request_bytes
        if len(data) > limit:
            raise over("bytes of a request", len(data), limit)
        try:
            return method.request.FromString(data)
        except DecodeError:
            name = method.request.DESCRIPTOR.name
            text = f"coordinator: the request is not a valid {name}"
            raise RefusedError("INVALID_ARGUMENT", text) from None

    def _check_disk(self, method: Method[Request, Answer]) -> None:
        waiting, limit = self._journal.waiting_bytes, self._machine.limits.waiting_bytes
        if method in (methods.PUT, methods.TXN) and waiting > limit:
            raise busy("bytes that wait for the disk", waiting, limit)

    async def _keep_alive(self, requests: AsyncIterator[bytes], context: Any) -> None:
        method = methods.LEASE_KEEP_ALIVE
        async with self._stream(context) as holder:
            async for data in requests:
                call = self._machine.lease_keep_alive
                await context.write(await self._answered(context, method, call, data, holder))

    async def _watch(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async with self._stream(context) as holder:
            watchers = Watchers(self._machine, self.door.watches, holder)
            stream = WatchStream(watchers, self._durable, context.write, self._pace)
            await stream.serve(requests)

    @asynccontextmanager
    async def _stream(self, context: Any) -> AsyncIterator[str]:
        """Around one stream: counted, and a refusal is its status. Whose it is."""
        try:
            yield self.door.admit(context, stream=True)
        except RefusedError as refusal:
            await _refuse(context, refusal)

    def _status(self, _: pb.StatusRequest, now: float) -> pb.StatusResponse:
        machine = self._machine
        return pb.StatusResponse(
            header=machine.header(),
            version=VERSION,
            dbSize=self._size(),
            dbSizeInUse=machine.versions.live_bytes + machine.versions.log_bytes,
            leader=machine.saved.member_id,
            raftIndex=machine.revision,
            raftAppliedIndex=machine.revision,
            raftTerm=machine.saved.term,
        )

    def _members(self, _: pb.MemberListRequest, now: float) -> pb.MemberListResponse:
        scheme = "http" if self._protection is None else "https"
        url = f"{scheme}://{self._endpoint}"
        member = pb.Member(ID=self._machine.saved.member_id, name="embedded", clientURLs=[url])
        return pb.MemberListResponse(header=self._machine.header(), members=[member])


async def _refuse(context: Any, refusal: RefusedError) -> None:
    await context.abort(grpc.StatusCode[refusal.code], str(refusal))


def _no_authentication(_: pb.AuthenticateRequest, now: float) -> pb.AuthenticateResponse:
    raise RefusedError("FAILED_PRECONDITION", AUTH_NOT_ENABLED)


async def tick_forever(services: EtcdServices, seconds: float = 0.1) -> None:
    """The clock of the leases."""
    while True:
        services.tick()
        await asyncio.sleep(seconds)
