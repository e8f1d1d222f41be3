"""The consumer for asyncio: single pulls, and following any number of queues.

    async with AsyncConsumer("10.0.0.1:10911", group="billing") as consumer:
        async with await consumer.follow("orders", tags="paid || refunded") as stream:
            async for message in stream:
                ...

Messages come at least once: those that were not committed when a consumer stopped come again. The
consumers of one group share the queues of their topics: the master assigns each queue to one of
them.
"""

import asyncio
import logging
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from ..cluster.connection import Connection
from ..cluster.connection_options import ConnectionOptions, secured
from ..cluster.histories import PositionCheck
from ..cluster.topology import ReadFrom
from ..errors import InvalidArgumentError, NodeUnavailableError
from ..forks import inherited, watch
from ..format.constants import group_fault
from ..format.files.log_history import LogHistory
from ..telemetry.measures import Percentiles
from ..transport.security import Security
from ..v1 import admin_pb2
from .follow_options import FollowOptions
from .following.fetcher import Fetcher
from .following.follower import Callbacks, Follower, OnCommitError, OnQueues
from .group.membership import Membership
from .left_open import close_later
from .reading.positions import (
    COMMITTED,
    EARLIEST,
    LATEST,
    Positions,
    Queue,
    QueueRange,
    Start,
    queues_of,
)
from .reading.pulls import pull
from .reading.queue_lag import Lags, end_of
from .reading.reader import Reader
from .reading.selector import Selector
from .received.lazy_arrow import schema_of
from .received.received_batch import ReceivedBatch
from .scan import AsyncScan
from .statistics import ConsumerStatistics, together, totals_of
from .stream import AsyncStream
from .subscription import Subscription, Topics
from .work.async_work import AsyncWork, new_core
from .work.work_options import BackoffLike, Handler, WantedPolicy, WorkOptions

if TYPE_CHECKING:
    from .work.work_core import WorkCore

logger = logging.getLogger(__name__)

_OFFSETS_OF_SHARED = (
    "offsets for single queues need queues=, since the master assigns the queues of a group; "
    "Admin.reset_offsets moves a group"
)


