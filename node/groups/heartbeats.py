"""A heartbeat's request as a report of the pure core, checked, and what is told as a response."""

from collections.abc import Iterable, Mapping
from typing import Any

from tandemlog.format.calls import LEAVE_FOR_A_WHILE
from tandemlog.format.constants import group_fault
from tandemlog.format.words import quoted
from tandemlog.v1 import broker_pb2, common_pb2

from ..error_status import RequestRefusedError
from ..settings.sections import GroupsSection
from .assignor import Queue
from .consumer_group import ConsumerGroup, Report, Told

MAX_ID = 255
"""Characters of a member's, an instance's and a client's id, and of a topic."""
MAX_OWNED = 131_072
MAX_SHOWN_TOPICS = 64


def report_of(
    request: broker_pb2.GroupHeartbeatRequest, host: str, limits: GroupsSection, holder: str = ""
) -> Report:
    """Raises RequestRefusedError that names the field."""
    fault = group_fault(request.group, new=False)
    if fault is not None:
        raise _invalid("group", f"group {quoted(request.group)}: {fault}")
    if not request.member_id:
        raise _invalid("member_id", "a heartbeat needs a member_id")
    for field in ("member_id", "instance_id", "client_id"):
        if len(getattr(request, field)) > MAX_ID:
            raise _invalid(field, f"{field} may have at most {MAX_ID} characters", limit=MAX_ID)
        if not getattr(request, field).isprintable():  # they stand in lines of the log
            raise _invalid(field, f"{field} may have printable characters only")
    if any(len(topic) > MAX_ID for topic in request.topics):
        raise _invalid("topics", f"a topic may have at most {MAX_ID} characters", limit=MAX_ID)
    owned = sum(len(row.queue_ids) for row in request.owned)
    if owned > MAX_OWNED:
        raise _invalid(
            "owned", f"a member may own {MAX_OWNED} queues, not {owned}", MAX_OWNED, owned
        )
    if request.member_epoch < LEAVE_FOR_A_WHILE:
        raise _invalid("member_epoch", f"member_epoch {request.member_epoch} means nothing")
    most = limits.topics_per_member
    if len(request.topics) > most:
        raise _invalid(
            "topics",
            f"a member may subscribe to {most} topics, not {len(request.topics)} "
            "(groups.topics_per_member)",
            limit=most,
            actual=len(request.topics),
        )
    low, high = limits.min_session_timeout_ms, limits.max_session_timeout_ms
    if request.member_epoch >= 0 and not low <= request.session_timeout_ms <= high:
        raise _invalid(
            "session_timeout_ms",
            f"session_timeout_ms must be {low}..{high}, not {request.session_timeout_ms} "
            "(groups.min_session_timeout_ms)",
            limit=low,
            actual=request.session_timeout_ms,
        )
    return Report(
        member_id=request.member_id,
        epoch=request.member_epoch,
        number=request.number,
        topics=frozenset(request.topics),
        owned=queues_in(request.owned),
        instance_id=request.instance_id,
        client_id=request.client_id,
        host=host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(
            1, min(request.rebalance_timeout_ms or 60_000, limits.max_rebalance_timeout_ms)
        ),
        holder=holder,
    )


def response_of(state: Told, interval_ms: int) -> broker_pb2.GroupHeartbeatResponse:
    return broker_pb2.GroupHeartbeatResponse(
        member_epoch=state.member_epoch,
        group_epoch=state.group_epoch,
        assigned=rows_of(state.queues),
        heartbeat_interval_ms=interval_ms,
        settled=state.settled,
    )


def queues_in(rows: Iterable[Any]) -> frozenset[Queue]:
    """The queues of TopicQueues."""
    return frozenset((row.topic, queue_id) for row in rows for queue_id in row.queue_ids)


def rows_of(queues: Iterable[Queue]) -> list[broker_pb2.TopicQueues]:
    """TopicQueues, in order."""
    queue_ids_of: dict[str, list[int]] = {}
    for topic, queue_id in sorted(queues):
        queue_ids_of.setdefault(topic, []).append(queue_id)
    return [
        broker_pb2.TopicQueues(topic=topic, queue_ids=queue_ids)
        for topic, queue_ids in queue_ids_of.items()
    ]


def describe(
    name: str, state: str, epoch: int, members: Iterable[Mapping[str, Any]], kind: str = ""
) -> broker_pb2.DescribeGroupResponse:
    return broker_pb2.DescribeGroupResponse(
        state=state,
        group_epoch=epoch,
        kind=kind,
        members=[broker_pb2.GroupMember(**member) for member in members],
    )


def members_of(group: ConsumerGroup, now: float) -> list[dict[str, Any]]:
    """The fields of GroupMember."""
    return [
        {
            "member_id": each.member_id,
            "instance_id": each.instance_id,
            "client_id": each.client_id,
            "host": each.host,
            "member_epoch": each.epoch,
            "topics": sorted(each.topics)[:MAX_SHOWN_TOPICS],
            "assigned": rows_of(each.owned),
            "target": rows_of(group.targets.get(each.member_id, ())),
            "heard_ms_ago": int((now - each.heard_at) * 1000),
            "session_timeout_ms": each.session_timeout_ms,
        }
        for each in group.members.values()
    ]


def _invalid(field: str, message: str, limit: int = 0, actual: int = 0) -> RequestRefusedError:
    return RequestRefusedError(
        common_pb2.INVALID_ARGUMENT, message, field=field, limit=limit, actual=actual
    )
