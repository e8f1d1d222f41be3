"""The HTTP port with a bound on its connections: a new one takes the place of the oldest.

aiohttp's own server takes any number of connections, and keeps a silent one for ever. Refusing new
ones at the bound would let a stranger lock out the probes of an orchestrator, so one is closed, the
oldest of the host that has most: a scraper that loses its connection opens another. With TLS a
connection counts once its handshake is over; before that, tls_arrivals.py has a bound of that kind.
"""

import asyncio
import ssl

from aiohttp import web

from ..access.caller_addresses import oldest_of_busiest
from ..process.machine_bounds import ConnectionBounds
from .tls_arrivals import TlsArrivals, host_of_transport


class BoundedSite(web.BaseSite):
    """See the module. `bounds` say how many connections are open at a time."""

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        bounds: ConnectionBounds = ConnectionBounds(),  # noqa: B008
    ) -> None:
        super().__init__(runner, ssl_context=tls)
        self._address = host, port
        self._at_most = bounds.http
        self.arrivals = None if tls is None else TlsArrivals(self._accept, tls, bounds.handshakes)

    @property
    def name(self) -> str:
        scheme = "http" if self._ssl_context is None else "https"
        return f"{scheme}://{self._address[0]}:{self._address[1]}"

    async def start(self) -> None:
        """Listen. Raises OSError if the port is taken."""
        await super().start()
        first = self._accept if self.arrivals is None else self.arrivals.accept
        self._server = await asyncio.get_running_loop().create_server(
            first, *self._address, backlog=self._backlog
        )

    async def stop(self) -> None:
        """Take no new connection."""
        if self.arrivals is not None:
            self.arrivals.close()
        await super().stop()

    def _accept(self) -> web.RequestHandler:
        server = self._runner.server
        assert server is not None
        oldest_first = server.connections
        while len(oldest_first) >= self._at_most:
            hosts = [host_of_transport(each.transport) for each in oldest_first]
            oldest_first.pop(oldest_of_busiest(hosts)).force_close()
        return server()
