"""A group as a row of the table of members, and back: what the next master has to know.

    {"epoch": 7, "members": [{"id": "...", "epoch": 7, "topics": ["orders"],
                              "owned": {"orders": {"0": 5, "1": 7}}, ...}]}

`owned` has the epoch from which each queue is owned. What only this term knows (when a member was
heard, what it was told) is not in it. `number` is of the request after which the row was written: a
join that made this member cannot come again.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tandemlog.format.errors import FormatError

from .assignor import Queue
from .consumer_group import ConsumerGroup, Member

Row = dict[str, object]


def row_of(group: ConsumerGroup) -> Row:
    """The group as it is now."""
    return row_of_members(group.epoch, group.members.values())


def row_of_members(epoch: int, members: Iterable[Member]) -> Row:
    """The same of copies, so that another thread can make the row."""
    return {
        "epoch": epoch,
        "members": [
            {
                "id": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "earlier": list(member.earlier),
                "number": member.number,
                "sessionTimeoutMs": member.session_timeout_ms,
                "rebalanceTimeoutMs": member.rebalance_timeout_ms,
                "topics": sorted(member.topics),
                "owned": _owned_out(member.owned),
            }
            for member in members
        ],
    }


def group_of(name: str, row: Any, now: float) -> ConsumerGroup:
    """The group that another master has left, or this one before its restart. Each member has its
    whole session to be heard. Raises FormatError for a row of another shape."""
    try:
        group = ConsumerGroup(name, int(row["epoch"]))
        for each in row["members"]:
            member = Member(
                str(each["id"]),
                frozenset(map(str, each["topics"])),
                str(each["instance"]),
                str(each["client"]),
                str(each["host"]),
                int(each["sessionTimeoutMs"]),
                int(each["rebalanceTimeoutMs"]),
                int(each["epoch"]),
                _owned_in(each["owned"]),
                tuple(map(str, each["earlier"])),
                heard_at=now,
                number=int(each["number"]),
            )
            group.members[member.member_id] = member
            for queue in member.owned:
                if group.owners.setdefault(queue, member.member_id) != member.member_id:
                    raise FormatError(f"group {name!r}: {queue} has two owners")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"group {name!r} of the table of members: {error!r}") from error
    group.target = dict(group.owners)
    group.out_of_date = bool(group.members)
    # the other nodes of the in-sync set may have less: nothing of it is told before it is
    # confirmed in this term
    group.version = 1
    return group


def _owned_out(owned: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    rows: dict[str, dict[str, int]] = {}
    for (topic, queue_id), since in sorted(owned.items()):
        rows.setdefault(topic, {})[str(queue_id)] = since
    return rows


def _owned_in(rows: Mapping[str, Mapping[Any, Any]]) -> dict[Queue, int]:
    return {
        (str(topic), int(queue_id)): int(since)
        for topic, queues in rows.items()
        for queue_id, since in queues.items()
    }
