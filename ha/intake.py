"""What a slave and a follower take in: the shell around a session that decides, and a store.

    connection ──▶ session ──▶ work ──▶ write thread: run ──▶ flush thread: flush ──▶ session
    connection ◀── newest frame of each kind ◀────────────────────────────────────────────┘

Receiving, writing and flushing run at once. What came in during one write is the next batch, what
was written during one fdatasync is the next flush, so both grow with the load. A small batch is
written and flushed in one call: a client is waiting for that put.

What is not written yet has a bound, above which nothing is read, so that the other side must wait;
its silence then does not count. What has come is stored before an ended connection is over.

After a failure in a thread nothing more of that stream is written, and nothing is acknowledged: the
next batch continues where the failed one should have ended.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

import tenacity

from tandemlog.format.errors import FormatError
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.errors import StoreError

from .errors import HaError, without_frames

TICK_S = 0.1
FLUSH_APART_BYTES = 512 << 10
"""From this size on a batch is flushed in the other thread."""
READ_AHEAD_BYTES = 48 << 20
"""Bytes that may wait to be written, or are being written."""

T = TypeVar("T")


class Session(Protocol):
    """What decides. `now` is monotonic seconds; every answer is what to do, in that order."""

    def start(self, now: float) -> Sequence[Any]: ...

    def tick(self, now: float) -> Sequence[Any]: ...

    def stand_still(self, now: float) -> None:
        """Nothing is read on purpose, so the other side's silence is our own."""


class Stored(Protocol):
    """What does the session's work on the store, in the threads."""

    def run(self, work: Any, /) -> object: ...

    def flush(self) -> Any:
        """Make durable what has been run; how far that is."""

    def run_and_flush(self, work: Any, /) -> tuple[bool, Any]:
        """`run` and `flush`; and whether the log here is one with the other side's from now on."""


SessionT = TypeVar("SessionT", bound=Session)
StoredT = TypeVar("StoredT", bound=Stored)
EndT = TypeVar("EndT")


class StoreThreads:
    """The threads that may block on the disk; `wait` for all before a new stream. Tables have one
    of their own: a large one would hold up the log."""

    def __init__(self) -> None:
        self.write, self.flush, self.table = (_Thread(name) for name in ("write", "flush", "table"))

    async def wait(self) -> None:
        """Until what an ended stream has left in the threads is done."""
        for thread in (self.write, self.flush, self.table):
            await thread(lambda: None)

    async def close(self) -> None:
        """End the threads. A thread's current work may take as long as the disk does; the loop
        runs meanwhile."""
        for thread in (self.write, self.flush, self.table):
            await asyncio.to_thread(thread.pool.shutdown, wait=True)


class _Thread:
    def __init__(self, name: str) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix=f"replication-{name}")

    async def __call__(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)


