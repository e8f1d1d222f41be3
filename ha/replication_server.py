"""The master: gRPC streams, the log's positions and time go in, the group decides, this executes.

    log.committed, log.flushed ─┐                       ┌─▶ session loop of each slave: read, send
    slave's frames ─────────────┼─▶ group (event loop) ─┼─▶ store.advance_confirmed
    every 100 ms ───────────────┘                       └─▶ worker thread: state file, tables, CRCs

Everything of the group runs in the event loop; what may block runs in one worker thread. Log bytes
are copied once from the mapped file into the frame that gRPC sends. A session's loop sleeps until
something is there for its slave; nothing polls.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from storage.clock import Clock
from storage.errors import StoreError
from storage.files import FileSystem, RealFileSystem
from tandemlog.v1 import common_pb2

from .chunk_codec import encode_chunk
from .config import HaConfig
from .errors import HaError, NotRunningError
from .frames import Hello, MemberList, decode_slave_frame, encode_master_frame
from .handshake import proven_prefix
from .master_group import MasterGroup
from .master_session import (
    Close,
    MasterAction,
    MasterSession,
    SendAnswer,
    SendChunk,
    SendRefusal,
    SessionState,
)
from .master_term import Term, begin_term, own_position
from .membership import READ_ONLY, RUNNING, own_status, slave_rows
from .metadata_sync import MetadataSource, tables_of
from .replication_service import Context, ReplicationService
from .slave_store import log_crc
from .state_file import StateFile, machine_boot_id
from .store_port import StorePort

if TYPE_CHECKING:
    from .state import InSyncRecord

logger = logging.getLogger(__name__)

TICK_S = 0.1
CLOSE_TIMEOUT_S = 1.0

T = TypeVar("T")


class _Stream:
    """One slave's stream: its session, what waits to be sent, and what wakes its loop."""

    def __init__(self, session: MasterSession) -> None:
        self.session = session
        self.actions: deque[MasterAction] = deque()
        self.wake = asyncio.Event()
        self.tables: dict[str, int] = {}
        self.members_sent = 0
        self.reader_done = False
        self.confirm_timer: asyncio.TimerHandle | None = None


