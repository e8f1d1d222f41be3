"""One node of a cluster, under one endpoint: its calls, and what they fail with.

    ask, call   unary calls by gRPC
    pull        by a data connection, else by gRPC; its answer is parsed in place
    append      a stream of puts, by either

Whatever a call ends with becomes an error of this package, which names the endpoint.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..errors import (
    AuthenticationError,
    ClientClosedError,
    ForkedClientError,
    NodeUnavailableError,
    SecurityError,
    TandemlogError,
)
from ..format.constants import MAX_GRPC_MESSAGE, Buffer
from ..lazy import lazy, load
from ..transport import own_grpc
from ..transport.channels import THROUGH_PROXY, open_channel
from ..transport.security import Security
from ..transport.security_files import Metadata, SecurityFileError, SecurityFiles
from ..v1 import admin_pb2, broker_pb2, common_pb2
from .answer_errors import error_from, error_from_rpc
from .append_call import APPEND, AppendCall, DataAppendCall, GrpcAppendCall, status_of
from .data_link import DataStatusError
from .data_path import DataPath, Offer
from .endpoints import split_host_port
from .newest_epoch import NewestEpoch

if TYPE_CHECKING:
    import grpc
    from grpc import aio

    from ..transport import tls_faults
    from ..v1 import admin_pb2_grpc, broker_pb2_grpc, transaction_pb2_grpc, work_pb2_grpc
    from ..v1.admin_pb2_grpc import AdminAsyncStub
    from ..v1.broker_pb2_grpc import BrokerAsyncStub
    from ..v1.transaction_pb2_grpc import TransactionsAsyncStub
    from ..v1.work_pb2_grpc import WorkAsyncStub
    from . import pull_answer
else:
    tls_faults = lazy("tandemlog.transport.tls_faults")
    pull_answer = lazy(f"{__package__}.pull_answer")
    # they load gRPC: see own_grpc.py
    admin_pb2_grpc = lazy("tandemlog.v1.admin_pb2_grpc")
    broker_pb2_grpc = lazy("tandemlog.v1.broker_pb2_grpc")
    work_pb2_grpc = lazy("tandemlog.v1.work_pb2_grpc")
    transaction_pb2_grpc = lazy("tandemlog.v1.transaction_pb2_grpc")

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_GRPC_MESSAGE),
    ("grpc.max_receive_message_length", MAX_GRPC_MESSAGE),
    # A peer that vanished without a word is found by pings; below 10 s servers may object.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # A restarted node is found again at once: our own retries already back off. gRPC takes 100 ms
    # for the least.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
)


_DESCRIBE_MS = 2_000


class _Answer(Protocol):
    @property
    def error(self) -> common_pb2.Error: ...


AnswerT = TypeVar("AnswerT", bound=_Answer)
ResultT = TypeVar("ResultT")


class Node:
    """One node under one endpoint, with its stubs. Raises SecurityError for files that cannot be
    used. `number` is that of the certificates with which its channel was made. An answer that is
    older than `epochs` knows is not believed: its call raises NotMasterError. `watched` is what a
    call is within while it has no answer: see silent_master.py."""

    def __init__(
        self,
        endpoint: str,
        files: SecurityFiles | None = None,
        *,
        data_connections: str = "never",
        epochs: NewestEpoch | None = None,
        http_proxy: bool = False,
        watched: "Callable[[Node], AbstractAsyncContextManager[Any]] | None" = None,
    ) -> None:
        self.endpoint = endpoint
        self._watched = watched or _unwatched
        self._epochs = epochs or NewestEpoch()
        self._files = files or SecurityFiles(Security())
        try:
            own_grpc.ready()
            self.number = self._files.current().number
            options = (*CHANNEL_OPTIONS, THROUGH_PROXY) if http_proxy else CHANNEL_OPTIONS
            self.channel = open_channel(endpoint, self._files, options)
        except SecurityFileError as error:
            raise SecurityError(str(error)) from None
        except own_grpc.OwnGrpcError as error:
            raise ForkedClientError(str(error)) from None
        # what a failure needs: when it comes there may be no descriptor to load it
        load("tenacity")
        load("tandemlog.transport.tls_faults")
        self.broker: BrokerAsyncStub = broker_pb2_grpc.BrokerStub(self.channel)
        self.admin: AdminAsyncStub = admin_pb2_grpc.AdminStub(self.channel)
        self.transactions: TransactionsAsyncStub = transaction_pb2_grpc.TransactionsStub(
            self.channel
        )
        self._pull: Callable[..., Awaitable[bytes]] = self.channel.unary_unary(
            pull_answer.PULL, request_serializer=broker_pb2.PullRequest.SerializeToString
        )
        self._append: Callable[..., Any] = self.channel.stream_stream(
            APPEND, response_deserializer=broker_pb2.AppendResponse.FromString
        )
        encrypted = self._files.current().credentials is not None
        if encrypted or http_proxy or "/" in endpoint:  # a gRPC target with a scheme
            self.data = DataPath("", "never", self._offer)
        else:
            self.data = DataPath(split_host_port(endpoint)[0], data_connections, self._offer)

    @cached_property
    def work(self) -> "WorkAsyncStub":
        """Few clients use it."""
        return work_pb2_grpc.WorkStub(self.channel)

    async def _offer(self) -> Offer | None:
        """What this node says of its data connections now; None if it does not answer."""
        request = admin_pb2.DescribeClusterRequest()
        try:
            answer = await self.ask(self.admin.DescribeCluster, request, _DESCRIBE_MS)
        except TandemlogError:
            return None
        return answer.data_port, answer.data_key

    async def close(self) -> None:
        """Ends every call."""
        self.data.close()
        await self.channel.close()

    async def ask(
        self, method: Callable[..., Awaitable[AnswerT]], request: Any, timeout_ms: int
    ) -> AnswerT:
        """One unary call; raises a typed error for a refusal and for every failure of the call."""
        answer = await self.call(method, request, timeout_ms)
        if answer.error.code:
            raise error_from(answer.error, self.endpoint)
        return answer

    async def pull(
        self, request: broker_pb2.PullRequest, timeout_ms: int
    ) -> "pull_answer.PullAnswer":
        """A pull, its records in the buffer that received them; raises as `ask`."""
        clock = asyncio.get_running_loop().time
        began = clock()
        raw = await self._pull_data(request, timeout_ms)
        if raw is None:
            late_ms = round(1e3 * (clock() - began))
            if late_ms and request.wait_ms:
                # what is left of its wait, in what is left of its time
                copy = broker_pb2.PullRequest()
                copy.CopyFrom(request)
                copy.wait_ms = max(0, request.wait_ms - late_ms)
                request = copy
            raw = await self.call(self._pull, request, max(timeout_ms - late_ms, 1))
            self.data.pull_came_by_grpc()
        answer = pull_answer.parse_pull(raw)
        if answer.error.code:
            self._epochs.believe(answer, self.endpoint)
            raise error_from(answer.error, self.endpoint)
        return answer

    async def append(self) -> AppendCall:
        """A new stream of puts."""
        metadata = self.metadata

        async def failure(status: "grpc.StatusCode", details: str | None) -> TandemlogError:
            return await self._failure(status, details, metadata)

        link = await self.data.stream()
        if link is None:
            return GrpcAppendCall(self._append(metadata=metadata), failure)
        return DataAppendCall(link, self.endpoint, _authorization(metadata), failure)

    async def _pull_data(self, request: broker_pb2.PullRequest, timeout_ms: int) -> Buffer | None:
        """The answer by a data connection; None if there is none. Raises as `call`."""
        metadata = self.metadata
        try:
            async with self._watched(self):
                return await self.data.pull(
                    request.SerializeToString(), _authorization(metadata), timeout_ms / 1000
                )
        except DataStatusError as error:
            raise await self._failure(status_of(error.code), error.text, metadata) from None
        except TimeoutError:
            late = own_grpc.grpc.StatusCode.DEADLINE_EXCEEDED
            raise error_from_rpc(late, "Deadline Exceeded", self.endpoint) from None

    async def call(
        self, method: Callable[..., Awaitable[ResultT]], request: Any, timeout_ms: int
    ) -> ResultT:
        """As `ask`, but a refusal is left in the answer, with what else that says."""
        metadata = self.metadata
        try:
            call = method(request, timeout=timeout_ms / 1000, metadata=metadata)
            async with self._watched(self):
                answer = await own_grpc.note_call(call)
        except own_grpc.aio.AioRpcError as error:
            raise await self.failure(error, metadata) from None
        except own_grpc.aio.UsageError as error:
            raise ClientClosedError(f"{self.endpoint}: the channel is closed") from error
        self._epochs.believe(answer, self.endpoint)
        return answer

    @property
    def metadata(self) -> Metadata:
        """What each call carries: the token, as it is now."""
        return self._files.current().metadata

    async def failure(self, error: "aio.AioRpcError", metadata: Metadata) -> TandemlogError:
        """The typed error for a failed call that carried `metadata`."""
        return await self._failure(error.code(), error.details(), metadata)

    async def _failure(
        self, status: "grpc.StatusCode", details: str | None, metadata: Metadata
    ) -> TandemlogError:
        typed = error_from_rpc(status, details, self.endpoint)
        if isinstance(typed, AuthenticationError):
            replaced = self._files.current(look=True).metadata != metadata
            if replaced or self._files.token_is_new:
                return NodeUnavailableError(
                    f"{typed}; the token was replaced a moment ago", reason=typed.reason
                )
            return typed.restated(f"{typed}{_which_token(self._files.security)}")
        security = self._files.security
        if not security.tls or not isinstance(typed, NodeUnavailableError):
            return typed
        if not tls_faults.may_be_handshake(details):
            return typed
        fault = await tls_faults.explain(self.endpoint, security)
        if fault is None:
            return typed
        text = f"{self.endpoint}: {fault.text}"
        kind = AuthenticationError if fault.certain else NodeUnavailableError
        return kind(text, reason=fault.short)


def _unwatched(_: Node) -> AbstractAsyncContextManager[None]:
    return nullcontext()


@contextmanager
def left_if_it_fails(node: Node, leave: Callable[[Node, str], object]) -> Iterator[None]:
    """Around a call of `node`: `leave` is called after an error that another node may not give."""
    try:
        yield
    except TandemlogError as error:
        if error.elsewhere:
            leave(node, str(error))
        raise


def _authorization(metadata: Metadata) -> str:
    return dict(metadata).get("authorization", "")


def _which_token(security: Security) -> str:
    if security.token_file:
        return f" (the token is that of {security.token_file})"
    if security.token:
        return " (a token was given)"
    if security.cert_file:
        return f" (no token was given; the certificate is that of {security.cert_file})"
    return " (no token and no client certificate was given)"
