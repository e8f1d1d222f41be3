"""Rules of the groups, each switched off: the simulation must notice every one.

A mutation is a patch of one method, by its name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tandemlog_server.node.groups.consumer_group import ConsumerGroup, Member, Told


@dataclass(frozen=True, slots=True)
class Mutation:
    """What is replaced, by what."""

    target: object
    name: str
    instead: Callable[..., Any]


def _tells_unsettled(self: ConsumerGroup, member: Member) -> Told:
    target = self.targets.get(member.member_id, frozenset())
    queues = frozenset(member.owned.keys() & target)
    return Told(member.epoch, self.epoch, queues, settled=False)


def _never_expires(self: ConsumerGroup, now: float) -> list[Any]:
    return []


def _keeps_since(self: ConsumerGroup, member: Member) -> bool:
    """Gives what is free with an old epoch, so that old commits pass."""
    changed = _give(self, member)
    member.owned = dict.fromkeys(member.owned, 0)
    return changed


_give = ConsumerGroup._give

MUTATIONS: Mapping[str, Mutation] = {
    "a queue is free before its owner has given it up": Mutation(
        Member, "may_hold", lambda self, queue: False
    ),
    "commits are taken from anybody": Mutation(
        ConsumerGroup, "not_owned", lambda self, member_id, epoch, queues: []
    ),
    "the epoch of a commit does not count": Mutation(ConsumerGroup, "_give", _keeps_since),
    "members are told what is not settled": Mutation(
        ConsumerGroup, "what_to_tell", _tells_unsettled
    ),
    "silent members stay": Mutation(ConsumerGroup, "expire", _never_expires),
    "topics are not looked at again": Mutation(
        ConsumerGroup, "set_topics", lambda self, counts: None
    ),
}
