"""How far a group is in the queues of a topic, whether it commits offsets or works on leases.

    committed                 next is its offset
    a work queue commits      next is the floor, below which all is done; what is done above it
    nothing                   does not wait

    queue   | d d d d . d . . . |      d: done
                      ^ floor   ^ end      5 from the floor on, of which 1 is done: 4 wait

Both are the tables of this node: on a slave a moment old. A group that was moved from the one kind
to the other counts from where it was furthest.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from tandemlog.format.lease.progress import QueueProgress
from tandemlog_server.storage.message_store import MessageStore

from ..pulls.group_places import GroupPlace, group_places


class WorkPlaces:
    """Of one group; its work is looked up once."""

    def __init__(self, store: MessageStore, group: str) -> None:
        self._store, self._group = store, group
        self._work: dict[str, dict[int, QueueProgress]] = defaultdict(dict)
        for each in store.leases.of_group(group):
            self._work[each.topic][each.queue_id] = each

    def works_on(self, topic: str) -> bool:
        return topic in self._work

    def places(self, topic: str) -> Iterator[GroupPlace]:
        """In each queue that can be read; none where the topic was deleted."""
        config = self._store.topics.get(topic)
        if config is None:
            return
        work = self._work.get(topic, {})
        for place in group_places(self._store, self._group, topic, config.read_queues):
            if place.queue_id < config.read_queues:
                state = work.get(place.queue_id)
                yield place if state is None else _worked(place, state)


def _worked(place: GroupPlace, state: QueueProgress) -> GroupPlace:
    following = max(place.next, state.floor or 0)
    starts = np.maximum(state.ended_starts, following)
    done = int(np.maximum(np.minimum(state.ended_ends, place.end) - starts, 0).sum())
    return place._replace(next=following, done=done)
