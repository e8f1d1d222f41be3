"""The embedded coordinator as a process: database, machine, journal, gRPC; start and stop."""

import asyncio
import logging
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path

from grpc import aio

from ..process.connection_census import OPTIONS, ConnectionCensus
from ..process.machine_bounds import open_files
from ..process.service_manager import said_ready
from ..settings.host_port import split_endpoint
from ..settings.listen_endpoints import ListenError, usable
from .database import Database, SqliteDatabase
from .etcd_services import EtcdServices, tick_forever
from .journal import Journal
from .limits import Limits
from .protection import Protection
from .state_machine import StateMachine
from .watch_stream import DurableRevision

logger = logging.getLogger(__name__)

_GRACE_S = 0.5
_CONNECTIONS = 4_096
_CALLS_OF_A_CONNECTION = 256
_OWN_FILES = 64
_OPTIONS = (
    *OPTIONS,
    ("grpc.max_concurrent_streams", _CALLS_OF_A_CONNECTION),
    ("grpc.max_send_message_length", -1),
)


def random_id() -> int:
    """Of a lease, a cluster or a member: 63 bits, above 0."""
    return secrets.randbelow((1 << 63) - 1) + 1


class CoordinatorServer:
    """Serves the data of `database` on host:port `endpoint`, which must be free.

    `fatal` is done, with what went wrong, when the coordinator must stop by itself. `monotonic`
    gives seconds; a caller with another clock also calls `tick`, ten times in a second of it.
    """

    def __init__(
        self,
        database: Database,
        endpoint: str,
        limits: Limits | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        protection: Protection | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._protection = protection
        self._database = database
        self._limits = limits or Limits()
        self._monotonic = monotonic
        self.machine = StateMachine(database.saved, monotonic(), random_id, self._limits)
        self._durable = DurableRevision(self.machine.revision)

    async def start(self) -> None:
        """Listen and serve. Raises ListenError."""
        self._journal = Journal(self._database, self._durable.move)
        services = EtcdServices(
            self.machine,
            self._journal,
            self._durable,
            self._monotonic,
            self._database.size,
            self.endpoint,
            self._protection,
        )
        most = ("grpc.max_receive_message_length", 2 * self._limits.request_bytes)
        connections = min(_CONNECTIONS, max(open_files() - _OWN_FILES, _OWN_FILES))
        many = ("grpc.max_allowed_incoming_connections", connections)
        self._server = aio.server(options=(*_OPTIONS, most, many))
        services.add_to(self._server)
        try:
            if self._protection is None:
                self._server.add_insecure_port(self.endpoint)
            else:
                self._server.add_secure_port(self.endpoint, self._protection.credentials())
        except RuntimeError as error:
            await self._journal.close()
            raise ListenError(f"--listen: cannot listen on {self.endpoint}") from error
        await self._server.start()
        self.tick = services.tick
        self._ticks = asyncio.create_task(tick_forever(services))
        port = split_endpoint(self.endpoint)[1]
        census = ConnectionCensus(services.door, port, connections)
        self._looking = asyncio.create_task(census.run(), name="connections")

    @property
    def fatal(self) -> "asyncio.Future[BaseException]":
        return self._journal.fatal

    async def stop(self) -> None:
        """End every call; what was answered is durable. The database is the caller's to close."""
        for each in (self._ticks, self._looking):
            each.cancel()
        await asyncio.gather(self._ticks, self._looking, return_exceptions=True)
        await self._server.stop(0 if self.fatal.done() else _GRACE_S)
        await self._journal.close()


async def run_coordinator(
    directory: Path,
    listen: str,
    *,
    ignore_interrupt: bool = False,
    protection: Protection | None = None,
) -> None:
    """Run until SIGTERM or SIGINT. Raises DataError, ListenError, and what made it end itself."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, *(() if ignore_interrupt else (signal.SIGINT,))):
        loop.add_signal_handler(number, stop.set)
    endpoint = usable("--listen", listen)
    database = SqliteDatabase(directory, random_id)
    try:
        server = CoordinatorServer(database, endpoint, protection=protection)
        await server.start()
        saved = database.saved
        logger.info(
            "started coordinator=embedded endpoint=%s dir=%s cluster=%x revision=%d keys=%d "
            "leases=%d start=%d tls=%s",
            endpoint,
            directory,
            saved.cluster_id,
            saved.revision,
            server.machine.versions.live,
            len(saved.leases),
            saved.term,
            "off" if protection is None else "on",
        )
        stopped = asyncio.create_task(stop.wait())
        async with said_ready(f"coordinator on {endpoint}"):
            await asyncio.wait((stopped, server.fatal), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await server.stop()
        if server.fatal.done():
            raise server.fatal.result()
    finally:
        database.close()
