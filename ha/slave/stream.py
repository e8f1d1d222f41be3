"""One stream of a slave: gRPC and the store around a SlaveSession, by the shell of intake.py.

The master's window covers what is written and not yet flushed; above intake.py's bound HTTP/2 makes
the master wait. Tables are taken beside the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from grpc import StatusCode, aio

from tandemlog.format.errors import FormatError
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.errors import FlushFailedError, StoreError

from ..config import HaConfig
from ..errors import HaError
from ..intake import TICK_S, Intake, StoreThreads
from ..protocol.frames import HelloAction, Metadata, decode_master_frame, encode_slave_frame
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

SILENT = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED)

Call: TypeAlias = "aio.StreamStreamCall[bytes, bytes]"


class SlaveStream(Intake[SlaveSession, SlaveStore, Disconnect]):
    """See the module. `run` ends with the stream; the callbacks report what happens meanwhile."""

    BROKEN = (aio.AioRpcError, asyncio.InvalidStateError)

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
        members_came: Callable[[Sequence[common_pb2.NodeStatus]], None],
    ) -> None:
        super().__init__(session, stored, threads, clock, config.flush_batch_bytes)
        self._joined = joined
        self._failed = failed
        self._members_came = members_came
        self._tables: deque[Metadata] = deque()
        self._has_table = asyncio.Event()
        self._call: Call

    async def run(self, call: Call) -> Disconnect:
        """Greet and follow; returns why the stream ended.

        Raises DivergedError, and HaError if the store could not take the bytes for now.
        """
        self._call = call
        try:
            return await self._serve(self._replace_tables())
        finally:
            call.cancel()

    @property
    def resync(self) -> bool:
        """Whether this stream ended because the log starts over."""
        answer = self.session.answer
        return answer is not None and answer.action is HelloAction.RESYNC

    async def _received(self) -> Sequence[SlaveAction]:
        data = await self._call.read()
        if not isinstance(data, bytes):
            return [Disconnect("the master ended the stream")]
        return self.session.receive(decode_master_frame(data), self._clock.monotonic())

    async def _transmit(self, frame: bytes) -> None:
        await self._call.write(frame)

    def _broken(self, error: Exception) -> Disconnect:
        if isinstance(error, aio.AioRpcError):
            return rpc_end(error)
        return Disconnect("the stream to the master broke")

    def _last_work(self, rest: list[StoreAction]) -> Callable[[], object] | None:
        # Not while it prepares: its checks may be failing in the thread at this moment, and
        # nothing may be appended to a log that has diverged.
        may = rest and (self.followed or self.resync) and not self.session.fault
        return partial(self._stored.run_and_flush, rest) if may else None

    def _durable(self, done: Outcome) -> None:
        now = self._clock.monotonic()
        if self.followed:
            self._obey(self.session.stored(done.durable, done.reput, now))
            return
        self._obey(self.session.prepared(done.durable, done.reput, now))
        self.followed = True
        self._has_table.set()
        self._joined(self.session)

    async def _fault(self, error: Exception) -> None:
        """Tell the master; permanently after a failed fsync, else end the stream and try again."""
        self._drop_work()
        while self._tables:
            self._count(-len(self._tables.popleft().json))
        if not self.session.fault:
            self._failed(str(error))
            self._obey(self.session.failed(str(error), self._clock.monotonic()))
        if not isinstance(error, FlushFailedError):
            # a full disk may get room; the acknowledgement that reports it leaves first
            await asyncio.sleep(TICK_S)
            raise HaError(f"storing the master's bytes failed: {error}") from error

    async def _replace_tables(self) -> None:
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
                self._obey(self.session.table_replaced(table.kind, table.version, now))

    def _obey(self, actions: Sequence[SlaveAction]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self._put_out(type(action.frame), encode_slave_frame(action.frame))
            elif isinstance(action, Disconnect):
                self.end(action)
            elif isinstance(action, SeeMembers):
                self._members_came(action.nodes)
            elif isinstance(action, ReplaceTable):
                self._count(len(action.update.json))
                self._tables.append(action.update)
                self._has_table.set()
            else:
                self._add(action, len(action.data) if isinstance(action, Append) else 0)


def rpc_end(fault: aio.AioRpcError) -> Disconnect:
    """The end of a stream that gRPC has broken off: with the status' name and details, in one
    line."""
    details = " ".join((fault.details() or "no details").split())
    return Disconnect(f"{fault.code().name}: {details}", silent=fault.code() in SILENT)
