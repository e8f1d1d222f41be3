"""The consumer without asyncio: the same names.

    with Consumer("10.0.0.1:10911", group="billing") as consumer:
        with consumer.follow("orders") as stream:
            for message in stream:
                ...

The loop's thread passes on whole batches; messages are created in the caller's thread.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from ..cluster.connection import ConnectionOptions
from ..cluster.topology import ReadFrom
from ..consume.consumer import AsyncConsumer, AsyncStream
from ..consume.follow_options import FollowOptions
from ..consume.handing import Handing
from ..consume.positions import Queue, QueueRange, Start
from ..consume.received import ReceivedBatch, ReceivedMessage
from ..errors import ClientClosedError
from ..transport.security import Security
from .loop_thread import LoopThread


class Stream:
    """The result of `follow`: messages, or whole batches of them; for one thread. Close it, or use
    `with`. With automatic commits a message counts as processed when you ask for the next one.
    After you leave a loop, another loop or `next_batch` may continue there."""

    def __init__(self, thread: LoopThread, stream: AsyncStream) -> None:
        self._thread = thread
        self._stream = stream
        self._follower = stream.follower
        self._taken: deque[ReceivedBatch] = deque()
        self._handing = Handing(stream.follower)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops reading; with automatic commits saves what is done."""
        self._thread.run(self._stream.close())

    def commit(self) -> None:
        """Saves, for the group, everything delivered so far, the newest message included."""
        self._thread.run(self._stream.commit())

    @property
    def positions(self) -> dict[Queue, int]:
        """By (topic, queue id), the offset after the last message delivered."""
        return self._stream.positions

    def next_batch(self, timeout_ms: float | None = None) -> ReceivedBatch | None:
        """The next batch; None at the end (`until_end`). Raises TimeoutError after
        `timeout_ms` without a message; the stream stays as it is."""
        self._handing.came_back()
        batch = self._handing.rest() or self._next(timeout_ms)
        if batch is not None:
            self._handing.whole(batch)
        return batch

    def __iter__(self) -> Iterator[ReceivedMessage]:
        handing = self._handing
        while True:
            handing.came_back()
            batch = handing.rest() or self._next()
            if batch is None:
                return
            handing.begin(batch)
            offsets = batch.headers.queue_offset.tolist()
            for message, offset in zip(batch, offsets, strict=True):
                handing.message(offset)
                yield message
                handing.came_back()

    def batches(self) -> Iterator[ReceivedBatch]:
        """Batches of one queue each, without an object per message."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def _next(self, timeout_ms: float | None = None) -> ReceivedBatch | None:
        """From what was taken over from the loop's thread; that is refilled with all it has."""
        while True:
            while self._taken:
                batch = self._taken.popleft()
                if len(batch):
                    return batch
                self._follower.skipped(batch)
            if not self._thread.run(self._follower.next_batches(self._taken, timeout_ms)):
                return None


class Consumer:
    """Reads from the cluster that `endpoints` belong to: from its master, a slave or any node, and
    from another allowed node if one fails. `group` is the group whose offsets are committed."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        group: str | None = None,
        read_from: ReadFrom | str = ReadFrom.ANY,
        options: FollowOptions | None = None,
        connection: ConnectionOptions | None = None,
        security: Security | None = None,
    ) -> None:
        self._consumer = AsyncConsumer(
            endpoints,
            group=group,
            read_from=read_from,
            options=options,
            connection=connection,
            security=security,
        )
        self.group = group
        self._open_thread: LoopThread | None = LoopThread.of_process()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its streams and the connection."""
        thread, self._open_thread = self._open_thread, None
        if thread is not None:
            thread.run(self._consumer.close())

    def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        max_messages: int = 0,
        max_bytes: int | None = None,
        tags: str | None = None,
        wait_ms: int = 0,
    ) -> ReceivedBatch:
        """Messages of one queue from an offset on, and RocketMQ's status; waits up to `wait_ms`
        for the first. A missing offset is not an error; the status shows it."""
        return self._thread.run(
            self._consumer.pull(
                topic,
                queue_id,
                queue_offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tags=tags,
                wait_ms=wait_ms,
            )
        )

    def follow(
        self,
        topics: str | Sequence[str],
        *,
        queues: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
        start: Start | Mapping[Queue, int] | None = None,
        tags: str | None = None,
        until_end: bool = False,
        options: FollowOptions | None = None,
    ) -> Stream:
        """Messages of all queues of `topics` (or of `queues`), as they come; see
        AsyncConsumer.follow."""
        thread = self._thread
        stream = thread.run(
            self._consumer.follow(
                topics,
                queues=queues,
                start=start,
                tags=tags,
                until_end=until_end,
                options=options,
            )
        )
        return Stream(thread, stream)

    def ranges(self, topics: str | Sequence[str] = ()) -> list[QueueRange]:
        """The ranges of the queues of `topics` (none: of all); queues without a message are left
        out."""
        return self._thread.run(self._consumer.ranges(topics))

    def committed(self, topics: str | Sequence[str] = ()) -> dict[Queue, int]:
        """The group's committed offsets by (topic, queue id)."""
        return self._thread.run(self._consumer.committed(topics))

    def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Saves offsets for the group: where it continues reading, by (topic, queue id)."""
        self._thread.run(self._consumer.commit(offsets))

    @property
    def _thread(self) -> LoopThread:
        if self._open_thread is None:
            raise ClientClosedError("the consumer is closed")
        return self._open_thread
