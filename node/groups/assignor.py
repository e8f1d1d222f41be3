"""Which member of a group is to read which queue: a pure function of what they subscribe to.

    current owners ──▶ keep what is still right ──▶ give the rest to the member with the least
                                                        │
                      move from the fullest to the emptiest until no move makes it more even

Balanced: two members that may read the same queue never differ by more than one queue, unless
other subscriptions force them to. Sticky: a queue moves only if its member may not have it any
more, or if the move makes the loads more even. The same input gives the same output.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Set
from typing import TypeAlias

Queue: TypeAlias = tuple[str, int]
"""Topic and queue id."""


def assign(
    subscriptions: Mapping[str, Set[str]],
    queue_counts: Mapping[str, int],
    owners: Mapping[Queue, str],
) -> dict[Queue, str]:
    """The member of each queue. `subscriptions`: topics by member; `queue_counts`: of the topics
    that exist; `owners`: who has a queue, or is to get it, now."""
    subscribers: dict[str, list[str]] = defaultdict(list)
    for member in sorted(subscriptions):
        for topic in subscriptions[member]:
            if queue_counts.get(topic, 0):
                subscribers[topic].append(member)
    balance = _Balance(subscriptions, subscribers)
    rest: list[Queue] = []
    # topics with few subscribers first: the others can still even out what these make uneven
    for topic in sorted(subscribers, key=lambda each: (len(subscribers[each]), each)):
        allowed = set(subscribers[topic])
        for queue_id in range(queue_counts[topic]):
            owner = owners.get((topic, queue_id))
            if owner in allowed:
                assert owner is not None
                balance.give((topic, queue_id), owner)
            else:
                rest.append((topic, queue_id))
    for queue in rest:
        balance.give(queue, balance.emptiest(queue[0]))
    balance.even_out()
    return balance.target


class _Balance:
    """Loads while they are made even."""

    def __init__(
        self, subscriptions: Mapping[str, Set[str]], subscribers: Mapping[str, list[str]]
    ) -> None:
        self.target: dict[Queue, str] = {}
        self._load = dict.fromkeys(subscriptions, 0)
        self._held: dict[str, dict[str, list[int]]] = {
            member: defaultdict(list) for member in subscriptions
        }
        # topics of the same subscribers share a heap of (load, member); entries that are out of
        # date are dropped when they come to the top
        self._audiences: dict[str, tuple[str, ...]] = {
            topic: tuple(members) for topic, members in subscribers.items()
        }
        self._heaps = {
            audience: [(0, member) for member in audience]
            for audience in set(self._audiences.values())
        }
        self._heaps_of: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for audience in self._heaps:
            for member in audience:
                self._heaps_of[member].append(audience)

    def give(self, queue: Queue, member: str) -> None:
        self.target[queue] = member
        self._held[member][queue[0]].append(queue[1])
        self._loaded(member, 1)

    def emptiest(self, topic: str) -> str:
        """Of those who may read `topic`."""
        heap = self._heaps[self._audiences[topic]]
        while heap[0][0] != self._load[heap[0][1]]:
            heapq.heappop(heap)
        return heap[0][1]

    def even_out(self) -> None:
        """Each move lowers the sum of the squares of the loads, so this ends."""
        waiting = [(-load, member) for member, load in self._load.items()]
        heapq.heapify(waiting)
        while waiting:
            negative, member = heapq.heappop(waiting)
            if -negative != self._load[member]:
                continue
            receiver = self._move_from(member)
            if receiver is not None:
                heapq.heappush(waiting, (-self._load[member], member))
                heapq.heappush(waiting, (-self._load[receiver], receiver))

    def _move_from(self, member: str) -> str | None:
        """Move one queue of `member` to the emptiest that may have it, if that is more even."""
        best: tuple[int, str, str] | None = None
        for topic, queue_ids in self._held[member].items():
            if not queue_ids:
                continue
            receiver = self.emptiest(topic)
            if self._load[member] - self._load[receiver] < 2:
                continue
            move = (self._load[receiver], topic, receiver)
            if best is None or move < best:
                best = move
        if best is None:
            return None
        _, topic, receiver = best
        queue_id = self._held[member][topic].pop()
        self._loaded(member, -1)
        self.give((topic, queue_id), receiver)
        return receiver

    def _loaded(self, member: str, change: int) -> None:
        self._load[member] += change
        for audience in self._heaps_of[member]:
            heapq.heappush(self._heaps[audience], (self._load[member], member))
