"""One HA connection to a broker: a socket and the store around a FollowSession, by the shell of
ha/intake.py. Above its bound TCP makes the broker wait."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tandemlog_server.ha.intake import Intake, StoreThreads
from tandemlog_server.storage.clock import Clock

from ..wire.client import connected_socket
from ..wire.frames import FrameReader, encode_offset
from .session import Action, Append, Compare, Disconnect, FollowSession, Send, Work
from .store import FollowStore

if TYPE_CHECKING:
    import socket

BATCH_BYTES = 16 << 20


class FollowStream(Intake[FollowSession, FollowStore, str]):
    """See the module. `run` ends with the connection; `compared` is called once the log here is
    known to be the broker's. `end` makes the next connection begin with another look at it. The
    threads may still be at work when `run` returns or raises."""

    BROKEN = (OSError,)

    def __init__(
        self,
        session: FollowSession,
        stored: FollowStore,
        threads: StoreThreads,
        clock: Clock,
        *,
        compared: Callable[[], None],
    ) -> None:
        super().__init__(session, stored, threads, clock, BATCH_BYTES)
        self._compared = compared
        self._frames = FrameReader(session.asked)
        self._link: socket.socket

    async def run(self, host: str, port: int) -> str:
        """Follow; returns why the connection ended. Raises HaError (LogsDifferError among them) and
        StoreError."""
        self._link = await connected_socket(host, port)
        try:
            self._stored.begin(self.session.ask.start)
            return await self._serve()
        finally:
            self._link.close()

    async def _received(self) -> Sequence[Action]:
        loop, run = asyncio.get_running_loop(), None
        while run is None:
            count = await loop.sock_recv_into(self._link, self._frames.room())
            if not count:
                return [Disconnect("the broker closed the connection")]
            run = self._frames.received(count)
        return self.session.receive(run, self._clock.monotonic())

    async def _transmit(self, frame: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._link, frame)

    def _broken(self, error: Exception) -> str:
        text = error.strerror if isinstance(error, OSError) else None
        return f"the connection to the broker broke: {text or error}"

    def _last_work(self, rest: list[Work]) -> Callable[[], object] | None:
        # flushed too: the broker may have ended for ever, and this may be the only copy
        return partial(self._stored.run_and_flush, rest)

    def _durable(self, done: int) -> None:
        if not self.followed:
            self.followed = True
            self._compared()
        self._obey(self.session.stored(done, self._clock.monotonic()))

    def _obey(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._put_out(Send, encode_offset(action.offset))
            elif isinstance(action, Disconnect):
                self.end(action.reason)
            else:
                self._add(action, len(action.data) if isinstance(action, Append | Compare) else 0)
