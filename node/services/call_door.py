"""The door through which every call comes in, before it is decoded.

    bytes ─▶ who calls?        not known: the status UNAUTHENTICATED
          ─▶ too many calls?   BUSY
          ─▶ too large, none?  INVALID_ARGUMENT
          ─▶ may it do that?   PERMISSION_DENIED (permissions.py)
          ─▶ the method        its errors
          ─▶ still the master? NOT_IN_SYNC, where it speaks for the cluster (master_answers.py)
          ─▶ answer            counted until it is taken

gRPC would decode a request before this code could check its size, and end a call that it cannot
decode with a traceback and UNKNOWN. So the methods are registered with bytes, and the requests are
decoded here: a bad request is refused in the `error` of a response, like all others. They are also
registered as streams of requests, of which they read one: else gRPC would receive it, and it may be
as large as a put, before the door has counted the call or asked who makes it. Health and
reflection come from gRPC and have no such field; their calls end with a status. So does each call
of a caller that is not known: nothing that it sent is looked at.

A call counts from the moment its caller is let in until gRPC is done with it: a caller that is
not known takes no place of those that are. If a client does not take a larger response within
TAKE_S, its call ends, because it holds memory that other callers need.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError, Message

from tandemlog.format.constants import Buffer
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.shares import Shares

from ..access.access_refusals import DeniedError, NotKnownError, OverLimitError
from ..access.audit_log import OK
from ..access.caller import Caller
from ..access.doorkeeper import Doorkeeper, open_to_all
from ..error_status import Code, RequestRefusedError, error_of
from ..pulls.pull_service import Parts
from ..pulls.read_turns import ReadTurns
from .door_numbers import Doors
from .master_answers import NODE, Leadership, Speaks
from .permissions import ANY, Rule, arguments_of
from .strangers import authorization_of, refuse

MAX_FOREIGN_BYTES = 64 << 10
"""Of one request to the health or the reflection service."""
TAKE_S = 60.0
MAX_REQUEST_BYTES = 1 << 20
"""Of one request that is not a put. Decoding takes some 10 ms a MiB at the worst, in the loop."""
RECEIVE_S = 60.0

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Request = TypeVar("Request", bound=Message)


class CallContext(Protocol):
    """What the door asks of gRPC's context, or of a data connection's."""

    def peer(self) -> str: ...
    def invocation_metadata(self) -> Any: ...
    def auth_context(self) -> Mapping[str, Any]: ...
    async def abort(self, code: grpc.StatusCode, details: str = "") -> Any: ...
    def add_done_callback(self, callback: Callable[[Any], None]) -> None: ...
    def set_code(self, code: grpc.StatusCode) -> None: ...
    def set_details(self, details: str) -> None: ...


Served: TypeAlias = Callable[[AsyncIterator[bytes], CallContext], Awaitable[bytes | Parts]]
"""A method behind the door: the one request of a call, and its context; the encoded answer."""
ServedStream: TypeAlias = Callable[
    [AsyncIterator[Buffer], CallContext], AsyncGenerator[Message, None]
]


class CallDoor:
    """See the module. `max_calls` and `max_streams` may be open at one time, of which each caller
    has its share; `keeper` knows the callers, `leadership` whether this node is the master."""

    def __init__(
        self,
        turns: ReadTurns,
        *,
        max_calls: int,
        max_streams: int,
        take_s: float = TAKE_S,
        keeper: Doorkeeper | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        self._turns = turns
        self._leadership = leadership or Leadership()
        self.keeper = open_to_all(time.monotonic) if keeper is None else keeper
        self._call_shares = Shares(max_calls)
        self._stream_shares = Shares(max_streams)
        self.max_streams = max_streams
        self._take_s = take_s
        self.calls = 0
        self.streams = 0
        self.calls_total = 0
        self.rocketmq = Doors()  # of RocketMQ's clients, whose callers are counted here too
        self._refused: dict[str, int] = {}

    @property
    def refused(self) -> dict[str, int]:
        """How many calls ended with an error, by its code in small letters."""
        unknown = self.keeper.audit.unknown_total
        return {**self._refused, **({"unauthenticated": unknown} if unknown else {})}

    # ---- our own methods

    def unary(
        self,
        method: Callable[[Any, Any], Awaitable[Message | bytes]],
        request: Any,
        answer: Any,
        rule: Rule = ANY,
        name: str = "",
        kind: Speaks = NODE,
    ) -> Handler:
        """gRPC's handler of `method`: see `served`."""
        serve = self.served(method, request, answer, rule, name, kind)
        return grpc.stream_unary_rpc_method_handler(cast("Any", serve))

    def served(
        self,
        method: Callable[[Any, Any], Awaitable[Message | bytes | Parts]],
        request: Any,
        answer: Any,
        rule: Rule = ANY,
        name: str = "",
        kind: Speaks = NODE,
    ) -> Served:
        """`method`, for messages of the classes `request` and `answer`, which has a field `error`.
        The method gets a Caller in place of gRPC's context, and may give its answer encoded, or in
        encoded parts. `name` is the method's in the log, `kind` whose word its answer is."""

        async def serve(requests: AsyncIterator[bytes], context: CallContext) -> bytes | Parts:
            caller = await self._let_in(context, rule, name)
            read: Message | None = None
            problem: common_pb2.Error | None = None
            begun_in: int | None = None
            try:
                self.admit(caller, stream=False)
                data = await received(requests)
                read = decoded(request, data)
                rule.check(caller, read)
                begun_in = await self._leadership.begin(kind, read)
                made = await method(read, caller)
                await self._leadership.vouch(kind, read, made, begun_in)
                if rule.waits and caller.rights_changed():
                    rule.check(caller, read)
                encoded: bytes | Parts = (
                    made.SerializeToString() if isinstance(made, Message) else made
                )
                size = len(encoded) if isinstance(encoded, bytes) else sum(map(len, encoded))
                caller.spend(len(data) + size, self.keeper.monotonic())
            except NotKnownError as error:
                caller.refused(error)
                await refuse(context, str(error), writes=False)
            except Exception as error:  # bad input never ends a call, nor the node
                problem = await self._leadership.refuse(_refused(caller, error), begun_in)
                self._count_refusal(problem.code)
                encoded = answer(error=problem).SerializeToString()
            if rule.audited and read is not None:
                self._audit(name, caller, read, problem)
            if caller.held_bytes:
                self._end_unless_taken(context)
            return encoded

        return serve

    def unary_stream(
        self,
        method: Callable[[Any, Any], AsyncIterator[bytes]],
        request: Any,
        answer: Any,
        rule: Rule = ANY,
        name: str = "",
    ) -> Handler:
        """As `unary`, for a stream of encoded answers."""

        async def serve(data: bytes, context: CallContext) -> AsyncIterator[bytes]:
            caller = await self._let_in(context, rule, name, stream=True)
            try:
                self.admit(caller, stream=True)
                asked = decoded(request, data)
                rule.check(caller, asked)
                async for encoded in method(asked, caller):
                    caller.renew()
                    rule.check(caller, asked)
                    end = self._end_later(_current_task())
                    try:
                        yield encoded
                    finally:
                        end.cancel()
                    if wait_s := caller.spend(len(encoded), self.keeper.monotonic()):
                        await asyncio.sleep(wait_s)
            except NotKnownError as error:
                caller.refused(error)
                await refuse(context, str(error))
            except Exception as error:
                yield answer(error=self.refusal(caller, error)).SerializeToString()

        return grpc.unary_stream_rpc_method_handler(cast("Any", serve))

    def stream(
        self,
        method: Callable[[Any, Any], AsyncIterator[Message]],
        answer: Any,
        rule: Rule = ANY,
        name: str = "",
    ) -> Handler:
        """gRPC's handler of `method`: see `served_stream`."""
        return grpc.stream_stream_rpc_method_handler(
            cast("Any", self.served_stream(method, rule, name)),
            response_serializer=answer.SerializeToString,
        )

    def served_stream(
        self,
        method: Callable[[Any, Any], AsyncIterator[Message]],
        rule: Rule = ANY,
        name: str = "",
    ) -> ServedStream:
        """A stream that decodes its requests by itself, and renews its caller with each; one too
        many ends with a status."""

        async def serve(
            requests: AsyncIterator[Buffer], context: CallContext
        ) -> AsyncGenerator[Message, None]:
            caller = await self._let_in(context, rule, name, stream=True)
            try:
                self.admit(caller, stream=True)
            except (RequestRefusedError, OverLimitError) as refusal:
                self.refusal(caller, refusal)
                context.set_code(grpc.StatusCode.UNAVAILABLE)
                context.set_details(str(refusal))
                return
            try:
                async for each in method(requests, caller):
                    yield each
            except NotKnownError as error:
                caller.refused(error)
                await refuse(context, str(error))

        return serve

    async def _let_in(
        self, context: CallContext, rule: Rule, name: str, *, stream: bool = False
    ) -> Caller:
        """Count a call and find out who makes it, or end it."""
        keeper, caller = self.keeper, self.enter(context.peer(), stream=stream)
        context.add_done_callback(lambda _: self.leave(caller, stream=stream))
        caller.call = name
        if not keeper.active or (rule.open_to_probes and keeper.open_health):
            return caller
        try:
            proofs = proofs_of(context, certificates=keeper.certificates_required)
            keeper.known(caller, keeper.identify(*proofs), name, stream=stream)
        except NotKnownError as error:
            keeper.audit.refused(name, "", caller.peer, str(error))
            await refuse(context, str(error), writes=stream)
        return caller

    def _audit(
        self, name: str, caller: Caller, request: Message, problem: common_pb2.Error | None
    ) -> None:
        outcome = OK
        if problem is not None:
            outcome = f"{common_pb2.ErrorCode.Name(problem.code)}: {problem.message}"
        arguments, always = arguments_of(request), bool(caller.name)
        self.keeper.audit.called(name, caller.name, caller.peer, arguments, outcome, always=always)

    # ---- methods of others

    def foreign(
        self, handlers: Mapping[str, Handler], rule_of: Callable[[str], Rule] = lambda _: ANY
    ) -> dict[str, Handler]:
        """The same methods, with requests that are none refused by a status."""
        return {
            name: self._foreign(handler, rule_of(name), name) for name, handler in handlers.items()
        }

    def _foreign(self, handler: Handler, rule: Rule, name: str) -> Handler:
        library = cast("Any", handler)
        encode = library.response_serializer

        async def unary(data: bytes, context: Any) -> Any:
            # no limit: a node that is busy still says that it is well
            await self._let_in(context, rule, name)
            return await library.unary_unary(await self._read(library, data, context), context)

        async def unary_stream(data: bytes, context: Any) -> AsyncIterator[Any]:
            caller = await self._admit(context, rule, name)
            async for answer in _answers(
                library.unary_stream(await self._read(library, data, context), context)
            ):
                await self._renew(caller, context)
                yield answer

        async def stream_stream(requests: Any, context: Any) -> AsyncIterator[Any]:
            caller = await self._admit(context, rule, name)

            async def read() -> AsyncIterator[Any]:
                async for data in requests:
                    await self._renew(caller, context)
                    yield await self._read(library, data, context)

            async for answer in _answers(library.stream_stream(read(), context)):
                yield answer

        if library.request_streaming:
            assert library.response_streaming
            return grpc.stream_stream_rpc_method_handler(
                cast("Any", stream_stream), response_serializer=encode
            )
        if library.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                cast("Any", unary_stream), response_serializer=encode
            )
        return grpc.unary_unary_rpc_method_handler(cast("Any", unary), response_serializer=encode)

    async def _renew(self, caller: Caller, context: Any) -> None:
        try:
            caller.renew()
        except NotKnownError as error:
            caller.refused(error)
            await refuse(context, str(error))

    async def _admit(self, context: Any, rule: Rule, name: str) -> Caller:
        caller = await self._let_in(context, rule, name, stream=True)
        try:
            self.admit(caller, stream=True)
        except (RequestRefusedError, OverLimitError) as refusal:
            self.refusal(caller, refusal)
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(refusal))
        return caller

    async def _read(self, handler: Any, data: bytes, context: Any) -> Any:
        if len(data) <= MAX_FOREIGN_BYTES:
            try:
                return handler.request_deserializer(data)
            except Exception:  # whatever protobuf raises for bytes that are no message
                reason = "the request is not a valid message of this method"
        else:
            reason = f"the request has {len(data)} bytes, the limit is {MAX_FOREIGN_BYTES}"
        return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)

    # ---- counting

    def refusal(self, caller: Caller, problem: Exception) -> common_pb2.Error:
        """What the caller is told, counted by its code."""
        error = _refused(caller, problem)
        self._count_refusal(error.code)
        return error

    def _count_refusal(self, code: Code) -> None:
        name = common_pb2.ErrorCode.Name(code).lower()
        self._refused[name] = self._refused.get(name, 0) + 1

    def enter(self, peer: str, *, stream: bool = False) -> Caller:
        """Count a call until `leave`."""
        caller = self.keeper.enter(peer, stream=stream)
        self.calls += 1
        self.calls_total += 1
        self.streams += stream
        return caller

    def leave(self, caller: Caller, *, stream: bool = False) -> None:
        """The call is over, and its answer is taken: what it holds is given back."""
        self.calls -= 1
        self.streams -= stream
        if caller.counted:
            self._call_shares.give_back(caller.holder)
            if stream:
                self._stream_shares.give_back(caller.holder)
        self.keeper.leave(caller, stream=stream)
        self._turns.release(caller)

    def admit(self, caller: Caller, *, stream: bool = False) -> None:
        """Count a call of a caller that is let in. Raises RequestRefusedError or OverLimitError
        for one too many."""
        holder, calls, streams = caller.holder, self._call_shares, self._stream_shares
        if not calls.may_take(holder):
            raise _busy("calls", calls, holder)
        if stream and not streams.may_take(holder):
            raise _busy("streams", streams, holder)
        self.keeper.check(caller, stream=stream)
        caller.counted = True
        calls.take(holder)
        if stream:
            streams.take(holder)

    def _end_unless_taken(self, context: CallContext) -> None:
        end = self._end_later(_current_task())
        context.add_done_callback(lambda _: end.cancel())

    def _end_later(self, task: "asyncio.Task[Any]") -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._take_s, task.cancel)