class ReplicationMaster:
    """See the module. Lives in one event loop from `start` to `close`."""

    def __init__(
        self,
        store: StorePort,
        config: HaConfig,
        clock: Clock,
        *,
        files: FileSystem | None = None,
    ) -> None:
        self.store = store
        self.config = config
        self.servicer = ReplicationService(self._replicate)
        self._clock = clock
        self._state_file = StateFile(store.config.directory, files or RealFileSystem())
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="replication")
        self._tables = MetadataSource(tables_of(store))
        self._streams: set[_Stream] = set()
        self._term: Term | None = None
        self._group: MasterGroup | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._unlisten: list[Callable[[], None]] = []
        self._moved_pending = False
        self._members_frame = b""
        self._members_version = 0
        self._members_at = 0.0
        self._tables_at = 0.0
        self._record: InSyncRecord | None = None
        self._started_at = 0.0
        self._closing = False
        self._idle = asyncio.Event()

    @property
    def group(self) -> MasterGroup:
        """Raises NotRunningError before `start`."""
        if self._group is None:
            raise NotRunningError("the replication of this master is not started")
        return self._group

    @property
    def epoch(self) -> int:
        return self.group.view.epoch

    @property
    def confirm(self) -> int:
        """The confirm offset under the in-sync set."""
        return self.group.tracker.value

    async def start(self) -> None:
        """Begin a term in a new epoch. Raises StateFileError and what the store raises."""
        loop = self._loop = asyncio.get_running_loop()
        self._started_at = self._clock.monotonic()
        state = await loop.run_in_executor(self._worker, self._state_file.load, self.config)
        term = self._term = await loop.run_in_executor(
            self._worker,
            begin_term,
            self.store,
            state,
            self._state_file.save,
            self.config,
            machine_boot_id(),
        )
        self._group = MasterGroup(
            self.config,
            term.me,
            term.view,
            term.record,
            own_position(self.store),
            self._clock.monotonic(),
        )
        logger.info(
            "master: cluster=%s node=%s epoch=%d log=%d..%d in_sync=%s",
            self.config.cluster_id,
            self.config.node_id,
            term.view.epoch,
            term.view.min_offset,
            term.view.end_offset,
            sorted(member.node_id for member in term.record.members),
        )
        log = self.store.log
        self._unlisten = [log.committed.listen(self._notify), log.flushed.listen(self._notify)]
        await loop.run_in_executor(self._worker, self._tables.refresh)
        self._moved()
        self._ticker = asyncio.create_task(self._tick_for_ever(), name="replication-tick")

    async def close(self) -> None:
        """End all streams. The gRPC server is the caller's."""
        self._closing = True
        for stop in self._unlisten:
            stop()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        for stream in list(self._streams):
            stream.actions.extend(stream.session.refuse("the master is stopping", retry=True))
            stream.wake.set()
        if self._streams:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), CLOSE_TIMEOUT_S)
        self._worker.shutdown(wait=True)

    def admission(self) -> str | None:
        """Why a put that waits for slaves cannot be taken now; None where it can."""
        return self.group.admission(self._clock.monotonic())

    def members(self) -> list[common_pb2.NodeStatus]:
        """All nodes, this one first."""
        group, now = self.group, self._clock.monotonic()
        own = own_status(
            self.store,
            self.config,
            epoch=group.view.epoch,
            incarnation=group.me.incarnation,
            uptime_s=now - self._started_at,
        )
        failure = self.store.log.flushed.failure
        own.role = common_pb2.MASTER
        own.in_sync = True
        own.state = RUNNING if failure is None else READ_ONLY
        own.detail = str(failure or group.admission(now) or "")
        return [own, *slave_rows(group, now)]

    def metadata_changed(self) -> None:
        """A table has changed: send it at once, not at the next look. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._look_at_tables_next)

    # --- the log moves

    def _notify(self) -> None:
        # In the thread that moved the position; one wake-up for all that moves meanwhile.
        if not self._moved_pending and self._loop is not None:
            self._moved_pending = True
            self._loop.call_soon_threadsafe(self._moved)

    def _moved(self) -> None:
        self._moved_pending = False
        log = self.store.log
        confirm = self.group.positions(
            own=own_position(self.store), end=log.committed.value, minimum=log.min_offset
        )
        self._publish(confirm)

    def _publish(self, confirm: int) -> None:
        if confirm > self.store.confirmed.value:
            self.store.advance_confirmed(confirm)
        self._wake_all()

    def _wake_all(self) -> None:
        for stream in self._streams:
            stream.wake.set()

    # --- time

    async def _tick_for_ever(self) -> None:
        while True:
            try:
                await self._tick()
            except Exception:
                # Whatever it is, the set must go on being looked after.
                logger.exception("the replication's upkeep failed; it is tried again")
            await asyncio.sleep(TICK_S)

    async def _tick(self) -> None:
        now = self._clock.monotonic()
        group = self.group
        group.view.min_offset = self.store.log.min_offset
        self._record = group.tick(now) or self._record
        await self._remember()
        if (now - self._tables_at) * 1000 >= self.config.metadata_interval_ms:
            self._tables_at = now
            await self._blocking(self._tables.refresh)
        if self._streams and (now - self._members_at) * 1000 >= self.config.members_interval_ms:
            self._members_at = now
            self._members_frame = encode_master_frame(MemberList(tuple(self.members())))
            self._members_version += 1
        self._wake_all()

    async def _remember(self) -> None:
        """Make a proposed set durable, and an epoch that was seen elsewhere."""
        term, group, record = self._term, self.group, self._record
        if term is None:
            return
        seen = max(term.state.accepted_epoch, group.seen_epoch)
        if record is None and seen == term.state.accepted_epoch:
            return
        state = replace(term.state, accepted_epoch=seen, record=record or term.state.record)
        await self._blocking(lambda: self._state_file.save(state))
        self._term = replace(term, state=state)
        if record is not None:
            self._record = None
            confirm = group.persisted(record)
            logger.info("in-sync set: %s", sorted(member.node_id for member in record.members))
            self._publish(confirm)

    def _look_at_tables_next(self) -> None:
        self._tables_at = 0.0

    # --- one slave

    async def _replicate(self, requests: AsyncIterator[bytes], context: Context) -> None:
        if self._group is None or self._closing:
            raise NotRunningError("the master is starting or stopping")
        stream = _Stream(self._group.open(self._clock.monotonic()))
        self._streams.add(stream)
        reason = "the slave has ended the stream"
        reader = asyncio.create_task(self._read(stream, requests))
        try:
            await self._serve(stream, context)
            reason = stream.session.closed_reason or reason
        except (StoreError, HaError) as fault:
            reason = str(fault)
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._idle.set()
            self._group.closed(stream.session, reason)
            if stream.confirm_timer is not None:
                stream.confirm_timer.cancel()
            reader.cancel()
            hello = stream.session.hello
            logger.info("slave %s: %s", hello.node_id if hello else "(no hello)", reason)

    async def _read(self, stream: _Stream, requests: AsyncIterator[bytes]) -> None:
        """The slave's frames, into the group."""
        try:
            async for data in requests:
                frame = decode_slave_frame(data)
                if isinstance(frame, Hello) and frame.checksums:
                    frame = await self._compared(frame)
                now = self._clock.monotonic()
                stream.actions.extend(self.group.receive(stream.session, frame, now))
                self._publish(self.group.tracker.value)
        except (StoreError, HaError) as fault:
            stream.actions.extend(stream.session.refuse(str(fault), retry=True))
        finally:
            stream.reader_done = True
            stream.wake.set()

    async def _compared(self, hello: Hello) -> Hello:
        """The hello with how far its checksums equal this log. Reads both logs: takes time."""
        logger.info("slave %s: comparing %d checksums", hello.node_id, len(hello.checksums))
        view = self.group.view
        proven = await self._blocking(
            lambda: proven_prefix(
                hello.checksums, view, lambda start, end: log_crc(self.store, start, end)
            )
        )
        return replace(hello, proven=proven)

    async def _serve(self, stream: _Stream, context: Context) -> None:
        """Send what there is to send until the session is closed."""
        session = stream.session
        while True:
            stream.wake.clear()
            while stream.actions:
                await self._execute(stream, stream.actions.popleft(), context)
            if session.state is SessionState.CLOSED:
                return
            if stream.reader_done:
                return
            if session.streaming:
                await self._send_news(stream, context)
            now = self._clock.monotonic()
            stream.actions.extend(session.tick(now) or session.pump(now))
            if not stream.actions:
                self._arm_confirm(stream, now)
                await stream.wake.wait()

    async def _send_news(self, stream: _Stream, context: Context) -> None:
        """Tables and members that this slave does not have yet."""
        for frame in self._tables.unsent(stream.tables):
            await context.write(frame)
        if stream.members_sent != self._members_version:
            stream.members_sent = self._members_version
            await context.write(self._members_frame)

    def _arm_confirm(self, stream: _Stream, now: float) -> None:
        """Wake the loop when a changed confirm offset may travel alone."""
        session = stream.session
        if not session.streaming or session.confirm_sent >= session.view.confirm:
            return
        if self._loop is not None and stream.confirm_timer is None:

            def fire() -> None:
                stream.confirm_timer = None
                stream.wake.set()

            delay = max(0.0, session.confirm_delay(now))
            stream.confirm_timer = self._loop.call_later(delay, fire)

    async def _execute(self, stream: _Stream, action: MasterAction, context: Context) -> None:
        if isinstance(action, SendChunk):
            data = self.store.log.read(action.offset, action.length) if action.length else b""
            if len(data) != action.length:
                raise HaError(
                    f"the log gave {len(data)} of {action.length} bytes at {action.offset}"
                )
            await context.write(encode_chunk(action.frame(data, self._clock.now_ms())))
        elif isinstance(action, SendAnswer):
            await self._answer(stream, action, context)
        elif isinstance(action, SendRefusal):
            session = stream.session
            logger.log(
                logging.ERROR if session.alarm else logging.WARNING,
                "refused slave %s: %s",
                session.hello.node_id if session.hello else "",
                action.refusal.reason,
            )
            await context.write(encode_master_frame(action.refusal))
        elif isinstance(action, Close):
            stream.session.close(action.reason)

    async def _answer(self, stream: _Stream, action: SendAnswer, context: Context) -> None:
        answer = action.answer
        crc = await self._blocking(lambda: log_crc(self.store, answer.proof_start, answer.offset))
        hello = stream.session.hello
        logger.info(
            "slave %s: %s at %d %s",
            hello.node_id if hello else "",
            answer.action.name.lower(),
            answer.offset,
            answer.reason,
        )
        await context.write(encode_master_frame(replace(answer, proof_crc=crc)))

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)
