"""The door of RocketMQ's clients: what every request passes before a method sees it.

    request ─▶ who calls?         not known: NO_PERMISSION, a line of the log
            ─▶ too many calls?    SYSTEM_BUSY
            ─▶ known code?        REQUEST_CODE_NOT_SUPPORTED
            ─▶ is it the master's?    served here, handed on, or parked (forwarding.py)
            ─▶ the method         its own rights, by the caller; its errors (remoting_errors.py)
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
from ...services.call_door import CallDoor
from ...services.door_numbers import RequestCounts
from .remoting_call import Connection, Method, RemotingCall, RemotingRefusedError, Serve
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

    async def serve(self, call: RemotingCall, serve: Serve) -> Command | None:
        """The answer to the request: that of `serve` where this node leads, else the master's."""


class Alone:
    """Of a node that serves every request by itself."""

    async def serve(self, call: RemotingCall, serve: Serve) -> Command | None:
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

    async def answer(
        self,
        request: Command,
        caller: Caller,
        connection: Connection,
        certificate: bytes | None,
        now: float,
    ) -> Command | None:
        """The response to `request`, None where there is none. `caller` is counted by `enter`;
        `certificate` in DER is that of the connection."""
        code = request.code
        if self._keeper.active and (
            stranger := self._refuse_stranger(request, caller, certificate)
        ):
            self.counts.count(code, stranger.code)
            return stranger
        method = self._methods.get(code)
        outcome = OK
        response: Command | None
        try:
            self._door.admit(caller)
            if method is None:
                response = _not_supported(request, self._methods)
            else:
                call = RemotingCall(request, caller, connection, now)
                if method.of_master:
                    response = await self._master.serve(call, method.serve)
                else:
                    response = await method.serve(call)
                if code not in _STORED and caller.who is not None and caller.rights_changed():
                    raise RemotingRefusedError(
                        ResponseCode.SYSTEM_BUSY,
                        "the rights of this caller have changed: ask again",
                    )
            size = len(request.body) + (0 if response is None else len(response.body))
            caller.spend(size, self._keeper.monotonic())
        except RemotingRefusedError as problem:
            response, outcome = refused_by_code(request, problem), f"{problem.code}: {problem}"
        except NotKnownError as problem:
            caller.refused(problem)
            response = request.response(code=ResponseCode.NO_PERMISSION, remark=str(problem))
        except Exception as problem:  # a request never ends a connection, nor the node
            error = self._door.refusal(caller, problem)
            response, outcome = refused(request, error), f"{error.code}: {error.message}"
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
