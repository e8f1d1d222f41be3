"""One member's part in a group, as the master assigns queues to it (docs/decisions/0036). Pure:
responses and `now` in, what to do out.

    joining ──response──▶ member ──FENCED_MEMBER, out of time──▶ all lost, joins again
                            │
      assigned, not owned ─▶ take       offsets are fetched ─▶ took       ─▶ owned, reported
      owned, not assigned ─▶ give up    the caller is done  ─▶ gave_up    ─▶ reported without it

The master takes a queue for free if it had assigned it before a report that does not name it. So a
report names all queues that this member reads, or may read soon, by the responses that it has; and
a response counts only while no newer report was sent. The master counts silence from when it heard
a report, which is after that was sent: a member that stops one session timeout after it sent the
last report that was responded to has stopped before any of its queues is given away.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ...format.calls import JOIN, LEAVE, LEAVE_FOR_A_WHILE
from ...v1 import broker_pb2
from ..reading.positions import Queue

JOIN_WAIT_MS: Final = 2_000
"""For the in-sync set to have a new member: until then its response has epoch 0."""


@dataclass(frozen=True, slots=True)
class Todo:
    """What the member has to do after a response, or at some time: `take` queues and read them,
    `give_up` queues when no message of them is in the caller's hands, and not read the `lost` ones
    from now on. `take` has a number for each queue, for `took`; `former` are the member's id and
    epoch when it lost queues."""

    take: Mapping[Queue, int] = field(default_factory=dict)
    give_up: frozenset[Queue] = frozenset()
    lost: frozenset[Queue] = frozenset()
    former: tuple[str, int] = ("", JOIN)


@dataclass(slots=True)
class GroupSession:
    """The state of one member. Times are seconds of one monotonic clock."""

    group: str
    member_id: str
    topics: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str = ""
    client_id: str = ""
    epoch: int = JOIN
    number: int = 0
    interval_ms: int = 0
    owned: set[Queue] = field(default_factory=set)
    assigned: frozenset[Queue] = frozenset()
    _taking: dict[Queue, int] = field(default_factory=dict)
    _takes: int = 0
    _leaving: set[Queue] = field(default_factory=set)
    _deadline: float | None = None
    _settled: bool = False

    def request(self, *, wait: bool) -> broker_pb2.GroupHeartbeatRequest:
        """The next report. `wait`: the master may keep it until something changes."""
        self.number += 1
        return broker_pb2.GroupHeartbeatRequest(
            group=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            number=self.number,
            instance_id=self.instance_id,
            client_id=self.client_id,
            topics=self.topics,
            owned=rows_of(self.owned | self._taking.keys()),
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            wait_ms=JOIN_WAIT_MS if self.epoch == JOIN else self.interval_ms if wait else 0,
        )

    def goodbye(self) -> broker_pb2.GroupHeartbeatRequest:
        """The last report: the queues are free at once, but those of a static member wait for it
        until its session ends."""
        last = self.request(wait=False)
        last.member_epoch = LEAVE_FOR_A_WHILE if self.instance_id else LEAVE
        last.ClearField("owned")
        return last

    def heard(
        self, number: int, sent_at: float, response: broker_pb2.GroupHeartbeatResponse
    ) -> Todo:
        """Takes in the response to the request `number`, which was sent at `sent_at`."""
        if number != self.number:
            return Todo()
        self._deadline = sent_at + self.session_timeout_ms / 1e3
        self.epoch = response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        self.assigned = frozenset(
            (row.topic, queue_id) for row in response.assigned for queue_id in row.queue_ids
        )
        self._settled = response.settled
        give_up = frozenset(self.owned - self.assigned - self._leaving)
        self._leaving |= give_up
        return Todo(take=self._to_take(), give_up=give_up)

    def _to_take(self) -> dict[Queue, int]:
        for queue in self._taking.keys() - self.assigned:
            del self._taking[queue]
        take = {}
        for queue in sorted(self.assigned - self.owned - self._taking.keys()):
            self._takes += 1
            take[queue] = self._taking[queue] = self._takes
        return take

    def took(self, queues: Mapping[Queue, int]) -> frozenset[Queue]:
        """The offsets of `queues` are known: those that are still to be taken are owned from now
        on, and returned. A queue that was taken away and assigned again has another number."""
        mine = self.still_taking(queues).keys()
        for queue in mine:
            del self._taking[queue]
        self.owned |= mine
        return frozenset(mine)

    def still_taking(self, queues: Mapping[Queue, int]) -> dict[Queue, int]:
        """Those of `queues` that are still to be taken, under the same numbers."""
        return {queue: each for queue, each in queues.items() if self._taking.get(queue) == each}

    def gave_up(self, queues: Iterable[Queue]) -> Todo:
        """The caller has nothing of `queues` any more. Those that were assigned again meanwhile are
        taken again, from their committed offsets."""
        done = set(queues) & self._leaving
        self._leaving -= done
        self.owned -= done
        return Todo(take=self._to_take())

    def fenced(self, member_id: str) -> Todo:
        """The master does not know this member, or gave its queues away: it joins again, as
        `member_id`, so that no late request of the old one is taken for the new one's."""
        todo = self._lose_all()
        self.member_id = member_id
        self.epoch = JOIN
        return todo

    def out_of_time(self, now: float) -> Todo:
        """If the session must have ended by this member's clock, all is lost. The member keeps its
        epoch: a master that still knows it assigns the queues again, another one refuses it."""
        if self._deadline is None or now < self._deadline:
            return Todo()
        self._deadline = None
        return self._lose_all()

    @property
    def deadline(self) -> float | None:
        """When it must have stopped reading, unless a response comes; None while it owns
        nothing."""
        return self._deadline

    def _lose_all(self) -> Todo:
        lost = frozenset(self.owned)
        self.owned.clear()
        self._taking.clear()
        self._leaving.clear()
        self.assigned = frozenset()
        self._deadline = None
        self._settled = False
        return Todo(lost=lost, former=(self.member_id, self.epoch))

    @property
    def is_member(self) -> bool:
        """Whether the master has taken it."""
        return self.epoch != JOIN

    @property
    def settled(self) -> bool:
        """Whether it owns exactly what it is to own for now."""
        return (
            self._settled and self.owned == self.assigned and not self._taking and not self._leaving
        )


def rows_of(queues: Collection[Queue]) -> list[broker_pb2.TopicQueues]:
    """The queues by topic, as in requests."""
    by_topic: dict[str, list[int]] = {}
    for topic, queue_id in sorted(queues):
        by_topic.setdefault(topic, []).append(queue_id)
    return [broker_pb2.TopicQueues(topic=topic, queue_ids=ids) for topic, ids in by_topic.items()]
