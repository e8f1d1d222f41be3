"""The failover protocol as a model: three replicas, one register at a coordinator, no time at all.

    clients ──put──▶ leader's log ──replicate──▶ follower's log       positions, acknowledged late,
                        │    ▲                       │                out of order, or never
                        │    └──── positions ────────┘
                        ▼
                    confirmed: told to clients          register {epoch, leader, in-sync set}
                                                        changed by compare-and-set alone

A lease may expire at any moment while its holder is alive; requests to the register are executed in
any order, or never, and their answers may be lost; a power cut takes what was not fsynced. Whatever
the order of these, a confirmed record stays where it is: a leader that lacks one, or that confirms
another in its place, is a violation.

Each rule of the protocol is a field of `Rules`. Switched off, the same random walks must find a
violation (test_failover_model.py); with all of them on there is none. The model is checked, not
proved: it is a random search.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

Record = tuple[int, int]
"""Epoch and value."""
REPLICAS = 3
Each = TypeVar("Each")


class ViolationError(Exception):
    """A confirmed record is lost, or was replaced."""


@dataclass(frozen=True, order=True)
class Member:
    """A replica, and which of its disks: the incarnation grows when it has lost what it held."""

    replica: int
    incarnation: int = 0


Members = frozenset[Member]


@dataclass(frozen=True)
class Rules:
    """What the protocol demands; `async_flush` is a way to run it and no rule."""

    waits_for_whole_set: bool = True
    waits_until_a_shrink_is_recorded: bool = True
    waits_from_the_proposal_to_expand: bool = True
    proposal_is_open_until_a_newer_revision: bool = True
    expands_from_the_epoch_start: bool = True
    followers_refuse_lower_epochs: bool = True
    acknowledgements_name_their_epoch: bool = True
    elects_from_the_set: bool = True
    each_term_is_a_new_epoch: bool = True
    truncates_before_it_acknowledges: bool = True
    followers_fsync_first: bool = True
    leader_counts_what_it_fsynced: bool = True
    set_names_incarnations: bool = True
    leader_is_named_with_its_incarnation: bool = True
    drops_the_replaced_leader: bool = True
    min_in_sync: int = 2
    async_flush: bool = False


@dataclass
class Register:
    """What the coordinator holds; each change is a new revision."""

    leader: Member
    in_sync: Members
    epoch: int = 1
    revision: int = 1


@dataclass
class Term:
    """A replica leads: its view of the register, and what it has asked for since."""

    epoch: int
    start: int
    in_sync: Members
    revision: int
    proposals: list[Members] = field(default_factory=list)
    positions: dict[Member, int] = field(default_factory=dict)
    confirmed: int = 0


@dataclass
class Replica:
    """Log and disk of one replica: `durable` records are fsynced, and `accepted`, the highest epoch
    that it has followed or led."""

    number: int
    log: list[Record] = field(default_factory=list)
    durable: int = 0
    accepted: int = 0
    incarnation: int = 0
    term: Term | None = None
    follows: tuple[int, int] | None = None

    @property
    def member(self) -> Member:
        return Member(self.number, self.incarnation)


@dataclass(frozen=True)
class Acknowledgement:
    """A follower's position on its way to a leader."""

    sender: Member
    leader: int
    epoch: int
    position: int


@dataclass(frozen=True)
class Request:
    """A compare-and-set on its way to the register."""

    sender: Member
    epoch: int
    revision: int
    in_sync: Members


@dataclass(frozen=True)
class Response:
    """That the request was executed, on its way back."""

    request: Request
    revision: int


