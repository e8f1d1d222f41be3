"""What consumers of work queues were promised, and whether it is kept, whatever the code is.

    delivery   a group has a message by a handle, from one term, until `until_ms`
    ended      (group, body) that a consumer has acknowledged, whatever became of that since
    safe       those whose acknowledgement is confirmed: they never come again
    tried      (group, body) ──▶ how often it was delivered for all that is confirmed

A body is in the log once, so it stands for its message.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sim.ha_nodes import ViolationError
from sim.store_ledger import Place, told
from tandemlog.format.lease.policy import GroupPolicy, Ordering

Key = tuple[str, bytes]
"""Group and body."""
SLACK_MS = 2
"""The node counts in whole milliseconds."""


@dataclass(eq=False)
class Delivery:
    """See the module. `life` is that of the master's process; `late`: of one that does not lead any
    more. `order`: the sharding key, or the queue, whose order is kept."""

    group: str
    place: Place
    body: bytes
    handle: bytes
    attempt: int
    life: int
    until_ms: int
    log_offset: int
    order: tuple[object, ...] | None = None
    late: bool = False
    open: bool = True
    """The master has not been told what became of it."""

    @property
    def key(self) -> Key:
        return self.group, self.body


@dataclass
class WorkPromises:
    """See the module."""

    policies: dict[str, GroupPolicy]
    held: list[Delivery] = field(default_factory=list)
    ended: set[Key] = field(default_factory=set)
    safe: set[Key] = field(default_factory=set)
    ended_in: dict[Key, int] = field(default_factory=dict)
    rejected: set[Key] = field(default_factory=set)
    buried: set[Key] = field(default_factory=set)
    """Dead letters that retention may have deleted since."""
    most: dict[Key, int] = field(default_factory=dict)
    """The highest attempt of any delivery."""
    tried: dict[Key, int] = field(default_factory=dict)
    loose: set[Key] = field(default_factory=set)
    """Those of which some delivery was given back, which does not count."""
    begun: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """The first queue offset that a group has got of a queue."""
    latest: dict[Key, Delivery] = field(default_factory=dict)
    by_order: dict[tuple[object, ...], dict[int, Delivery]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    # ---- deliveries

    def delivered(self, deliveries: list[Delivery], now_ms: int, dropped: int) -> None:
        """One answer of a receive. Retention may have deleted the log below `dropped`."""
        together = {each.key for each in deliveries}
        for each in deliveries:
            if each.late:
                continue
            self._check_again(each, now_ms)
            self._check_attempt(each)
            self._check_order(each, together, dropped)
        for each in deliveries:
            if each.late:
                continue
            place = (each.group, *each.place[:2])
            self.begun[place] = min(self.begun.get(place, each.place[2]), each.place[2])
            self.latest[each.key] = each
            self.most[each.key] = max(self.most.get(each.key, 0), each.attempt)
            if each.order is not None:
                self.by_order[each.order][each.place[2]] = each
        self.held += deliveries

    def _check_again(self, each: Delivery, now_ms: int) -> None:
        if each.key in self.safe:
            raise ViolationError(f"{told(each.body)} comes to {each.group} after its end was safe")
        if self.ended_in.get(each.key) == each.life:
            raise ViolationError(
                f"{told(each.body)} comes to {each.group} again from the same master"
            )
        before = self.latest.get(each.key)
        if before is None or before.life != each.life or not before.open:
            return
        if now_ms < before.until_ms - SLACK_MS:
            raise ViolationError(
                f"{told(each.body)} has two holders in {each.group}: the first one until "
                f"{before.until_ms}, now it is {now_ms}"
            )

    def _check_attempt(self, each: Delivery) -> None:
        most = self.most.get(each.key, 0)
        if not 1 <= each.attempt <= most + 1:
            raise ViolationError(f"{told(each.body)} is attempt {each.attempt} after {most}")
        if each.order is not None or each.key in self.loose:
            return
        least = self.tried.get(each.key, 0)
        before = self.latest.get(each.key)
        if before is not None and before.life == each.life:
            least = max(least, before.attempt)
        if each.attempt <= least:
            raise ViolationError(
                f"{told(each.body)} comes to {each.group} as attempt {each.attempt}, and "
                f"{least} were known"
            )

    def _check_order(self, each: Delivery, together: set[Key], dropped: int) -> None:
        """Whatever this master has given out of the same order before is done, or comes with it."""
        if each.order is None:
            return
        for offset, earlier in self.by_order[each.order].items():
            if offset >= each.place[2] or earlier.key in together or earlier.log_offset < dropped:
                continue
            if earlier.key not in self.ended and not self.is_dead(earlier):
                raise ViolationError(
                    f"{each.group}: {told(each.body)} comes before {told(earlier.body)} is done"
                )

    def is_dead(self, delivery: Delivery) -> bool:
        """Whether it may be a dead letter by the policy."""
        most = self.policies[delivery.group].max_attempts
        return delivery.key in self.rejected or self.most.get(delivery.key, 0) >= most

    # ---- what consumers say

    def accepted(self, delivery: Delivery, life: int, now_ms: int, *, done: bool) -> Delivery:
        """A master takes the word of who has this handle; returns the delivery that it is about.
        What is `done` counts also of who got it from an earlier master."""
        latest = self.latest.get(delivery.key, delivery)
        other = latest is not delivery and latest.life == life and latest.open
        may = done and delivery.life != life
        if other and not may and now_ms < latest.until_ms - SLACK_MS:
            raise ViolationError(
                f"{told(delivery.body)} is another consumer's in {delivery.group}, and the handle "
                f"of before counts"
            )
        return latest

    def acknowledged(self, deliveries: Iterable[Delivery], life: int) -> None:
        """A master has accepted it."""
        for each in deliveries:
            self.ended.add(each.key)
            self.ended_in[each.key] = life
            each.open = False

    def failed(self, delivery: Delivery, life: int) -> None:
        """Later messages of its order come again behind it: who holds them was told so."""
        for offset, other in self.by_order.get(delivery.order or ((),), {}).items():
            if offset > delivery.place[2] and other.life == life:
                other.open = False

    def known(self, group: str, life: int) -> tuple[list[Key], dict[Key, int]]:
        """What a master of that life has accepted, and delivered, up to now."""
        ended = [key for key, of in self.ended_in.items() if of == life and key[0] == group]
        tried = {
            key: each.attempt
            for key, each in self.latest.items()
            if each.life == life and key[0] == group
        }
        return ended, tried

    def confirmed(self, ended: list[Key], tried: dict[Key, int]) -> None:
        """It is in the log of every node that may lead."""
        self.safe.update(ended)
        for key, attempt in tried.items():
            self.tried[key] = max(self.tried.get(key, 0), attempt)

    # ---- at the end

    def left(self, group: str, place: Place, body: bytes) -> bool:
        """Whether the group has still to get this message, or to end it."""
        key = (group, body)
        if key in self.ended or key in self.buried:
            return False
        begin = self.begun.get((group, *place[:2]))
        latest = self.policies[group].start_at.name == "LATEST"
        return not latest or (begin is not None and place[2] >= begin)


def order_of(
    policy: GroupPolicy, group: str, place: Place, shard: str
) -> tuple[object, ...] | None:
    """What is kept in order together with this message; None for nothing."""
    if policy.ordering is Ordering.QUEUE:
        return group, *place[:2]
    if policy.ordering is Ordering.KEY and shard:
        return group, *place[:2], shard
    return None
