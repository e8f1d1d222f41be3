"""The coordinator's door: who is let in, and how much of its bounds one caller may use.

    call ─▶ let in?          no: PERMISSION_DENIED, before it takes a place of those that are
         ─▶ in its share?    no: UNAVAILABLE, by name
         ─▶ counted until gRPC is done with it

A caller is what its certificate names, or a host where none is required. Calls, streams, watches
and leases are divided as the bounds of a node are (storage/shares.py): so a node renews its lease
whatever another caller does. A call counts from its headers on, and ends if its request does not
come in time.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Collection
from typing import Any

from tandemlog_server.storage.shares import Shares

from ..access.caller_addresses import host_of
from .coordinator_refusals import RefusedError, busy, full
from .limits import Limits
from .protection import Protection

RECEIVE_S = 10.0
MET = 1 << 14


class CoordinatorDoor:
    """See the module. Also says which connections are in use, for connection_census.py."""

    def __init__(self, limits: Limits, protection: Protection | None) -> None:
        self._protection = protection
        self._calls = Shares(limits.calls)
        self._streams = Shares(limits.streams)
        self.watches = Shares(limits.watches)
        self._leases = Shares(limits.leases)
        self._leases_of: dict[int, str] = {}
        self._in_use: Counter[str] = Counter()
        self._met: OrderedDict[str, None] = OrderedDict()

    def admit(self, context: Any, *, stream: bool = False) -> str:
        """Count a call until gRPC is done with it; returns whose it is. Raises RefusedError."""
        peer = context.peer()
        protection = self._protection
        fault, name = ("", "") if protection is None else protection.seen(context)
        if fault:
            raise RefusedError("PERMISSION_DENIED", fault)
        holder = name or host_of(peer)
        for what, shares in (("calls", self._calls), ("streams", self._streams)):
            if (stream or what == "calls") and not shares.may_take(holder):
                raise busy(f"{what} of one caller", shares.of(holder) + 1, shares.most(holder))
        self._count(peer, holder, 1, stream=stream)
        context.add_done_callback(lambda _: self._count(peer, holder, -1, stream=stream))
        return holder

    def check_grant(self, holder: str, leases: Collection[int]) -> None:
        """Before a lease is granted; `leases` are those that exist. Raises RefusedError."""
        shares = self._leases
        if shares.may_take(holder):
            return
        for lease in [each for each in self._leases_of if each not in leases]:
            shares.give_back(self._leases_of.pop(lease))
        if not shares.may_take(holder):
            raise full("leases of one caller", shares.of(holder) + 1, shares.most(holder))

    def granted(self, holder: str, lease: int) -> None:
        """A lease counts for `holder` until it is found to have ended."""
        before = self._leases_of.pop(lease, None)
        if before is not None:
            self._leases.give_back(before)
        self._leases_of[lease] = holder
        self._leases.take(holder)

    def in_use(self, peer: str) -> bool:
        """Whether a connection has a call in progress."""
        return peer in self._in_use

    def has_met(self, peer: str) -> bool:
        """Whether a call of this connection was let in a short while ago."""
        return peer in self._met

    def _count(self, peer: str, holder: str, change: int, *, stream: bool) -> None:
        self._calls.take(holder, change)
        if stream:
            self._streams.take(holder, change)
        self._in_use[peer] += change
        if not self._in_use[peer]:
            del self._in_use[peer]
        self._met[peer] = None
        if len(self._met) > MET:
            self._met.popitem(last=False)


async def received(requests: AsyncIterator[bytes]) -> bytes:
    """The one request of a call. Raises RefusedError if it does not come."""
    try:
        async with asyncio.timeout(RECEIVE_S):
            async for data in requests:
                return data
    except TimeoutError:
        reason = f"coordinator: the request did not come within {RECEIVE_S:g} s"
    else:
        reason = "coordinator: the call has no request"
    raise RefusedError("INVALID_ARGUMENT", reason)
