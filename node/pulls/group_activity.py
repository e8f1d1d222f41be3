"""What each consumer group has done on this node since its start: read, committed, and by whom.

    pull of group g from connection c   ─▶ pulls, messages, bytes,  members[c] = now
    commit of group g from connection c ─▶ commits,                 members[c] = now

A member is a connection that has pulled or committed within MEMBER_S, which is longer than a long
poll may wait. Any caller may name any group, so `limit` groups are kept: further ones are counted
together as OTHER until one of those that are kept has been idle for IDLE_S. Belongs to the loop.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tandemlog.format.constants import MAX_TOPIC, group_fault

OTHER = "other"
"""The label of everything that has none of its own. A group of that name is counted there too."""
MEMBER_S = 90.0
IDLE_S = 3_600.0
MAX_MEMBERS = 4_096


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """Of one group, since this node has known it."""

    messages: int = 0
    bytes: int = 0
    commits: int = 0
    members: int = 0


@dataclass(slots=True)
class _Group:
    """`members`: when each connection was heard last."""

    messages: int = 0
    bytes: int = 0
    commits: int = 0
    heard_at: float = 0.0
    members: dict[str, float] = field(default_factory=dict)

    def hear(self, peer: str, now: float) -> None:
        self.heard_at = now
        self.members[peer] = now
        if len(self.members) > MAX_MEMBERS:
            self.forget(now)
        if len(self.members) > MAX_MEMBERS:
            del self.members[min(self.members, key=self.members.__getitem__)]

    def forget(self, now: float) -> None:
        self.members = {
            peer: heard for peer, heard in self.members.items() if now - heard <= MEMBER_S
        }


class GroupActivity:
    """See the module. `now` is a monotonic clock in seconds."""

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        self._limit = limit
        self._now = now
        self._groups: dict[str, _Group] = {}
        self._folded: set[str] = set()

    @property
    def folded(self) -> int:
        """Groups that are counted under OTHER, as far as their names are remembered."""
        return len(self._folded)

    def pulled(self, group: str, peer: str, messages: int, size: int) -> None:
        """A pull that ended; `size` in bytes. Pulls without a group are not counted here."""
        if group:
            activity = self._group(group)
            activity.messages += messages
            activity.bytes += size
            activity.hear(peer, self._now())

    def committed(self, group: str, peer: str) -> None:
        activity = self._group(group)
        activity.commits += 1
        activity.hear(peer, self._now())

    def numbers(self) -> dict[str, GroupNumbers]:
        """A copy, by the group's label."""
        now = self._now()
        for group in self._groups.values():
            group.forget(now)
        return {
            name: GroupNumbers(each.messages, each.bytes, each.commits, len(each.members))
            for name, each in self._groups.items()
        }

    def _group(self, name: str) -> _Group:
        if group_fault(name, new=False) is not None or len(name) > MAX_TOPIC:
            name = OTHER  # a pull may name anything
        activity = self._groups.get(name)
        if activity is None:
            if name != OTHER and self._own_count() >= self._limit and not self._drop_idle():
                if len(self._folded) < self._limit:
                    self._folded.add(name)
                return self._groups.setdefault(OTHER, _Group())
            self._folded.discard(name)
            activity = self._groups[name] = _Group()
        return activity

    def _own_count(self) -> int:
        return len(self._groups) - (OTHER in self._groups)

    def _drop_idle(self) -> bool:
        """Whether there is room now for a group of its own. Looks at one group: the one that was
        heard last longest ago."""
        own = [name for name in self._groups if name != OTHER]
        if not own:
            return False
        oldest = min(own, key=lambda name: self._groups[name].heard_at)
        if self._now() - self._groups[oldest].heard_at < IDLE_S:
            return False
        del self._groups[oldest]
        return True
