"""Where queues begin and end, what a group has committed, and where a reader starts.

Only the cluster knows that, so the master is asked, whichever node is read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from ...cluster.answer_errors import error_from
from ...cluster.connection import Connection
from ...cluster.histories import PositionCheck, check_positions
from ...cluster.master_questions import NO_MASTER, MasterQuestions
from ...cluster.node import Node
from ...cluster.paging import every_page, in_parts, pages_of_topics
from ...cluster.unknown_topics import unknown_topics
from ...errors import (
    FencedMemberError,
    InvalidArgumentError,
    NodeUnavailableError,
    OffsetOutOfRangeError,
    UnknownQueueError,
    UnknownTopicError,
)
from ...format.calls import MAX_NAMES, MAX_ROWS, MAX_SEARCHES
from ...format.files.log_history import LogHistory
from ...v1 import admin_pb2, broker_pb2
from .reader import Reader

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

    def with_more(self, other: "QueueRange") -> "QueueRange":
        """What two nodes hold together."""
        if other.min_offset == other.max_offset or self.min_offset == self.max_offset:
            return self if self.max_offset >= other.max_offset else other
        first = self if self.min_offset <= other.min_offset else other
        last = self if self.max_offset >= other.max_offset else other
        return replace(last, min_offset=first.min_offset, min_timestamp=first.min_timestamp)


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
        self._questions = MasterQuestions(connection)
        self.timeout_ms = connection.options.request_timeout_ms

    @property
    def master_epoch(self) -> int:
        """The newest epoch of a master that was heard of."""
        return self._connection.epochs.value

    async def topics(self, names: Sequence[str]) -> list[admin_pb2.Topic]:
        """The topics by name, or all; raises UnknownTopicError naming those that are not there.

        A slave hears of a new topic a moment after its master: where a slave is read from, this
        waits until it knows what the master knows.
        """
        answers, _ = await self._questions.ask(
            lambda node: self._topics_of(node, names),
            "asking for topics",
            lambda node: self._topics_of(node, names, of_master=True),
        )
        topics: dict[str, admin_pb2.Topic] = {}
        for each in chain.from_iterable(answers):
            best = topics.get(each.name)
            if best is None or each.read_queues > best.read_queues:
                topics[each.name] = each
        missing = set(names) - set(topics)
        if missing:
            raise unknown_topics(missing)
        if names:
            await self._wait_for_topics(names)
        return [topics[name] for name in sorted(topics)]

    async def _wait_for_topics(self, names: Sequence[str]) -> None:
        """Until the node that is read from knows them too."""
        async for attempt in self._connection.retrying():
            with attempt:
                try:
                    await self._reader.ask(lambda node: self._topics_of(node, names))
                except UnknownTopicError as late:
                    raise NodeUnavailableError(f"{late}: not yet") from late

    async def ranges(self, topics: Sequence[str] = ()) -> list[QueueRange]:
        """The ranges of all queues of `topics`, or of every topic, that hold anything, on the node
        that is read from. See `ranges_in_cluster` for what the cluster holds."""
        return await self._reader.ask(lambda node: self._ranges_of(node, topics))

    async def ranges_in_cluster(
        self, topics: Sequence[str] = ()
    ) -> tuple[dict[Queue, QueueRange], bool]:
        """What the cluster's queues hold, and whether that is the master's word: without a master
        it is what the nodes that respond hold together, and there may be more."""
        answers, sure = await self._questions.ask(
            lambda node: self._ranges_of(node, topics),
            "asking what the queues hold",
            lambda node: self._ranges_of(node, topics, of_master=True),
        )
        ranges: dict[Queue, QueueRange] = {}
        for each in chain.from_iterable(answers):
            queue = each.topic, each.queue_id
            ranges[queue] = each if queue not in ranges else ranges[queue].with_more(each)
        return ranges, sure

    async def check(
        self, positions: Mapping[Queue, int], history: LogHistory | None, wait_ms: int = 0
    ) -> PositionCheck:
        """Whether these positions mean the same in the cluster's log, by the master's word; raises
        NodeUnavailableError if there is none to ask for `wait_ms`."""
        return await self._questions.ask_master(
            lambda node: check_positions(node, history, positions, self.timeout_ms), wait_ms
        )

    async def ranges_at_master(self, topics: Sequence[str]) -> dict[Queue, QueueRange] | None:
        """As `ranges_in_cluster`, by the master's word alone; None without a master to ask."""
        try:
            ranges = await self._questions.ask_master(
                lambda node: self._ranges_of(node, topics, of_master=True)
            )
        except NO_MASTER:
            return None
        return {(each.topic, each.queue_id): each for each in ranges}

    async def _topics_of(
        self, node: Node, names: Sequence[str], *, of_master: bool = False
    ) -> list[admin_pb2.Topic]:
        return await pages_of_topics(
            names,
            lambda request: node.ask(node.admin.ListTopics, request, self.timeout_ms),
            of_master=of_master,
        )

    async def _ranges_of(
        self, node: Node, topics: Sequence[str], *, of_master: bool = False
    ) -> list[QueueRange]:
        rows: list[broker_pb2.QueueRange] = []
        for names in in_parts(topics, MAX_NAMES) or [()]:

            async def ask(page: str, names: Sequence[str] = names) -> str:
                request = broker_pb2.QueueRangesRequest(
                    topics=names, page=page, of_master=of_master
                )
                answer = await node.ask(node.broker.QueueRanges, request, self.timeout_ms)
                rows.extend(answer.ranges)
                return answer.next_page

            await every_page(ask)
        ranges = [
            QueueRange(
                each.topic,
                each.queue_id,
                each.min_offset,
                each.max_offset,
                each.min_timestamp,
                each.max_timestamp,
            )
            for each in rows
        ]
        return sorted(ranges, key=attrgetter("topic", "queue_id"))

    async def _search_of(
        self,
        node: Node,
        queues: Sequence[Queue],
        timestamp: int,
        boundary: broker_pb2.Boundary.ValueType,
        *,
        of_master: bool = False,
    ) -> list[int]:
        offsets: list[int] = []
        for part in in_parts(queues, MAX_SEARCHES):
            request = broker_pb2.SearchOffsetRequest(
                queues=[_position(queue, 0) for queue in part],
                timestamp=timestamp,
                boundary=boundary,
                of_master=of_master,
            )
            answer = await node.ask(node.broker.SearchOffset, request, self.timeout_ms)
            offsets.extend(answer.offsets)
        return offsets

    async def at_time(
        self,
        queues: Sequence[Queue],
        timestamp: int,
        boundary: broker_pb2.Boundary.ValueType = broker_pb2.LOWER,
    ) -> dict[Queue, int]:
        """LOWER: the first message stored at or after `timestamp` (ms); UPPER: the last stored at
        or before it."""
        if not queues:
            return {}
        answers, _ = await self._questions.ask(
            lambda node: self._search_of(node, queues, timestamp, boundary),
            f"looking for messages of {timestamp} ms",
            lambda node: self._search_of(node, queues, timestamp, boundary, of_master=True),
        )
        offsets = [max(each) for each in zip(*answers, strict=True)]
        return dict(zip(queues, offsets, strict=True))

    async def committed(self, group: str, topics: Sequence[str] = ()) -> dict[Queue, int]:
        """The group's committed offsets, as the master knows them, by queue."""
        offsets: dict[Queue, int] = {}
        for names in in_parts(topics, MAX_NAMES) or [()]:

            async def ask(page: str, names: Sequence[str] = names) -> str:
                request = broker_pb2.FetchOffsetsRequest(group=group, topics=names, page=page)
                answer = await self._connection.on_master(
                    lambda node: node.ask(node.broker.FetchOffsets, request, self.timeout_ms)
                )
                for each in answer.offsets:
                    offsets[each.topic, each.queue_id] = each.queue_offset
                return answer.next_page

            await every_page(ask)
        return offsets

    async def commit(
        self,
        group: str,
        offsets: Mapping[Queue, int],
        member: tuple[str, int] | None = None,
        log_term: tuple[int, int] = (0, 0),
    ) -> None:
        """Saves offsets for the group at the master, as its `member` (id and epoch) if that is
        given; a repetition does no harm. `log_term`: of the log that they were read from. Raises
        FencedMemberError for queues that the member does not own, GroupHasMembersError if no member
        is given for queues that a member owns, and OffsetOutOfRangeError for messages that the
        queue does not have: LogCutError if it had them."""
        refused: list[Queue] = []
        failed: FencedMemberError | OffsetOutOfRangeError | None = None
        for part in in_parts(list(offsets.items()), MAX_ROWS):
            request = broker_pb2.CommitOffsetsRequest(
                group=group,
                offsets=[_position(queue, offset) for queue, offset in part],
                member_id=member[0] if member is not None else "",
                member_epoch=member[1] if member is not None else 0,
                log_epoch=log_term[0],
                term_id=log_term[1],
            )

            async def ask(node: Node, request: Any = request) -> broker_pb2.CommitOffsetsResponse:
                response = await node.call(node.broker.CommitOffsets, request, self.timeout_ms)
                if response.error.code:
                    error = error_from(response.error, node.endpoint)
                    if isinstance(error, FencedMemberError | OffsetOutOfRangeError):
                        rows = response.refused or request.offsets
                        error.refused = tuple((row.topic, row.queue_id) for row in rows)
                    raise error
                return response

            try:
                await self._connection.on_master(ask)
            except (FencedMemberError, OffsetOutOfRangeError) as error:
                if failed is None or isinstance(error, FencedMemberError):
                    failed = error
                refused += error.refused
        if failed is not None:
            failed.refused = tuple(refused)
            raise failed

    async def start(
        self, queues: Sequence[Queue], start: Start | Mapping[Queue, int], group: str | None
    ) -> dict[Queue, int]:
        """The offset of each queue at which reading begins. Queues for which a mapping has none are
        left out."""
        if isinstance(start, Mapping):
            return {queue: start[queue] for queue in queues if queue in start}
        topics = list(dict.fromkeys(topic for topic, _ in queues))
        ranges, _ = await self.ranges_in_cluster(topics)
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

    async def end(
        self, queues: Sequence[Queue], end: Start | Mapping[Queue, int]
    ) -> dict[Queue, int]:
        """The offset of each queue before which a scan ends, at most its present end."""
        ranges, _ = await self.ranges_in_cluster(list(dict.fromkeys(topic for topic, _ in queues)))
        last = {queue: ranges[queue].max_offset if queue in ranges else 0 for queue in queues}
        if isinstance(end, Mapping):
            wanted = dict(end)
        elif end == LATEST:
            wanted = {}
        elif isinstance(end, str):
            raise InvalidArgumentError(
                f"end must be {LATEST}, a time or offsets, not {end!r}", field="end"
            )
        else:
            wanted = await self.at_time([each for each in queues if each in ranges], in_ms(end))
        return {queue: min(offset, wanted.get(queue, offset)) for queue, offset in last.items()}


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
