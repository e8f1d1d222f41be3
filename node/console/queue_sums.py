"""What queues hold and what waits for groups, for lists: from this node's memory, and in bounds.

Asking the master for the ends of 10,000 queues takes a second, and a list shows sums. So they are
made of the tables that this node has: on a slave a moment old. A count reads for READ_S at most;
what it did not reach is None, and the page says that.

    held       topic  ─▶ messages in its queues that the log still has
    waiting    group  ─▶ messages behind its places (see work_places), over the topics of its own

In a thread: with many queues it takes some time, and finding where a queue begins may read the
disk.
"""

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from tandemlog.format.lease.policy import dead_letter_topic
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore

from .work_places import WorkPlaces

READ_S = 0.5


def held(store: MessageStore, topics: Sequence[str]) -> dict[str, int | None]:
    """By topic."""
    deadline = time.monotonic() + READ_S
    return {topic: _held(store, topic, deadline) for topic in topics}


def _held(store: MessageStore, topic: str, deadline: float) -> int | None:
    messages = 0
    for dense in store.queue_table.queues_of(topic).values():
        if time.monotonic() >= deadline:
            return None
        try:
            messages += store.queues.max_offset(dense) - store.queues.min_offset(dense)
        except (StoreError, OSError):
            continue  # it is being rebuilt, or the disk has trouble: the log says more
    return messages


def topics_of_groups(
    store: MessageStore, groups: Collection[str], seen: Collection[str]
) -> Mapping[str, Sequence[str]]:
    """The topics in which each of `groups` has offsets or work, of those that the caller has
    `seen`. Its own dead letters are no work."""
    found = defaultdict(set)
    works = (each for each in store.leases.pairs() if each[0] != dead_letter_topic(each[1]))
    for topic, group in (*store.consumer_offsets.pairs(), *works):
        if group in groups and topic in seen:
            found[group].add(topic)
    return {group: sorted(topics) for group, topics in found.items()}


def waiting(
    store: MessageStore, topics: Mapping[str, Sequence[str]], groups: Sequence[str]
) -> dict[str, int | None]:
    """By group, in the topics of each and in all of their queues."""
    deadline = time.monotonic() + READ_S
    found: dict[str, int | None] = {}
    for group in groups:
        if time.monotonic() >= deadline:
            found[group] = None
            continue
        found[group] = 0
        work = WorkPlaces(store, group)
        for topic in topics.get(group, ()):
            messages = _waiting_in(work, topic, deadline)
            if messages is None:
                found[group] = None
                break
            found[group] = (found[group] or 0) + messages
    return found


def _waiting_in(work: WorkPlaces, topic: str, deadline: float) -> int | None:
    """What waits for the group in all queues of a topic; 0 where the topic was deleted."""
    messages = 0
    for each in work.places(topic):
        if time.monotonic() >= deadline:
            return None
        messages += each.messages
    return messages
