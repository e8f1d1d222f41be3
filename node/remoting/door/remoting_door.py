"""The door of RocketMQ's clients: what every request passes before a method sees it.

    request ─▶ who calls?         not known: NO_PERMISSION, a line of the log              admit
            ─▶ too many calls?    SYSTEM_BUSY
            ─▶ known code?        REQUEST_CODE_NOT_SUPPORTED
            ─▶ is it the master's?    served here, handed on, or parked (forwarding.py)    begin, or
            ─▶ the method         its own rights, by the caller; its errors                serve
            ─▶ have the caller's rights changed meanwhile?    NO_PERMISSION, or SYSTEM_BUSY; not of
                                                              what is stored: it would be sent again
            ─▶ answer

Counts, limits and the log are those of CallDoor, so a client of RocketMQ is counted beside a client
of gRPC, and both have one share of a bound.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.handed_on import (
    NOT_LEADING,
    ONCE,
    OUTCOME_UNKNOWN,
    SENDS,
)
from tandemlog_server.rocketmq.wire.remoting import BINARY_HEADER, Command

from ...access.access_refusals import NotKnownError
from ...access.audit_log import OK
from ...access.caller import Caller
from ...error_status import RequestRefusedError
from ...services.call_door import CallDoor
from ...services.door_numbers import RequestCounts
from .remoting_call import Ended, Method, RemotingCall, RemotingRefusedError, Serve
from .remoting_errors import refused, refused_by_code
from .remoting_proofs import who_signed, without_proofs

NAMES: Final[Mapping[int, str]] = {
    code: name for name, code in vars(RequestCode).items() if isinstance(code, int)
}
"""The names of requests, in the log and in metrics."""
RESULTS: Final[Mapping[int, str]] = {
    **{code: name for name, code in vars(ResponseCode).items() if isinstance(code, int)},
    NOT_LEADING: "NOT_LEADING",
    OUTCOME_UNKNOWN: "OUTCOME_UNKNOWN",
}
_STORED: Final = SENDS | ONCE
"""Whose answer says no more than that it is done, and where."""
CUT_CODES: Final = 3 << 16
"""What a client cuts off a code of RocketMQ's POP (200,050 and above) in a binary header."""


class HandsOn(Protocol):
    """How a request for the master reaches it."""

    async def serve(
        self, call: RemotingCall, serve: Serve, refusal: RequestRefusedError | None = None
    ) -> Command | None:
        """The answer to the request: that of `serve` where this node leads, else the master's.
        With a `refusal` it was served here, and `goes_on`."""

    def goes_on(self, request: Command, refusal: RequestRefusedError) -> bool:
        """Whether a request that was refused so here is for the next master."""

    def serves_here(self, request: Command) -> bool:
        """Whether the request is the method's, as it is, at this moment."""


class Alone:
    """Of a node that serves every request by itself."""

    def serves_here(self, request: Command) -> bool:
        return True

    def goes_on(self, request: Command, refusal: RequestRefusedError) -> bool:
        return False

    async def serve(
        self, call: RemotingCall, serve: Serve, refusal: RequestRefusedError | None = None
    ) -> Command | None:
        return await serve(call)


