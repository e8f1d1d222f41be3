"""The consumer for asyncio: single pulls, and following any number of queues.

    async with AsyncConsumer("10.0.0.1:10911", group="billing") as consumer:
        async with await consumer.follow("orders", tags="paid || refunded") as stream:
            async for message in stream:
                ...

Messages come at least once: those that were not committed when a consumer stopped come again. Nodes
do not assign queues: to share a topic, consumers of one group name their queues.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Self

import numpy as np

from ..cluster.connection import Connection, ConnectionOptions, Node, secured
from ..cluster.pull_answer import PullAnswer
from ..cluster.topology import ReadFrom
from ..errors import InvalidArgumentError
from ..format.constants import group_fault
from ..format.errors import FormatError
from ..format.record.tags import parse_tags, tag_hashes
from ..transport.security import Security
from ..v1 import broker_pb2
from .follow_options import FollowOptions
from .follower import Follower
from .handing import Handing
from .positions import COMMITTED, EARLIEST, Positions, Queue, QueueRange, Start, queues_of
from .reading import Reader
from .received import ReceivedBatch, ReceivedMessage


class AsyncStream:
    """The result of `follow`: messages, or whole batches of them. Close it, or use `async with`.

    With automatic commits a message counts as processed when you ask for the next one. After you
    leave a loop, another loop or `next_batch` may continue there.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._handing = Handing(follower)

    @property
    def follower(self) -> Follower:
        """What does the reading."""
        return self._follower

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops reading; with automatic commits saves what is done."""
        await self._follower.close()

    async def commit(self) -> None:
        """Saves, for the group, everything delivered so far, the newest message included."""
        await self._follower.commit()

    @property
    def positions(self) -> dict[Queue, int]:
        """By (topic, queue id), the offset after the last message delivered."""
        return self._follower.delivered

    async def next_batch(self, timeout_ms: float | None = None) -> ReceivedBatch | None:
        """The next batch; None at the end (`until_end`). Raises TimeoutError after
        `timeout_ms` without a message; the stream stays as it is."""
        self._handing.came_back()
        batch = self._handing.rest() or await self._follower.next_batch(timeout_ms)
        if batch is not None:
            self._handing.whole(batch)
        return batch

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        handing = self._handing
        while True:
            handing.came_back()
            batch = handing.rest() or await self._follower.next_batch()
            if batch is None:
                return
            handing.begin(batch)
            offsets = batch.headers.queue_offset.tolist()
            for message, offset in zip(batch, offsets, strict=True):
                handing.message(offset)
                yield message
                handing.came_back()

    async def batches(self) -> AsyncIterator[ReceivedBatch]:
        """Batches of one queue each, without an object per message."""
        while (batch := await self.next_batch()) is not None:
            yield batch


class AsyncConsumer:
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
        fault = group_fault(group) if group is not None else None
        if fault is not None:
            raise InvalidArgumentError(f"group {group!r}: {fault}", field="group")
        self.group = group
        self._options = options or FollowOptions()
        self._connection = Connection(endpoints, secured(connection, security))
        self._read_from = ReadFrom(read_from)
        self._reader = Reader(self._connection, self._read_from)
        self._positions = Positions(self._connection, self._reader)
        self._followers: list[Follower] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Nothing to do: the first call connects. For symmetry with the producer."""

    async def close(self) -> None:
        """Closes its streams and the connection."""
        followers, self._followers = self._followers, []
        for follower in followers:
            await follower.close()
        await self._connection.close()

    async def pull(
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
        wanted = _tags(tags)
        request = broker_pb2.PullRequest(
            positions=[
                broker_pb2.QueuePosition(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
            ],
            max_messages=max_messages,
            max_bytes=self._options.max_bytes if max_bytes is None else max_bytes,
            tag_hashes=sorted(tag_hashes(wanted) or ()),
            wait_ms=wait_ms,
            group=self.group or "",
        )
        timeout = wait_ms + self._connection.options.request_timeout_ms

        async def ask(node: Node) -> PullAnswer:
            return await node.pull(request, timeout)

        answer = await self._reader.ask(ask)
        self._reader.hint(answer.suggest_slave)
        part, records = answer.parts[0].head, answer.parts[0].records
        batch = ReceivedBatch(
            topic=topic,
            queue_id=queue_id,
            status=broker_pb2.PullStatus.Name(part.status),
            next_offset=part.next_offset,
            min_offset=part.min_offset,
            max_offset=part.max_offset,
            records=records,
            sizes=np.frombuffer(part.sizes, "<u4"),
            suggest_slave=answer.suggest_slave,
        )
        return batch.only_tags(wanted)

    async def follow(
        self,
        topics: str | Sequence[str],
        *,
        queues: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
        start: Start | Mapping[Queue, int] | None = None,
        tags: str | None = None,
        until_end: bool = False,
        options: FollowOptions | None = None,
    ) -> AsyncStream:
        """Messages of all queues of `topics` (or of `queues`), as they come.

        `start`: EARLIEST, LATEST, COMMITTED, a time (ms or datetime), or an offset for each
        (topic, queue id); the default is COMMITTED with a group, EARLIEST without. `tags`:
        "a || b". `until_end`: stops at the present end of the queues. Raises UnknownTopicError,
        UnknownQueueError, NoNodeError.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        wanted = _tags(tags)
        fixed = until_end or queues is not None or isinstance(start, Mapping)
        found = queues_of(await self._positions.topics(names), queues)
        if isinstance(start, Mapping):
            starts = {queue: start[queue] for queue in found if queue in start}
        else:
            if start is None:
                start = COMMITTED if self.group is not None else EARLIEST
            starts = await self._positions.start(found, start, self.group)

        async def all_queues() -> list[Queue]:
            return queues_of(await self._positions.topics(names), None)

        stops = None
        if until_end:
            held, _ = await self._positions.held(names)
            stops = {queue: held[queue].max_offset if queue in held else 0 for queue in starts}
        follower = Follower(
            Reader(self._connection, self._read_from),
            self._positions,
            options or self._options,
            starts=starts,
            stops=stops,
            all_queues=None if fixed else all_queues,
            tags=wanted,
            group=self.group,
        )
        self._followers.append(follower)
        return AsyncStream(follower)

    async def ranges(self, topics: str | Sequence[str] = ()) -> list[QueueRange]:
        """The ranges of the queues of `topics` (none: of all); queues without a message are left
        out."""
        return await self._positions.ranges([topics] if isinstance(topics, str) else topics)

    async def committed(self, topics: str | Sequence[str] = ()) -> dict[Queue, int]:
        """The group's committed offsets by (topic, queue id)."""
        names = [topics] if isinstance(topics, str) else topics
        return await self._positions.committed(self._group(), names)

    async def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Saves offsets for the group: where it continues reading, by (topic, queue id)."""
        await self._positions.commit(self._group(), offsets)

    def _group(self) -> str:
        if self.group is None:
            raise InvalidArgumentError("this consumer has no group", field="group")
        return self.group


def _tags(expression: str | None) -> frozenset[str] | None:
    try:
        return parse_tags(expression)
    except FormatError as error:
        raise InvalidArgumentError(str(error), field="tags") from error
