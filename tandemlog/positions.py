"""Where a consumer begins, and how far it has come.

fetched    asked for and in the buffer
delivered  handed to the caller: what a commit by hand saves
done       the caller came back for more: what the automatic commit saves, so that a message
           whose handling was cut short comes again
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from .connection import Connection, Node
from .errors import (
    InvalidArgumentError,
    NodeUnavailableError,
    UnknownQueueError,
    UnknownTopicError,
)
from .paging import MAX_NAMES, MAX_ROWS, MAX_SEARCHES, every_page, in_parts, pages_of_topics
from .reading import Reader
from .v1 import admin_pb2, broker_pb2

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
COMMITTED: Final = "committed"

Start = str | int | datetime
"""EARLIEST, LATEST, COMMITTED (earliest where nothing is committed), a time in ms or as an aware
datetime: the first message stored at or after it."""

Queue = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """What a queue holds: offsets min .. max-1, stored between the two times (ms, -1: empty)."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    min_timestamp: int
    max_timestamp: int


def queues_of(
    topics: Iterable[admin_pb2.Topic], wanted: Mapping[str, Sequence[int]] | Sequence[int] | None
) -> list[Queue]:
    """All queues of `topics`, or those wanted, for all topics or by topic."""
    queues = []
    for topic in topics:
        ids: Sequence[int] | None = (
            wanted.get(topic.name) if isinstance(wanted, Mapping) else wanted
        )
        for queue_id in range(topic.read_queues) if ids is None else ids:
            if not 0 <= queue_id < topic.read_queues:
                raise UnknownQueueError(
                    f"topic {topic.name!r} has the queues 0..{topic.read_queues - 1}, "
                    f"not {queue_id}",
                    field="queue_id",
                    limit=topic.read_queues,
                    actual=queue_id,
                )
            queues.append((topic.name, queue_id))
    return queues


