"""What a scrape tells of the members of groups. Cheap: it is called in the loop."""

from collections.abc import Mapping

from .coordinator import GroupCoordinator
from .group import Group


def group_statistics(groups: GroupCoordinator) -> Mapping[str, float]:
    """By the names of metrics; all of it is 0 on a node that does not lead."""
    held = list(groups.groups.values())
    return {
        "group_rebalances_total": groups.rebalances_total,
        "group_fenced_commits_total": groups.fenced_commits_total,
        "group_members_removed_total": groups.members_removed_total,
        "groups_with_members": sum(bool(group.members) for group in held),
        "groups_reconciling": sum(map(_moves, held)),
    }


def _moves(group: Group) -> bool:
    """Whether queues are on their way: by numbers, which differ until the last one has come."""
    return group.out_of_date or any(
        member.giving_since is not None
        or len(member.owned) != len(group.targets.get(member.member_id, ()))
        for member in group.members.values()
    )