class AsyncConsumer:
    """Reads from the cluster that `endpoints` belong to: from its master, a slave or any node, and
    from another allowed node if one fails. `group` is the group whose offsets are committed, and
    whose members share the queues. `instance_id` makes a static member: one that comes back within
    its session under this name gets the same queues."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        group: str | None = None,
        instance_id: str | None = None,
        read_from: ReadFrom | str = ReadFrom.ANY,
        options: FollowOptions | None = None,
        connection: ConnectionOptions | None = None,
        security: Security | None = None,
    ) -> None:
        # only the master knows whether the group is new, and its name then too long
        fault = group_fault(group, new=False) if group is not None else None
        if fault is not None:
            raise InvalidArgumentError(f"group {group!r}: {fault}", field="group")
        if instance_id is not None and (group is None or not instance_id):
            raise InvalidArgumentError(
                "an instance_id needs a group, and at least one character", field="instance_id"
            )
        self.group = group
        self.instance_id = instance_id
        self._options = options or FollowOptions()
        self._connection = Connection(endpoints, secured(connection, security))
        self._read_from = ReadFrom(read_from)
        self._reader = Reader(self._connection, self._read_from)
        self._positions = Positions(self._connection, self._reader)
        self._lags = Lags(self._connection, self._positions)
        self._followers: list[Follower] = []
        self._past = ConsumerStatistics()
        watch(self)
        self._scans: set[AsyncScan] = set()
        self._works: list[WorkCore] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Nothing to do: the first call connects. For symmetry with the producer."""

    def __del__(self) -> None:
        """A member that nothing reads from would keep its queues from the others: it leaves."""
        if inherited(self):
            return
        open_ = [each for each in getattr(self, "_followers", ()) if not each.closed]
        if not open_:
            return
        text = "an AsyncConsumer was not closed; use `async with`, or await close()"
        if any(each.membership is not None for each in open_):
            text += f"; it leaves group {self.group!r}"
            logger.warning("%s", text)
        warnings.warn(text, ResourceWarning, stacklevel=2)
        for each in open_:
            close_later(each, each.loop)

    async def close(self) -> None:
        """Closes its streams and the connection."""
        if inherited(self):
            return
        for scan in list(self._scans):
            await scan.close()
        await asyncio.gather(*(work.close() for work in self._works))
        followers, self._followers = self._followers, []
        for follower in followers:
            await follower.close()
            self._remember(follower)
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
        where: str | None = None,
        wait_ms: int = 0,
    ) -> ReceivedBatch:
        """Messages of one queue from an offset on, and RocketMQ's status; waits up to `wait_ms`
        for the first; `tags` and `where` as in `follow`. An offset that is not there is not an
        error; the status shows it."""
        selector = Selector.of(tags, where)
        timeout_ms = self._connection.options.request_timeout_ms
        pulled = await self._reader.ask(
            lambda node: pull(
                node,
                [((topic, queue_id), queue_offset)],
                timeout_ms,
                max_messages=max_messages,
                max_bytes=self._options.max_bytes if max_bytes is None else max_bytes,
                selector=selector,
                wait_ms=wait_ms,
                group=self.group or "",
            )
        )
        self._reader.hint(pulled.suggest_slave)
        [(_, batch)] = pulled.parts
        return batch.only_tags(selector.tags)

    async def follow(
        self,
        topics: Topics,
        *,
        queues: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
        start: Start | Mapping[Queue, int] | None = None,
        tags: str | None = None,
        where: str | None = None,
        until_end: bool = False,
        options: FollowOptions | None = None,
        on_assigned: OnQueues | None = None,
        on_revoked: OnQueues | None = None,
        on_lost: OnQueues | None = None,
        on_commit_error: OnCommitError | None = None,
    ) -> AsyncStream:
        """Messages of all queues of `topics`, as they come.

        With a group the queues are shared with its other members; `queues` names them by hand
        instead. `topics`: names or patterns (see Subscription). `start`: EARLIEST, LATEST,
        COMMITTED or a time (ms or datetime); with a shared group it is for topics of which the
        group has no committed offset, as they are now, and EARLIEST by default: queues and topics
        that come later are read from their beginning. Without sharing it may be an offset for each
        (topic, queue id); the default is COMMITTED with a group, EARLIEST without. `tags`:
        "a || b". `where`: a filter over the properties, RocketMQ's SQL92: "amount > 5 AND region IN
        ('eu', 'us')"; a filter that the node refuses ends the stream with InvalidArgumentError.
        What `tags` and `where` leave out counts as read. `until_end`: stops at the present end of
        the queues.

        Called by the task that takes the messages: `on_assigned`, `on_revoked` (it may commit)
        and `on_lost` with the stream and queues, after they were assigned, before they are given
        up, after they were lost; `on_commit_error` with an error and offsets.

        Raises UnknownTopicError, UnknownQueueError, NoNodeError.
        """
        selector = Selector.of(tags, where)
        subscription = Subscription(self._positions, topics)
        shared = self.group is not None and queues is None
        if shared and isinstance(start, Mapping):
            raise InvalidArgumentError(_OFFSETS_OF_SHARED, field="start")
        present = await subscription.topics()
        wanted_queues = queues_of(present, queues)
        stops = None
        if until_end:
            ranges, _ = await self._positions.ranges_in_cluster([topic.name for topic in present])
            stops = {queue: end_of(ranges.get(queue)) for queue in wanted_queues}
        options = options or self._options
        follower = self._follower(
            options,
            stops,
            selector,
            group=self.group,
            start=EARLIEST if start is None or isinstance(start, Mapping) else start,
            callbacks=Callbacks(on_assigned, on_revoked, on_lost, on_commit_error),
            lose_topics=bool(subscription.patterns),
        )
        self._forget_closed()
        self._followers.append(follower)
        try:
            if shared:
                await follower.fix_start(wanted_queues)
                await self._join(follower, subscription, present, options)
            else:
                fixed = until_end or queues is not None or isinstance(start, Mapping)
                await self._read_alone(follower, subscription, wanted_queues, start, fixed=fixed)
        except BaseException:
            await follower.close()
            raise
        return AsyncStream(follower, self)

    def _follower(
        self,
        options: FollowOptions,
        stops: Mapping[Queue, int] | None,
        selector: Selector,
        *,
        group: str | None = None,
        start: Start = EARLIEST,
        callbacks: Callbacks | None = None,
        lose_topics: bool = False,
    ) -> Follower:
        fetcher = Fetcher(
            Reader(self._connection, self._read_from),
            self._positions,
            options,
            stops=stops,
            selector=selector,
            group=group,
            lose_topics=lose_topics,
        )
        return Follower(
            fetcher,
            self._positions,
            self._lags,
            options,
            group=group,
            start=start,
            callbacks=callbacks,
        )

    async def _read_alone(
        self,
        follower: Follower,
        subscription: Subscription,
        queues: Sequence[Queue],
        start: Start | Mapping[Queue, int] | None,
        *,
        fixed: bool,
    ) -> None:
        committed: Mapping[Queue, int] = {}
        await follower.log.try_catch_up()
        epoch = follower.progress.epoch
        if start in (None, COMMITTED) and self.group is not None:
            topics = sorted({topic for topic, _ in queues})
            committed = await self._positions.committed(self.group, topics)
            first = await self._positions.start(queues, EARLIEST, None)
            starts = {queue: committed.get(queue, first[queue]) for queue in queues}
        else:
            begin = EARLIEST if start is None else start
            starts = await self._positions.start(queues, begin, self.group)

        async def all_queues() -> list[Queue]:
            return queues_of(await subscription.topics(), None)

        if not fixed:
            follower.watch_queues(all_queues)
        follower.progress.note_committed(committed, epoch)
        follower.read_from(starts)

    async def _join(
        self,
        follower: Follower,
        subscription: Subscription,
        topics: Collection[admin_pb2.Topic],
        options: FollowOptions,
    ) -> None:
        """Returns when the master has accepted the stream as a member; raises if it refuses."""
        assert self.group is not None
        membership = Membership(
            self._connection,
            follower,
            options,
            group=self.group,
            topics=[topic.name for topic in topics],
            instance_id=self.instance_id or "",
        )
        follower.membership = membership
        if subscription.patterns:

            async def names() -> list[str]:
                return [topic.name for topic in await subscription.topics()]

            follower.watch_topics(names)
        try:
            async with asyncio.timeout(self._connection.options.retry_timeout_ms / 1e3):
                await asyncio.shield(membership.joined)
        except TimeoutError:
            raise NodeUnavailableError(
                f"no master took this consumer as a member of group {self.group!r}: "
                f"{membership.last_failure or 'none responded'}"
            ) from None

    async def scan(
        self,
        topics: str | Sequence[str],
        *,
        start: Start | Mapping[Queue, int] = EARLIEST,
        end: Start | Mapping[Queue, int] = LATEST,
        columns: Sequence[str] | None = None,
        tags: str | None = None,
        where: str | None = None,
        queues: Mapping[str, Sequence[int]] | Sequence[int] | None = None,
        options: FollowOptions | None = None,
    ) -> AsyncScan:
        """The messages of `topics` from `start` to before `end` as Arrow batches.

        The result is an AsyncScan: read it before the consumer is closed.

        `start`, `tags` and `where` as in `follow`; `end`: LATEST, the present end of the queues; a
        time (ms or datetime), before which the messages were stored; or an offset for each (topic,
        queue id), LATEST for queues that it does not name. `columns` as in ReceivedBatch.to_arrow.
        Commits nothing. Raises what `follow` raises, and InvalidArgumentError for an unknown
        column.
        """
        schema, selector = schema_of(columns), Selector.of(tags, where)
        names = [topics] if isinstance(topics, str) else list(topics)
        wanted_queues = queues_of(await self._positions.topics(names), queues)
        follower = self._follower(options or self._options, {}, selector)
        try:
            await follower.log.try_catch_up()
            starts = await self._positions.start(wanted_queues, start, self.group)
            follower.stop_at(await self._positions.end(list(starts), end))
        except BaseException:
            await follower.close()
            raise
        follower.read_from(starts)
        scan = AsyncScan(follower, schema, self._scans.discard)
        self._scans.add(scan)
        return scan

    def work(
        self,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        handler: Handler | None = None,
        concurrency: int = 1,
        max_attempts: int | None = None,
        backoff: BackoffLike | None = None,
        ordered: bool | str | None = None,
        start: str | None = None,
        tags: str | None = None,
        where: str | None = None,
        lease: float = 30.0,
        prefetch: int | None = None,
        options: WorkOptions | None = None,
    ) -> AsyncWork:
        """A work queue: each message goes to one consumer of `group` (default: this consumer's),
        which acknowledges it by itself. Any number of consumers share a topic, however many queues
        it has, and nothing is assigned to one of them.

        Returns deliveries to iterate over, each to be settled: `ack`, `retry`, `reject`. Or, with a
        `handler`, something to `run`, which calls it with each delivery, `concurrency` at a time:
        one that returns is an acknowledgement; `Reject` sends the message to the dead letters,
        `RetryAfter` has it come again then, and any other exception by the group's policy. A
        function that is no coroutine function runs in a thread.

        The policy belongs to the group; what is given here changes it for all, None leaves it.
        `max_attempts`: deliveries before a message becomes a dead letter (17 in a new group).
        `backoff`: seconds before the second attempt, which double with each further one; seconds
        for each; or a Backoff (RocketMQ's levels from 10 seconds on in a new group). `ordered`:
        "queue" (or True), one message of a queue at a time, "key", one of equal sharding keys;
        False: in any order. `start`: EARLIEST or LATEST, for topics that are new to the group.

        `tags`, `where`: as in `follow`; what they leave out counts as done for the group. `lease`:
        seconds for which a message is this consumer's without a sign of life; it is renewed while
        the message waits here or is handled. `prefetch`: messages received ahead; None: as many as
        are settled in a quarter of a second, none for a caller that takes seconds.

        The first delivery, or `run`, raises UnknownTopicError, PermissionDeniedError and what else
        the node refuses."""
        core = new_core(
            self._connection,
            self._group() if group is None else group,
            topics,
            selector=Selector.of(tags, where),
            wanted=WantedPolicy.of(max_attempts, backoff, ordered, start),
            lease=lease,
            prefetch=prefetch,
            concurrency=concurrency,
            options=options,
        )
        self._works = [*(each for each in self._works if not each.stopping), core]
        return AsyncWork(core, handler, concurrency, self)

    async def ranges(self, topics: str | Sequence[str] = ()) -> list[QueueRange]:
        """The ranges of the queues of `topics`, or of all topics; queues without a message are left
        out."""
        return await self._positions.ranges([topics] if isinstance(topics, str) else topics)

    async def check_positions(
        self, positions: Mapping[Queue, int], history: LogHistory | None = None
    ) -> PositionCheck:
        """For programs that keep positions themselves: whether offsets of next messages, by (topic,
        queue id), that were read from a log with `history` mean the same in the cluster's log now.

        Keep the history of the result (`to_json`) beside the positions, and check them with it
        before you read on; without one nothing is compared. Raises NodeUnavailableError without a
        master."""
        wait_ms = self._connection.options.retry_timeout_ms
        return await self._positions.check(positions, history, wait_ms)

    async def committed(self, topics: str | Sequence[str] = ()) -> dict[Queue, int]:
        """The group's committed offsets by (topic, queue id)."""
        names = [topics] if isinstance(topics, str) else topics
        return await self._positions.committed(self._group(), names)

    async def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Saves offsets for the group: where it continues reading, by (topic, queue id). Queues
        that a stream of this consumer owns are committed by it; the others must have no owner
        (GroupHasMembersError)."""
        group = self._group()
        rest = dict(offsets)
        for follower in self._followers:
            if follower.membership is not None and not follower.closed:
                own = {
                    queue: rest.pop(queue) for queue in list(rest) if queue in follower.assignment
                }
                if own:
                    await follower.commits.commit(own)
        if rest or not offsets:
            await self._positions.commit(group, rest)

    def statistics(self) -> ConsumerStatistics:
        """Of all its streams together, with the totals of those that are closed."""
        followers = list(self._followers)
        parts = [each.statistics() for each in followers]
        parts = [
            totals_of(part) if each.closed else part
            for part, each in zip(parts, followers, strict=True)
        ]
        now = time.monotonic()
        latencies = [each.counters.latencies for each in followers]
        latency = latencies[0].percentiles(now, *latencies[1:]) if latencies else Percentiles()
        return together([self._past, *parts], latency)

    def _remember(self, follower: Follower) -> None:
        self._past = together([self._past, totals_of(follower.statistics())], Percentiles())

    def _forget_closed(self) -> None:
        for each in [each for each in self._followers if each.closed]:
            self._followers.remove(each)
            self._remember(each)

    def _group(self) -> str:
        if self.group is None:
            raise InvalidArgumentError(
                "this consumer has no group: name one, Consumer(..., group=...)", field="group"
            )
        return self.group
