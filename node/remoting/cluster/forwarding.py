"""Requests for the master, on whichever node they arrive.

    this node leads        ─▶ the method here
    another one leads      ─▶ its door, byte for byte (master_link.py)
    no master is known     ─▶ parked: up to PARK_S after it came, until there is one
                                │ time over: SERVICE_NOT_AVAILABLE     no room: SYSTEM_BUSY
    sent, and the link ends before the answer, or the master's term
        the same done twice is the same   ─▶ parked, again
        a send                            ─▶ parked, again with REPEATED, which the master answers
                                             with the record that it finds (repeated_sends.py)
        neither                           ─▶ OUTCOME_UNKNOWN, or the client's own way

A client of RocketMQ tries a refused send three times within milliseconds, and waits for 3 s in all;
so an election of half a second costs no send. A request is never written twice where the first copy
may have been done and the second would not be recognised.

Who calls is proven by the fields of the request, which the master checks again. A caller that is
known only by the certificate of its connection is not handed on: the connection to the master is
that of this node, and must not lend its rights.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tandemlog.v1 import common_pb2
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.handed_on import (
    HANDED_ON,
    NOT_LEADING,
    OUTCOME_UNKNOWN,
    REPEATED,
    SENDS,
    is_handed_on,
    is_repeated,
    may_repeat,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.shares import Shares

from ...error_status import RequestRefusedError
from ..door.remoting_call import RemotingCall, RemotingRefusedError, Serve
from .master_link import LinkLostError, MasterLink, NotSentError

TICK_S: Final = 0.01
"""How often the forwarder looks whether those who wait can continue."""
AGAIN_S: Final = 0.05
"""After which they try again although nothing seems to have changed."""
HEAD_BYTES: Final = 1_024
"""What a request counts beside its body: its header and the objects."""
CERTIFICATE: Final = "AccessKey"
"""The field without which a caller is known by its certificate, if at all."""


@dataclass(frozen=True, slots=True)
class ForwardingLimits:
    """`requests` and `bytes` are those that wait or are in flight, of which a host has its share.
    `park_s` counts from the arrival of a request, `answer_s` from its sending; `grace_s` is how
    long a master that was replaced may still answer."""

    requests: int = 16_384
    bytes: int = 128 << 20
    park_s: float = 2.5
    answer_s: float = 30.0
    grace_s: float = 0.3


class Cluster(Protocol):
    """Where the master is."""

    def leads(self) -> bool:
        """Whether it is this node."""

    def master_address(self) -> str:
        """host:port of the door of the node that leads; empty if none is known."""


class Recognises(Protocol):
    """Finds what an earlier copy of a send has stored."""

    async def answer(self, request: Command) -> Command | None:
        """The answer that the earlier copy would have got; None if nothing of it is stored."""

    def knows(self, request: Command) -> bool:
        """Whether it could be found."""


class Forwarder:
    """See the module. `recognises` None: a send is not repeated. Belongs to the loop."""

    def __init__(
        self,
        cluster: Cluster,
        recognises: Recognises | None = None,
        *,
        new_link: Callable[[str], MasterLink] = MasterLink,
        limits: ForwardingLimits | None = None,
    ) -> None:
        self._cluster = cluster
        self._recognises = recognises
        self._new_link = new_link
        self._limits = limits or ForwardingLimits()
        self._loop = asyncio.get_running_loop()
        self._requests = Shares(self._limits.requests)
        self._bytes = Shares(self._limits.bytes, oversize=True)
        self._links: dict[str, MasterLink] = {}
        self._parked: dict[asyncio.Future[None], None] = {}
        self._seen: tuple[bool, str] = (False, "")
        self._woken_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.handed_on_total = 0
        self.repeated_total = 0

    @property
    def parked(self) -> int:
        """Requests that wait for a master."""
        return len(self._parked)

    def leads(self) -> bool:
        return self._cluster.leads()

    def serves_here(self, request: Command) -> bool:
        """Whether this node leads, and the request is no copy of another one."""
        return self._cluster.leads() and not is_repeated(request)

    def goes_on(self, request: Command, refusal: RequestRefusedError) -> bool:
        """Whether a request that was refused so here is for the next master."""
        try:
            self._open_outcome(request, refusal)
        except RequestRefusedError:
            return False
        return True

    async def serve(
        self, call: RemotingCall, serve: Serve, refusal: RequestRefusedError | None = None
    ) -> Command | None:
        """The answer to a request for the master; `serve` is the method, called where this node
        leads, unless it was served here and refused with `refusal`. Raises what the method raises,
        and RemotingRefusedError."""
        open_outcome = ""
        if refusal is None and self._cluster.leads():
            try:
                return await self._serve_here(call, serve)
            except RequestRefusedError as raised:
                refusal = raised
        if refusal is not None:
            open_outcome = self._open_outcome(call.request, refusal)
        return await self._serve_later(call, serve, open_outcome)

    def close(self) -> None:
        """Answer what is parked, and park nothing more; the connections end with the last answer
        that is awaited."""
        self._closed = True
        self._wake()
        if not self._requests.held:
            self._end()

    def _end(self) -> None:
        """Nothing waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed:
            for link in self._links.values():
                link.close()

    # ---- here, or elsewhere

    async def _serve_here(self, call: RemotingCall, serve: Serve) -> Command | None:
        if self._recognises is not None and is_repeated(call.request):
            answer = await self._recognises.answer(call.request)
            if answer is not None:
                return None if call.request.is_oneway else answer
        return await serve(call)

    def _open_outcome(self, request: Command, refusal: RequestRefusedError) -> str:
        """Why it is not known whether the request was done here, empty if it was not; either way
        the next master may do it. Raises the refusal if no other master is asked."""
        if refusal.code == common_pb2.NOT_MASTER:
            return ""
        lost = refusal.code == common_pb2.OUTCOME_UNKNOWN and not self._cluster.leads()
        if not lost or is_handed_on(request) or not self._may_repeat(request):
            raise refusal
        return str(refusal)

    def _may_repeat(self, request: Command) -> bool:
        recognised = self._recognises is not None and self._recognises.knows(request)
        return may_repeat(request, recognised=recognised)

    async def _serve_later(
        self, call: RemotingCall, serve: Serve, open_outcome: str = ""
    ) -> Command | None:
        request = call.request
        if is_handed_on(request):
            return request.response(code=NOT_LEADING, remark="this node is not the master")
        _require_own_proof(call)
        holder, size = call.caller.holder, len(request.body) + HEAD_BYTES
        self._take(holder, size)
        try:
            return await self._until_served(call, serve, open_outcome)
        finally:
            self._requests.give_back(holder)
            self._bytes.give_back(holder, size)
            if not self._requests.held:
                self._end()

    async def _until_served(
        self, call: RemotingCall, serve: Serve, open_outcome: str
    ) -> Command | None:
        request = call.request
        while True:
            address = self._cluster.master_address()
            if self._cluster.leads():
                try:
                    return await self._serve_here(_marked(call, bool(open_outcome)), serve)
                except RequestRefusedError as refusal:
                    open_outcome = self._open_outcome(request, refusal) or open_outcome
            elif address:
                try:
                    answer = await self._ask(address, request, repeated=bool(open_outcome))
                    if answer is None or answer.code not in (NOT_LEADING, OUTCOME_UNKNOWN):
                        return answer
                    if answer.code == OUTCOME_UNKNOWN:
                        if not self._may_repeat(request):
                            return answer
                        open_outcome = answer.remark
                except NotSentError:
                    pass
                except LinkLostError as problem:
                    if not self._may_repeat(request):
                        return _unknown(request, str(problem))
                    open_outcome = str(problem)
            if not await self._wait(call.received_at + self._limits.park_s):
                if open_outcome and request.code in SENDS:
                    return _unknown(request, open_outcome)
                raise RemotingRefusedError(
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    "no master that takes the request was found within "
                    f"{self._limits.park_s:g} s: try again; `tandemlog check` says why",
                )

    async def _ask(self, address: str, request: Command, *, repeated: bool) -> Command | None:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = self._new_link(address)
        link.replaced_at = None
        self._start_timer()
        self.handed_on_total += 1
        flag = HANDED_ON
        if repeated:
            self.repeated_total += 1
            flag |= REPEATED
        return await link.call(request, flag, self._limits.answer_s)

    def _take(self, holder: str, size: int) -> None:
        if self._closed:
            raise RemotingRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, "the node is stopping")
        for shares, amount, what in (
            (self._requests, 1, "requests"),
            (self._bytes, size, "bytes of requests"),
        ):
            if not shares.may_take(holder, amount):
                raise RemotingRefusedError(
                    ResponseCode.SYSTEM_BUSY,
                    f"{shares.held} {what} for the master wait on this node, {shares.of(holder)} "
                    f"of them of this identity or host; the limit is {shares.limit} for all: try "
                    "again later",
                )
        self._requests.take(holder)
        self._bytes.take(holder, size)

    # ---- waiting

    async def _wait(self, until: float) -> bool:
        """Until something has changed, or a moment has passed; False if the time is over."""
        left = until - self._loop.time()
        if left <= 0 or self._closed:
            return False
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._parked[waiting] = None
        self._start_timer()
        try:
            async with asyncio.timeout(left):
                await waiting
        except TimeoutError:
            return False
        finally:
            self._parked.pop(waiting, None)
        return not self._closed

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        """One look for all requests that wait or are in flight."""
        now = self._loop.time()
        leads, address = state = self._cluster.leads(), self._cluster.master_address()
        self._retire(address, leads=leads, now=now)
        link = self._links.get(address)
        ready = leads or (bool(address) and (link is None or link.may_try()))
        if self._parked and ready and (state != self._seen or now - self._woken_at >= AGAIN_S):
            self._wake()
            self._woken_at = now
        self._seen = state
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _wake(self) -> None:
        """In the order in which they came."""
        for waiting in self._parked:
            if not waiting.done():
                waiting.set_result(None)

    def _retire(self, address: str, *, leads: bool, now: float) -> None:
        """A master that was replaced answers soon, or never: it may have been stopped."""
        if not (leads or address):
            return
        for each in list(self._links.values()):
            if each.address == address and not leads:
                continue
            if each.replaced_at is None:
                each.replaced_at = now
            if not each.in_flight or now - each.replaced_at >= self._limits.grace_s:
                del self._links[each.address]
                each.close()


def _marked(call: RemotingCall, repeated: bool) -> RemotingCall:
    if not repeated:
        return call
    request = call.request
    return replace(call, request=replace(request, flag=request.flag | REPEATED))


def _require_own_proof(call: RemotingCall) -> None:
    """Raises RemotingRefusedError for a caller that the master could not know."""
    if call.caller.who is not None and not call.request.fields.get(CERTIFICATE):
        raise RemotingRefusedError(
            ResponseCode.NO_PERMISSION,
            "this node is not the master, and a request of a caller that is known by its "
            "certificate cannot be handed on: send it to the master, which the route names as "
            "broker 0, or give the client an access key",
        )


def _unknown(request: Command, reason: str) -> Command:
    """Of what may have been done. A consumer that cannot send a message back sends it to its retry
    topic by itself."""
    back = request.code == RequestCode.CONSUMER_SEND_MSG_BACK
    return request.response(
        code=ResponseCode.SYSTEM_ERROR if back else OUTCOME_UNKNOWN,
        remark="the master was lost before it answered, the request may or may not have been done: "
        f"{reason}",
    )