class World:
    """All of it, moved by `step`."""

    def __init__(self, rng: Random, rules: Rules) -> None:
        self.rng = rng
        self.rules = rules
        self.replicas = [Replica(number) for number in range(REPLICAS)]
        first = frozenset(replica.member for replica in self.replicas[: rng.choice((2, 3))])
        self.register = Register(Member(0), first)
        self.replicas[0].accepted = 1
        self.replicas[0].term = Term(1, 0, first, 1)
        self.confirmed: dict[int, Record] = {}
        self.values = 0
        self.acknowledgements: list[Acknowledgement] = []
        self.requests: list[Request] = []
        self.responses: list[Response] = []
        events: list[tuple[float, Callable[[Replica], None]]] = [
            (15, self.put),
            (11, self.fsync),
            (28, self.replicate),
            (15, self.take_acknowledgement),
            (10, self.confirm),
            (6, self.propose),
            (5, self.execute),
            (5, self.learn),
            (1.7, self.elect),
            (1.8, self.promote_late),
            (1.5, self.lose_power),
        ]
        self.events = [event for _, event in events]
        self.weights = [weight for weight, _ in events]

    def walk(self, steps: int) -> None:
        """Raises ViolationError."""
        for event in self.rng.choices(self.events, self.weights, k=steps):
            event(self.rng.choice(self.replicas))

    # ---- the log

    def put(self, leader: Replica) -> None:
        if leader.term is not None:
            self.values += 1
            leader.log.append((leader.term.epoch, self.values))

    def fsync(self, replica: Replica) -> None:
        replica.durable = len(replica.log)

    def replicate(self, leader: Replica) -> None:
        """A follower takes one record, or with the first contact in an epoch the leader's past."""
        follower = self.rng.choice(self.replicas)
        term = leader.term
        if term is None or follower is leader:
            return
        if follower.term is not None and follower.term.epoch >= term.epoch:
            return
        if self.rules.followers_refuse_lower_epochs and follower.accepted > term.epoch:
            if self.rng.random() < 0.5:
                leader.term = None  # it has heard of the higher epoch
            return
        if follower.follows != (term.epoch, leader.number):
            self._join(follower, leader, term)
        elif len(follower.log) < len(leader.log):
            follower.log.append(leader.log[len(follower.log)])
        if self.rng.random() < 0.6:
            follower.durable = len(follower.log)
        early = self.rules.async_flush or not self.rules.followers_fsync_first
        position = len(follower.log) if early else follower.durable
        self.acknowledgements.append(
            Acknowledgement(follower.member, leader.number, term.epoch, position)
        )

    def _join(self, follower: Replica, leader: Replica, term: Term) -> None:
        """The epoch is durable before the log changes; then the logs are made equal."""
        follower.term = None
        follower.accepted = max(follower.accepted, term.epoch)
        follower.follows = (term.epoch, leader.number)
        if self.rules.truncates_before_it_acknowledges:
            common = common_prefix(follower.log, leader.log)
            del follower.log[common:]
            follower.durable = min(follower.durable, common)

    def take_acknowledgement(self, _: Replica) -> None:
        if not self.acknowledgements:
            return
        found = self._any(self.acknowledgements)
        term = self.replicas[found.leader].term
        if term is None or self.rng.random() < 0.1:
            return
        if self.rules.acknowledgements_name_their_epoch and found.epoch != term.epoch:
            return
        known = term.positions.get(found.sender, 0)
        term.positions[found.sender] = max(known, found.position)

    def confirm(self, leader: Replica) -> None:
        """The leader tells clients about all that every set in force holds."""
        term, rules = leader.term, self.rules
        if term is None:
            return
        sets = self._in_force(term)
        if min(len(each) for each in sets) < rules.min_in_sync:
            return
        early = rules.async_flush or not rules.leader_counts_what_it_fsynced
        own = len(leader.log) if early else leader.durable
        held = sorted(
            own if member.replica == leader.number else self._position(term, member)
            for member in frozenset[Member]().union(*sets)
        )
        whole = rules.waits_for_whole_set or len(held) < 2
        confirmed = held[0] if whole else held[-2]
        term.confirmed = max(term.confirmed, confirmed)
        for place, record in enumerate(leader.log[:confirmed]):
            if self.confirmed.setdefault(place, record) != record:
                raise ViolationError(
                    f"{self.confirmed[place]} was confirmed at {place}, then {record}"
                )

    def _in_force(self, term: Term) -> list[Members]:
        proposals = term.proposals
        if not self.rules.waits_until_a_shrink_is_recorded and proposals:
            return [proposals[-1]]
        if not self.rules.waits_from_the_proposal_to_expand:
            proposals = [each for each in proposals if each < term.in_sync]
        return [term.in_sync, *proposals]

    def _position(self, term: Term, member: Member) -> int:
        if self.rules.set_names_incarnations:
            return term.positions.get(member, 0)
        return max(
            (at for each, at in term.positions.items() if each.replica == member.replica), default=0
        )

    # ---- the in-sync set

    def propose(self, leader: Replica) -> None:
        """One change at a time: a member leaves, joins, or takes another's place."""
        term = leader.term
        other = self.rng.choice(self.replicas)
        if term is None or term.proposals or other is leader:
            return
        here = {member.replica for member in term.in_sync}
        if other.number in here:
            changed = frozenset(each for each in term.in_sync if each.replica != other.number)
            third = next(each for each in self.replicas if each not in (leader, other))
            if self.rng.random() < 0.3 and third.number not in here and self._holds(term, third):
                changed |= {third.member}
        elif self._holds(term, other):
            changed = term.in_sync | {other.member}
        else:
            return
        if len(changed) >= self.rules.min_in_sync:
            term.proposals.append(changed)
            self.requests.append(Request(leader.member, term.epoch, term.revision, changed))

    def _holds(self, term: Term, replica: Replica) -> bool:
        start = term.start if self.rules.expands_from_the_epoch_start else 0
        return term.positions.get(replica.member, -1) >= max(term.confirmed, start)

    def execute(self, _: Replica) -> None:
        """The register executes any request that is under way; it, or its answer, may be lost."""
        if not self.requests:
            return
        request, register = self._any(self.requests), self.register
        if self.rng.random() < 0.15:
            return
        if register.epoch == request.epoch and register.revision == request.revision:
            register.revision += 1
            register.in_sync = request.in_sync
            if self.rng.random() < 0.85:
                self.responses.append(Response(request, register.revision))

    def learn(self, leader: Replica) -> None:
        """An answer comes, or the leader reads the register."""
        if self.responses and self.rng.random() < 0.5:
            response = self._any(self.responses)
            leader = self.replicas[response.request.sender.replica]
            term = leader.term
            if (
                term is not None
                and leader.member == response.request.sender
                and term.epoch == response.request.epoch
                and response.revision > term.revision
            ):
                self._take_view(term, response.request.in_sync, response.revision)
        elif leader.term is not None:
            self._read(leader, leader.term)

    def _read(self, leader: Replica, term: Term) -> None:
        register = self.register
        if register.epoch > term.epoch:
            leader.term = None
        elif register.revision > term.revision:
            self._take_view(term, register.in_sync, register.revision)
        elif not self.rules.proposal_is_open_until_a_newer_revision:
            term.proposals = []
        elif term.proposals and self.rng.random() < 0.5:
            # the same set once more: whatever is still under way compares with an old revision now
            register.revision += 1
            self._take_view(term, register.in_sync, register.revision)

    def _take_view(self, term: Term, in_sync: Members, revision: int) -> None:
        term.in_sync, term.revision, term.proposals = in_sync, revision, []

    # ---- terms

    def elect(self, candidate: Replica) -> None:
        """The lease has expired, whether or not its holder is alive."""
        register, rules = self.register, self.rules
        here = {member.replica for member in register.in_sync}
        if rules.elects_from_the_set:
            by_name = not rules.set_names_incarnations and candidate.number in here
            if candidate.member not in register.in_sync and not by_name:
                return
        remaining = frozenset(
            each for each in register.in_sync if each.replica != register.leader.replica
        )
        other = register.leader.replica != candidate.number
        if rules.drops_the_replaced_leader and other and len(remaining) >= rules.min_in_sync:
            register.in_sync = remaining
        register.epoch += 1
        register.revision += 1
        register.leader = candidate.member
        if self.rng.random() < 0.6:
            self._promote(candidate)

    def promote_late(self, replica: Replica) -> None:
        """It has won and did not begin at once: bytes of the old term may have come since."""
        newest = 0 if replica.term is None else replica.term.epoch
        if self.register.epoch > max(newest, replica.accepted):
            self._promote(replica)

    def _promote(self, replica: Replica) -> None:
        register = self.register
        if register.leader.replica != replica.number:
            return
        if self.rules.leader_is_named_with_its_incarnation and register.leader != replica.member:
            return
        replica.accepted, replica.follows = register.epoch, None
        replica.term = Term(register.epoch, len(replica.log), register.in_sync, register.revision)
        for place, record in self.confirmed.items():
            if place >= len(replica.log) or replica.log[place] != record:
                raise ViolationError(
                    f"the leader of epoch {register.epoch} lacks {record}, confirmed at {place}"
                )

    def lose_power(self, replica: Replica) -> None:
        lost = len(replica.log) > replica.durable
        del replica.log[replica.durable :]
        term, replica.term, replica.follows = replica.term, None, None
        if lost and self.rules.async_flush:
            replica.incarnation += 1
        if self.rules.each_term_is_a_new_epoch or term is None:
            return
        register = self.register
        if register.leader == replica.member and register.epoch == term.epoch:
            replica.term = Term(register.epoch, term.start, register.in_sync, register.revision)

    def _any(self, waiting: list[Each]) -> Each:
        return waiting.pop(self.rng.randrange(len(waiting)))


def common_prefix(one: list[Record], other: list[Record]) -> int:
    """How many records at the start of both are the same."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def first_violation(seeds: Iterable[int], rules: Rules, steps: int = 300) -> tuple[int, str] | None:
    """The first of these walks that breaks the promise, and how."""
    for seed in seeds:
        try:
            World(Random(seed), rules).walk(steps)
        except ViolationError as broken:
            return seed, str(broken)
    return None