class RemotingDoor:
    """See the module. `methods` by request code. Belongs to the loop."""

    def __init__(
        self, door: CallDoor, methods: Mapping[int, Method], master: HandsOn | None = None
    ) -> None:
        self._door = door
        self._keeper = door.keeper
        self._methods = methods
        self._master = master or Alone()
        self.enter = door.enter
        self.leave = door.leave
        self.counts = RequestCounts(NAMES, RESULTS)

    @property
    def asks_who(self) -> bool:
        """Whether a client has to prove who it is."""
        return self._keeper.active

    def parked(self, peer: str) -> int:
        """How many pulls of a connection wait for messages."""
        return self._keeper.long_polls_of(peer)

    def admit(self, call: RemotingCall, certificate: bytes | None) -> Command | None:
        """Let a request in, or the response to one that may not come in. `call.caller` is counted
        by `enter`; `certificate` in DER is that of the connection."""
        request, caller = call.request, call.caller
        if self._keeper.active and (
            stranger := self._refuse_stranger(request, caller, certificate)
        ):
            self.counts.count(request.code, stranger.code)
            return stranger
        try:
            self._door.admit(caller)
        except Exception as problem:
            return self.ended(call, None, problem)
        if request.code not in self._methods:
            return self.ended(call, _not_supported(request, self._methods), None)
        return None

    def begin(self, call: RemotingCall, ended: Ended) -> bool:
        """Whether a request that was let in is served without a task: `ended` is called then. Else
        `serve` has to be called."""
        method = self._methods[call.request.code]
        begin = method.begin
        if begin is None or (method.of_master and not self._master.serves_here(call.request)):
            return False
        try:
            return begin(call, ended)
        except Exception as problem:
            ended(call, None, problem)
            return True

    def goes_on(self, call: RemotingCall, problem: Exception) -> bool:
        """Whether a request that was begun is to be served by `serve` after all: this node is no
        longer the master."""
        return (
            isinstance(problem, RequestRefusedError)
            and self._methods[call.request.code].of_master
            and self._master.goes_on(call.request, problem)
        )

    async def serve(self, call: RemotingCall, problem: Exception | None = None) -> Command | None:
        """The response to a request that was let in, None where there is none. `problem`: with
        which it was begun in vain, and `goes_on`."""
        method = self._methods[call.request.code]
        refusal = problem if isinstance(problem, RequestRefusedError) else None
        try:
            if method.of_master:
                response = await self._master.serve(call, method.serve, refusal)
            else:
                response = await method.serve(call)
        except Exception as fault:  # a request never ends a connection, nor the node
            return self.ended(call, None, fault)
        return self.ended(call, response, None)

    def ended(
        self, call: RemotingCall, response: Command | None, problem: Exception | None
    ) -> Command | None:
        """The response to a request for which its method gave `response`, or raised `problem`."""
        request, caller = call.request, call.caller
        code, outcome = request.code, OK
        try:
            if problem is not None:
                raise problem
            if code not in _STORED and caller.who is not None and caller.rights_changed():
                raise RemotingRefusedError(
                    ResponseCode.SYSTEM_BUSY,
                    "the rights of this caller have changed: ask again",
                )
            size = len(request.body) + (0 if response is None else len(response.body))
            caller.spend(size, self._keeper.monotonic())
        except RemotingRefusedError as refusal:
            response, outcome = refused_by_code(request, refusal), f"{refusal.code}: {refusal}"
        except NotKnownError as unknown:
            caller.refused(unknown)
            response = request.response(code=ResponseCode.NO_PERMISSION, remark=str(unknown))
        except Exception as fault:
            error = self._door.refusal(caller, fault)
            response, outcome = refused(request, error), f"{error.code}: {error.message}"
        method = self._methods.get(code)
        if method is not None and method.audited:
            self._audit(request, caller, outcome)
        self.counts.count(code, ResponseCode.SUCCESS if response is None else response.code)
        return response

    def _refuse_stranger(
        self, request: Command, caller: Caller, certificate: bytes | None
    ) -> Command | None:
        """Find out who calls; the refusal if that cannot be known."""
        name = NAMES.get(request.code, "(no such request)")
        keeper = self._keeper
        try:
            keeper.known(caller, who_signed(keeper, request, certificate), name, stream=False)
        except NotKnownError as problem:
            keeper.audit.refused(name, "", caller.peer, str(problem))
            return request.response(code=ResponseCode.NO_PERMISSION, remark=str(problem))
        return None

    def _audit(self, request: Command, caller: Caller, outcome: str) -> None:
        shown = without_proofs(request.fields)
        arguments = " ".join(f"{key}={value}" for key, value in shown.items())
        name, always = NAMES.get(request.code, str(request.code)), bool(caller.name)
        self._keeper.audit.called(name, caller.name, caller.peer, arguments, outcome, always=always)


def _not_supported(request: Command, methods: Mapping[int, Method]) -> Command:
    if request.header_format == BINARY_HEADER and (
        request.code < 0 or request.code + CUT_CODES in methods
    ):
        remark = (
            f"request {request.code}: RocketMQ's codes above 32767 do not fit the binary header, "
            "so this may be another one: let the client use JSON (rocketmq.serialize.type=JSON)"
        )
    else:
        remark = f"request {request.code}: this node does not answer requests of this kind"
    return request.response(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
