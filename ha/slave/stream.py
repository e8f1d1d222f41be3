"""One stream of a slave: gRPC and the store around a SlaveSession.

    call.read ──▶ session ──▶ work ──▶ store thread: run ──▶ flush thread: settle ──▶ session
    call.write ◀── newest acknowledgement ◀─────────────────────────────────────────────┘

Receiving, writing and flushing run at once, up to the master's window. What came in during one
write is the next batch, what was written during one fdatasync is the next flush, so both grow with
the load. A small batch is written and flushed in one call: a client is waiting for that put.

The window covers what is written and not yet flushed; what waits in memory to be written has a
bound of its own, above which nothing is read, so that HTTP/2 makes the master wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, TypeVar

from grpc import StatusCode, aio

from tandemlog.format.errors import FormatError
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.errors import FlushFailedError, StoreError

from ..config import HaConfig
from ..errors import HaError, without_frames
from ..protocol.frames import (
    Ack,
    Hello,
    HelloAction,
    Metadata,
    SlaveFrame,
    decode_master_frame,
    encode_slave_frame,
)
from .session import (
    Append,
    Disconnect,
    ReplaceTable,
    SeeMembers,
    Send,
    SlaveAction,
    SlaveSession,
    StoreAction,
)
from .store import Outcome, SlaveStore

logger = logging.getLogger(__name__)

TICK_S = 0.1
SETTLE_APART_BYTES = 512 << 10
"""From this size on a batch is flushed in the other thread."""
SILENT = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED)
READ_AHEAD_BYTES = 32 << 20
"""Bytes of log that may wait to be written."""

Call: TypeAlias = "aio.StreamStreamCall[bytes, bytes]"
T = TypeVar("T")


class StoreThreads:
    """The threads that may block on the slave's disk; `wait` for all before a new stream. Tables
    have one of their own: a large one would hold up the log."""

    def __init__(self) -> None:
        self._write = ThreadPoolExecutor(1, thread_name_prefix="replication-write")
        self._flush = ThreadPoolExecutor(1, thread_name_prefix="replication-flush")
        self._table = ThreadPoolExecutor(1, thread_name_prefix="replication-table")

    async def write(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._write, call)

    async def flush(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._flush, call)

    async def table(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._table, call)

    async def wait(self) -> None:
        """Until what an ended stream has left in the threads is done."""
        await self.write(_nothing)
        await self.flush(_nothing)
        await self.table(_nothing)

    async def close(self) -> None:
        """End the threads. A thread's current work may take as long as the disk does; the loop
        runs meanwhile."""
        for pool in (self._write, self._flush, self._table):
            await asyncio.to_thread(pool.shutdown, wait=True)


class SlaveStream:
    """See the module. `run` ends with the stream; the callbacks tell what happens on the way."""

    def __init__(
        self,
        session: SlaveSession,
        stored: SlaveStore,
        threads: StoreThreads,
        config: HaConfig,
        clock: Clock,
        *,
        joined: Callable[[SlaveSession], None],
        failed: Callable[[str], None],
        told: Callable[[Sequence[common_pb2.NodeStatus]], None],
    ) -> None:
        self.session = session
        self.followed = False
        self._stored = stored
        self._threads = threads
        self._config = config
        self._clock = clock
        self._joined = joined
        self._failed = failed
        self._told = told
        self._work: deque[StoreAction] = deque()
        self._tables: deque[Metadata] = deque()
        self._has_table = asyncio.Event()
        self._waiting_bytes = 0
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._unsettled = asyncio.Event()
        self._hello: Hello | None = None
        self._ack: Ack | None = None
        self._has_frame = asyncio.Event()
        self._ended: asyncio.Future[Disconnect] = asyncio.get_running_loop().create_future()

    async def run(self, call: Call) -> Disconnect:
        """Greet and follow; returns why the stream ended.

        Raises DivergedError, and HaError if the store could not take the bytes for now.
        """
        loops = (
            self._read(call),
            self._send(call),
            self._store(),
            self._settle(),
            self._take_tables(),
            self._tick(),
        )
        tasks = [asyncio.create_task(loop) for loop in loops]
        ends: list[asyncio.Future[Disconnect] | asyncio.Task[None]] = [self._ended, *tasks]
        try:
            self._obey(self.session.start(self._clock.monotonic()))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return await self._finish(tasks)
        except (HaError, StoreError) as error:
            raise without_frames(error) from error.__cause__
        finally:
            for task in tasks:
                task.cancel()
            call.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            del task
            # a task has the error, the error this frame: not even they may be a ring
            tasks.clear()
            ends.clear()
            self._work.clear()

    async def _finish(self, tasks: Sequence[asyncio.Task[None]]) -> Disconnect:
        """Why the stream is over; what has been received is stored first."""
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
        why = self._ended.result() if self._ended.done() else Disconnect("the stream ended")
        rest = [*self._work]
        self._work.clear()
        # Not while it prepares: its checks may be failing in the thread at this moment, and
        # nothing may be appended to a log that has diverged.
        if rest and (self.followed or self.resync) and not self.session.fault:
            await self._threads.write(partial(self._stored.run_settled, rest))
        return why

    @property
    def resync(self) -> bool:
        """Whether this stream ended because the log starts over."""
        answer = self.session.answer
        return answer is not None and answer.action is HelloAction.RESYNC

    # --- the loops

    async def _read(self, call: Call) -> None:
        try:
            while True:
                data = await call.read()
                if not isinstance(data, bytes):
                    self._end(Disconnect("the master ended the stream"))
                    return
                frame = decode_master_frame(data)
                self._obey(self.session.receive(frame, self._clock.monotonic()))
                await self._has_room.wait()
        except aio.AioRpcError as error:
            self._end(rpc_end(error))

    async def _send(self, call: Call) -> None:
        """The hello, then the newest acknowledgement: one that still waits is replaced."""
        try:
            while True:
                await self._has_frame.wait()
                self._has_frame.clear()
                hello, self._hello = self._hello, None
                ack, self._ack = self._ack, None
                for frame in (hello, ack):
                    if frame is not None:
                        await call.write(encode_slave_frame(frame))
        except aio.AioRpcError as error:
            self._end(rpc_end(error))
        except asyncio.InvalidStateError:
            self._end(Disconnect("the stream to the master broke"))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock.monotonic()
            if not self._has_room.is_set():
                # nothing is read on purpose: the master's silence is this slave's own
                self.session.heard_at = now
            self._obey(self.session.tick(now))

    async def _store(self) -> None:
        """Give the store what there is, batch by batch."""
        while True:
            await self._has_work.wait()
            batch, size = take(self._work, self._config.flush_batch_bytes)
            if not self._work:
                self._has_work.clear()
            self._count(-size)
            try:
                if size >= SETTLE_APART_BYTES and self.followed:
                    await self._threads.write(partial(self._stored.run, batch))
                    self._unsettled.set()
                    continue
                run = partial(self._stored.run_settled, batch)
                prepared, outcome = await self._threads.write(run)
                self._progress(outcome, prepared=prepared)
            except (StoreError, FormatError, OSError) as error:
                await self._fault(error)

    async def _settle(self) -> None:
        """Flush what has been written meanwhile, and acknowledge it."""
        while True:
            await self._unsettled.wait()
            self._unsettled.clear()
            try:
                self._progress(await self._threads.flush(self._stored.settle), prepared=False)
            except StoreError as error:
                await self._fault(error)

    async def _take_tables(self) -> None:
        """Put the master's tables in place of the own ones, once the log is cut to the master's:
        cutting lowers consumer offsets. One that cannot be read is the master's to mend, and no
        reason to take no log."""
        while True:
            await self._has_table.wait()
            if not self._tables or not self.followed:
                self._has_table.clear()
                continue
            table = self._tables.popleft()
            self._count(-len(table.json))
            try:
                await self._threads.table(partial(self._stored.run, [ReplaceTable(table)]))
            except FormatError as error:
                logger.error("table %s of the master cannot be read: %s", table.kind, error)
            except (StoreError, OSError) as error:
                await self._fault(error)
            else:
                now = self._clock.monotonic()
                self._obey(self.session.taken(table.kind, table.version, now))

    def _progress(self, outcome: Outcome, *, prepared: bool) -> None:
        now = self._clock.monotonic()
        if prepared:
            self._obey(self.session.prepared(outcome.durable, outcome.reput, now))
            self.followed = True
            self._has_table.set()
            self._joined(self.session)
        else:
            self._obey(self.session.stored(outcome.durable, outcome.reput, now))

    async def _fault(self, fault: Exception) -> None:
        """Tell the master; permanently after a failed fsync, else end the stream and try again."""
        self._work.clear()
        self._has_work.clear()
        self._tables.clear()
        self._count(-self._waiting_bytes)
        if not self.session.fault:
            self._failed(str(fault))
            self._obey(self.session.failed(str(fault), self._clock.monotonic()))
        if not isinstance(fault, FlushFailedError):
            # a full disk may get room; the acknowledgement that reports it leaves first
            await asyncio.sleep(TICK_S)
            raise HaError(f"storing the master's bytes failed: {fault}") from fault

    def _obey(self, actions: Sequence[SlaveAction]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._queue(action.frame)
            elif isinstance(action, Disconnect):
                self._end(action)
            elif isinstance(action, SeeMembers):
                self._told(action.nodes)
            elif isinstance(action, ReplaceTable):
                self._count(len(action.update.json))
                self._tables.append(action.update)
                self._has_table.set()
            else:
                if isinstance(action, Append):
                    self._count(len(action.data))
                self._work.append(action)
                if not self.resync:
                    self._has_work.set()
                # else the stream is over, and its end hears whether the log has gone aside

    def _count(self, size: int) -> None:
        """Bytes of log and tables that came to wait, or are no longer waiting."""
        self._waiting_bytes += size
        if self._waiting_bytes > READ_AHEAD_BYTES:
            self._has_room.clear()
        else:
            self._has_room.set()

    def _queue(self, frame: SlaveFrame) -> None:
        if isinstance(frame, Ack):
            self._ack = frame
        else:
            self._hello = frame
        self._has_frame.set()

    def _end(self, why: Disconnect) -> None:
        if not self._ended.done():
            self._ended.set_result(why)


def take(work: deque[StoreAction], limit_bytes: int) -> tuple[list[StoreAction], int]:
    """The next actions, at least one, with at most `limit_bytes` of log, and how many bytes."""
    batch: list[StoreAction] = []
    size = 0
    while work:
        head = work[0]
        length = len(head.data) if isinstance(head, Append) else 0
        if batch and size + length > limit_bytes:
            break
        size += length
        batch.append(work.popleft())
    return batch, size


def rpc_end(fault: aio.AioRpcError) -> Disconnect:
    """The end of a stream that gRPC has broken off: with the status' name and details, in one
    line."""
    details = " ".join((fault.details() or "no details").split())
    return Disconnect(f"{fault.code().name}: {details}", silent=fault.code() in SILENT)


def _nothing() -> None:
    return None
