"""One group: its members, its epoch, and who owns which queue. Pure: requests and `now` come in.

    join, leave, silence,      ┌──────────┐ target(member) ─ owned = to be given
    other topics ─▶ epoch + 1 ▶│ assignor │
                               └──────────┘ owned ─ target(member) = to be given up first

    q of A is to go to B:  A is told without q ─▶ A reports without q ─▶ free ─▶ B owns q, is told

Invariants: a queue has at most one owner. A member holds only what it was told, so it may hold what
it reported last and what it was told since; a queue leaves its owner only when it is in neither, or
the member is gone. A member is told only what is confirmed: durable here and on the in-sync set
(`confirm`). So the next master knows every owner that ever acted as one.

`since` of an owned queue is the epoch from which the member owns it. A commit counts if its member
owns the queue and its epoch is not below that: a member that lost a queue and got it again cannot
pass with a commit from before. A commit of a member that is gone counts too, while no other member
has owned the queue since and its offset was not set by hand: only that member did the work.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tandemlog.format.calls import JOIN, LEAVE_FOR_A_WHILE

from .assignor import Queue

EARLIER_KEPT = 8


class FencedMemberError(Exception):
    """The group does not know this member, or not as what it says to be: it must join again."""


class FencedInstanceError(Exception):
    """Another member has taken over the instance id."""


class LateRequestError(Exception):
    """A newer request of this member was taken already."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a member says in a heartbeat. Times in ms."""

    member_id: str
    epoch: int
    number: int
    topics: frozenset[str] = frozenset()
    owned: frozenset[Queue] = frozenset()
    instance_id: str = ""
    client_id: str = ""
    host: str = ""
    session_timeout_ms: int = 20_000
    rebalance_timeout_ms: int = 60_000
    holder: str = ""
    """Whose share of the members this one is: an identity, or a host (storage/shares.py)."""


@dataclass(slots=True)
class Member:
    """`owned`: the queues that are its own by the master's word, and since which epoch."""

    member_id: str
    topics: frozenset[str]
    instance_id: str = ""
    client_id: str = ""
    host: str = ""
    session_timeout_ms: int = 20_000
    rebalance_timeout_ms: int = 60_000
    epoch: int = 0
    owned: dict[Queue, int] = field(default_factory=dict)
    earlier: tuple[str, ...] = ()
    """Members of this instance that were replaced: they may not take it back."""
    # of this master's term alone
    heard_at: float = 0.0
    number: int = -1
    held: set[Queue] | None = None
    """What it may hold: reported, or told since. None: all that it owns, until it reports."""
    away: bool = False
    told_epoch: int = 0
    told: Mapping[Queue, int] = field(default_factory=dict)
    """Of the newest confirmed state: the member's epoch, and since when it owns each queue."""
    last: "Told | None" = None
    """What it was told last, in this term."""
    giving_since: float | None = None
    holder: str = ""
    """That of its newest report; empty before the first one in this term."""

    def may_hold(self, queue: Queue) -> bool:
        return queue in self.owned if self.held is None else queue in self.held


@dataclass(frozen=True, slots=True)
class Told:
    """What a member is told. `settled`: it is the member's whole share of the group's epoch."""

    member_epoch: int
    group_epoch: int
    queues: frozenset[Queue]
    settled: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """A member that was removed, and why."""

    member: Member
    reason: str


