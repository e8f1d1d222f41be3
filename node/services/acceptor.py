"""Where connections of a wire of our own come in: the port, and who has a place.

    listen ─▶ accept ─▶ is there a place for this host? ─▶ begun(socket, peer)
                          its share is full: its oldest idle connection ends, strangers first
                          none is idle:      turned_away(peer), closed

Descriptors may be short for a moment: then none is accepted for AGAIN_S, and the port stays open.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from tandemlog.transport.sockets import prepare
from tandemlog_server.storage.shares import Shares

from ..access.caller_addresses import host_of, peer_of
from ..process.tasks import cancelled
from ..settings.host_port import split_endpoint
from ..settings.listen_endpoints import ListenError

logger = logging.getLogger(__name__)

AGAIN_S: Final = 0.5
BACKLOG: Final = 512


class Place(Protocol):
    """A connection, as far as its place may be given to another one."""

    @property
    def host(self) -> str: ...
    @property
    def in_use(self) -> bool: ...
    @property
    def known(self) -> bool: ...


P = TypeVar("P", bound=Place)


@dataclass(frozen=True, slots=True)
class Port:
    """Which one it is, for errors and the log: the setting, and whose connections come."""

    setting: str
    whose: str


class Acceptor(Generic[P]):
    """See the module. `begun` gets a socket that does not block, and its peer; it takes a place of
    `shares`, and gives it back. `places` are the connections, the oldest first; `end` has one end
    for another."""

    def __init__(
        self,
        port: Port,
        shares: Shares,
        *,
        places: Iterable[P],
        end: Callable[[P], None],
        begun: Callable[[socket.socket, str], None],
        turned_away: Callable[[str], None] = lambda peer: None,
    ) -> None:
        self._name = port
        self._shares = shares
        self._places = places
        self._end = end
        self._begun = begun
        self._turned_away = turned_away
        self._listener: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = 0
        """0 before it listens, and after the stop."""

    def start(self, endpoint: str) -> None:
        """Listen on host:port, port 0 for any. Raises ListenError."""
        host, port = split_endpoint(endpoint)
        both = host == "::" and socket.has_dualstack_ipv6()
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listener = socket.create_server(
                (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both
            )
        except OSError as error:
            raise ListenError(
                f"{self._name.setting}: cannot listen on {endpoint}: {error.strerror or error}"
            ) from error
        listener.setblocking(False)
        self._listener, self.port = listener, listener.getsockname()[1]
        self._task = asyncio.get_running_loop().create_task(
            self._accept(listener), name=f"{self._name.setting}-accept"
        )

    async def stop(self) -> None:
        """Take no connection any more."""
        self.port = 0
        if self._task is not None:
            await cancelled(self._task)
        if self._listener is not None:
            self._listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as error:
                logger.warning("%s cannot be accepted now: %s", self._name.whose, error)
                await asyncio.sleep(AGAIN_S)
                continue
            peer = peer_of(*address[:2])
            if self._has_room(host_of(peer)):
                sock.setblocking(False)
                with contextlib.suppress(OSError):  # its client is gone, as reading will tell
                    prepare(sock)
                self._begun(sock, peer)
            else:
                self._turned_away(peer)
                sock.close()
            await asyncio.sleep(0)  # others have work too, however many come at once

    def _has_room(self, host: str) -> bool:
        """Whether one more connection of `host` is taken, perhaps for one that is closed now."""
        if self._shares.may_take(host):
            return True
        idle = [each for each in self._places if each.host == host and not each.in_use]
        if not idle:
            return False
        strangers = (each for each in idle if not each.known)
        self._end(next(strangers, idle[0]))
        return True
