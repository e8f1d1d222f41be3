"""Requests for the master, on whichever node they arrive.

    this node leads          ─▶ the method here
    another one leads        ─▶ its door, byte for byte
    no master is known       ─▶ parked: up to PARK_S after it came, until there is one
    the link ends first, or another master begins
                             ─▶ parked, again; a send with REPEATED, which the master answers with
                                what the first copy has stored (first_copies.py)

A client of the 5.x API tries three times within milliseconds, so an election of half a second must
not reach it. Everything that it asks for may be done twice: a send is known by its message id, and
the others give the same.

Receives wait for messages for long, and a connection has a bounded number of calls: so they have a
connection of their own, and are bounded here. However many wait, the others are handed on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import grpc
from grpc import aio

from tandemlog.format.constants import MAX_GRPC_MESSAGE
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog.transport.channels import open_channel_with
from tandemlog.v1 import common_pb2
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError
from tandemlog_server.storage.shares import Shares

from ..error_status import RequestRefusedError
from .messaging_call import HANDED_ON, REPEATED, MessagingCall, Method

TICK_S: Final = 0.01
AGAIN_S: Final = 0.05
"""Until a request is tried again although nothing seems to have changed."""
HEAD_BYTES: Final = 1_024
"""What a request counts beside its bytes."""
SLACK_S: Final = 0.3
"""An answer is on its way so long before the client gives up."""
NOT_LEADING: Final = "this node is not the master"
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_GRPC_MESSAGE),
    ("grpc.max_send_message_length", MAX_GRPC_MESSAGE),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
)

Here = Callable[[MessagingCall], Awaitable[list[bytes]]]


class NotLeadingError(Exception):
    """Another node has handed on a request to this one, which does not lead either."""


class LinkLostError(Exception):
    """The master is gone; the request may or may not have been done."""


@dataclass(frozen=True, slots=True)
class HandingLimits:
    """`requests` and `bytes` are those that wait or are in flight, of which a host has its share;
    `receives` is the same of receives alone, fewer than the calls of a connection.
    `park_s` counts from the arrival of a request; `grace_s` is how long a master that was replaced
    may still answer."""

    requests: int = 16_384
    receives: int = 1_000
    bytes: int = 128 << 20
    park_s: float = 2.5
    grace_s: float = 0.3


class Cluster(Protocol):
    """Where the master is."""

    def leads(self) -> bool:
        """Whether it is this node."""

    def master_address(self) -> str:
        """host:port of the door of another node that leads; empty if none is known."""


class MasterCalls:
    """See the module. `credentials` of the connections to other nodes, None without TLS. Belongs
    to the loop."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        credentials: Callable[[], grpc.ChannelCredentials | None] = lambda: None,
        limits: HandingLimits | None = None,
    ) -> None:
        self._cluster = cluster
        self._credentials = credentials
        self._limits = limits or HandingLimits()
        self._loop = asyncio.get_running_loop()
        self._requests = Shares(self._limits.requests)
        self._bytes = Shares(self._limits.bytes, oversize=True)
        self._receives = Shares(self._limits.receives)
        self._channels: dict[tuple[str, bool], aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self.handed_on_total = 0
        self.repeated_total = 0
        self.parked = 0
        """Requests that wait for a master."""

    def leads(self) -> bool:
        return self._cluster.leads()

    async def serve(
        self, call: MessagingCall, method: Method, data: bytes, here: Here
    ) -> list[bytes]:
        """The answers to a request for the master; `here` is the method, called where this node
        leads. Raises what the method raises, MessagingRefusedError and NotLeadingError."""
        if self._cluster.leads():
            try:
                return await here(call)
            except RequestRefusedError as refusal:
                if refusal.code != common_pb2.NOT_MASTER:
                    raise
        if call.handed_on:
            raise NotLeadingError
        _require_own_proof(call)
        holder, size = call.caller.holder, len(data) + HEAD_BYTES
        self._take(holder, size, method)
        try:
            return await self._until_served(call, method, data, here)
        finally:
            if method.streams:
                self._receives.give_back(holder)
            self._requests.give_back(holder)
            self._bytes.give_back(holder, size)

    def park_no_more(self) -> None:
        """What is parked is refused within a moment."""
        self._closed = True

    async def close(self) -> None:
        """The connections end."""
        self._closed = True
        await asyncio.gather(*(each.close() for each in self._channels.values()))

    def channel(self, address: str, *, receives: bool = False) -> aio.Channel:
        """The connection to a node's door; those to other nodes end when their calls do."""
        found = self._channels.get((address, receives))
        if found is None:
            self._retire(address)
            found = open_channel_with(address, self._credentials(), _OPTIONS)
            self._channels[address, receives] = found
        return found

    def master_address(self) -> str:
        """Of another node; empty if this one leads, or none is known."""
        return "" if self._cluster.leads() else self._cluster.master_address()

    # ---- one request

    async def _until_served(
        self, call: MessagingCall, method: Method, data: bytes, here: Here
    ) -> list[bytes]:
        lost = ""
        until = call.received_at + self._limits.park_s
        if call.deadline is not None:
            until = min(until, call.deadline - SLACK_S)
        while True:
            address = self._cluster.master_address()
            try:
                if self._cluster.leads():
                    return await here(_marked(call) if lost else call)
                if address:
                    return await self._ask(call, method, data, address, repeated=bool(lost))
            except RequestRefusedError as refusal:
                if refusal.code != common_pb2.NOT_MASTER:
                    raise
            except NotLeadingError:
                pass
            except LinkLostError as problem:
                lost = str(problem)
                # the patience of a client counts from here: a long poll may have waited before
                until = max(until, self._again_until(call))
            if not method.parks or not await self._wait(address, until):
                if method.without_master is not None:
                    return [method.answer(status=method.without_master).SerializeToString()]
                raise MessagingRefusedError(v2.HA_NOT_AVAILABLE, self._late(lost))

    def _again_until(self, call: MessagingCall) -> float:
        until = self._loop.time() + self._limits.park_s
        return until if call.deadline is None else min(until, call.deadline - SLACK_S)

    def _late(self, lost: str) -> str:
        if lost:
            return (
                "the master was lost before it answered, the request may or may not have been "
                f"done: {lost}"
            )
        return (
            f"no master that takes the request was found within {self._limits.park_s:g} s: try "
            "again; `tandemlog check` says why"
        )

    async def _ask(
        self, call: MessagingCall, method: Method, data: bytes, address: str, *, repeated: bool
    ) -> list[bytes]:
        channel = self.channel(address, receives=method.streams)
        self.handed_on_total += 1
        self.repeated_total += repeated
        metadata = (*call.metadata, (HANDED_ON, "1"), *(((REPEATED, "1"),) if repeated else ()))
        within_s = None if call.deadline is None else call.deadline - self._loop.time()
        asking = asyncio.ensure_future(_answers(channel, method, data, metadata, within_s))
        try:
            replaced_at: float | None = None
            while True:
                await asyncio.wait({asking}, timeout=AGAIN_S)
                if asking.done():
                    return _outcome(asking)
                now = self._loop.time()
                if self._cluster.leads() or self._cluster.master_address() not in ("", address):
                    replaced_at = now if replaced_at is None else replaced_at
                    if now - replaced_at >= self._limits.grace_s:
                        raise LinkLostError("another node leads")
                else:
                    replaced_at = None
        finally:
            asking.cancel()

    async def _wait(self, address: str, until: float) -> bool:
        """Until another master than that at `address` is known, or a moment has passed; False if
        the time is over."""
        again = self._loop.time() + AGAIN_S
        self.parked += 1
        try:
            while not self._closed:
                now = self._loop.time()
                if now >= until:
                    return False
                known = self._cluster.leads() or bool(self._cluster.master_address())
                moved = self._cluster.leads() or self._cluster.master_address() != address
                if known and (moved or now >= again):
                    return True
                await asyncio.sleep(min(TICK_S, until - now))
            return False
        finally:
            self.parked -= 1

    def _take(self, holder: str, size: int, method: Method) -> None:
        if self._closed:
            raise MessagingRefusedError(v2.HA_NOT_AVAILABLE, "the node is stopping")
        for shares, amount, what in (
            (self._requests, 1, "requests"),
            (self._receives, int(method.streams), "receives"),
            (self._bytes, size, "bytes of requests"),
        ):
            if amount and not shares.may_take(holder, amount):
                raise MessagingRefusedError(
                    v2.TOO_MANY_REQUESTS,
                    f"{shares.held} {what} for the master wait on this node, {shares.of(holder)} "
                    f"of them of this identity or host; the limit is {shares.limit} for all: try "
                    "again later",
                )
        self._requests.take(holder)
        self._receives.take(holder, int(method.streams))
        self._bytes.take(holder, size)

    def _retire(self, address: str) -> None:
        """End the connections to nodes that are not the master any more."""
        for each in [key for key in self._channels if key[0] != address]:
            task = self._loop.create_task(self._channels.pop(each).close(self._limits.grace_s))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _answers(
    channel: aio.Channel, method: Method, data: bytes, metadata: Any, within_s: float | None
) -> list[bytes]:
    if not method.streams:
        unary: Any = channel.unary_unary(method.path)
        return [await unary(data, metadata=metadata, timeout=within_s)]
    stream: Any = channel.unary_stream(method.path)
    return [each async for each in stream(data, metadata=metadata, timeout=within_s)]


def _outcome(asking: "asyncio.Future[list[bytes]]") -> list[bytes]:
    try:
        return asking.result()
    except aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
            raise NotLeadingError from None
        raise LinkLostError(f"{error.code().name}: {error.details()}") from None
    except asyncio.CancelledError:
        raise LinkLostError("the connection was closed") from None


def _marked(call: MessagingCall) -> MessagingCall:
    return replace(call, repeated=True)


def _require_own_proof(call: MessagingCall) -> None:
    """Raises MessagingRefusedError for a caller that the master could not know."""
    if call.caller.who is not None and not call.signed:
        raise MessagingRefusedError(
            v2.FORBIDDEN,
            "this node is not the master, and a request of a caller that is known by its "
            "certificate cannot be handed on: give the client an access key",
        )
