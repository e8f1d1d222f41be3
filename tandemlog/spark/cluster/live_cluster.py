"""What the driver asks the cluster: which queues exist, what they hold, where a group continues.

The master knows what queues hold. Without a master the ranges of the responding nodes are combined,
and may be behind: then `sure` is False, and no message counts as lost or missing.
"""

import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tandemlog.cluster.histories import PositionCheck, check_positions, is_unknown_call
from tandemlog.cluster.master_questions import MASTER_WAIT_MS, NO_MASTER, MasterQuestions
from tandemlog.cluster.node import Node
from tandemlog.cluster.paging import in_parts, pages_of_topics
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.reading.positions import Positions, QueueRange, queues_of
from tandemlog.consume.reading.pulls import Place, pull
from tandemlog.consume.reading.reader import Reader
from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.errors import (
    InvalidArgumentError,
    TandemlogError,
    UnknownTopicError,
)
from tandemlog.format.constants import is_system_topic
from tandemlog.format.files.log_history import LogHistory
from tandemlog.v1 import admin_pb2

from .cluster_errors import ClusterError, DataLossError, OffsetsError
from .live_options import ClusterOptions, Selection
from .process_connections import connection_of, run
from .queue_offsets import Offsets, Queue
from .resolve_offsets import NOTHING, Held

_READABLE, _WRITABLE = 4, 2
MAX_PLACES: Final = 256
_TIMES_BYTES: Final = 1 << 20
_QUEUES_OF_PULL: Final = 1_000
"""In one request; a node takes a few times as many."""
_SAMPLE: Final = 16
"""Messages of a queue whose mean size stands for all."""
TRIES: Final = 5
"""To read what the queues hold without a change of master meanwhile."""

ClusterT = TypeVar("ClusterT")
ResultT = TypeVar("ResultT")
ArgsT = ParamSpec("ArgsT")


def asked(
    doing: str,
) -> Callable[
    [Callable[Concatenate[ClusterT, ArgsT], Coroutine[Any, Any, ResultT]]],
    Callable[Concatenate[ClusterT, ArgsT], ResultT],
]:
    """Runs a method in the loop of the process. Raises ClusterError, which says what it was doing;
    {0} is the first positional argument."""

    def in_loop(
        method: Callable[Concatenate[ClusterT, ArgsT], Coroutine[Any, Any, ResultT]],
    ) -> Callable[Concatenate[ClusterT, ArgsT], ResultT]:
        @wraps(method)
        def called(self: ClusterT, /, *args: ArgsT.args, **named: ArgsT.kwargs) -> ResultT:
            return run(method(self, *args, **named), doing.format(*args))

        return called

    return in_loop


