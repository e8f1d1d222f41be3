"""How often each message of an order was popped, as RocketMQ's consumers are to see it.

    engine    m0 m1 m2 leased, none acknowledged ─▶ m0 has one attempt; m1, m2 had no turn
    RocketMQ  all three were delivered once      ─▶ getReconsumeTimes() is 1 for all, then 2

The engine counts attempts, since they end in a dead letter; ConsumerOrderInfoManager of RocketMQ
counts deliveries: those of the last pop of a queue that come again in the next one have one more,
unless both pops are the same attempt. This is that table. It belongs to one term of a master: the
next one begins with the attempts, which are in the log.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

QUEUES_KEPT: Final = 4_096

Counts = Mapping[int, int]
"""How often each was delivered before, by queue offset."""


class PoppedPlace(NamedTuple):
    """One queue of one group."""

    group: str
    topic: str
    queue_id: int


class _Pop(NamedTuple):
    attempt_id: str
    counts: Counts


class OrderCounts:
    """See the module: of the queues that were popped last, at most QUEUES_KEPT."""

    def __init__(self) -> None:
        self._last: OrderedDict[PoppedPlace, _Pop] = OrderedDict()

    def popped(self, place: PoppedPlace, attempt_id: str, tried: Counts) -> Counts:
        """The counts of what this pop delivers. `tried`: what the engine knows; they are no
        lower. `attempt_id` is empty for a pop without one."""
        before = self._last.pop(place, None)
        counts = dict(tried)
        if before is not None:
            more = 0 if attempt_id and attempt_id == before.attempt_id else 1
            for offset in before.counts.keys() & counts.keys():
                counts[offset] = max(counts[offset], before.counts[offset] + more)
        self._last[place] = _Pop(attempt_id, counts)
        if len(self._last) > QUEUES_KEPT:
            self._last.popitem(last=False)
        return counts

    def forget(self, group: str, topic: str) -> None:
        """The group begins elsewhere in the topic: nothing was delivered before."""
        for place in [each for each in self._last if each[:2] == (group, topic)]:
            del self._last[place]