class Positions:
    """Asks the cluster where queues begin, end, and stand at a time or for a group."""

    def __init__(self, connection: Connection, reader: Reader) -> None:
        self._connection = connection
        self._reader = reader
        self._timeout_ms = connection.options.request_timeout_ms

    async def topics(self, names: Sequence[str]) -> list[admin_pb2.Topic]:
        """The topics by name; raises UnknownTopicError naming those that are not there.

        A slave hears of a new topic a moment after its master: what the master knows is waited
        for.
        """
        try:
            return await self._topics_here(names)
        except UnknownTopicError:
            await self._connection.topics(names)  # raises where the master does not know it either
        async for attempt in self._connection.retrying():
            with attempt:
                try:
                    return await self._topics_here(names)
                except UnknownTopicError as late:
                    raise NodeUnavailableError(f"{late}: not yet") from late
        raise AssertionError("retries end with a result or an error")

    async def _topics_here(self, names: Sequence[str]) -> list[admin_pb2.Topic]:
        """As the node that is read from knows them."""
        found = await pages_of_topics(
            names,
            lambda request: self._reader.ask(
                lambda node: node.ask(node.admin.ListTopics, request, self._timeout_ms)
            ),
        )
        missing = set(names) - {topic.name for topic in found}
        if missing:
            raise UnknownTopicError(
                f"topics that do not exist: {', '.join(sorted(missing))}", field="topic"
            )
        return found

    async def ranges(self, topics: Sequence[str] = ()) -> list[QueueRange]:
        """The ranges of all queues of `topics`, or of every topic, that hold anything."""
        found: list[broker_pb2.QueueRange] = []
        for names in in_parts(topics, MAX_NAMES) or [()]:

            async def ask(page: str, names: Sequence[str] = names) -> str:
                request = broker_pb2.QueueRangesRequest(topics=names, page=page)
                answer = await self._reader.ask(
                    lambda node: node.ask(node.broker.QueueRanges, request, self._timeout_ms)
                )
                found.extend(answer.ranges)
                return answer.next_page

            await every_page(ask)
        return sorted(
            (
                QueueRange(
                    each.topic,
                    each.queue_id,
                    each.min_offset,
                    each.max_offset,
                    each.min_timestamp,
                    each.max_timestamp,
                )
                for each in found
            ),
            key=lambda each: (each.topic, each.queue_id),
        )

    async def at_time(
        self,
        queues: Sequence[Queue],
        timestamp: int,
        boundary: broker_pb2.Boundary.ValueType = broker_pb2.LOWER,
    ) -> dict[Queue, int]:
        """LOWER: the first message stored at or after `timestamp` (ms); UPPER: the last stored at
        or before it."""
        offsets: list[int] = []
        for part in in_parts(queues, MAX_SEARCHES):
            request = broker_pb2.SearchOffsetRequest(
                queues=[_position(queue, 0) for queue in part],
                timestamp=timestamp,
                boundary=boundary,
            )

            async def ask(node: Node, request: Any = request) -> broker_pb2.SearchOffsetResponse:
                return await node.ask(node.broker.SearchOffset, request, self._timeout_ms)

            offsets.extend((await self._reader.ask(ask)).offsets)
        return dict(zip(queues, offsets, strict=True))

    async def committed(self, group: str, topics: Sequence[str] = ()) -> dict[Queue, int]:
        """The group's committed offsets, as the master knows them, by queue."""
        found: dict[Queue, int] = {}
        for names in in_parts(topics, MAX_NAMES) or [()]:

            async def ask(page: str, names: Sequence[str] = names) -> str:
                request = broker_pb2.FetchOffsetsRequest(group=group, topics=names, page=page)
                answer = await self._connection.on_master(
                    lambda node: node.ask(node.broker.FetchOffsets, request, self._timeout_ms)
                )
                for each in answer.offsets:
                    found[each.topic, each.queue_id] = each.queue_offset
                return answer.next_page

            await every_page(ask)
        return found

    async def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Saves offsets for the group at the master; a repetition does no harm."""
        for part in in_parts(list(offsets.items()), MAX_ROWS):
            request = broker_pb2.CommitOffsetsRequest(
                group=group, offsets=[_position(queue, offset) for queue, offset in part]
            )

            async def ask(node: Node, request: Any = request) -> broker_pb2.CommitOffsetsResponse:
                return await node.ask(node.broker.CommitOffsets, request, self._timeout_ms)

            await self._connection.on_master(ask)

    async def start(
        self, queues: Sequence[Queue], start: Start, group: str | None
    ) -> dict[Queue, int]:
        """The offset of each queue at which reading begins."""
        topics = list(dict.fromkeys(topic for topic, _ in queues))
        ranges = {(each.topic, each.queue_id): each for each in await self.ranges(topics)}
        low = {queue: ranges[queue].min_offset if queue in ranges else 0 for queue in queues}
        if start == EARLIEST:
            return low
        if start == LATEST:
            return {queue: ranges[queue].max_offset if queue in ranges else 0 for queue in queues}
        if start == COMMITTED:
            if group is None:
                raise InvalidArgumentError("start=committed needs a group", field="group")
            return low | {
                queue: offset
                for queue, offset in (await self.committed(group, topics)).items()
                if queue in low
            }
        return low | await self.at_time(
            [queue for queue in queues if queue in ranges], in_ms(start)
        )


def _position(queue: Queue, offset: int) -> broker_pb2.QueuePosition:
    return broker_pb2.QueuePosition(topic=queue[0], queue_id=queue[1], queue_offset=offset)


def in_ms(start: Start) -> int:
    """A time in ms; raises InvalidArgumentError for one without a time zone."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidArgumentError("a start time needs a time zone", field="start")
        return int(start.timestamp() * 1000)
    if isinstance(start, str):
        raise InvalidArgumentError(
            f"start must be {EARLIEST}, {LATEST}, {COMMITTED} or a time, not {start!r}",
            field="start",
        )
    return start