class Intake(ABC, Generic[SessionT, StoredT, EndT]):
    """See the module. A subclass is one protocol: how bytes come and go, and what each action of
    its session means. `followed`: the log here is one with the other side's, so what becomes
    durable is acknowledged."""

    BROKEN: ClassVar[tuple[type[Exception], ...]]
    """What `_received` and `_transmit` raise when the connection is over."""

    def __init__(
        self,
        session: SessionT,
        stored: StoredT,
        threads: StoreThreads,
        clock: Clock,
        batch_bytes: int,
    ) -> None:
        self.session = session
        self.followed = False
        self._stored = stored
        self._threads = threads
        self._clock = clock
        self._batch_bytes = batch_bytes
        self._work: deque[tuple[Any, int]] = deque()
        self._has_work = asyncio.Event()
        self._waiting_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._unflushed = asyncio.Event()
        self._store_failed = False  # set in the thread that failed, at once
        self._frames_to_send: dict[object, bytes] = {}
        self._has_frame = asyncio.Event()
        self._ended: asyncio.Future[EndT] = asyncio.get_running_loop().create_future()

    # --- what a protocol says

    @abstractmethod
    async def _received(self) -> Sequence[Any]:
        """Read until there is a frame; what the session wants done about it."""

    @abstractmethod
    async def _transmit(self, frame: bytes) -> None: ...

    @abstractmethod
    def _broken(self, error: Exception) -> EndT:
        """How a stream ends that one of BROKEN has ended."""

    @abstractmethod
    def _obey(self, actions: Sequence[Any]) -> None:
        """Do them: by `_put_out`, `_add` and `end`."""

    @abstractmethod
    def _durable(self, done: Any) -> None:
        """Tell the session; the first time, say that the log here is one with the other side's."""

    @abstractmethod
    def _last_work(self, rest: list[Any]) -> Callable[[], object] | None:
        """What the write thread does when the stream has ended, with what it had not begun."""

    async def _fault(self, error: Exception) -> None:
        """The store has raised `error`; if this returns, the stream continues."""
        raise error

    # --- for the protocol

    async def _serve(self, *more: Coroutine[Any, Any, None]) -> EndT:
        """Run the loops, and `more` of them, until the stream has ended; returns why. Raises what
        the store and the protocol raise."""
        loops = (
            self._until_broken(self._read), self._until_broken(self._send),
            self._write(), self._flush(), self._tick(), *more,
        )  # fmt: skip
        tasks = [asyncio.create_task(loop) for loop in loops]
        ends: list[asyncio.Future[EndT] | asyncio.Task[None]] = [self._ended, *tasks]
        try:
            self._obey(self.session.start(self._clock.monotonic()))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failure(tasks)
            rest = [work for work, _ in self._work]
            self._work.clear()
            last = self._last_work(rest)
            if last is not None:
                # behind what the thread is at
                await self._threads.write(partial(self._unless_failed, last))
                self._raise_failure(tasks)
            if not self._ended.done():
                self.end(self._broken(ConnectionError("a part of the stream was cancelled")))
            return self._ended.result()
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

    def end(self, why: EndT) -> None:
        """End the stream, unless it has ended."""
        if not self._ended.done():
            self._ended.set_result(why)

    def _put_out(self, kind: object, frame: bytes) -> None:
        """Send `frame`; one of this kind that still waits is replaced."""
        self._frames_to_send[kind] = frame
        self._has_frame.set()

    def _add(self, work: Any, size: int) -> None:
        """Have `work` done, which holds `size` bytes."""
        self._count(size)
        self._work.append((work, size))
        self._has_work.set()

    def _drop_work(self) -> None:
        self._count(-sum(size for _, size in self._work))
        self._work.clear()
        self._has_work.clear()

    def _count(self, size: int) -> None:
        """Bytes that came to wait, or are no longer waiting."""
        self._waiting_bytes += size
        if self._waiting_bytes > READ_AHEAD_BYTES:
            self._has_room.clear()
        else:
            self._has_room.set()

    def _unless_failed(self, call: Callable[[], T]) -> T | None:
        """In a thread: `call`, unless something has failed before; None then."""
        if self._store_failed:
            return None
        try:
            return call()
        except BaseException:
            self._store_failed = True
            raise

    @staticmethod
    def _raise_failure(tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()

    # --- the loops

    async def _until_broken(self, loop: Callable[[], Awaitable[None]]) -> None:
        try:
            await loop()
        except self.BROKEN as error:
            self.end(self._broken(error))

    async def _read(self) -> None:
        while not self._ended.done():
            self._obey(await self._received())
            await self._has_room.wait()

    async def _send(self) -> None:
        while True:
            await self._has_frame.wait()
            self._has_frame.clear()
            frames, self._frames_to_send = self._frames_to_send, {}
            for frame in frames.values():
                await self._transmit(frame)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._clock.monotonic()
            if not self._has_room.is_set():
                self.session.stand_still(now)
            self._obey(self.session.tick(now))

    async def _write(self) -> None:
        """Give the store what there is, batch by batch. What an ended stream has left is for its
        end, which hears what comes of it."""
        while True:
            await self._has_work.wait()
            if self._ended.done():
                return
            batch, size = self._batch()
            try:
                if size >= FLUSH_APART_BYTES and self.followed:
                    run = partial(self._stored.run, batch)
                    await self._threads.write(partial(self._unless_failed, run))
                    self._unflushed.set()
                else:
                    both = partial(self._stored.run_and_flush, batch)
                    outcome = await self._threads.write(partial(self._unless_failed, both))
                    if outcome is not None and (outcome[0] or self.followed):
                        self._acknowledge(outcome[1])
            except (StoreError, FormatError, OSError) as error:
                await self._fault(error)
            self._count(-size)

    async def _flush(self) -> None:
        """Flush what has been written meanwhile, and acknowledge it."""
        while True:
            await self._unflushed.wait()
            self._unflushed.clear()
            try:
                flush = partial(self._unless_failed, self._stored.flush)
                self._acknowledge(await self._threads.flush(flush))
            except (StoreError, FormatError, OSError) as error:
                await self._fault(error)

    def _acknowledge(self, done: Any) -> None:
        if not self._store_failed:
            self._durable(done)

    def _batch(self) -> tuple[list[Any], int]:
        """The next work, at least one piece, with at most `batch_bytes`; and how many bytes."""
        batch: list[Any] = []
        size = 0
        while self._work and (not batch or size + self._work[0][1] <= self._batch_bytes):
            work, length = self._work.popleft()
            batch.append(work)
            size += length
        if not self._work:
            self._has_work.clear()
        return batch, size


async def follow_forever(
    follow: Callable[[], Awaitable[None]],
    first_s: float,
    longest_s: float,
    fixed_pause: Callable[[BaseException | None], float | None],
) -> NoReturn:
    """Run `follow` again and again: `first_s` after it has returned, and after random pauses that
    grow up to `longest_s` while it raises; after a pause of `fixed_pause(error)` seconds where that
    is not None. Raises what is not of the other side, the store or the network."""
    growing = tenacity.wait_random_exponential(multiplier=first_s, max=longest_s)

    def wait(call: tenacity.RetryCallState) -> float:
        fixed = fixed_pause(call.outcome.exception() if call.outcome is not None else None)
        return first_s + growing(call) if fixed is None else fixed

    while True:
        await tenacity.AsyncRetrying(
            wait=wait, retry=tenacity.retry_if_exception_type((HaError, StoreError, OSError))
        )(follow)
        await asyncio.sleep(first_s)
