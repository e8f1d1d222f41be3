"""What `AsyncConsumer.follow` returns: messages as they come, and control over the reading."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Collection, Iterator
from typing import Self

from ..forks import inherited, watch
from ..v1 import broker_pb2
from .following.delivery_cursor import DeliveryCursor
from .following.follower import Follower
from .group.commits import Commit
from .reading.positions import Queue, Start
from .reading.queue_lag import QueueLag
from .received.received_batch import ReceivedBatch
from .received.received_message import ReceivedMessage
from .statistics import ConsumerStatistics


class AsyncStream:
    """The result of `follow`: messages, or whole batches of them. Close it, or use `async with`.

    With automatic commits a message counts as processed when you ask for the next one. After you
    leave a loop, another loop or `next_batch` may continue there.
    """

    def __init__(self, follower: Follower, consumer: object = None) -> None:
        self._follower = follower
        self._consumer = consumer  # kept alive: it leaves its groups when nothing uses it any more
        self._cursor = DeliveryCursor(follower)
        watch(self)

    @property
    def follower(self) -> Follower:
        """It does the reading."""
        return self._follower

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops reading; with automatic commits saves what is done. A member of a group leaves it,
        after `on_revoked`. May be called by another task: a reader that waits gets
        ClientClosedError."""
        if inherited(self):
            return
        call = self._follower.leaving_call()
        try:
            if call is not None:
                await _awaited(call.run(self))
        finally:
            await self._follower.close()

    # messages

    async def next_batch(
        self, timeout_ms: float | None = None, max_messages: int | None = None
    ) -> ReceivedBatch | None:
        """The next batch, of at most `max_messages`; None at the end (`until_end`). Raises
        TimeoutError after `timeout_ms` without a message; the stream stays as it is."""
        if not await self._start_batch(timeout_ms):
            return None
        return self._cursor.deliver(max_messages)

    async def poll(self, timeout_ms: float | None = None) -> ReceivedMessage | None:
        """The next message; None after `timeout_ms` without one, and at the end (`until_end`)."""
        self._cursor.mark_done()
        while (message := self._cursor.deliver_one()) is None:
            try:
                if not await self._start_batch(timeout_ms):
                    return None
            except TimeoutError:
                return None
        return message

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self.messages()

    def messages(self, timeout_ms: float | None = None) -> AsyncIterator[ReceivedMessage]:
        """Messages as they come; ends after `timeout_ms` without one, and at the end
        (`until_end`). A step that is cancelled, as by `asyncio.wait_for(anext(...))`, ends nothing:
        the next one gets the next message."""
        return _Messages(self, timeout_ms)

    async def _next_messages(self, timeout_ms: float | None) -> Iterator[ReceivedMessage] | None:
        """Of the next batch; None at the end."""
        try:
            if not await self._start_batch(timeout_ms):
                return None
        except TimeoutError:
            return None
        return self._cursor.messages()

    async def __anext__(self) -> ReceivedMessage:
        message = await self.poll()
        if message is None:
            raise StopAsyncIteration
        return message

    def batches(self) -> AsyncIterator[ReceivedBatch]:
        """Batches of one queue each, without an object per message; a step may be cancelled, as of
        `messages`."""
        return _Batches(self)

    async def _start_batch(self, timeout_ms: float | None) -> bool:
        """The caller is back: starts the next batch that may be delivered; False at the end."""
        cursor, follower = self._cursor, self._follower
        cursor.release()
        now = asyncio.get_running_loop().time
        until = None if timeout_ms is None else now() + timeout_ms / 1e3
        while True:
            if follower.must_stop:
                await self._run_calls()
            fetched = cursor.remaining() or follower.pop()
            if fetched is None:
                remaining_ms = None if until is None else max(0.0, until - now()) * 1e3
                if not await follower.wait(remaining_ms):
                    return False
            elif cursor.start(fetched):
                return True

    async def _run_calls(self) -> None:
        try:
            for call in self._cursor.waiting_calls():
                try:
                    await _awaited(call.run(self))
                finally:
                    call.ran.set()
        except BaseException:
            self._follower.interrupted = True  # the other calls are still to come
            raise
        self._follower.caller_returned()

    # queues

    @property
    def assignment(self) -> frozenset[Queue]:
        """The queues (topic, queue id) that are read now."""
        return self._follower.assignment

    @property
    def positions(self) -> dict[Queue, int]:
        """By assigned (topic, queue id), the offset of the next message: behind the last one
        delivered, at first where reading began."""
        return self._follower.progress.delivered

    @property
    def paused(self) -> frozenset[Queue]:
        """Those of the assignment that are paused."""
        return self._follower.progress.paused

    def pause(self, queues: Collection[Queue]) -> None:
        """Delivers nothing of `queues` until `resume`; they stay assigned. Raises
        InvalidArgumentError for a queue that is not."""
        self._follower.pause(queues)

    def resume(self, queues: Collection[Queue]) -> None:
        """Continues paused queues behind the last message delivered."""
        self._follower.resume(queues)

    async def seek(self, queue: Queue, to: Start) -> None:
        """Continues `queue` elsewhere: at an offset (a number), EARLIEST, LATEST, COMMITTED, or the
        first message of a time (datetime)."""
        await self._follower.seek(queue, to)

    async def lag(self) -> dict[Queue, QueueLag]:
        """By assigned queue, what waits behind the last message delivered, by the master's word."""
        return await self._follower.lag()

    def statistics(self) -> ConsumerStatistics:
        """What it has read, how long that took, and what waits now."""
        return self._follower.statistics()

    # commits

    async def commit(self, what: Commit | None = None) -> None:
        """Saves, for the group, everything delivered so far, the newest message included; or what
        is done up to and with a message or a batch; or offsets by (topic, queue id). Raises
        FencedMemberError for queues that are not this member's any more."""
        await self._follower.commits.commit(what)

    def transaction_offsets(self, what: Commit | None = None) -> broker_pb2.CommitOffsetsRequest:
        """What `commit` would save, for a transaction of a producer, which takes the stream itself:
        `t.commit_offsets(stream)`. Raises InvalidArgumentError with automatic commits."""
        return self._follower.transaction_offsets(what)

    def commit_async(self, what: Commit | None = None) -> "asyncio.Future[None]":
        """As `commit`, without waiting. A failure is also told to `on_commit_error`."""
        return self._follower.commits.commit_soon(what)


class _Messages(AsyncIterator[ReceivedMessage]):
    """Not a generator: one that is cancelled while it waits cannot continue."""

    __slots__ = ("_messages", "_stream", "_timeout_ms")

    def __init__(self, stream: AsyncStream, timeout_ms: float | None) -> None:
        self._stream = stream
        self._timeout_ms = timeout_ms
        self._messages: Iterator[ReceivedMessage] | None = iter(())

    async def __anext__(self) -> ReceivedMessage:
        while self._messages is not None:
            for message in self._messages:
                return message
            self._messages = await self._stream._next_messages(self._timeout_ms)
        raise StopAsyncIteration


class _Batches(AsyncIterator[ReceivedBatch]):
    """As _Messages."""

    __slots__ = ("_stream",)

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream

    async def __anext__(self) -> ReceivedBatch:
        batch = await self._stream.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch


async def _awaited(result: object) -> None:
    """A callback may be a coroutine function."""
    if inspect.isawaitable(result):
        await result
