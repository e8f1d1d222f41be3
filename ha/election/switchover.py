"""A planned switch: to which node, and may it happen now? Pure.

    request ─▶ target chosen ─▶ puts are held back ─▶ target has the whole log ─▶ hand over
                    │                  │ not within HANDOVER_LIMIT_S
                    └── refused ◀──────┘  puts continue here, the request says why

Puts that are held back are refused as "not in sync" for the moment of the switch: clients park and
repeat them, so none fails. Nothing is lost, because the target holds the whole log.
"""

from dataclasses import dataclass

from ..config import Replication
from .key_values import MemberValue, RequestValue
from .role_loop import may_be_elected
from .snapshot import Snapshot

HANDOVER_LIMIT_S = 3.0
HELD_BACK = "a planned switch of the master is under way"


class CannotSwitchError(Exception):
    """The reason is what the operator reads."""


def switch_target(snapshot: Snapshot, request: RequestValue) -> MemberValue:
    """The node that shall lead next. Raises CannotSwitchError."""
    record = snapshot.record
    if record is None:
        raise CannotSwitchError("the cluster has no leader yet")
    leader = record.leader.node_id
    if request.target == leader:
        raise CannotSwitchError(f"{leader} leads already")
    up = {node_id: each for node_id, each in snapshot.members.items() if node_id != leader}
    if request.target:
        target = up.get(request.target)
        if target is None:
            raise CannotSwitchError(
                f"{request.target} is not up; nodes that are: {', '.join(sorted(up)) or 'none'}"
            )
        if not may_be_elected(target.member, record):
            raise CannotSwitchError(
                f"{request.target} is not in sync, so it may lack acknowledged messages"
            )
        if target.obstacle:
            raise CannotSwitchError(f"{request.target} cannot lead: {target.obstacle}")
        return target
    able = [
        each
        for each in up.values()
        if may_be_elected(each.member, record) and not each.obstacle and each.lease
    ]
    if not able:
        raise CannotSwitchError("no other node is up and in sync")
    return max(able, key=lambda each: (each.standing, each.node_id))


@dataclass(frozen=True, slots=True)
class Switching:
    """A switch for which puts are held back, since `began` (monotonic seconds). `handed_over`: the
    transaction was sent, and may be executed late."""

    request: RequestValue
    target: MemberValue
    began: float
    handed_over: bool = False

    def may_lose(self, replication: Replication) -> bool:
        """Whether puts that are accepted again could be missing from the target. In async
        replication they do not wait for it; once the request has changed, which the transaction
        compares, it cannot be executed any more."""
        return self.handed_over and not replication.waits

    def ready(self, durable: int | None, end: int, puts_under_way: int) -> bool:
        """Whether the target holds the log up to its end, and nothing more will be appended."""
        return not puts_under_way and durable is not None and durable >= end

    def too_long(self, now: float) -> bool:
        return now - self.began > HANDOVER_LIMIT_S
