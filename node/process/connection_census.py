"""Which connections of the gRPC port are closed when there are many: those that only hold a place.

    few connections     nothing is looked at
    many                who holds more than its share of them?   its oldest idle ones are closed
                        a stranger's that is idle for long?      it is closed

gRPC accepts connections by itself, up to a number, and says nothing of them. Then a host that
opens that many and never asks for anything would keep everyone else out. So from time to time the
sockets of this process are looked at: who is at their other end, and since when they are known
here. A connection with a call in progress is never closed; one that was let in before is, after
those of strangers, if its host holds more than its share: its client opens another one.

To close is to shut the socket down, by a descriptor of our own: gRPC finds that its client is gone.
"""

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tandemlog_server.storage.shares import Shares

from ..access.caller_addresses import host_of, peer_of

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
CROWDED_INTERVAL_S = 0.1
MANY_PART = 4
"""Connections above this part of what is allowed are many."""
STRANGER_IDLE_S = 15.0
FILES_FOR_S = 5.0
"""A connection that has the number of a file that was closed meanwhile is found so much later."""
_FOLDER = "/proc/self/fd"
OPTIONS = (
    # two servers on one port would share its connections without a word
    ("grpc.so_reuseport", 0),
    # above what the door lets in, which refuses with a reason; gRPC would drop calls at random
    ("grpc.server.max_pending_requests", 1 << 16),
    ("grpc.server.max_pending_requests_hard_limit", 1 << 16),
    # clients may ping a quiet connection every 10 s, also while no call is open
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    # a host that is gone without a word must not hold its streams until TCP gives up
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # a connection that says nothing of TLS holds a descriptor
    ("grpc.server_handshake_timeout_ms", 10_000),
)
"""Of every gRPC server."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One accepted connection; `peer` as gRPC names it."""

    peer: str
    descriptor: int


def superfluous(
    peers: Iterable[str],
    limit: int,
    *,
    in_use: Callable[[str], bool],
    has_met: Callable[[str], bool],
    idle_s: Callable[[str], float],
) -> list[str]:
    """Which of `peers`, oldest first, to close: see the module. Pure."""
    shares = Shares(limit)
    by_host: dict[str, list[str]] = {}
    for peer in peers:
        host = host_of(peer)
        shares.take(host)
        by_host.setdefault(host, []).append(peer)
    closed: list[str] = []
    # the busiest first: what it gives up is room for the others
    for host, those in sorted(by_host.items(), key=lambda each: -len(each[1])):
        over = shares.of(host) - shares.most(host)
        idle = [each for each in those if not in_use(each)]
        strangers = [each for each in idle if not has_met(each)]
        chosen = (strangers + [each for each in idle if has_met(each)])[: max(over, 0)]
        closing = set(chosen)
        shares.give_back(host, len(chosen))
        late = [
            each for each in strangers if each not in closing and idle_s(each) > STRANGER_IDLE_S
        ]
        closed += chosen + late
    return closed


class CallsOfConnections(Protocol):
    """What is known of the calls of connections."""

    def in_use(self, peer: str) -> bool:
        """Whether a connection has a call or a stream in progress."""

    def has_met(self, peer: str) -> bool:
        """Whether a call of this connection was let in a short while ago."""


class ConnectionCensus:
    """See the module. `limit` connections of `port` are allowed."""

    def __init__(self, keeper: CallsOfConnections, port: int, limit: int) -> None:
        self._keeper = keeper
        self._own = Descriptors(port)
        self._limit = limit
        self._since: dict[str, float] = {}
        self.closed_total = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            crowded = await self.close_superfluous()
            await asyncio.sleep(CROWDED_INTERVAL_S if crowded else INTERVAL_S)

    async def close_superfluous(self) -> bool:
        """Look once; whether there are many."""
        many = self._limit // MANY_PART
        now = asyncio.get_running_loop().time()
        connections = await asyncio.to_thread(self._own.accepted, now, many)
        descriptors = {each.peer: each.descriptor for each in connections}
        self._since = {peer: self._since.get(peer, now) for peer in descriptors}
        closed = superfluous(
            sorted(descriptors, key=self._since.__getitem__),
            self._limit,
            in_use=self._keeper.in_use,
            has_met=self._keeper.has_met,
            idle_s=lambda peer: now - self._since[peer],
        )
        if closed:
            self.closed_total += len(closed)
            await asyncio.to_thread(
                shut_down, [Connection(each, descriptors[each]) for each in closed]
            )
        return len(connections) > many


class Descriptors:
    """Those of this process, and which of them are connections to `port`. A store has a descriptor
    for each of thousands of files: their numbers are kept for FILES_FOR_S, and not looked at
    meanwhile."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._files: set[str] = set()
        self._known_since = float("-inf")

    def accepted(self, now: float, unless_below: int = 0) -> list[Connection]:
        """The connections; none if there are fewer than `unless_below` descriptors that are not
        known to be files. `now` in monotonic seconds."""
        names = set(os.listdir(_FOLDER))
        if now - self._known_since >= FILES_FOR_S:
            self._known_since = now
            self._files.clear()
        self._files &= names
        names -= self._files
        if len(names) < unless_below:
            return []
        connections = []
        for name in names:
            descriptor = int(name)
            with suppress(OSError):
                if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    self._files.add(name)
                    continue
                # which is looked at and never closed: it is gRPC's
                looked_at = socket.socket(fileno=descriptor)
                try:
                    peer = _peer(looked_at, self._port)
                finally:
                    looked_at.detach()
                if peer:
                    connections.append(Connection(peer, descriptor))
        return connections


def shut_down(connections: Sequence[Connection]) -> None:
    """Those that are still the same ones: a number may have become another file's."""
    for each in connections:
        with suppress(OSError), socket.socket(fileno=os.dup(each.descriptor)) as ours:
            remote = ours.getpeername()
            if peer_of(*remote[:2]) == each.peer:
                ours.shutdown(socket.SHUT_RDWR)


def _peer(looked_at: socket.socket, port: int) -> str:
    """Who is at the other end of a connection to `port`; empty if it is none."""
    if looked_at.family not in (socket.AF_INET, socket.AF_INET6):
        return ""
    if looked_at.getsockname()[1] != port:
        return ""
    try:
        remote = looked_at.getpeername()
    except OSError:
        return ""  # it listens
    return peer_of(*remote[:2])
