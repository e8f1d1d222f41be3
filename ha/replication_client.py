"""The slave: connect, follow the master, store its bytes, acknowledge what is durable; for ever.

    gRPC ──frames──▶ session (event loop) ──store actions──▶ worker thread: append, fdatasync
         ◀──acks────        ▲                                        │
                            └──────────── what is durable ───────────┘

Receiving goes on while the worker writes and flushes, up to the master's window. All that came in
meanwhile is one batch with one fdatasync and one acknowledgement. When a stream ends, for whatever
reason, a new one is tried: at once after a resync or a divergence that was found, with growing
pauses while the master cannot be reached, now and then where it refused for good.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

import tenacity
from grpc import aio

from storage.clock import Clock
from storage.errors import FlushFailedError, StoreError
from storage.files import FileSystem, RealFileSystem
from tandemlog.format.errors import FormatError
from tandemlog.v1 import common_pb2

from .config import HaConfig
from .errors import DivergedError, HaError, HandshakeRefusedError
from .frames import Ack, Hello, HelloAction, SlaveFrame, decode_master_frame, encode_slave_frame
from .membership import CATCHING_UP, IN_SYNC, READ_ONLY, STARTING, merged, own_status
from .replication_service import PATH, ReplicationService, refusing_service
from .slave_session import (
    Append,
    Disconnect,
    SeeMembers,
    Send,
    SlaveAction,
    SlaveSession,
    StoreAction,
)
from .slave_store import Outcome, SlaveStore
from .state_file import StateFile, new_incarnation
from .store_port import StorePort

logger = logging.getLogger(__name__)

TICK_S = 0.1
MAX_MESSAGE_BYTES = 64 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # our own back-off decides when to try again
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

T = TypeVar("T")
Call: TypeAlias = "aio.StreamStreamCall[bytes, bytes]"


class StreamEndedError(HaError):
    """A stream is over. `followed`: it had come to follow the master, so nothing is wrong."""

    def __init__(self, reason: str, *, followed: bool) -> None:
        super().__init__(reason)
        self.followed = followed


@dataclass(frozen=True, slots=True)
class FollowState:
    """How the slave is doing. `fault` is empty while it follows, or is about to."""

    name: str = STARTING
    fault: str = ""
    read_only: bool = False
    master_id: str = ""
    epoch: int = 0


class _Stream:
    """One stream: its session, the work for the store, the frames that wait to be sent."""

    def __init__(self, session: SlaveSession) -> None:
        self.session = session
        self.work: deque[StoreAction] = deque()
        self.has_work = asyncio.Event()
        self.hello: Hello | None = None
        self.ack: Ack | None = None
        self.has_frame = asyncio.Event()
        self.ended: asyncio.Future[Disconnect] = asyncio.get_running_loop().create_future()
        self.followed = False

    def send(self, frame: SlaveFrame) -> None:
        """Only the newest acknowledgement matters: one that waits is replaced."""
        if isinstance(frame, Ack):
            self.ack = frame
        else:
            self.hello = frame
        self.has_frame.set()

    def end(self, why: Disconnect) -> None:
        if not self.ended.done():
            self.ended.set_result(why)


class ReplicationSlave:
    """See the module. `run` until it is cancelled; then `close`."""

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
        self.state = FollowState()
        self.servicer: ReplicationService = refusing_service(
            lambda: f"{config.node_id} is a slave; its master is at {config.master_endpoint}"
        )
        self._clock = clock
        self._state_file = StateFile(store.config.directory, files or RealFileSystem())
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="replication")
        self._stored: SlaveStore | None = None
        self._told: Sequence[common_pb2.NodeStatus] = ()
        self._distrust = False
        self._started_at = clock.monotonic()

    async def run(self) -> None:
        """Follow the master until cancelled. Raises StateFileError for a store of another node."""
        try:
            state = await self._blocking(lambda: self._state_file.load(self.config))
            self._stored = SlaveStore(self.store, state, self._state_file.save, new_incarnation)
            await self._blocking(self.store.become_slave)
            while True:
                await self._retrying()(self._follow)
                await asyncio.sleep(self.config.reconnect_min_ms / 1000)
        finally:
            self._worker.shutdown(wait=True)

    def members(self) -> list[common_pb2.NodeStatus]:
        """All nodes as the master told, with this one's row as it is now."""
        stored, state = self._stored, self.state
        own = own_status(
            self.store,
            self.config,
            epoch=state.epoch,
            incarnation=stored.state.incarnation if stored is not None else "",
            uptime_s=self._clock.monotonic() - self._started_at,
        )
        own.role = common_pb2.SLAVE
        rows = merged(self._told, own, state.fault)
        mine = rows[-1]
        mine.state = IN_SYNC if state.name == CATCHING_UP and mine.in_sync else state.name
        mine.detail = state.fault
        return rows

    # --- one stream after the other

    def _retrying(self) -> tenacity.AsyncRetrying:
        config = self.config
        growing = tenacity.wait_random_exponential(
            multiplier=config.reconnect_min_ms / 1000, max=config.reconnect_max_ms / 1000
        )

        def wait(call: tenacity.RetryCallState) -> float:
            failure = call.outcome.exception() if call.outcome is not None else None
            if isinstance(failure, HandshakeRefusedError) and not failure.retry:
                return config.refused_retry_ms / 1000
            return config.reconnect_min_ms / 1000 + growing(call)

        return tenacity.AsyncRetrying(
            wait=wait, retry=tenacity.retry_if_exception_type((HaError, StoreError, OSError))
        )

    async def _follow(self) -> None:
        """One stream from its start to its end; returns where another one is due at once."""
        try:
            await self._one_stream()
        except DivergedError as diverged:
            logger.warning("%s", diverged)
            self._distrust = True
        except StreamEndedError as ended:
            self._lost(str(ended))
            if not ended.followed:
                raise
        except HandshakeRefusedError as refused:
            level = logging.WARNING if refused.retry else logging.ERROR
            logger.log(level, "the master refused this slave: %s", refused.reason)
            self._lost(refused.reason)
            raise
        except (HaError, StoreError, OSError) as fault:
            logger.error("following the master failed: %s", fault)
            self._lost(str(fault))
            raise

    def _lost(self, reason: str) -> None:
        if not self.state.read_only:
            self.state = FollowState(CATCHING_UP, fault=reason)

    async def _one_stream(self) -> None:
        config, stored = self.config, self._stored
        if stored is None:
            raise HaError("the slave is not started")
        hello = Hello(
            config.cluster_id,
            config.node_id,
            stored.state.incarnation,
            endpoint=config.endpoint,
            http_endpoint=config.http_endpoint,
            store_host=config.store_host,
        )
        distrust = self._distrust
        hello, me = await self._blocking(
            lambda: stored.greeting(hello, distrust=distrust, block=config.checksum_block_bytes)
        )
        async with aio.insecure_channel(config.master_endpoint, options=_OPTIONS) as channel:
            call: Call = channel.stream_stream(PATH)()
            stream = _Stream(SlaveSession(hello, me, config, self._clock.monotonic()))
            tasks = [
                asyncio.create_task(self._read(stream, call)),
                asyncio.create_task(self._write(stream, call)),
                asyncio.create_task(self._work(stream, stored)),
                asyncio.create_task(self._tick(stream)),
            ]
            try:
                self._obey(stream, stream.session.start(self._clock.monotonic()))
                ends: list[asyncio.Future[Disconnect] | asyncio.Task[None]] = [stream.ended, *tasks]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                await self._finish(stream, tasks)
            finally:
                for task in tasks:
                    task.cancel()
                call.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _finish(self, stream: _Stream, tasks: list[asyncio.Task[None]]) -> None:
        """Raise why the stream is over; what has been received is stored first."""
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
        why = stream.ended.result() if stream.ended.done() else Disconnect("the stream ended")
        answer = stream.session.answer
        resync = answer is not None and answer.action is HelloAction.RESYNC
        if stream.followed or resync:
            # Not while it prepares: its checks may be failing in the worker at this moment, and
            # nothing may be appended to a log that has diverged.
            await self._store_rest(stream)
        if why.refused:
            raise HandshakeRefusedError(why.reason, retry=why.retry)
        raise StreamEndedError(why.reason, followed=stream.followed or resync)

    async def _store_rest(self, stream: _Stream) -> None:
        stored = self._stored
        tail = [*stream.work]
        stream.work.clear()
        if stored is not None and tail and not stream.session.fault:
            await self._blocking(lambda: stored.run(tail))

    # --- the four loops of a stream

    async def _read(self, stream: _Stream, call: Call) -> None:
        try:
            while True:
                data = await call.read()
                if not isinstance(data, bytes):
                    stream.end(Disconnect("the master has ended the stream"))
                    return
                frame = decode_master_frame(data)
                self._obey(stream, stream.session.receive(frame, self._clock.monotonic()))
        except aio.AioRpcError as fault:
            stream.end(Disconnect(f"{fault.code().name}: {fault.details()}"))

    async def _write(self, stream: _Stream, call: Call) -> None:
        try:
            while True:
                await stream.has_frame.wait()
                stream.has_frame.clear()
                hello, stream.hello = stream.hello, None
                ack, stream.ack = stream.ack, None
                for frame in (hello, ack):
                    if frame is not None:
                        await call.write(encode_slave_frame(frame))
        except (aio.AioRpcError, asyncio.InvalidStateError) as fault:
            stream.end(Disconnect(f"the stream to the master broke: {fault}"))

    async def _tick(self, stream: _Stream) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._obey(stream, stream.session.tick(self._clock.monotonic()))

    async def _work(self, stream: _Stream, stored: SlaveStore) -> None:
        """Give the store what there is, batch by batch, and acknowledge."""
        while True:
            await stream.has_work.wait()
            batch = take(stream.work, self.config.flush_batch_bytes)
            if not stream.work:
                stream.has_work.clear()
            try:
                outcome = await self._blocking(partial(stored.run, batch))
            except FlushFailedError as fault:
                self._fail(stream, str(fault))
                continue
            except (StoreError, FormatError, OSError) as fault:
                # Not for good: a full disk may get room. Tell the master, then try again later.
                self._fail(stream, str(fault))
                await asyncio.sleep(TICK_S)
                raise HaError(f"storing the master's bytes failed: {fault}") from fault
            self._progress(stream, outcome)

    def _progress(self, stream: _Stream, outcome: Outcome) -> None:
        session, now = stream.session, self._clock.monotonic()
        if outcome.prepared:
            self._distrust = False
            self._obey(stream, session.prepared(outcome.durable, outcome.reput, now))
            self._say_joined(stream)
        else:
            self._obey(stream, session.stored(outcome.durable, outcome.reput, now))

    def _say_joined(self, stream: _Stream) -> None:
        stream.followed = True
        answer = stream.session.answer
        if answer is not None:
            self.state = FollowState(CATCHING_UP, master_id=answer.master_id, epoch=answer.epoch)
            logger.info(
                "following %s at %s in epoch %d from %d",
                answer.master_id,
                self.config.master_endpoint,
                answer.epoch,
                answer.offset,
            )

    def _fail(self, stream: _Stream, reason: str) -> None:
        logger.error("this slave stops acknowledging: %s", reason)
        stream.work.clear()
        stream.has_work.clear()
        self.state = replace(self.state, name=READ_ONLY, fault=reason, read_only=True)
        self._obey(stream, stream.session.failed(reason, self._clock.monotonic()))

    def _obey(self, stream: _Stream, actions: Sequence[SlaveAction]) -> None:
        for action in actions:
            if isinstance(action, Send):
                stream.send(action.frame)
            elif isinstance(action, Disconnect):
                stream.end(action)
            elif isinstance(action, SeeMembers):
                self._told = action.nodes
            else:
                stream.work.append(action)
                stream.has_work.set()

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)


def take(work: deque[StoreAction], limit_bytes: int) -> list[StoreAction]:
    """The next actions, at least one, with at most `limit_bytes` of log."""
    batch: list[StoreAction] = []
    size = 0
    while work:
        head = work[0]
        size += len(head.data) if isinstance(head, Append) else 0
        if batch and size > limit_bytes:
            break
        batch.append(work.popleft())
    return batch
