"""The connections over which a console asks the cluster, one for each session that needs it.

    Session ──token or pass──▶ AsyncAdmin ──▶ this node's own gRPC port, and the other nodes
                               (and a Connection for what an admin client does not have)

A client lives CLOSE_AFTER_S after its last use: a page that is only looked at holds none.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.errors import TandemlogError
from tandemlog.transport.security import Security

from .sessions import Session

CLOSE_AFTER_S = 60.0
ANSWER_MS = 5_000
"""A person waits for the answer: without a master, the page tells the person after this time."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loopback:
    """How this node reaches itself: `endpoint` is host:port, the files are those of its [tls]."""

    endpoint: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure: bool = False

    def security(self, token: str) -> Security:
        """What a caller with `token` (empty: anyone) shows to the nodes."""
        return Security(
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            server_name=self.server_name,
            token=token,
            insecure=self.insecure,
        )


@dataclass(slots=True)
class _Row:
    admin: AsyncAdmin
    users: int = 0
    closing: asyncio.TimerHandle | None = None


class ClientPool:
    """See the module. Belongs to the loop."""

    def __init__(self, loopback: Callable[[], Loopback]) -> None:
        self._loopback = loopback
        self._rows: dict[Session, _Row] = {}
        self._closings: set[asyncio.Task[None]] = set()

    def of(self, session: Session) -> "Clients":
        return Clients(self, session)

    def options(self, session: Session) -> ConnectionOptions:
        """For a connection of the caller's own, which its user closes."""
        return ConnectionOptions(
            request_timeout_ms=ANSWER_MS,
            retry_timeout_ms=ANSWER_MS,
            data_connections="never",
            security=self._loopback().security(session.token),
        )

    @property
    def endpoint(self) -> str:
        return self._loopback().endpoint

    @asynccontextmanager
    async def admin(self, session: Session) -> AsyncIterator[AsyncAdmin]:
        """The session's client, which stays open while it is used."""
        row = self._rows.get(session)
        if row is None:
            admin = AsyncAdmin(self.endpoint, connection=self.options(session))
            row = self._rows[session] = _Row(admin)
        if row.closing is not None:
            row.closing.cancel()
            row.closing = None
        row.users += 1
        try:
            yield row.admin
        finally:
            row.users -= 1
            if not row.users and self._rows.get(session) is row:
                loop = asyncio.get_running_loop()
                row.closing = loop.call_later(CLOSE_AFTER_S, self.drop, session)

    def drop(self, session: Session) -> None:
        """Close the client of a session that has none in use, or that is over."""
        row = self._rows.pop(session, None)
        if row is None:
            return
        if row.closing is not None:
            row.closing.cancel()
        task = asyncio.ensure_future(_closed(row.admin))
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    async def close(self) -> None:
        for session in list(self._rows):
            self.drop(session)
        await asyncio.gather(*self._closings)


class Clients:
    """The clients of one session."""

    def __init__(self, pool: ClientPool, session: Session) -> None:
        self._pool = pool
        self._session = session

    def admin(self) -> contextlib.AbstractAsyncContextManager[AsyncAdmin]:
        """What is asked by it is asked as this identity."""
        return self._pool.admin(self._session)

    @property
    def endpoint(self) -> str:
        """Of this node: where a client of one's own begins."""
        return self._pool.endpoint

    @property
    def options(self) -> ConnectionOptions:
        """For a producer or consumer of one's own, which is closed after use."""
        return self._pool.options(self._session)


async def _closed(admin: AsyncAdmin) -> None:
    try:
        await admin.close()
    except TandemlogError as error:
        logger.debug("a client of the console did not close in order: %s", error)
