"""One slave's stream on the master: gRPC and the log around a MasterSession.

    requests ──▶ session (through the group) ──▶ actions ──▶ read the log, send
    wake: the log has grown, the confirm offset moved, a table changed, a tick, a frame came

The loop sleeps until there is something to send to its slave; it does not poll. Log bytes are
copied once, from the mapped file into the frame that gRPC sends.

Comparing a slave's checksums reads as much of the log as the slave holds, which may take minutes.
It runs in a thread. Until it is done, the list of members serves as a heartbeat; if the stream
ends, the comparison ends too.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.errors import StoreError

from ..config import HaConfig
from ..errors import HaError
from ..protocol.chunk_codec import encode_chunk
from ..protocol.frames import Answer, Hello, MemberList, decode_slave_frame, encode_master_frame
from ..protocol.handshake import proven_prefix
from ..protocol.log_crc import log_crc
from ..protocol.prologue import prologue_frames
from ..protocol.replication_service import Context
from ..store_port import StorePort
from .master_group import MasterGroup
from .metadata_sync import MetadataSource, TableCursor
from .session import (
    Close,
    MasterAction,
    MasterSession,
    SendAnswer,
    SendChunk,
    SendPrologue,
    SendRefusal,
    SessionState,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")


class StreamHost(Protocol):
    """What a stream needs of its master."""

    @property
    def store(self) -> StorePort: ...

    @property
    def group(self) -> MasterGroup: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> HaConfig: ...

    def members(self) -> list[common_pb2.NodeStatus]:
        """All nodes, the master first."""
        ...

    def confirm_changed(self) -> None:
        """A frame of a slave may have moved the confirm offset."""
        ...

    @property
    def tables(self) -> MetadataSource: ...

    def members_frame(self) -> tuple[int, bytes]:
        """The list of members as a frame, and its version."""
        ...

    def let_in(self, hello: Hello) -> None:
        """Raises HaError if there are too many streams for one of this node."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """While a hello is looked at that reads much of the log. Raises HaError if too many
        are."""
        ...

    def short_read(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run in a thread what reads a little of the log."""
        ...

    def long_read(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run in another thread what reads much of the log."""
        ...


class MasterStream:
    """See the module. `serve` ends with the stream."""

    def __init__(self, host: StreamHost) -> None:
        self.session: MasterSession = host.group.open(host.clock.monotonic())
        self.wake = asyncio.Event()
        self._host = host
        self._actions: deque[MasterAction] = deque()
        self._tables = TableCursor(host.tables)
        self._members_sent = 0
        self._comparing = False
        self._greeted = False
        self._alive_at = 0.0
        self._over = False
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None

    @property
    def name(self) -> str:
        hello = self.session.hello
        return hello.node_id if hello is not None else "(no hello)"

    async def serve(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Until the session is closed, the slave ends the stream, or gRPC cancels this."""
        reason, level = "the stream ended", logging.INFO
        reader = asyncio.create_task(self._read(requests))
        try:
            await self._send(context)
            reason = self.session.closed_reason or reason
        except StoreError as error:
            reason, level = str(error), logging.WARNING
        except HaError as error:
            reason = str(error)
        finally:
            self._over = True
            self._host.group.closed(self.session, reason)
            if self._confirm_timer is not None:
                self._confirm_timer.cancel()
            reader.cancel()
            logger.log(level, "slave %s: %s", self.name, reason)
            if self._writing is not None:
                self._writing.cancel()
                await asyncio.gather(self._writing, return_exceptions=True)
            (ended,) = await asyncio.gather(reader, return_exceptions=True)
            if isinstance(ended, Exception):
                logger.error("reading slave %s failed", self.name, exc_info=ended)

    def refuse(self, reason: str) -> None:
        """End the stream; the slave may try again."""
        self._actions.extend(self.session.refuse(reason, retry=True))
        self.wake.set()

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        """The slave's frames, into the group."""
        host = self._host
        try:
            async for data in requests:
                frame = decode_slave_frame(data)
                if isinstance(frame, Hello):
                    frame = await self._prepared(frame)
                now = host.clock.monotonic()
                self._actions.extend(host.group.receive(self.session, frame, now))
                host.confirm_changed()
        except (StoreError, HaError) as error:
            self.refuse(str(error))
        finally:
            self._over = True
            self.wake.set()

    async def _prepared(self, hello: Hello) -> Hello:
        """The hello, with what only this log can tell about it. One per stream, and few at a time:
        each may read all of the log. Raises HaError if it has to wait for its turn."""
        if self._greeted:
            return hello  # a second one, which the session refuses
        self._greeted = True
        self._host.let_in(hello)
        if not hello.checksums and hello.doubted_offset is None:
            return hello
        with self._host.reading():
            self._comparing = True
            try:
                return await self._examined(await self._compared(hello))
            finally:
                self._comparing = False

    async def _examined(self, hello: Hello) -> Hello:
        """With how far this log has no record either where the slave has met none."""
        offset = hello.doubted_offset
        if offset is None or offset != hello.max_offset:
            return hello
        store = self._host.store
        if not store.log.min_offset <= offset < store.log.committed.value:
            return hello
        until = await self._host.long_read(partial(store.damage_end, offset))
        return replace(hello, damaged_until=until)

    async def _compared(self, hello: Hello) -> Hello:
        """With how far its checksums equal this log: reads all of it."""
        if not hello.checksums:
            return hello
        logger.info("slave %s: comparing %d checksums", hello.node_id, len(hello.checksums))
        compare = partial(proven_prefix, hello.checksums, self._host.group.view, self._block_crc)
        return replace(hello, proven=await self._host.long_read(compare))

    def _block_crc(self, start: int, end: int) -> int:
        """One block of a comparison; in the reading thread."""
        if self._over:
            raise HaError("the stream has ended, the comparison is no longer needed")
        return log_crc(self._host.store, start, end)

    async def _send(self, context: Context) -> None:
        """Send what there is to send until the session is closed."""
        session, clock = self.session, self._host.clock
        while True:
            self.wake.clear()
            while self._actions:
                await self._execute(self._actions.popleft(), context)
            if session.state is SessionState.CLOSED or self._over:
                await self._written()
                return
            if self._comparing:
                await self._show_life(context)
            sent_beside = session.streaming and await self._send_beside(context)
            now = clock.monotonic()
            if not self._comparing:
                self._actions.extend(session.tick(now) or session.pump(now))
            if not self._actions and not sent_beside:
                self._arm_confirm(now)
                await self.wake.wait()

    async def _send_beside(self, context: Context) -> bool:
        """Send what there is beside the log: the members, and one piece of a table, so that log
        goes between two. Whether there was any."""
        version, members = self._host.members_frame()
        fresh = version != self._members_sent
        if fresh:
            self._members_sent = version
            await self._write(context, members)
        piece = self._tables.frame()
        if piece is not None:
            await self._write(context, piece)
        return fresh or piece is not None

    async def _show_life(self, context: Context) -> None:
        """The members, as often as a heartbeat: nothing else may come before the answer."""
        now = self._host.clock.monotonic()
        if (now - self._alive_at) * 1000 >= self._host.config.heartbeat_ms:
            self._alive_at = now
            members = encode_master_frame(MemberList(tuple(self._host.members())))
            await self._write(context, members)

    def _arm_confirm(self, now: float) -> None:
        """Wake the loop when a changed confirm offset may travel alone."""
        session = self.session
        if not session.streaming or session.confirm_sent >= session.view.confirm:
            return
        if self._confirm_timer is None:
            delay = max(0.0, session.confirm_delay(now))
            self._confirm_timer = asyncio.get_running_loop().call_later(delay, self._confirm_due)

    def _confirm_due(self) -> None:
        self._confirm_timer = None
        self.wake.set()

    async def _write(self, context: Context, frame: bytes) -> None:
        """Begin to send a frame; the next one is made while this one is on its way."""
        await self._written()
        self._writing = asyncio.ensure_future(context.write(frame))

    async def _written(self) -> None:
        """Wait for the frame that is on its way; raises what its sending has raised."""
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    async def _execute(self, action: MasterAction, context: Context) -> None:
        if isinstance(action, SendChunk):
            await self._write(context, await self._read_chunk(action))
        elif isinstance(action, SendAnswer):
            await self._write(context, encode_master_frame(await self._proven(action.answer)))
        elif isinstance(action, SendPrologue):
            await self._send_prologue(action.offset, context)
        elif isinstance(action, SendRefusal):
            level = logging.ERROR if self.session.alarm else logging.WARNING
            what = "alarm: refused" if self.session.alarm else "refused"
            logger.log(level, "%s slave %s: %s", what, self.name, action.refusal.reason)
            await self._write(context, encode_master_frame(action.refusal))
        elif isinstance(action, Close):
            self.session.close(action.reason)

    async def _send_prologue(self, offset: int, context: Context) -> None:
        """Of millions of queues it takes longer to put together than a slave waits for a sign."""
        host = self._host
        making = asyncio.ensure_future(host.long_read(partial(prologue_frames, host.store, offset)))
        try:
            while not making.done():
                await asyncio.wait((making,), timeout=host.config.heartbeat_ms / 1000)
                if self._over:
                    raise HaError("the stream has ended, the prologue is no longer needed")
                await self._show_life(context)
        except BaseException:
            making.cancel()
            raise
        for frame in making.result():
            await self._write(context, frame)

    async def _read_chunk(self, action: SendChunk) -> bytes:
        """A slave that is far behind reads what only the disk has: not in the loop, where all the
        others would wait with it."""
        if self._host.store.log.in_memory(action.offset, action.length):
            return self._chunk(action)
        return await self._host.short_read(partial(self._chunk, action))

    def _chunk(self, action: SendChunk) -> bytes:
        log = self._host.store.log
        data = log.read(action.offset, action.length) if action.length else b""
        if len(data) != action.length:
            raise HaError(
                f"only {len(data)} of {action.length} bytes of the log could be read at "
                f"{action.offset}"
            )
        return encode_chunk(action.frame(data, self._host.clock.now_ms()))

    async def _proven(self, answer: Answer) -> Answer:
        """The answer with the CRC that proves equal bytes below its offset."""
        store = self._host.store
        crc = await self._host.short_read(
            partial(log_crc, store, answer.proof_start, answer.offset)
        )
        name = answer.action.name.lower()
        logger.info("slave %s: %s at %d %s", self.name, name, answer.offset, answer.reason)
        return replace(answer, proof_crc=crc)
