"""Consumer groups from outside: their members, how far they are behind, and moving their offsets.

describe   members and the queues that each owns      by the master's word
lag        committed ─▶ end of each queue             of the topics that it commits or follows
reset      committed ─▶ EARLIEST, LATEST, a time, a shift; only while no member is there
delete     the group with its offsets; only while no member is there
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...cluster.connection import Connection
from ...cluster.node import Node
from ...cluster.paging import in_parts
from ...errors import InvalidArgumentError, UnknownGroupError
from ...format.calls import MAX_ROWS
from ...format.constants import group_fault
from ...v1 import admin_pb2, broker_pb2
from ..reading.positions import EARLIEST, LATEST, Positions, Queue, QueueRange, Start, queues_of
from ..reading.queue_lag import Lags, NowMs, QueueLag, begin_of, end_of, wall_clock_ms

NOT_KNOWN_THERE: Final = "no tandemlog node"
"""`reason` of the error of a node that does not know a call."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member. `host`: the address that the master saw, `client_id`: what the client calls itself,
    `instance_id`: of a static member, else empty. `assigned`: the queues that it owns now,
    `target`: those that it will own. `heard_ms_ago`: since its last heartbeat."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    epoch: int
    topics: tuple[str, ...]
    assigned: tuple[Queue, ...]
    target: tuple[Queue, ...]
    heard_ms_ago: int
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group. `state`: "empty" (no member), "reconciling" (queues are moving), "stable". `kind` of
    its members: "own", "classic" (RocketMQ's clients), "work" (of a work queue), empty without."""

    group: str
    state: str
    epoch: int
    members: tuple[GroupMember, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The group's offset in a queue before a reset (None: it had no offset), and after."""

    topic: str
    queue_id: int
    before: int | None
    after: int


class GroupAdmin:
    """Asks and changes groups at the master; see the module."""

    def __init__(
        self, connection: Connection, positions: Positions, now_ms: NowMs = wall_clock_ms
    ) -> None:
        self._connection = connection
        self._positions = positions
        self._lags = Lags(connection, positions, now_ms)
        self._timeout_ms = connection.options.request_timeout_ms

    async def describe(self, group: str) -> GroupDescription:
        """The group as its master sees it; raises UnknownGroupError if it has neither members nor
        offsets, and InvalidArgumentError where the master is too old to know members."""
        _check_group(group)
        request = broker_pb2.DescribeGroupRequest(group=group)
        try:
            answer = await self._connection.on_master(
                lambda node: node.ask(node.broker.DescribeGroup, request, self._timeout_ms)
            )
        except InvalidArgumentError as error:
            if error.reason == NOT_KNOWN_THERE:
                raise InvalidArgumentError(
                    f"the master is too old to know the members of group {group!r}: update the "
                    f"nodes to 0.2 ({error})",
                    field="group",
                    reason=error.reason,
                ) from error
            raise
        return GroupDescription(
            group,
            answer.state,
            answer.group_epoch,
            tuple(map(_member, answer.members)),
            answer.kind,
        )

    async def lag(self, group: str, topics: Sequence[str] = ()) -> list[QueueLag]:
        """What waits for the group in each queue of `topics`; without topics, of those that it has
        offsets of, or that its members follow. Raises UnknownGroupError, UnknownTopicError."""
        committed, followed = await self._known(group)
        names = list(topics) or sorted({*(topic for topic, _ in committed), *followed})
        queues = queues_of(await self._existing(names, strict=bool(topics)), None)
        lags = await self._lags.of({queue: committed.get(queue) for queue in queues})
        return [lags[queue] for queue in sorted(lags)]

    async def reset(
        self,
        group: str,
        topics: Sequence[str] = (),
        *,
        to: Start | Mapping[Queue, int] | None = None,
        shift_by: int | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """See AsyncAdmin.reset_offsets."""
        if (to is None) == (shift_by is None):
            raise InvalidArgumentError("a reset needs either to= or shift_by=", field="to")
        committed, _ = await self._known(group)
        if isinstance(to, Mapping):
            wanted = sorted({topic for topic, _ in to})
            outside = sorted(set(wanted) - set(topics)) if topics else []
            if outside:
                raise InvalidArgumentError(
                    f"to= names queues of topics that are not among topics=: {', '.join(outside)}",
                    field="to",
                )
            by_topic: dict[str, list[int]] = {}
            for topic, queue_id in to:
                by_topic.setdefault(topic, []).append(queue_id)
            queues = queues_of(await self._positions.topics(wanted), by_topic) if wanted else []
        else:
            names = list(topics) or sorted({topic for topic, _ in committed})
            queues = queues_of(await self._existing(names, strict=bool(topics)), None)
        ranges, _ = await self._positions.ranges_in_cluster(sorted({topic for topic, _ in queues}))
        after = await self._targets(queues, committed, ranges, to, shift_by)
        await self._set(group, after, dry_run=dry_run)
        return [OffsetChange(*queue, committed.get(queue), after[queue]) for queue in sorted(after)]

    async def delete(self, group: str, *, dry_run: bool = False) -> None:
        """Deletes the group with its offsets; raises GroupHasMembersError, UnknownGroupError."""
        _check_group(group)
        request = admin_pb2.DeleteGroupRequest(group=group, dry_run=dry_run)
        await self._connection.on_master(
            lambda node: node.ask(node.admin.DeleteGroup, request, self._timeout_ms)
        )

    async def _known(self, group: str) -> tuple[dict[Queue, int], set[str]]:
        """The group's offsets, and the topics that its members follow."""
        followed: set[str] = set()
        too_old = False
        try:
            described = await self.describe(group)
            followed = {topic for member in described.members for topic in member.topics}
        except InvalidArgumentError as error:
            too_old = error.reason == NOT_KNOWN_THERE
            if not too_old:
                raise
        committed = await self._positions.committed(group)
        if too_old and not committed:
            raise UnknownGroupError(f"group {group!r} has no offsets", field="group")
        return committed, followed

    async def _existing(self, names: Sequence[str], *, strict: bool) -> list[admin_pb2.Topic]:
        """The topics `names`; unless `strict`, without those that were deleted."""
        if strict:
            return await self._positions.topics(names)
        topics = {topic.name: topic for topic in await self._positions.topics(())}
        return [topics[name] for name in names if name in topics]

    async def _targets(
        self,
        queues: Sequence[Queue],
        committed: Mapping[Queue, int],
        ranges: Mapping[Queue, QueueRange],
        to: Start | Mapping[Queue, int] | None,
        shift_by: int | None,
    ) -> dict[Queue, int]:
        """The new offset of each queue, within what the queue holds."""
        if isinstance(to, Mapping):
            wanted = dict(to)
        elif shift_by is not None:
            wanted = {
                queue: begin_of(committed.get(queue), ranges.get(queue)) + shift_by
                for queue in queues
            }
        elif to in (EARLIEST, LATEST):
            wanted = {queue: end_of(ranges.get(queue)) if to == LATEST else 0 for queue in queues}
        else:
            assert to is not None
            if isinstance(to, str):
                raise InvalidArgumentError(
                    f"to must be {EARLIEST}, {LATEST}, a time or offsets, not {to!r}", field="to"
                )
            wanted = await self._positions.start(queues, to, None)
        return {
            queue: min(begin_of(wanted[queue], ranges.get(queue)), end_of(ranges.get(queue)))
            for queue in queues
        }

    async def _set(self, group: str, offsets: Mapping[Queue, int], *, dry_run: bool) -> None:
        for part in in_parts(list(offsets.items()), MAX_ROWS):
            request = broker_pb2.CommitOffsetsRequest(
                group=group,
                offsets=[
                    broker_pb2.QueuePosition(topic=topic, queue_id=queue_id, queue_offset=offset)
                    for (topic, queue_id), offset in part
                ],
                without_members=True,
                dry_run=dry_run,
            )

            async def ask(
                node: Node, request: broker_pb2.CommitOffsetsRequest = request
            ) -> broker_pb2.CommitOffsetsResponse:
                return await node.ask(node.broker.CommitOffsets, request, self._timeout_ms)

            await self._connection.on_master(ask)


def _check_group(group: str) -> None:
    fault = group_fault(group, new=False)
    if fault is not None:
        raise InvalidArgumentError(f"group {group!r}: {fault}", field="group")


def _member(member: broker_pb2.GroupMember) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.host,
        member.member_epoch,
        tuple(sorted(member.topics)),
        tuple(queues_in(member.assigned)),
        tuple(queues_in(member.target)),
        member.heard_ms_ago,
        member.session_timeout_ms,
    )


def queues_in(rows: Iterable[broker_pb2.TopicQueues]) -> list[Queue]:
    """The queues that a message names, by topic and number."""
    return sorted((row.topic, queue_id) for row in rows for queue_id in row.queue_ids)
