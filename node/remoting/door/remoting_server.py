"""The port of RocketMQ's clients: name server and broker, with TLS and without.

    accept ─▶ is there a place for this host? ─▶ its first byte, which stays in the socket
                                                   0x16   TLS, if this node has certificates
                                                   other  in the clear, if that is allowed
                                                 ─▶ RemotingSession

A client speaks first in both cases. One that says nothing holds a descriptor for FIRST_S, and
counts in the share of its host from the beginning. As RocketMQ's own server, so a fleet can change
to TLS client by client.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tandemlog_server.storage.shares import Shares

from ...access.audit_log import AuditLog
from ...access.caller_addresses import host_of
from ...process.tasks import cancelled
from ...services.acceptor import Acceptor, Port
from ...services.frame_budget import FrameBudget
from .remoting_door import RemotingDoor
from .remoting_session import FIRST_S, RemotingSession

logger = logging.getLogger(__name__)

FRAME_BYTES: Final = 128 << 20
LARGEST_FRAME: Final = 32 << 20
STRANGERS_PART: Final = 8
"""So many times less may be held by large frames of clients that have not proved who they are."""
CONNECTIONS: Final = 4_096
LOOK_S: Final = 1.0
"""How often connections are looked at whose time may be over."""
LAST_S: Final = 1.0
"""In which the last answers are taken at a stop."""
TLS_BYTE: Final = 0x16
NO_TLS: Final = "it began TLS, and this node has none: set [tls], or let the client use no TLS"
TLS_ALONE: Final = (
    "it came without TLS, which this node requires: let the client use TLS (tls.enable=true), or "
    "set rocketmq_clients.plaintext = true"
)
NO_PLACE: Final = "its host has as many connections as it may have"


class RemotingServer:
    """See the module. `start`, then `stop`. `tls` is None if the node has no certificates;
    `plaintext` says whether clients may come without TLS. `connections` may be open at a time, of
    which a host has its share: above it a new one takes the place of its oldest idle one."""

    def __init__(
        self,
        door: RemotingDoor,
        audit: AuditLog,
        *,
        tls: ssl.SSLContext | None = None,
        plaintext: bool = True,
        connections: int = CONNECTIONS,
        frame_bytes: int = FRAME_BYTES,
        largest_frame: int = LARGEST_FRAME,
    ) -> None:
        self._door = door
        self._audit = audit
        self._tls = tls
        self._plaintext = plaintext
        self._largest = largest_frame
        self._shares = Shares(connections)
        self._budget = FrameBudget(frame_bytes)
        self._strangers = FrameBudget(frame_bytes // STRANGERS_PART)
        self._sessions: dict[RemotingSession, None] = {}
        self._arriving: set[asyncio.Task[None]] = set()
        self._left_over: set[asyncio.Task[None]] = set()  # requests of connections that have ended
        self._tasks: list[asyncio.Task[None]] = []
        self._acceptor = Acceptor(
            Port("rocketmq_clients.listen", "RocketMQ's clients"),
            self._shares,
            places=self._sessions,
            end=RemotingSession.close_when_answered,
            begun=self._begin,
            turned_away=lambda peer: self._say(peer, NO_PLACE),
        )
        self._none_left = asyncio.Event()
        self._on_stop: list[Callable[[], None]] = []

    @property
    def connections(self) -> int:
        """Those that are open, or begin."""
        return len(self._sessions) + len(self._arriving)

    @property
    def held_bytes(self) -> int:
        """Of large requests that are being received or served."""
        return self._budget.held_bytes + self._strangers.held_bytes

    @property
    def port(self) -> int:
        """0 before it listens, and after the stop."""
        return self._acceptor.port

    def start(self, endpoint: str) -> None:
        """Listen on host:port, port 0 for any. Raises ListenError."""
        self._acceptor.start(endpoint)
        self.run_beside(self._look(), "remoting-look")

    # ---- the end

    def on_stop(self, answer_parked: Callable[[], None]) -> None:
        """Have this called when a planned stop begins: what is parked is to be answered, and
        nothing is to be parked from then on. A client waits up to 30 s for an answer that a
        connection took along when it ended."""
        self._on_stop.append(answer_parked)

    def run_beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` as a task until the stop."""
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    def answer_parked(self) -> None:
        """The first step of a stop; connections stay open."""
        for each in self._on_stop:
            try:
                each()
            except Exception:
                logger.exception("parked requests of RocketMQ's clients are not answered")

    async def stop(self, grace_s: float) -> None:
        """Take no connection; end those that are open when their requests are answered, or after
        `grace_s`."""
        await self._acceptor.stop()
        for task in self._tasks:
            await cancelled(task)
        for arriving in list(self._arriving):
            arriving.cancel()
        self.answer_parked()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        for session in list(self._sessions):
            await session.idle(deadline - loop.time())
        if self._left_over and deadline > loop.time():
            await asyncio.wait(self._left_over, timeout=deadline - loop.time())
        for session in list(self._sessions):
            session.close_when_answered()
        self._none_left.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S if self._sessions else 0):
                await self._none_left.wait()
        for session in list(self._sessions):
            session.abort()
        for task in self._left_over:
            task.cancel()
        await asyncio.sleep(0)

    # ---- connections begin

    def _begin(self, sock: socket.socket, peer: str) -> None:
        host = host_of(peer)
        self._shares.take(host)
        begun: list[RemotingSession] = []
        task = asyncio.get_running_loop().create_task(self._arrive(sock, peer, begun.append))
        self._arriving.add(task)

        def ended(_: object) -> None:
            self._arriving.discard(task)
            if not task.cancelled():
                task.exception()  # why none began; there is no one to be told
            if not begun:
                sock.close()
                self._shares.give_back(host)

        task.add_done_callback(ended)

    async def _arrive(
        self, sock: socket.socket, peer: str, begun: Callable[[RemotingSession], None]
    ) -> None:
        """Raises OSError or TimeoutError where no session begins."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(FIRST_S):
            first = await _first_byte(sock)
        secured = first == TLS_BYTE
        if secured and self._tls is None:
            self._turn_away(peer, NO_TLS)
        if not secured and not self._plaintext:
            self._turn_away(peer, TLS_ALONE)

        def session() -> RemotingSession:
            def on_begin(session: RemotingSession) -> None:
                begun(session)
                self._sessions[session] = None

            return RemotingSession(
                self._door,
                self._budget,
                self._strangers,
                largest=self._largest,
                left_out=self._audit.left_out,
                on_begin=on_begin,
                on_end=self._ended,
            )

        await loop.connect_accepted_socket(
            session,
            sock,
            ssl=self._tls if secured else None,
            ssl_handshake_timeout=FIRST_S if secured else None,
        )

    def _turn_away(self, peer: str, reason: str) -> None:
        self._say(peer, reason)
        raise ConnectionError(reason)

    def _say(self, peer: str, reason: str) -> None:
        if (more := self._audit.left_out(peer)) is not None:
            logger.warning(
                "a RocketMQ client is turned away: peer=%s reason=%s%s", peer, reason, more
            )

    def _ended(self, session: RemotingSession, requests: set["asyncio.Task[None]"]) -> None:
        del self._sessions[session]
        if not self._sessions:
            self._none_left.set()
        self._shares.give_back(session.host)
        for task in requests:
            self._left_over.add(task)
            task.add_done_callback(self._left_over.discard)

    async def _look(self) -> None:
        """End connections whose time is over."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            now = loop.time()
            for session in [each for each in self._sessions if each.overdue(now)]:
                session.abort()


async def _first_byte(sock: socket.socket) -> int:
    """The first byte that a client sends, which stays to be received. Raises OSError."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            readable = loop.create_future()
            loop.add_reader(sock, _done, readable)
            try:
                await readable
            finally:
                loop.remove_reader(sock)
            continue
        if not data:
            raise ConnectionError("the client has closed its connection")
        return data[0]


def _done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