async def received(requests: AsyncIterator[bytes]) -> bytes:
    """The one request of a call. Raises RequestRefusedError if it does not come."""
    try:
        async with asyncio.timeout(RECEIVE_S):
            async for data in requests:
                return data
    except TimeoutError:
        reason = f"the request did not come within {RECEIVE_S:g} s"
    else:
        reason = "the call has no request"
    raise RequestRefusedError(common_pb2.INVALID_ARGUMENT, reason, field="request")


def decoded(kind: type[Request], data: bytes) -> Request:
    """The request in `data`. Raises RequestRefusedError for one that is too large, or none."""
    name = kind.DESCRIPTOR.name
    if len(data) > MAX_REQUEST_BYTES:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            f"a {name} may have at most {MAX_REQUEST_BYTES} bytes, not {len(data)}; split the "
            "request",
            field="request",
            limit=MAX_REQUEST_BYTES,
            actual=len(data),
        )
    try:
        return kind.FromString(data)
    except DecodeError:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT, f"the request is not a valid {name}", field="request"
        ) from None


def proofs_of(context: CallContext, *, certificates: bool) -> tuple[str, bytes | None]:
    """What a caller shows of itself: the value of `authorization`, and its certificate in PEM,
    where callers are asked for `certificates`."""
    authorization = authorization_of(context.invocation_metadata())
    if not certificates:
        return authorization, None
    certificate = context.auth_context().get("x509_pem_cert")
    return authorization, certificate[0] if certificate else None


def _refused(caller: Caller, problem: Exception) -> common_pb2.Error:
    """The error for `problem`; a line of the log, if the caller lacked a right."""
    if isinstance(problem, DeniedError):
        caller.refused(problem)
    return error_of(problem)


async def _answers(answers: Any) -> AsyncIterator[Any]:
    """Of a method that is a generator, or that writes by its context."""
    if hasattr(answers, "__aiter__"):
        async for answer in answers:
            yield answer
    else:
        await answers


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


def _busy(name: str, shares: Shares, holder: str) -> RequestRefusedError:
    return RequestRefusedError(
        common_pb2.BUSY,
        f"{shares.held} {name} are in progress on this node, {shares.of(holder)} of them of this "
        f"identity or host; the limit limits.{name} is {shares.limit} for all, "
        f"{shares.most(holder)} of it for one now; try again later",
        field=name,
        limit=shares.limit,
        actual=shares.held + 1,
    )
