"""What is refused to members and to those who change a group by hand."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tandemlog.format.words import counted, quoted
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.shares import WEIGHT, Shares

from ..access.caller_addresses import host_of
from ..error_status import RequestRefusedError
from ..settings.sections import GroupsSection
from .assignor import Queue
from .consumer_group import ConsumerGroup, FencedInstanceError, FencedMemberError, LateRequestError

COMMIT_OVER: Final = (
    "whose next commits would undo a reset: stop them first, or use mqadmin resetOffsetByTime, "
    "which tells them"
)
MAKE_AGAIN: Final = "and the next heartbeat or commit would make it again: stop them first"
"""Why members of RocketMQ's clients are in the way."""


def refused(code: Any, message: str) -> RequestRefusedError:
    return RequestRefusedError(code, message)


def members_text(group: ConsumerGroup, owned: Sequence[Queue]) -> str:
    # not by their ids: who knows one can make the member leave
    names = sorted({each.client_id or "without a name" for each in group.members.values()})
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    what = f"queue {owned[0][0]}/{owned[0][1]} is owned by a member" if owned else "has members"
    return (
        f"group {quoted(group.name)}: {what} ({shown}); stop the members first, or let them commit"
    )


def check_room(
    groups: Mapping[str, ConsumerGroup], group: ConsumerGroup, limits: GroupsSection, holder: str
) -> None:
    """Raises RequestRefusedError if `group`, or the node, has all the members that it may, or
    `holder` has its share of those of the node."""
    have = len(group.members)
    if have >= limits.members_per_group:
        raise _full(f"group {quoted(group.name)} has", "members_per_group", have, limits)
    have = sum(len(each.members) for each in groups.values())
    if have >= limits.members:
        raise _full("the groups of this node have", "members", have, limits)
    if have + 1 <= WEIGHT * (limits.members - have - 1):
        return  # it is within the share of one that had all of them
    shares = Shares(limits.members)
    for each in groups.values():
        for member in each.members.values():
            # of one that another master has let in, the host alone is known until it reports
            shares.take(member.holder or host_of(member.host))
    if not shares.may_take(holder):
        most = shares.most(holder)
        raise RequestRefusedError(
            common_pb2.BUSY,
            f"{quoted(holder)} has {counted(shares.of(holder), 'member')} in the groups of this "
            f"node, its share of groups.members ({limits.members}) is {most}",
            field="group",
            limit=most,
            actual=shares.of(holder),
        )


def _full(who: str, setting: str, have: int, limits: GroupsSection) -> RequestRefusedError:
    limit = getattr(limits, setting)
    return RequestRefusedError(
        common_pb2.BUSY,
        f"{who} {have} members, the limit groups.{setting} is {limit}",
        field="group",
        limit=limit,
        actual=have,
    )


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Errors of the pure core as refusals of a request."""
    try:
        yield
    except FencedInstanceError as error:
        raise refused(common_pb2.FENCED_INSTANCE, str(error)) from None
    except FencedMemberError as error:
        raise refused(common_pb2.FENCED_MEMBER, str(error)) from None
    except LateRequestError:
        raise refused(
            common_pb2.BUSY, "a newer heartbeat of this member was taken already"
        ) from None
