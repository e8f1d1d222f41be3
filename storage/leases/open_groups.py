"""The groups that work on this master, and the queues of each."""

from collections import deque
from collections.abc import Iterator

from tandemlog.format.lease.handle import group_hash, topic_hash
from tandemlog.format.lease.policy import GroupPolicy

from .queue_leases import QueueLeases


class OpenTopic:
    """The queues of one topic that a group works on, and the line of those with work."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hash = topic_hash(name)
        self.queues: dict[int, QueueLeases] = {}
        self.line: deque[QueueLeases] = deque()


class OpenGroup:
    """A group, its policy, and its topics by name and by hash."""

    def __init__(self, name: str, policy: GroupPolicy) -> None:
        self.name = name
        self.hash = group_hash(name)
        self.policy = policy
        self.topics: dict[str, OpenTopic] = {}
        self.topic_of: dict[int, OpenTopic] = {}
        self.has_delivered = False
        """Whether a consumer got anything since the group was opened."""

    def topic(self, name: str) -> OpenTopic:
        """Open from now on, without queues at first."""
        place = self.topics.get(name)
        if place is None:
            place = self.topics[name] = OpenTopic(name)
            self.topic_of[place.hash] = place
        return place

    def queues(self) -> Iterator[QueueLeases]:
        for place in self.topics.values():
            yield from place.queues.values()


class OpenGroups(dict[str, OpenGroup]):
    """By name."""

    def topic(self, group: str, topic: str) -> OpenTopic | None:
        known = self.get(group)
        return None if known is None else known.topics.get(topic)

    def queue(self, group: str, topic: str, queue_id: int) -> QueueLeases | None:
        place = self.topic(group, topic)
        return None if place is None else place.queues.get(queue_id)

    def queues(self, group: str) -> Iterator[QueueLeases]:
        known = self.get(group)
        return iter(()) if known is None else known.queues()

    def has_queues(self, group: str, topic: str, count: int) -> bool:
        """Whether the first `count` queues of the topic are open for the group."""
        place = self.topic(group, topic)
        return place is not None and len(place.queues) >= count

    def queues_with_work(self, group: str, topic: str) -> int:
        """How many queues of the topic may have messages for the group now."""
        place = self.topic(group, topic)
        return 0 if place is None else len(place.line)

    def of_topic(self, topic: str) -> list[str]:
        """The groups that work on the topic."""
        return [each.name for each in self.values() if topic in each.topics]

    def policy(self, group: str) -> GroupPolicy | None:
        known = self.get(group)
        return None if known is None else known.policy

    def queue_count(self) -> int:
        """How many queues are open, each for a group."""
        return sum(len(place.queues) for each in self.values() for place in each.topics.values())
