"""What `Consumer.follow` and `Consumer.scan` return: messages and columns without asyncio.

    with Consumer("10.0.0.1:10911", group="billing") as consumer:
        with consumer.follow("orders") as stream:
            for message in stream:
                ...

The loop's thread passes on whole batches; messages are created, and columns decoded, in the
caller's thread. So this is by hand, unlike Consumer (generated/consumer.py): a Stream that calls
AsyncStream for each message would change threads for each.
"""

import asyncio
import importlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

from ..consume.following.delivery_cursor import DeliveryCursor
from ..consume.group.commits import Commit
from ..consume.reading.positions import Queue, Start
from ..consume.reading.queue_lag import QueueLag
from ..consume.received.lazy_arrow import as_arrow
from ..consume.received.received_batch import ReceivedBatch
from ..consume.received.received_message import ReceivedMessage
from ..consume.scan import AsyncScan
from ..consume.statistics import ConsumerStatistics
from ..consume.stream import AsyncStream
from ..forks import inherited, watch
from .loop_thread import LoopThread

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa

    from ..consume.following.fetcher import FetchedBatch
    from ..v1 import broker_pb2

ResultT = TypeVar("ResultT")


class Stream:
    """The result of `follow`: messages, or whole batches of them; for one thread. Close it, or use
    `with`. With automatic commits a message counts as processed when you ask for the next one.
    After you leave a loop, another loop or `next_batch` may continue there."""

    def __init__(self, thread: LoopThread, stream: AsyncStream) -> None:
        self._thread = thread
        self._stream = stream
        self._follower = stream.follower
        self._taken: deque[FetchedBatch] = deque()
        self._cursor = DeliveryCursor(stream.follower)
        watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops reading; with automatic commits saves what is done. A member of a group leaves it,
        after `on_revoked`. May be called from another thread: a reader that waits gets
        ClientClosedError."""
        if inherited(self):
            return
        call = self._follower.leaving_call()
        try:
            if call is not None:
                call.run(self)
        finally:
            self._thread.run(self._follower.close())

    # messages

    def next_batch(
        self, timeout_ms: float | None = None, max_messages: int | None = None
    ) -> ReceivedBatch | None:
        """The next batch, of at most `max_messages`; None at the end (`until_end`). Raises
        TimeoutError after `timeout_ms` without a message; the stream stays as it is."""
        if not self._start_batch(timeout_ms):
            return None
        return self._cursor.deliver(max_messages)

    def poll(self, timeout_ms: float | None = None) -> ReceivedMessage | None:
        """The next message; None after `timeout_ms` without one, and at the end (`until_end`)."""
        self._cursor.mark_done()
        while (message := self._cursor.deliver_one()) is None:
            try:
                if not self._start_batch(timeout_ms):
                    return None
            except TimeoutError:
                return None
        return message

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self.messages()

    def messages(self, timeout_ms: float | None = None) -> Iterator[ReceivedMessage]:
        """Messages as they come; ends after `timeout_ms` without one, and at the end
        (`until_end`)."""
        while True:
            try:
                if not self._start_batch(timeout_ms):
                    return
            except TimeoutError:
                return
            yield from self._cursor.messages()

    def batches(self) -> Iterator[ReceivedBatch]:
        """Batches of one queue each, without an object per message."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def _start_batch(self, timeout_ms: float | None) -> bool:
        """The caller is back: starts the next deliverable batch, and refills the local queue from
        the loop's thread when it is empty; False at the end."""
        cursor, follower = self._cursor, self._follower
        cursor.release()
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1e3
        while True:
            if follower.must_stop:
                self._run_calls()
            fetched = cursor.remaining() or (self._taken.popleft() if self._taken else None)
            if fetched is None:
                remaining_ms = None if until is None else max(0.0, until - time.monotonic()) * 1e3
                if not self._thread.run(follower.next_fetched(self._taken, remaining_ms)):
                    return False
            elif cursor.start(fetched):
                return True

    def _run_calls(self) -> None:
        try:
            for call in self._cursor.waiting_calls():
                try:
                    call.run(self)
                finally:
                    self._thread.loop.call_soon_threadsafe(call.ran.set)
        except BaseException:
            self._follower.interrupted = True  # the other calls are still to come
            raise
        self._in_loop(self._follower.caller_returned)

    def _in_loop(self, function: Callable[[], ResultT]) -> ResultT:
        async def call() -> ResultT:
            return function()

        return self._thread.run(call())

    # queues

    @property
    def assignment(self) -> frozenset[Queue]:
        """The queues (topic, queue id) that are read now."""
        return self._stream.assignment

    @property
    def positions(self) -> dict[Queue, int]:
        """By assigned (topic, queue id), the offset of the next message: behind the last one
        delivered, at first where reading began."""
        return self._stream.positions

    @property
    def paused(self) -> frozenset[Queue]:
        """Those of the assignment that are paused."""
        return self._stream.paused

    def pause(self, queues: Collection[Queue]) -> None:
        """Delivers nothing of `queues` until `resume`; they stay assigned. Raises
        InvalidArgumentError for a queue that is not. Any thread may call it."""
        self._in_loop(lambda: self._stream.pause(queues))

    def resume(self, queues: Collection[Queue]) -> None:
        """Continues paused queues behind the last message delivered. Any thread may call it."""
        self._in_loop(lambda: self._stream.resume(queues))

    def seek(self, queue: Queue, to: Start) -> None:
        """Continues `queue` elsewhere: at an offset (a number), EARLIEST, LATEST, COMMITTED, or the
        first message of a time (datetime). Any thread may call it."""
        self._thread.run(self._stream.seek(queue, to))

    def lag(self) -> dict[Queue, QueueLag]:
        """By assigned queue, what waits behind the last message delivered, by the master's word."""
        return self._thread.run(self._stream.lag())

    def statistics(self) -> ConsumerStatistics:
        """What it has read, how long that took, and what waits now. Any thread may call it."""
        return self._stream.statistics()

    # commits

    def commit(self, what: Commit | None = None) -> None:
        """Saves, for the group, everything delivered so far, the newest message included; or what
        is done up to and with a message or a batch; or offsets by (topic, queue id). Raises
        FencedMemberError for queues that are not this member's any more."""
        self._thread.run(self._stream.commit(what))

    def transaction_offsets(self, what: Commit | None = None) -> "broker_pb2.CommitOffsetsRequest":
        """What `commit` would save, for a transaction of a producer, which takes the stream itself:
        `t.commit_offsets(stream)`. Raises InvalidArgumentError with automatic commits."""
        return self._follower.transaction_offsets(what)

    def commit_async(self, what: Commit | None = None) -> "Future[None]":
        """As `commit`, without waiting. A failure is also told to `on_commit_error`."""
        offsets = self._follower.commits.offsets_of(what)

        async def commit() -> None:
            await self._stream.commit_async(offsets)

        return asyncio.run_coroutine_threadsafe(commit(), self._thread.loop)


def reader_of(thread: LoopThread, scan: AsyncScan) -> "pa.RecordBatchReader":
    """The batches of `scan`, which runs in the loop of `thread`.

    The loop's thread fetches ahead; batches are decoded in the thread that reads. When the reader
    is at its end, closed or forgotten, so is the scan.
    """
    arrow = importlib.import_module("pyarrow")
    reader: pa.RecordBatchReader = arrow.RecordBatchReader.from_batches(
        scan.schema, _batches(thread, scan)
    )
    return reader


def _batches(thread: LoopThread, scan: AsyncScan) -> Iterator["pa.RecordBatch"]:
    try:
        while window := thread.run(scan.next_window()):
            yield as_arrow(window, scan.schema)
    finally:
        # not waited for: a reader that is forgotten may be collected in any thread, the loop's too
        asyncio.run_coroutine_threadsafe(scan.close(), thread.loop)
