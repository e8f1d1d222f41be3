"""The door of clients of the 5.x API: what every call passes before a method sees it.

    call ─▶ who calls?           not known: UNAUTHORIZED, a line of the log; nothing is read of it
         ─▶ too many calls?      TOO_MANY_REQUESTS
         ─▶ the request          BAD_REQUEST if it is none, or too large
         ─▶ is it the master's?  served here, handed on, or parked (master_calls.py)
         ─▶ the method           its own rights, by the caller; its errors (refusals.py)
         ─▶ has the caller lost its rights meanwhile?
         ─▶ answers              each taken by the client within TAKE_S, or the call ends

Counts, limits and the log are those of CallDoor. As there, methods are registered as streams of
requests, so that gRPC receives nothing of a caller before it is let in.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import grpc
from google.protobuf.message import DecodeError

from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.refusals import (
    MessagingRefusedError,
    code_of,
    made_status,
)
from tandemlog_server.rocketmq.messaging.signatures import (
    DATE_TIME,
    read_authorization,
    signed_by,
)

from ..access.access_refusals import NotKnownError
from ..access.caller import Caller, Who
from ..access.doorkeeper import NO_CERTIFICATE, Doorkeeper
from ..remoting.door.remoting_proofs import WRONG_SIGNATURE
from ..services.call_door import TAKE_S, CallContext, CallDoor, Handler, received
from ..services.door_numbers import RequestCounts
from .master_calls import NOT_LEADING, MasterCalls, NotLeadingError
from .messaging_call import (
    CLIENT_ID,
    HANDED_ON,
    MOST_ID_CHARACTERS,
    REPEATED,
    Answers,
    MessagingCall,
    Metadata,
    Method,
)
from .refused_status import own_status

NO_PROOF: Final = (
    "this node has to know who calls: give the client the access key and the secret of an identity "
    "of its access file, or a certificate that the node knows"
)
MOST_HEADERS: Final = 64
MOST_HEADER_BYTES: Final = 8 << 10
_KEPT: Final = ("x-mq-", "authorization")
Stream = Callable[[AsyncIterator[bytes], MessagingCall], AsyncIterator[v2.TelemetryCommand]]

NAMES: Final = {
    each.name: each.name for each in v2.DESCRIPTOR.services_by_name["MessagingService"].methods
}
RESULTS: Final[dict[int, str]] = {int(code): name for name, code in v2.Code.items()}


class MessagingDoor:
    """See the module. Belongs to the loop."""

    def __init__(self, door: CallDoor, master: MasterCalls) -> None:
        self._door = door
        self._keeper = door.keeper
        self._master = master
        self._loop = asyncio.get_running_loop()
        self._peers: Counter[str] = Counter()
        self.counts = RequestCounts[str](NAMES, RESULTS)

    @property
    def connections(self) -> int:
        """Those that have a call in progress."""
        return len(self._peers)

    def handler(self, method: Method) -> Handler:
        """gRPC's handler of a method of one request."""

        async def unary(requests: AsyncIterator[bytes], context: CallContext) -> bytes:
            return (await self._answers(method, requests, context)).encoded[0]

        async def stream(
            requests: AsyncIterator[bytes], context: CallContext
        ) -> AsyncIterator[bytes]:
            answered = await self._answers(method, requests, context)
            given = 0
            try:
                for each in answered.encoded:
                    end = self._end_later()
                    try:
                        yield each
                    finally:
                        end.cancel()
                    given += 1
            finally:
                await _undelivered(method, answered, given)

        if method.streams:
            return grpc.stream_stream_rpc_method_handler(cast("Any", stream))
        return grpc.stream_unary_rpc_method_handler(cast("Any", unary))

    def stream(self, serve: Stream, name: str) -> Handler:
        """gRPC's handler of a stream of requests and answers that lasts as long as its client."""

        async def run(requests: AsyncIterator[bytes], context: CallContext) -> AsyncIterator[bytes]:
            caller = self._enter(context, name, stream=True)
            try:
                signed = self._identify(caller, context, name, stream=True)
                self._door.admit(caller, stream=True)
            except Exception as problem:
                status = self._refused(caller, name, problem)
                self.counts.count(name, status.code)
                yield v2.TelemetryCommand(status=status).SerializeToString()
                return
            call = self._call(caller, context, signed=signed)
            async for each in serve(requests, call):
                if each.HasField("status"):  # an answer, and no question
                    self.counts.count(name, each.status.code)
                end = self._end_later()
                try:
                    yield each.SerializeToString()
                finally:
                    end.cancel()

        return grpc.stream_stream_rpc_method_handler(cast("Any", run))

    # ---- one call

    async def _answers(
        self, method: Method, requests: AsyncIterator[bytes], context: CallContext
    ) -> "_Answered":
        caller = self._enter(context, method.name)
        answered = _Answered(MessagingCall(caller))
        held = 0
        try:
            signed = self._identify(caller, context, method.name)
            self._door.admit(caller)
            data = await received(requests)
            held = len(data)
            caller.hold(held)
            call = answered.call = self._call(caller, context, signed=signed)
            request = answered.request = _decoded(method, data)

            async def here(now: MessagingCall) -> list[bytes]:
                answered.made = await method.serve(request, now)
                return [each.SerializeToString() for each in answered.made]

            if method.of_master:
                answered.encoded = await self._master.serve(call, method, data, here)
            else:
                answered.encoded = await here(call)
            if caller.who is not None and caller.rights_changed():
                raise MessagingRefusedError(
                    v2.INTERNAL_ERROR, "the rights of this caller have changed: ask again"
                )
            caller.spend(held + sum(map(len, answered.encoded)), self._keeper.monotonic())
        except NotLeadingError:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, NOT_LEADING)
            raise
        except Exception as problem:  # a request never ends the node
            status = self._refused(caller, method.name, problem)
            await _undelivered(method, answered)
            answered.encoded = [method.answer(status=status).SerializeToString()]
            answered.made = ()
            self.counts.count(method.name, status.code)
        else:
            self.counts.count(method.name, _result(method, answered))
        finally:
            if held:
                caller.hold(-held)
        return answered

    def _enter(self, context: CallContext, name: str, *, stream: bool = False) -> Caller:
        caller = self._door.enter(context.peer(), stream=stream)
        self._peers[caller.peer] += 1
        context.add_done_callback(lambda _: self._leave(caller, stream=stream))
        caller.call = name
        return caller

    def _leave(self, caller: Caller, *, stream: bool) -> None:
        self._door.leave(caller, stream=stream)
        self._peers[caller.peer] -= 1
        if not self._peers[caller.peer]:
            del self._peers[caller.peer]

    def _identify(
        self, caller: Caller, context: CallContext, name: str, *, stream: bool = False
    ) -> bool:
        """Find out who calls; whether the headers prove it. Raises NotKnownError."""
        keeper = self._keeper
        if not keeper.active:
            return False
        who, signed = who_signed(keeper, context)
        keeper.known(caller, who, name, stream=stream)
        return signed

    def _call(self, caller: Caller, context: CallContext, *, signed: bool) -> MessagingCall:
        metadata = headers_of(context)
        values = dict(metadata)
        remaining = cast("Any", context).time_remaining()
        now = self._loop.time()
        client_id = values.get(CLIENT_ID, "")
        return MessagingCall(
            caller,
            client_id if len(client_id) <= MOST_ID_CHARACTERS else "",
            tuple(each for each in metadata if each[0].startswith(_KEPT)),
            now,
            None if remaining is None else now + remaining,
            HANDED_ON in values,
            REPEATED in values,
            signed,
        )

    def _refused(self, caller: Caller, name: str, problem: Exception) -> v2.Status:
        problem.__traceback__ = None
        if isinstance(problem, NotKnownError):
            caller.refused(problem)
            self._keeper.audit.refused(name, "", caller.peer, str(problem))
            return made_status(v2.UNAUTHORIZED, str(problem))
        if (status := own_status(problem)) is not None:
            return status
        error = self._door.refusal(caller, problem)
        text = error.message or "an unexpected error, which this node has logged"
        return made_status(code_of(error.code), text)

    def _end_later(self) -> asyncio.TimerHandle:
        task = asyncio.current_task()
        assert task is not None
        return self._loop.call_later(TAKE_S, task.cancel)


