"""A reset of a group's offsets as it was shown to the caller, who sends it back to have it done.

    look    ─▶ plan: {topic: [[queue_id, before, after], …]} of every queue, those that stay too
    confirm ─▶ the same plan; done only if the group is still at each `before`, in no more queues

So what is done is what was shown: an offset that was committed meanwhile, by a member that came and
went or by another operator, is not overwritten unseen. `before` is null where the group had no
offset. Between the comparison and the change is a moment in which a commit is not seen.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tandemlog.consume.group.group_admin import OffsetChange
from tandemlog.consume.reading.positions import Queue
from tandemlog.errors import InvalidArgumentError, RefusedError

from .visit import Visit

PLAN_CHARACTERS = 700_000
"""Of a plan as JSON, about: it is sent in one answer and in one request."""
OF_A_QUEUE = 24
"""Characters of one queue's row, about."""

Plan: TypeAlias = Mapping[str, list[list[int | None]]]


def plan_of(changes: Iterable[OffsetChange]) -> Plan:
    """Raises InvalidArgumentError if there are too many queues for one request."""
    plan: dict[str, list[list[int | None]]] = {}
    characters = 0
    for each in changes:
        if each.topic not in plan:
            characters += len(each.topic)
        characters += OF_A_QUEUE
        plan.setdefault(each.topic, []).append([each.queue_id, each.before, each.after])
    if characters > PLAN_CHARACTERS:
        raise InvalidArgumentError(
            f"topic: the group has offsets in {len(plan)} topics, too many to be shown and reset "
            "at once: choose one topic",
            field="topic",
        )
    return plan


def given_plan(visit: Visit) -> list[OffsetChange]:
    """`plan` of the body. Raises InvalidArgumentError."""
    plan = visit.body.get("plan")
    if not isinstance(plan, dict) or not plan:
        raise _no_plan()
    return [_change(topic, row) for topic, rows in plan.items() for row in _rows(rows)]


def require_unchanged(planned: Iterable[OffsetChange], now: Iterable[OffsetChange]) -> None:
    """Raises RefusedError unless the group is where the plan has it, in the same queues."""
    if _befores(planned) != _befores(now):
        raise RefusedError(
            "the group has committed since, or its queues are others: look again what would change"
        )


def _befores(changes: Iterable[OffsetChange]) -> Mapping[Queue, int | None]:
    return {(each.topic, each.queue_id): each.before for each in changes}


def _rows(rows: Any) -> list[Any]:
    if not isinstance(rows, list):
        raise _no_plan()
    return rows


def _change(topic: str, row: Any) -> OffsetChange:
    if not isinstance(row, list) or len(row) != 3:
        raise _no_plan()
    queue_id, before, after = row
    if not _offset(queue_id) or not _offset(after) or not (before is None or _offset(before)):
        raise _no_plan()
    return OffsetChange(topic, queue_id, before, after)


def _offset(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _no_plan() -> InvalidArgumentError:
    return InvalidArgumentError(
        "plan: give it as the look has it, {topic: [[queue_id, before, after], …]}", field="plan"
    )
