"""A group has members of one kind: who has members now decides, the others are refused.

    classic  RocketMQ's clients: each takes its part of the queues by the list of members
    own      this project's consumers: the master says who owns which queue
    work     work queues: messages are leased one by one

Two kinds that balance by themselves would both read the same queues. Offsets are one table, so a
group can be moved: its members of one kind end, then those of the other begin. Members are counted
where they are known, on the master; a node that does not lead knows none, and refuses none.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from tandemlog.format.words import counted, quoted
from tandemlog.v1 import common_pb2

from ..error_status import RequestRefusedError

Count = Callable[[str], int]
"""How many members a group has."""
Members = Callable[[str], list[dict[str, Any]]]
"""The members of a group, as the fields of GroupMember."""


class MemberKind(Enum):
    """Named as a refusal says it."""

    CLASSIC = "of RocketMQ's clients"
    OWN = "of this project's own consumers"
    WORK = "of its work queues"

    @property
    def word(self) -> str:
        """As DescribeGroup and `tandemlog group` have it."""
        return self.name.lower()


class GroupKinds:
    """See the module. Belongs to the loop."""

    def __init__(self) -> None:
        self._counts: dict[MemberKind, Count] = {}
        self._members: dict[MemberKind, Members] = {}

    def count_by(self, kind: MemberKind, count: Count) -> None:
        self._counts[kind] = count

    def list_by(self, kind: MemberKind, members: Members) -> None:
        self._members[kind] = members

    def kind_of(self, group: str) -> MemberKind | None:
        """That of its members; None if it has none."""
        return next((kind for kind, count in self._counts.items() if count(group)), None)

    def members(self, kind: MemberKind, group: str) -> list[dict[str, Any]]:
        """As `list_by` was given them; none of a kind whose members have no names."""
        return self._members[kind](group) if kind in self._members else []

    def require_none(self, kind: MemberKind, group: str, then: str) -> None:
        """Raises RequestRefusedError (GROUP_HAS_MEMBERS) if `group` has members of `kind`; `then`:
        what they would do to the change, and the way out."""
        members = self._counts[kind](group) if kind in self._counts else 0
        if members:
            raise RequestRefusedError(
                common_pb2.GROUP_HAS_MEMBERS,
                f"group {quoted(group)} has {counted(members, 'member')} {kind.value}, {then}",
                field="group",
                actual=members,
            )

    def require(self, kind: MemberKind, group: str) -> None:
        """Raises RequestRefusedError (GROUP_HAS_MEMBERS) if `group` has members of another kind
        than `kind`."""
        for other, count in self._counts.items():
            if other is kind:
                continue
            members = count(group)
            if members:
                raise RequestRefusedError(
                    common_pb2.GROUP_HAS_MEMBERS,
                    f"group {quoted(group)} has {counted(members, 'member')} {other.value}, and a "
                    f"group has members of one kind: end them before members {kind.value} begin, "
                    "or use another group",
                    field="group",
                    actual=members,
                )