class Cluster:
    """The queues of `selection`. All methods raise ClusterError, which says what was asked."""

    def __init__(self, options: ClusterOptions, selection: Selection) -> None:
        self._options = options
        self._selection = selection
        self._pattern = re.compile(selection.pattern) if selection.pattern is not None else None
        self._timeout_ms = options.request_timeout_ms
        self.sure = False

    @asked("selecting the queues to read")
    async def queues(self) -> list[Queue]:
        """All queues that are read, also those without a message. Raises ClusterError for topics
        and queues that do not exist, and where a pattern matches nothing."""
        topics = await self._positions().topics(self._names())
        if self._pattern is None:
            return sorted(queues_of(topics, self._selection.assigned or None))
        matching = [each for each in topics if self._matches(each)]
        if not matching:
            raise ClusterError(
                f"option topicsPattern: no topic matches {self._pattern.pattern!r}; there are "
                f"{', '.join(sorted(each.name for each in topics)[:50]) or 'none'}"
            )
        return sorted(queues_of(matching, None))

    def _matches(self, topic: admin_pb2.Topic) -> bool:
        return bool(topic.perm & _READABLE) and self._selects(topic.name)

    def _selects(self, topic: str) -> bool:
        assert self._pattern is not None
        return self._pattern.fullmatch(topic) is not None and not is_system_topic(topic)

    def _names(self) -> list[str]:
        return sorted(self._selection.assigned) or list(self._selection.topics)

    @asked("asking what the queues hold")
    async def held(self, queues: Iterable[Queue] = ()) -> dict[Queue, Held]:
        """What the selected queues hold, and `queues` even if they hold nothing. Sets `sure`."""
        ranges, self.sure = await self._positions().ranges_in_cluster(self._names())
        return dict.fromkeys(queues, NOTHING) | {
            queue: Held(each.min_offset, each.max_offset, each.max_timestamp)
            for queue, each in ranges.items()
            if self._is_selected(each)
        }

    def _is_selected(self, each: QueueRange) -> bool:
        if self._pattern is not None:
            return self._selects(each.topic)
        assigned = self._selection.assigned
        return not assigned or each.queue_id in assigned[each.topic]

    @asked("comparing offsets with the log")
    async def check(self, positions: Offsets, history: LogHistory | None) -> PositionCheck | None:
        """Whether offsets of next messages, read from a log with `history`, mean the same in the
        cluster's log now; and that log's history, which is all without `history`. None if the nodes
        are too old to know. Waits for a master, as `held` does; without one sets `sure` to False
        and returns None."""

        async def compared(node: Node) -> PositionCheck:
            now = await check_positions(node, None, {}, self._timeout_ms)
            if history is None or _has_only_grown(history, now.history):
                return now
            return await check_positions(node, history, positions, self._timeout_ms)

        try:
            return await self._questions().ask_master(
                compared, min(MASTER_WAIT_MS, self._options.retry_timeout_ms)
            )
        except NO_MASTER:
            self.sure = False
            return None
        except InvalidArgumentError as error:
            if is_unknown_call(error):
                return None
            raise

    @asked("asking for the history of the log")
    async def is_of(self, history: LogHistory) -> bool:
        """Without a master: whether the logs of all responding nodes have exactly this history."""
        checks, _ = await self._questions().ask(
            lambda node: check_positions(node, None, {}, self._timeout_ms),
            "asking for its history",
        )
        return all(each.history.newest == history.newest for each in checks)

    @asked("looking for the topics")
    async def missing_topic(self, topics: Sequence[str]) -> str | None:
        """What the master says of a topic that does not exist; None if all exist, or without a
        master."""

        async def listed(node: Node) -> None:
            await pages_of_topics(
                topics, lambda request: node.ask(node.admin.ListTopics, request, self._timeout_ms)
            )

        try:
            if topics:
                await self._questions().ask_master(listed)
        except UnknownTopicError as error:
            return str(error)
        except NO_MASTER:
            pass
        return None

    @asked("looking for messages of {1} ms")
    async def at_time(self, queues: Sequence[Queue], time_ms: int) -> Offsets:
        """By queue, the first message stored at or after a time, or else the end."""
        return await self._positions().at_time(queues, time_ms)

    @asked("asking for the offsets of group {0}")
    async def committed(self, group: str, queues: Iterable[Queue]) -> Offsets:
        """The committed offsets of a group in those of the queues that have one."""
        wanted = list(queues)
        offsets = await self._positions().committed(group, sorted({topic for topic, _ in wanted}))
        return {queue: offsets[queue] for queue in wanted if queue in offsets}

    @asked("storing the offsets of group {0}")
    async def commit(
        self, group: str, offsets: Mapping[Queue, int], history: LogHistory | None = None
    ) -> None:
        """Store in the cluster where a group continues. `history`: of the log of these offsets.
        Raises ClusterError, and stores nothing, for messages that are no longer in the log."""
        log_term = history.newest if history is not None else (0, 0)
        await self._positions().commit(group, offsets, log_term=log_term)

    @asked("measuring messages")
    async def mean_sizes(self, starts: Mapping[Queue, int]) -> dict[Queue, float]:
        """Mean bytes of the first few messages from these offsets on."""
        sizes: dict[Queue, float] = {}
        for places in in_parts(sorted(starts.items()), _QUEUES_OF_PULL):
            batches = await self._pull(places, max_messages=_SAMPLE)
            for batch in batches.values():
                sizes[batch.topic, batch.queue_id] = len(batch.records) / len(batch)
        return sizes

    @asked("asking when messages were stored")
    async def store_times(
        self, messages: Sequence[tuple[str, int, int]]
    ) -> dict[tuple[str, int, int], int]:
        """Store times (ms) of the messages with this topic, queue id and queue offset, in one
        request: of the first MAX_PLACES, those that exist and fit into one response."""
        places = [((topic, queue_id), offset) for topic, queue_id, offset in messages[:MAX_PLACES]]
        batches = await self._pull(places, max_messages=1, max_bytes=_TIMES_BYTES)
        return {messages[index]: batch[0].store_timestamp for index, batch in batches.items()}

    async def _pull(
        self, places: Sequence[Place], *, max_messages: int, max_bytes: int = 0
    ) -> dict[int, ReceivedBatch]:
        """The messages that any node has at these places, by the index of the place."""
        if not places:
            return {}
        pulled = await self._reader().ask(
            lambda node: pull(
                node, places, self._timeout_ms, max_messages=max_messages, max_bytes=max_bytes
            )
        )
        return {index: batch for index, batch in pulled.parts if len(batch)}

    def _reader(self) -> Reader:
        return Reader(connection_of(self._options), ReadFrom.ANY)

    def _positions(self) -> Positions:
        return Positions(connection_of(self._options), self._reader())

    def _questions(self) -> MasterQuestions:
        return MasterQuestions(connection_of(self._options))


def _has_only_grown(known: LogHistory, now: LogHistory) -> bool:
    """Whether `now` has no term after those of `known`: then all positions mean the same. A term
    without an id does not prove that."""
    return now.terms[-1:] == known.terms[-1:] and known.newest[1] != 0


def in_one_term(cluster: Cluster, read: Callable[[], ResultT]) -> tuple[ResultT, LogHistory | None]:
    """The result of `read`, during which no other term began, and the history of that log; None if
    no node says."""
    checked = cluster.check({}, None)
    for _ in range(TRIES):
        result = read()
        before, checked = checked, cluster.check({}, None)
        if checked is None or (before and before.history.newest == checked.history.newest):
            break
    return result, None if checked is None else checked.history


@contextmanager
def judged(*, sure: bool) -> Iterator[None]:
    """Around a comparison of offsets with what the queues hold: unless that is `sure`, a loss or an
    unknown offset becomes a ClusterError."""
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
    """Check that some node answers. Raises ClusterError."""
    run(_reach(options), "looking for the cluster")


async def _reach(options: ClusterOptions) -> None:
    async def is_there(node: object) -> None:
        """To have found a node is enough."""

    await Reader(connection_of(options), ReadFrom.ANY).ask(is_there)


def check_writable(options: ClusterOptions, topic: str) -> int:
    """How many queues a topic has to write to. Raises ClusterError if the cluster cannot be
    reached, or has no such topic that can be written."""
    return run(_writable(options, topic), f"looking at topic {topic}")


async def _writable(options: ClusterOptions, topic: str) -> int:
    connection = connection_of(options)
    [config] = await Positions(connection, Reader(connection, ReadFrom.ANY)).topics([topic])
    if not config.perm & _WRITABLE or config.write_queues < 1:
        raise TandemlogError(
            f"topic {topic!r} takes no messages: permission {config.perm}, "
            f"{config.write_queues} write queues"
        )
    return config.write_queues
