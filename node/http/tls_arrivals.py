"""TLS of new connections to the HTTP port, with a bound on those that have not finished it.

    accepted ─▶ handshake under way, at most HANDSHAKES ─▶ aiohttp's connection, counted there
                 └─ one more: one is closed, the oldest of the host that has most of them;
                    none takes longer than HANDSHAKE_S

asyncio's server tells of a connection only after its handshake. A stranger that connects and then
says nothing would hold any number of descriptors while a handshake may take its time, and a
node without descriptors cannot open the next file of its log. So connections are accepted in plain
and turned into TLS here.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from ..access.caller_addresses import oldest_of_busiest

HANDSHAKES = 256
HANDSHAKE_S = 10.0


def host_of_transport(transport: asyncio.BaseTransport | None) -> str:
    """Who is at the other end; empty if it is closed."""
    name = None if transport is None else transport.get_extra_info("peername")
    return str(name[0]) if name else ""


class _Early(asyncio.Protocol):
    """What comes together with the end of the handshake."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class _Accepted(asyncio.Protocol):
    """Reads nothing: the first byte is already for TLS."""

    def __init__(self, begin: Callable[[asyncio.Transport], None]) -> None:
        self._begin = begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        plain.pause_reading()
        self._begin(plain)


class TlsArrivals:
    """See the module. `serve` makes the protocol of a connection that is secured by `context`."""

    def __init__(
        self,
        serve: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        at_most: int = HANDSHAKES,
    ) -> None:
        self._serve = serve
        self._context = context
        self._at_most = at_most
        self._under_way: dict[asyncio.Task[bool], asyncio.Transport] = {}

    def __len__(self) -> int:
        """Handshakes that are under way."""
        return len(self._under_way)

    def accept(self) -> asyncio.Protocol:
        """For a new connection."""
        return _Accepted(self._begin)

    def close(self) -> None:
        """End every handshake that is under way."""
        for task in self._under_way:
            task.cancel()

    def _begin(self, plain: asyncio.Transport) -> None:
        while len(self._under_way) >= self._at_most:
            hosts = [host_of_transport(each) for each in self._under_way.values()]
            oldest = list(self._under_way)[oldest_of_busiest(hosts)]
            self._under_way.pop(oldest).abort()
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._secure(plain))
        self._under_way[task] = plain

        def ended(_: object) -> None:
            self._under_way.pop(task, None)
            if task.cancelled() or task.exception() is not None or not task.result():
                plain.abort()

        task.add_done_callback(ended)

    async def _secure(self, plain: asyncio.Transport) -> bool:
        """Whether the connection is served."""
        early = _Early()
        try:
            secured = await asyncio.get_running_loop().start_tls(
                plain,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except OSError:  # also those of TLS: a stranger must not make the node log
            return False
        if secured is None or early.lost:
            return False
        protocol = self._serve()
        secured.set_protocol(protocol)
        protocol.connection_made(secured)
        if early.data:
            protocol.data_received(bytes(early.data))
        return True
