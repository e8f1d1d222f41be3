"""One HA connection to a broker: a socket and the store around a FollowSession.

    socket ──▶ frames ──▶ session ──▶ work ──▶ write thread: compare, store ──▶ flush thread
       ▲                                                                            │
       └────────────────────────── i64: durable up to here ◀────────────────────────┘

Receiving, writing and flushing run at once: what came in during one write is the next batch, what
was written during one fdatasync is the next flush. What waits to be written is bounded; above the
bound nothing is read, so that TCP makes the broker wait.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from tandemlog_server.ha.errors import HaError, without_frames
from tandemlog_server.ha.slave.stream import StoreThreads
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.errors import StoreError

from ..wire.client import connected_socket
from ..wire.frames import FrameReader, encode_offset
from .session import Action, Append, Compare, Disconnect, FollowSession, Send, Work
from .store import FollowStore

TICK_S = 0.1
BATCH_BYTES = 16 << 20
SETTLE_APART_BYTES = 512 << 10
"""From this size on a batch is flushed in the other thread."""
READ_AHEAD_BYTES = 32 << 20
"""Log bytes that may wait to be written."""


class FollowStream:
    """See the module. `run` ends with the connection; `compared` is called once the log here is
    known to be the broker's."""

    def __init__(
        self,
        session: FollowSession,
        stored: FollowStore,
        threads: StoreThreads,
        clock: Clock,
        *,
        compared: Callable[[], None],
    ) -> None:
        self.session = session
        self.followed = False
        self._stored = stored
        self._threads = threads
        self._clock = clock
        self._compared = compared
        self._frames = FrameReader(session.asked)
        self._work: deque[Work] = deque()
        self._has_work = asyncio.Event()
        self._waiting_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._unsettled = asyncio.Event()
        self._offset: int | None = None
        self._has_offset = asyncio.Event()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, host: str, port: int) -> str:
        """Follow; returns why the connection ended. Raises HaError (LogsDifferError among them) and
        StoreError."""
        link = await connected_socket(host, port)
        loops = (
            self._read(link), self._send(link), self._store(), self._settle(), self._tick()
        )  # fmt: skip
        tasks = [asyncio.create_task(loop) for loop in loops]
        ends: list[asyncio.Future[str] | asyncio.Task[None]] = [self._ended, *tasks]
        try:
            self._stored.begin(self.session.ask.start)
            self._obey(self.session.start(self._clock.monotonic()))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return await self._finish(tasks)
        except (HaError, StoreError) as error:
            raise without_frames(error) from error.__cause__
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            del task
            # a task has the error, the error this frame: not even they may be a ring
            tasks.clear()
            ends.clear()
            self._work.clear()
            link.close()
            await self._threads.wait()

    async def _finish(self, tasks: Sequence[asyncio.Task[None]]) -> str:
        """Why it is over. What has been received is stored and flushed first: the broker may have
        ended for ever, and this may be the only copy."""
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
        reason = self._ended.result() if self._ended.done() else "the connection ended"
        rest = [*self._work]
        self._work.clear()
        # behind what the thread is at
        await self._threads.write(partial(self._stored.finish, rest))
        return reason

    # --- the loops

    async def _read(self, link: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                count = await loop.sock_recv_into(link, self._frames.room())
                if not count:
                    self.end("the broker closed the connection")
                    return
                run = self._frames.received(count)
                if run is not None:
                    self._obey(self.session.receive(run, self._clock.monotonic()))
                    await self._has_room.wait()
        except OSError as error:
            self.end(f"the connection to the broker broke: {error.strerror or error}")

    async def _send(self, link: socket.socket) -> None:
        """The newest number: one that still waits is replaced."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._has_offset.wait()
                self._has_offset.clear()
                offset, self._offset = self._offset, None
                if offset is not None:
                    await loop.sock_sendall(link, encode_offset(offset))
        except OSError as error:
            self.end(f"the connection to the broker broke: {error.strerror or error}")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock.monotonic()
            if not self._has_room.is_set():
                self.session.stand_still(now)
            self._obey(self.session.tick(now))

    async def _store(self) -> None:
        while True:
            await self._has_work.wait()
            batch, size = self._batch()
            compared = await self._threads.write(partial(self._stored.run, batch))
            self._count(-size)
            if not compared:
                continue
            if not self.followed:
                self.followed = True
                self._compared()
            if size >= SETTLE_APART_BYTES:
                self._unsettled.set()
            else:
                self._settled(await self._threads.write(self._stored.settle))

    async def _settle(self) -> None:
        while True:
            await self._unsettled.wait()
            self._unsettled.clear()
            self._settled(await self._threads.flush(self._stored.settle))

    def _settled(self, durable: int) -> None:
        self._obey(self.session.settled(durable, self._clock.monotonic()))

    def _batch(self) -> tuple[list[Work], int]:
        """The next pieces of work, at least one, and how many bytes of log they have."""
        batch: list[Work] = []
        size = 0
        while self._work and (not batch or size < BATCH_BYTES):
            each = self._work.popleft()
            batch.append(each)
            size += _size_of(each)
        if not self._work:
            self._has_work.clear()
        return batch, size

    def _obey(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._offset = action.offset
                self._has_offset.set()
            elif isinstance(action, Disconnect):
                self.end(action.reason)
            else:
                self._count(_size_of(action))
                self._work.append(action)
                self._has_work.set()

    def _count(self, size: int) -> None:
        self._waiting_bytes += size
        if self._waiting_bytes > READ_AHEAD_BYTES:
            self._has_room.clear()
        else:
            self._has_room.set()

    def end(self, reason: str) -> None:
        """Close the connection; the next one begins with another look at the broker."""
        if not self._ended.done():
            self._ended.set_result(reason)


def _size_of(work: Work) -> int:
    return len(work.data) if isinstance(work, Append | Compare) else 0