class ConsumerGroup:
    """See the module. `version` grows with each change that the next master has to know."""

    def __init__(self, name: str, epoch: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        self.version = 0
        self.confirmed_version = 0
        self.confirmed_epoch = epoch
        self.members: dict[str, Member] = {}
        self.target: dict[Queue, str] = {}
        self.targets: dict[str, frozenset[Queue]] = {}
        self.owners: dict[Queue, str] = {}
        self.left: dict[Queue, tuple[str, int]] = {}
        """Of queues without an owner: the last one, which is gone, and since when it owned them. Of
        this master's term alone."""
        self.queue_counts: dict[str, int] = {}
        self.out_of_date = False
        """Whether the target does not fit the members and topics any more."""
        self.rebalances = 0
        self.reconciled_version = -1

    # ---- what members say

    def hear(self, report: Report, now: float) -> None:
        """Take a heartbeat that is no join and no leave. Raises FencedMemberError,
        FencedInstanceError, LateRequestError."""
        member = self.members.get(report.member_id)
        if member is None:
            self._check_instance(report)
            raise FencedMemberError(
                f"group {self.name!r} does not know member {report.member_id}: its session timed "
                "out, or it has left"
            )
        if report.number <= member.number:
            raise LateRequestError
        if report.epoch > member.epoch:
            raise FencedMemberError(
                f"group {self.name!r}: member {report.member_id} is at epoch {report.epoch}, and "
                f"this master knows it at {member.epoch}"
            )
        self._record(member, report, now)

    def join(self, report: Report, now: float) -> Removed | None:
        """A member that begins. Returns the member whose place it takes: an earlier life of its
        own, or of its instance."""
        present = self.members.get(report.member_id)
        if present is not None and report.number <= present.number:
            raise LateRequestError
        if present is not None and present.held == set() and present.topics == report.topics:
            self._record(present, report, now)  # it did not hear the response to its first request
            return None
        replaced = None
        if present is not None:
            replaced = self.remove(present.member_id, "joins again")
        member = Member(report.member_id, report.topics, report.instance_id, number=report.number)
        if present is not None:
            member.earlier = present.earlier
        before = self._of_instance(report.instance_id)
        if before is not None and report.member_id in before.earlier:
            self._check_instance(report)
        self.members[member.member_id] = member
        if before is not None:
            replaced = Removed(before, "another process has taken over its instance id")
            self._inherit(member, before)
        else:
            self.out_of_date = True
        self._record(member, report, now)
        self.version += 1
        return replaced

    def _record(self, member: Member, report: Report, now: float) -> None:
        member.number = report.number
        member.heard_at = now
        member.holder = report.holder
        member.away = False
        # what it does not say to own it does not hold, unless it is told again
        member.held = {
            queue
            for queue, since in member.owned.items()
            if queue in report.owned or (report.epoch != JOIN and not knew(report, since))
        }
        if (
            member.session_timeout_ms != report.session_timeout_ms
            or member.rebalance_timeout_ms != report.rebalance_timeout_ms
            or member.client_id != report.client_id
            or member.host != report.host
        ):
            member.session_timeout_ms = report.session_timeout_ms
            member.rebalance_timeout_ms = report.rebalance_timeout_ms
            member.client_id, member.host = report.client_id, report.host
            self.version += 1
        if member.topics != report.topics:
            member.topics = report.topics
            self.out_of_date = True
            self.version += 1

    def leave(self, report: Report, now: float) -> Removed | None:
        """A member that ends; for LEAVE_FOR_A_WHILE its queues stay its own until its session
        times out. Who is not known has left."""
        member = self.members.get(report.member_id)
        if member is None or report.number <= member.number:
            return None
        if report.epoch == LEAVE_FOR_A_WHILE and member.instance_id:
            member.number, member.heard_at, member.away = report.number, now, True
            member.held = set()
            return None
        return self.remove(member.member_id, "has left")

    def _check_instance(self, report: Report) -> None:
        other = self._of_instance(report.instance_id)
        if other is not None and other.member_id != report.member_id:
            raise FencedInstanceError(
                f"group {self.name!r}: member {other.member_id} ({other.client_id}) has joined "
                f"with the instance id {report.instance_id!r}, which this member had"
            )

    def _of_instance(self, instance_id: str) -> Member | None:
        if not instance_id:
            return None
        for member in self.members.values():
            if member.instance_id == instance_id:
                return member
        return None

    def _inherit(self, member: Member, before: Member) -> None:
        """The same queues for the instance's next life, without a rebalance. A new epoch: what the
        old member still sends is from before it."""
        del self.members[before.member_id]
        self.epoch += 1
        member.epoch = self.epoch
        member.earlier = (*before.earlier, before.member_id)[-EARLIER_KEPT:]
        member.owned = dict.fromkeys(before.owned, self.epoch)
        for queue in before.owned:
            self.owners[queue] = member.member_id
        for queue in self.targets.pop(before.member_id, frozenset()):
            self.target[queue] = member.member_id
        self._sort_targets()
        if before.topics != member.topics:
            self.out_of_date = True

    def remove(self, member_id: str, reason: str) -> Removed:
        """Its queues are free at once."""
        member = self.members.pop(member_id)
        for queue, since in member.owned.items():
            self.owners.pop(queue, None)
            self.left[queue] = member_id, since
        self.out_of_date = True
        self.version += 1
        return Removed(member, reason)

    # ---- time

    def expire(self, now: float) -> list[Removed]:
        """Members that were silent for their session, or did not give up a queue in time."""
        removed = []
        for member in list(self.members.values()):
            silent_ms = (now - member.heard_at) * 1000
            if silent_ms >= member.session_timeout_ms:
                reason = f"was silent for {silent_ms:.0f} ms"
                removed.append(self.remove(member.member_id, reason))
                continue
            since = member.giving_since
            if since is not None and (now - since) * 1000 >= member.rebalance_timeout_ms:
                reason = f"did not give up its queues within {member.rebalance_timeout_ms} ms"
                removed.append(self.remove(member.member_id, reason))
        return removed

    def forgive(self, seconds: float) -> None:
        """No member could be heard for so long."""
        for member in self.members.values():
            member.heard_at += seconds
            if member.giving_since is not None:
                member.giving_since += seconds

    def next_expiry(self) -> float:
        """When `expire` may find something; infinity without members."""
        times = [float("inf")]
        for member in self.members.values():
            times.append(member.heard_at + member.session_timeout_ms / 1000)
            if member.giving_since is not None:
                times.append(member.giving_since + member.rebalance_timeout_ms / 1000)
        return min(times)

    # ---- the target, and the way there

    def set_topics(self, queue_counts: Mapping[str, int]) -> None:
        """The numbers of queues of the topics that exist."""
        wanted = {topic for member in self.members.values() for topic in member.topics}
        counts = {topic: queue_counts[topic] for topic in wanted if queue_counts.get(topic)}
        if counts != self.queue_counts:
            self.queue_counts = counts
            self.out_of_date = True

    def assignment_work(
        self,
    ) -> tuple[dict[str, frozenset[str]], dict[str, int], dict[Queue, str]]:
        """What the assignor takes, a copy: it may run in another thread."""
        self.out_of_date = False
        subscriptions = {member.member_id: member.topics for member in self.members.values()}
        # where a queue is to go counts, if it is on its way there
        return subscriptions, dict(self.queue_counts), {**self.owners, **self.target}

    def set_target(self, target: dict[Queue, str]) -> None:
        """The result of `assignment_work`, without members that went meanwhile: the group is out of
        date then, and another target follows."""
        if target == self.target and self.epoch:
            self._sort_targets()
            if all(member.epoch for member in self.members.values()):
                return
        self.target = {queue: each for queue, each in target.items() if each in self.members}
        self._sort_targets()
        self.epoch += 1
        self.rebalances += 1
        self.version += 1

    def _sort_targets(self) -> None:
        queues_of: dict[str, set[Queue]] = {member_id: set() for member_id in self.members}
        for queue, member_id in self.target.items():
            if member_id in queues_of:
                queues_of[member_id].add(queue)
        self.targets = {member_id: frozenset(queues) for member_id, queues in queues_of.items()}

    def reconcile(self, now: float, reporter: Member | None = None) -> bool:
        """Free what was given up, and give what is free; whether something has changed. Call after
        any change; with `reporter` if nothing but a report of this member has come since."""
        if reporter is not None and self.version == self.reconciled_version:
            changed = self._reconcile_one(reporter, now)
        else:
            changed = False
            for member in self.members.values():
                changed |= self._give_up(member, now)
            for member in self.members.values():
                changed |= self._give(member)
        if changed:
            self.version += 1
        before, self.reconciled_version = self.reconciled_version, self.version
        return before != self.version

    def _reconcile_one(self, member: Member, now: float) -> bool:
        """What it gave up goes to those for whom it is meant, without a look at all queues."""
        if member.giving_since is None or self.members.get(member.member_id) is not member:
            return False
        before = list(member.owned)
        changed = self._give_up(member, now) | self._give(member)
        receivers = {self.target.get(queue) for queue in before if queue not in member.owned}
        for each in receivers:
            if each is not None and each in self.members:
                changed |= self._give(self.members[each])
        return changed

    def _give_up(self, member: Member, now: float) -> bool:
        target = self.targets.get(member.member_id, frozenset())
        freed = False
        waiting = False
        for queue in [each for each in member.owned if each not in target]:
            if member.may_hold(queue):
                waiting = True
                continue
            del member.owned[queue]
            del self.owners[queue]
            freed = True
        if not waiting:
            member.giving_since = None
        elif member.giving_since is None:
            member.giving_since = now
        return freed

    def _give(self, member: Member) -> bool:
        """A member that has something to give up gets nothing before."""
        if member.giving_since is not None or member.member_id not in self.targets:
            return False
        changed = member.epoch != self.epoch
        member.epoch = self.epoch
        for queue in self.targets[member.member_id]:
            if queue not in self.owners:
                self.owners[queue] = member.member_id
                member.owned[queue] = self.epoch
                self.left.pop(queue, None)
                changed = True
        return changed

    # ---- what members are told

    def confirm(
        self, version: int, epoch: int, state: Mapping[str, tuple[int, Mapping[Queue, int]]]
    ) -> None:
        """The in-sync set has the state of `version`: of each member its epoch and what it owns."""
        self.confirmed_version = version
        self.confirmed_epoch = epoch
        for member_id, (member_epoch, owned) in state.items():
            member = self.members.get(member_id)
            if member is not None:
                member.told_epoch, member.told = member_epoch, owned

    def tell(self, member: Member) -> Told:
        """What this member may be told now. It counts as told."""
        state = member.last = self.what_to_tell(member)
        may_hold = member.held
        if may_hold is not None:
            may_hold |= state.queues
        return state

    def what_to_tell(self, member: Member) -> Told:
        """The same, and it does not count as told."""
        target = self.targets.get(member.member_id, frozenset())
        queues = frozenset(
            queue
            for queue, since in member.told.items()
            # not one that it lost and got again since: that is not confirmed
            if queue in target and member.owned.get(queue) == since
        )
        settled = (
            not self.out_of_date
            and self.confirmed_version == self.version
            and queues == target
            and member.giving_since is None
        )
        return Told(
            member.told_epoch, max(self.confirmed_epoch, member.told_epoch), queues, settled
        )

    # ---- commits

    def not_owned(self, member_id: str, epoch: int, queues: Iterable[Queue]) -> list[Queue]:
        """The queues for which a commit of this member does not count."""
        member = self.members.get(member_id)
        owned: Mapping[Queue, int] = member.owned if member is not None else {}

        def counts(queue: Queue) -> bool:
            since = owned.get(queue)
            if since is None:
                last, since = self.left.get(queue, ("", 0))
                return last == member_id and since <= epoch
            return since <= epoch

        return [queue for queue in queues if not counts(queue)]

    def forget_left(self, queues: Iterable[Queue]) -> None:
        """A commit of who had these last does not count any more."""
        for queue in queues:
            self.left.pop(queue, None)

    def owned_by_members(self, queues: Iterable[Queue]) -> list[Queue]:
        return [queue for queue in queues if queue in self.owners]

    @property
    def state(self) -> str:
        """As Kafka names it: empty, reconciling or stable."""
        if not self.members:
            return "empty"
        reconciling = self.out_of_date or any(
            member.giving_since is not None
            or member.owned.keys() != self.targets.get(member.member_id, frozenset())
            for member in self.members.values()
        )
        return "reconciling" if reconciling else "stable"


def knew(report: Report, since: int) -> bool:
    """Whether the member had heard of a queue that it owns since this epoch, when it reported: a
    report that is older says nothing about the queue."""
    return report.epoch >= since