@dataclass(slots=True)
class _Answered:
    """`encoded` as the answers travel; where this node has made them, they are in `made`."""

    call: MessagingCall
    request: Any = None
    encoded: Sequence[bytes] = ()
    made: Answers = ()


async def _undelivered(method: Method, answered: _Answered, given: int = 0) -> None:
    """The client gets no more than so many of the answers, which may be those of the master."""
    if method.undelivered is None or given == len(answered.encoded or answered.made):
        return
    with suppress(Exception):
        left = answered.made[given:] or [
            method.answer.FromString(each) for each in answered.encoded[given:]
        ]
        await asyncio.shield(method.undelivered(answered.request, left, answered.call))


def _result(method: Method, answered: _Answered) -> int:
    """The code of an answer; CODE_UNSPECIFIED if the master sent bytes that cannot be read."""
    if answered.made:
        code: int = answered.made[0].status.code  # type: ignore[attr-defined]
        return code
    try:
        return int(method.answer.FromString(next(iter(answered.encoded), b"")).status.code)
    except DecodeError:
        return v2.CODE_UNSPECIFIED


def _decoded(method: Method, data: bytes) -> Any:
    if len(data) > method.largest:
        raise MessagingRefusedError(
            v2.PAYLOAD_TOO_LARGE,
            f"a {method.request.DESCRIPTOR.name} may have at most {method.largest} bytes, not "
            f"{len(data)}",
        )
    try:
        return method.request.FromString(data)
    except DecodeError:
        raise MessagingRefusedError(
            v2.BAD_REQUEST, f"the request is not a valid {method.request.DESCRIPTOR.name}"
        ) from None


def headers_of(context: CallContext) -> Metadata:
    """The headers of a call, of those that a client may send a bounded number."""
    headers: list[tuple[str, str]] = []
    size = 0
    for key, value in context.invocation_metadata() or ():
        text = value if isinstance(value, str) else value.decode("ascii", "replace")
        size += len(key) + len(text)
        if len(headers) >= MOST_HEADERS or size > MOST_HEADER_BYTES:
            break
        headers.append((key, text))
    return tuple(headers)


def who_signed(keeper: Doorkeeper, context: CallContext) -> tuple[Who, bool]:
    """Who makes a call, and whether its headers say so. Raises NotKnownError. As at the other
    doors, a key that is shown wins over the certificate of the connection. The certificate of a
    node that hands a call on lets the connection in, and lends the call no rights."""
    headers = dict(headers_of(context))
    certificate: bytes | None = None
    if keeper.certificates_required:
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            raise NotKnownError(NO_CERTIFICATE)
        certificate = None if HANDED_ON in headers else shown[0]
    signed = read_authorization(headers.get("authorization", ""))
    if signed is None:
        if certificate is None:
            raise NotKnownError(NO_PROOF)
        return keeper.identify("", certificate), False
    who, secret = keeper.identify_key(signed.access_key, certificate)
    if not signed_by(secret, headers.get(DATE_TIME, ""), signed):
        raise NotKnownError(WRONG_SIGNATURE)
    return who, True
