"""Data connections: puts and pulls over plain TCP beside gRPC, for a node without TLS.

    gRPC     DescribeCluster ─▶ data_port, data_key         a client that knows neither stays there
    TCP      accept ─▶ DataSession ─▶ the door ─▶ puts, pulls

gRPC carries everything, puts and pulls too. But a request of 300 messages costs client and node
together 0.3 ms of processor time by gRPC, and a quarter of that here; a gigabyte of answers costs
1.2 s, and a third of that here. So clients put and read here, and go back to gRPC if that does not
work (docs/decisions/0043-data-connections.md). Nothing can be asked here that cannot be asked
there, and the same door looks at each call.
"""

import asyncio
import os
import socket

from tandemlog.transport.data_frames import KEY_BYTES
from tandemlog_server.storage.shares import Shares

from ..access.doorkeeper import Doorkeeper
from ..process.machine_bounds import DATA_CONNECTIONS
from .acceptor import Acceptor, Port
from .data_session import FRAME_BYTES, DataMethods, DataSession
from .frame_budget import FrameBudget


class DataServer:
    """See the module. `start`, then `stop`. `connections` may be open at a time, of which a host
    has its share: above it a new one takes the place of its oldest idle one. `frame_bytes` is what
    the frames of all of them may hold."""

    def __init__(
        self,
        methods: DataMethods,
        keeper: Doorkeeper,
        *,
        largest_put: int,
        connections: int = DATA_CONNECTIONS,
        frame_bytes: int = FRAME_BYTES,
    ) -> None:
        self._methods = methods
        self._keeper = keeper
        self._largest_put = largest_put
        self.key = os.urandom(KEY_BYTES)
        """Of this process, by which a client knows that it came to this node."""
        self.port = 0
        """0 before it listens, and after the stop."""
        self._shares = Shares(connections)
        self._budget = FrameBudget(frame_bytes)
        self._sessions: dict[DataSession, asyncio.Task[None]] = {}
        # a client that finds no place stays with gRPC
        self._acceptor = Acceptor(
            Port("data_listen", "data connections"),
            self._shares,
            places=self._sessions,
            end=DataSession.close,
            begun=self._begin,
        )

    @property
    def connections(self) -> int:
        return len(self._sessions)

    def start(self, endpoint: str) -> None:
        """Listen on host:port, port 0 for any. Raises ListenError."""
        self._acceptor.start(endpoint)
        self.port = self._acceptor.port

    async def stop(self, grace_s: float) -> None:
        """Take no connection; end those that are open when their calls are done, or after
        `grace_s`."""
        self.port = 0
        await self._acceptor.stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_s
        for session in list(self._sessions):
            await session.idle(deadline - loop.time())
        # not by closing their sockets: one that waits for its stream would not notice
        tasks = list(self._sessions.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, sock: socket.socket, peer: str) -> None:
        keeper = self._keeper if self._keeper.active else None
        session = DataSession(
            sock,
            peer,
            self.key,
            self._methods,
            keeper,
            largest_put=self._largest_put,
            left_out=self._keeper.audit.left_out,
            budget=self._budget,
        )
        task = asyncio.get_running_loop().create_task(session.run(), name="data-session")
        self._sessions[session] = task
        self._shares.take(session.host)

        def ended(_: object) -> None:
            self._sessions.pop(session, None)
            self._shares.give_back(session.host)

        task.add_done_callback(ended)
