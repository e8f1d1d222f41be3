"""What the driver asks the cluster: which queues there are, what they hold, where a group stands.

The master decides what queues hold. If there is none, the ranges of the responding nodes are
combined, and may be behind: then `sure` is False, and no message counts as lost or missing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from tandemlog.cluster.histories import PositionCheck, check_positions, is_unknown_call
from tandemlog.cluster.master_questions import MASTER_WAIT_MS, NO_MASTER, MasterQuestions
from tandemlog.cluster.node import Node
from tandemlog.cluster.paging import in_parts, pages_of_topics
from tandemlog.cluster.pull_answer import PullAnswer
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.positions import Positions, QueueRange, queues_of
from tandemlog.consume.reading import Reader
from tandemlog.consume.received_message import ReceivedMessage
from tandemlog.errors import (
    InvalidArgumentError,
    TandemlogError,
    UnknownTopicError,
)
from tandemlog.format.constants import is_system_topic
from tandemlog.format.files.log_history import LogHistory
from tandemlog.v1 import admin_pb2, broker_pb2

from .connections import connection_of, run
from .errors import ClusterError, DataLossError, OffsetsError
from .offsets import Offsets, Queue
from .offsets_resolve import NOTHING, Held
from .options import ClusterOptions, Selection

_READABLE: Final = 4
MAX_PLACES: Final = 256
_TIMES_BYTES: Final = 1 << 20
Place = tuple[str, int, int]
"""Topic, queue id and queue offset."""
_QUEUES_OF_PULL: Final = 1_000
"""In one request; a node takes a few times as many."""
_SAMPLE: Final = 16
"""Messages of a queue whose mean size stands for all."""


class Cluster:
    """The queues of `selection`. All methods raise ClusterError saying what was asked for."""

    def __init__(self, options: ClusterOptions, selection: Selection) -> None:
        self._options = options
        self._selection = selection
        self._pattern = re.compile(selection.pattern) if selection.pattern is not None else None
        self.sure = False

    def queues(self) -> list[Queue]:
        """All queues that are read, also those without a message. Raises ClusterError for topics
        and queues that do not exist, and where a pattern matches nothing."""
        return run(self._queues(), "selecting the queues to read")

    async def _queues(self) -> list[Queue]:
        topics = await self._positions().topics(self._names())
        if self._pattern is None:
            return sorted(queues_of(topics, self._selection.assigned or None))
        found = [each for each in topics if self._matches(each)]
        if not found:
            raise ClusterError(
                f"option topicsPattern: no topic matches {self._pattern.pattern!r}; there are "
                f"{', '.join(sorted(each.name for each in topics)[:50]) or 'none'}"
            )
        return sorted(queues_of(found, None))

    def _matches(self, topic: admin_pb2.Topic) -> bool:
        return bool(topic.perm & _READABLE) and self._selects(topic.name)

    def _selects(self, topic: str) -> bool:
        assert self._pattern is not None
        return self._pattern.fullmatch(topic) is not None and not is_system_topic(topic)

    def _names(self) -> list[str]:
        return sorted(self._selection.assigned) or list(self._selection.topics)

    def held(self, queues: Iterable[Queue] = ()) -> dict[Queue, Held]:
        """What the selected queues hold, `queues` among them even if that is nothing. Sets
        `sure`."""
        found = dict.fromkeys(queues, NOTHING)
        ranges, self.sure = run(self._held(), "asking what the queues hold")
        found |= {
            queue: Held(each.min_offset, each.max_offset, each.max_timestamp)
            for queue, each in ranges.items()
            if self._is_selected(each)
        }
        return found

    def _is_selected(self, each: QueueRange) -> bool:
        if self._pattern is not None:
            return self._selects(each.topic)
        assigned = self._selection.assigned
        return not assigned or each.queue_id in assigned[each.topic]

    async def _held(self) -> tuple[dict[Queue, QueueRange], bool]:
        return await self._positions().held(self._names())

    def check(self, positions: Offsets, history: LogHistory | None) -> PositionCheck | None:
        """Whether offsets of next messages, read from a log with `history`, mean the same in the
        cluster's log now, and that log's history. Without a `history` it is only asked for; None if
        the nodes are too old to say. Waits for a master, as `held` does; without one sets `sure` to
        False and gives None."""
        return run(self._check(positions, history), "comparing offsets with the log")

    async def _check(self, positions: Offsets, history: LogHistory | None) -> PositionCheck | None:
        timeout_ms = self._options.request_timeout_ms

        async def compared(node: Node) -> PositionCheck:
            found = await check_positions(node, None, {}, timeout_ms)
            if history is None or _has_only_grown(history, found.history):
                return found
            return await check_positions(node, history, positions, timeout_ms)

        try:
            return await MasterQuestions(connection_of(self._options)).ask_master(
                compared, min(MASTER_WAIT_MS, self._options.retry_timeout_ms)
            )
        except NO_MASTER:
            self.sure = False
            return None
        except InvalidArgumentError as error:
            if is_unknown_call(error):
                return None
            raise

    def is_of(self, history: LogHistory) -> bool:
        """Without a master: whether all nodes that respond have a log with just this history."""
        return run(self._is_of(history), "asking for the history of the log")

    async def _is_of(self, history: LogHistory) -> bool:
        connection = connection_of(self._options)
        timeout_ms = self._options.request_timeout_ms
        found, _ = await MasterQuestions(connection).ask(
            lambda node: check_positions(node, None, {}, timeout_ms), "asking for its history"
        )
        return all(each.history.newest == history.newest for each in found)

    def gone_topic(self, topics: Sequence[str]) -> str | None:
        """What the master says of one of the topics that is not there; None if all are, or no
        master can be asked."""
        return run(self._gone_topic(topics), "looking for the topics") if topics else None

    async def _gone_topic(self, topics: Sequence[str]) -> str | None:
        connection = connection_of(self._options)
        timeout_ms = self._options.request_timeout_ms

        async def listed(node: Node) -> None:
            await pages_of_topics(
                topics, lambda request: node.ask(node.admin.ListTopics, request, timeout_ms)
            )

        try:
            await MasterQuestions(connection).ask_master(listed)
        except UnknownTopicError as error:
            return str(error)
        except NO_MASTER:
            return None
        return None

    def at_time(self, queues: Sequence[Queue], time_ms: int) -> Offsets:
        """By queue, the first message stored at or after a time; the end where there is none."""
        return run(self._at_time(queues, time_ms), f"looking for messages of {time_ms} ms")

    async def _at_time(self, queues: Sequence[Queue], time_ms: int) -> Offsets:
        return await self._positions().at_time(queues, time_ms)

    def committed(self, group: str, queues: Iterable[Queue]) -> Offsets:
        """Where a group stands, for those of the queues where it does."""
        found = run(
            self._committed(group, sorted({topic for topic, _ in queues})),
            f"asking for the offsets of group {group}",
        )
        return {queue: found[queue] for queue in queues if queue in found}

    async def _committed(self, group: str, topics: Sequence[str]) -> Offsets:
        return await self._positions().committed(group, topics)

    def commit(
        self, group: str, offsets: Mapping[Queue, int], history: LogHistory | None = None
    ) -> None:
        """Where a group continues, kept by the cluster. `history`: of the log in which these are
        offsets; those of messages that are not in the log any more are not kept, and raise
        ClusterError."""
        run(self._commit(group, offsets, history), f"storing the offsets of group {group}")

    async def _commit(
        self, group: str, offsets: Mapping[Queue, int], history: LogHistory | None
    ) -> None:
        log_term = history.newest if history is not None else (0, 0)
        await self._positions().commit(group, offsets, log_term=log_term)

    def mean_sizes(self, starts: Mapping[Queue, int]) -> dict[Queue, float]:
        """Mean bytes of the first few messages from these places on."""
        return run(self._mean_sizes(starts), "measuring messages") if starts else {}

    async def _mean_sizes(self, starts: Mapping[Queue, int]) -> dict[Queue, float]:
        sizes: dict[Queue, float] = {}
        for queues in in_parts(sorted(starts), _QUEUES_OF_PULL):
            request = broker_pb2.PullRequest(
                positions=[
                    broker_pb2.QueuePosition(
                        topic=topic, queue_id=queue_id, queue_offset=starts[topic, queue_id]
                    )
                    for topic, queue_id in queues
                ],
                max_messages=_SAMPLE,
            )
            answer = await Reader(connection_of(self._options), ReadFrom.ANY).ask(
                partial(_pulled, request, self._options.request_timeout_ms)
            )
            for part in answer.parts:
                if part.head.count:
                    queue = queues[part.head.position_index]
                    sizes[queue] = len(part.records) / part.head.count
        return sizes

    def store_times(self, places: Sequence[Place]) -> dict[Place, int]:
        """Store times (ms) of the messages at these places, in one request: those of the first
        MAX_PLACES for which there is a message, and of as many as fit into an answer."""
        if not places:
            return {}
        return run(self._store_times(places[:MAX_PLACES]), "asking when messages were stored")

    async def _store_times(self, places: Sequence[Place]) -> dict[Place, int]:
        request = broker_pb2.PullRequest(
            positions=[
                broker_pb2.QueuePosition(topic=topic, queue_id=queue_id, queue_offset=offset)
                for topic, queue_id, offset in places
            ],
            max_messages=1,
            max_bytes=_TIMES_BYTES,
        )
        answer = await Reader(connection_of(self._options), ReadFrom.ANY).ask(
            partial(_pulled, request, self._options.request_timeout_ms)
        )
        return {
            places[part.head.position_index]: ReceivedMessage(
                part.records, 0, int.from_bytes(part.head.sizes[:4], "little")
            ).store_timestamp
            for part in answer.parts
            if part.head.count
        }

    def _positions(self) -> Positions:
        connection = connection_of(self._options)
        return Positions(connection, Reader(connection, ReadFrom.ANY))


def _has_only_grown(known: LogHistory, now: LogHistory) -> bool:
    """Whether `now` has no term behind those of `known`: then all positions mean the same. A term
    without an id does not prove it."""
    return now.terms[-1:] == known.terms[-1:] and known.newest[1] != 0


async def _pulled(request: broker_pb2.PullRequest, timeout_ms: int, node: Node) -> PullAnswer:
    return await node.pull(request, timeout_ms)


@contextmanager
def judged(*, sure: bool) -> Iterator[None]:
    """Around what holds offsets against what the queues hold: unless that is `sure`, a loss or an
    offset that is nowhere is a ClusterError."""
    try:
        yield
    except (DataLossError, OffsetsError) as error:
        if sure:
            raise
        raise ClusterError(
            f"{error}. But there is no master now, and slaves may be behind: try again once the "
            "cluster has one"
        ) from None


def check_reachable(options: ClusterOptions) -> None:
    """That some node answers; raises ClusterError."""
    run(_reach(options), "looking for the cluster")


async def _reach(options: ClusterOptions) -> None:
    async def is_there(node: object) -> None:
        """It is enough that there is one."""

    await Reader(connection_of(options), ReadFrom.ANY).ask(is_there)


def check_writable(options: ClusterOptions, topic: str) -> int:
    """The queues of a topic that messages are to be sent to. Raises ClusterError if the
    cluster cannot be reached, or has no such topic to write to."""
    return run(_writable(options, topic), f"looking at topic {topic}")


async def _writable(options: ClusterOptions, topic: str) -> int:
    connection = connection_of(options)
    [found] = await Positions(connection, Reader(connection, ReadFrom.ANY)).topics([topic])
    if not found.perm & 2 or found.write_queues < 1:
        raise TandemlogError(
            f"topic {topic!r} takes no messages: permission {found.perm}, "
            f"{found.write_queues} write queues"
        )
    return found.write_queues
