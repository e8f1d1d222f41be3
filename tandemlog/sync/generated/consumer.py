"""Generated from AsyncConsumer (tandemlog/consume/consumer.py) by `make sync`. Do not edit.

Each call runs in the clients' loop (loop_thread.py); the caller's thread waits for it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...cluster.connection_options import ConnectionOptions
from ...cluster.histories import PositionCheck
from ...cluster.topology import ReadFrom
from ...consume.consumer import AsyncConsumer
from ...consume.follow_options import FollowOptions
from ...consume.following.follower import OnCommitError, OnQueues
from ...consume.reading.positions import EARLIEST, LATEST, Queue, QueueRange, Start
from ...consume.received.received_batch import ReceivedBatch
from ...consume.statistics import ConsumerStatistics
from ...consume.subscription import Topics
from ...consume.work.work_options import BackoffLike, Handler, WorkOptions
from ...format.files.log_history import LogHistory
from ...transport.security import Security
from ..loop_thread import SyncClient
from ..sync_stream import Stream, reader_of
from ..sync_work import Work

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(SyncClient[AsyncConsumer]):
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
        super().__init__(
            AsyncConsumer(
                endpoints,
                group=group,
                instance_id=instance_id,
                read_from=read_from,
                options=options,
                connection=connection,
                security=security,
            )
        )
        self.group = self._client.group
        self.instance_id = self._client.instance_id

    def close(self) -> None:
        """Closes its streams and the connection."""
        super().close()

    def pull(
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
        return self._thread.run(
            self._client.pull(
                topic,
                queue_id,
                queue_offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tags=tags,
                where=where,
                wait_ms=wait_ms,
            )
        )

    def follow(
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
    ) -> Stream:
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

        Called by the thread that takes the messages: `on_assigned`, `on_revoked` (it may commit)
        and `on_lost` with the stream and queues, after they were assigned, before they are given
        up, after they were lost; `on_commit_error` with an error and offsets.

        Raises UnknownTopicError, UnknownQueueError, NoNodeError.
        """
        return Stream(
            self._thread,
            self._thread.run(
                self._client.follow(
                    topics,
                    queues=queues,
                    start=start,
                    tags=tags,
                    where=where,
                    until_end=until_end,
                    options=options,
                    on_assigned=on_assigned,
                    on_revoked=on_revoked,
                    on_lost=on_lost,
                    on_commit_error=on_commit_error,
                )
            ),
        )

    def scan(
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
    ) -> "pa.RecordBatchReader":
        """The messages of `topics` from `start` to before `end` as Arrow batches.

        The result is a pyarrow.RecordBatchReader: read it before the consumer is closed.

        `start`, `tags` and `where` as in `follow`; `end`: LATEST, the present end of the queues; a
        time (ms or datetime), before which the messages were stored; or an offset for each (topic,
        queue id), LATEST for queues that it does not name. `columns` as in ReceivedBatch.to_arrow.
        Commits nothing. Raises what `follow` raises, and InvalidArgumentError for an unknown
        column.
        """
        return reader_of(
            self._thread,
            self._thread.run(
                self._client.scan(
                    topics,
                    start=start,
                    end=end,
                    columns=columns,
                    tags=tags,
                    where=where,
                    queues=queues,
                    options=options,
                )
            ),
        )

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
    ) -> Work:
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
        return Work(
            self._thread,
            self._client.work(
                topics,
                group=group,
                handler=handler,
                concurrency=concurrency,
                max_attempts=max_attempts,
                backoff=backoff,
                ordered=ordered,
                start=start,
                tags=tags,
                where=where,
                lease=lease,
                prefetch=prefetch,
                options=options,
            ),
        )

    def ranges(self, topics: str | Sequence[str] = ()) -> list[QueueRange]:
        """The ranges of the queues of `topics`, or of all topics; queues without a message are left
        out."""
        return self._thread.run(self._client.ranges(topics))

    def check_positions(
        self, positions: Mapping[Queue, int], history: LogHistory | None = None
    ) -> PositionCheck:
        """For programs that keep positions themselves: whether offsets of next messages, by (topic,
        queue id), that were read from a log with `history` mean the same in the cluster's log now.

        Keep the history of the result (`to_json`) beside the positions, and check them with it
        before you read on; without one nothing is compared. Raises NodeUnavailableError without a
        master."""
        return self._thread.run(self._client.check_positions(positions, history))

    def committed(self, topics: str | Sequence[str] = ()) -> dict[Queue, int]:
        """The group's committed offsets by (topic, queue id)."""
        return self._thread.run(self._client.committed(topics))

    def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Saves offsets for the group: where it continues reading, by (topic, queue id). Queues
        that a stream of this consumer owns are committed by it; the others must have no owner
        (GroupHasMembersError)."""
        self._thread.run(self._client.commit(offsets))

    def statistics(self) -> ConsumerStatistics:
        """Of all its streams together, with the totals of those that are closed."""
        return self._client.statistics()
