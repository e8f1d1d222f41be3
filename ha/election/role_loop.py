"""What should this node be now? Decided again and again, from a snapshot and the node's own state.

                    record names me, this session,    ┌──────────┐  record names another,
       ┌──────────▶ in an epoch I have not begun ────▶│ LEADING  │  or I was removed
       │                                              └────┬─────┘────────────┐
   ┌───┴─────┐  no leader, or its port is closed           │ key gone:        ▼
   │ WAITING │◀───────────────────────┐                    │ hold it again  step down
   └───┬─────┘      compete ──────────┤                    ▼                  │
       └──────▶ a leader's key: ┌─────┴─────┐◀────────────────────────────────┘
                                │ FOLLOWING │
                                └───────────┘

The machine is pure: `now` is monotonic seconds, transactions are returned and executed elsewhere,
and their answers are not needed: the next snapshot tells what they did. Of the past it remembers
since when there has been no leader, which leader's port was found closed, and since when it has
known of a request that waits for time.

Who may compete: a node whose disk (incarnation) is in the recorded in-sync set, which therefore
holds every acknowledged byte, unless it was rolled back (rolled_back.py). The best standing goes
first, each other one RANK_DELAY_S later. A closed port of the leader's machine shows that its
process is gone, so no node waits for the lease; in async replication the lease is all that
separates two leaders, so there every node waits for it.
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tandemlog.format.files.epochs import EpochTable

from ..config import Replication
from ..coordinator.values import Txn
from ..state import Member
from .key_values import (
    FORCED,
    REINIT,
    SWITCHOVER,
    ClusterRecord,
    LeaderValue,
    MemberValue,
    RequestValue,
)
from .keys import ClusterKeys
from .rolled_back import lacks_confirmed
from .snapshot import Snapshot
from .transactions import Candidate, ask, first_record, force, hold_again, win

RANK_DELAY_S = 0.15
FOUNDING_WAIT_S = 3.0
DROPPED_S = 2.0
"""For a leader to drop a node from the set that an operator has start over with force."""


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """The settings of the cluster. `required` is min_in_sync, 1 where it does not count;
    `founders` are the node ids that must be there before the first leader is elected, empty: those
    that have come within FOUNDING_WAIT_S. `lease_s` is how long a leader's lease may still be
    valid, margin included, after it was last renewed."""

    replication: Replication
    required: int
    founders: frozenset[str] = frozenset()
    lease_s: float = 7.0


@dataclass(frozen=True, slots=True)
class Own:
    """This node. `leading` is the epoch of the term that runs in this process, 0 for none; `begun`
    the highest epoch that this process has begun; `lease` its lease at the coordinator, 0 without
    one; `uuid` the cluster that it has belonged to, empty for a new node; `store_fault` why its
    store accepts nothing until a restart, empty if it does; `epochs` the terms of its log;
    `started_over` the request for which this process has set its log aside."""

    me: MemberValue
    leading: int = 0
    begun: int = 0
    lease: int = 0
    uuid: str = ""
    store_fault: str = ""
    epochs: EpochTable = field(default_factory=EpochTable)
    started_over: str = ""

    @property
    def member(self) -> Member:
        return self.me.member


@dataclass(frozen=True, slots=True)
class Lead:
    """Begin the term that the record gives this node."""

    record: ClusterRecord
    revision: int


@dataclass(frozen=True, slots=True)
class KeepLeading:
    """All is well. `request` is a planned switch that waits for the leader; `keep_out` a node that
    must not be in the in-sync set, because it is about to set its log aside."""

    request: RequestValue | None = None
    keep_out: str = ""


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop acknowledging at once, then end the term."""

    reason: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Follow this leader."""

    leader: LeaderValue


@dataclass(frozen=True, slots=True)
class StartOver:
    """Set the log aside, then follow again with an empty one."""

    request: RequestValue


@dataclass(frozen=True, slots=True)
class Send:
    """Send the transaction, then look again. `doing` and `reason` are for the log."""

    txn: Txn
    reason: str
    doing: str = "competing for the leadership"


@dataclass(frozen=True, slots=True)
class Wait:
    """There is no leader to follow. Look again after `seconds`, or when something changes. `leave`:
    do not continue with the leader of before either."""

    reason: str
    seconds: float = 1.0
    leave: bool = False


Step: TypeAlias = Lead | KeepLeading | StepDown | Follow | StartOver | Send | Wait


class RoleLoop:
    """See the module. Owned by one event loop."""

    def __init__(self, keys: ClusterKeys, rules: ElectionRules) -> None:
        self.rules = rules
        self._keys = keys
        self._leaderless: tuple[int, float] | None = None
        self._closed_port_epoch = 0
        self._founding_since: float | None = None
        self._held_until: tuple[int, float] = (0, 0.0)
        self._asked_at: tuple[int, float] = (0, 0.0)
        self._beside: tuple[tuple[str, int], float] | None = None

    def port_is_closed(self, epoch: int) -> None:
        """The machine of the leader of `epoch` refuses connections to the leader's port."""
        self._closed_port_epoch = max(self._closed_port_epoch, epoch)

    def port_is_open(self, epoch: int) -> None:
        """Replication from the leader of `epoch` works (again)."""
        if self._closed_port_epoch == epoch:
            self._closed_port_epoch = 0

    def decide(
        self, snapshot: Snapshot, own: Own, now: float, now_ms: int, fresh_uuid: str
    ) -> Step:
        """The next step. `now_ms` is the wall clock, for the history; `fresh_uuid` names the
        cluster if this node founds it."""
        record = snapshot.record
        if fault := distrust(snapshot, own):
            # a node that leads continues: only a record that names another one ends a term
            if own.leading:
                return KeepLeading()
            return self._led_astray(snapshot, own, now) or Wait(fault)
        if record is None:
            return self._found(snapshot, own, now, now_ms, fresh_uuid)
        if own.leading:
            return self._lead_on(snapshot, record, own)
        if snapshot.removed(own.me.node_id):
            return Wait(removed_text(own.me.node_id), 5.0, leave=True)
        leader = snapshot.leader
        mine = leader is not None and leader.session == own.me.session
        if mine and record.led_by(own.member, own.me.session) and record.epoch > own.begun:
            return Lead(record, snapshot.record_revision)
        if mine and not record.led_by(own.member, own.me.session):
            return StepDown("another disk of this node was elected, and this one cannot lead")
        if leader is not None and leader.epoch != record.epoch:
            return Wait("the keys of the leader and of the record are of different terms", 0.1)
        if forced := self._forced(snapshot, record, own, now, now_ms):
            return forced
        if leader is not None and not mine:
            gone = self._is_gone(leader, record, own)
            if gone:
                return self._compete(snapshot, record, own, now, now_ms, gone)
            self._leaderless = None
            return self._start_over(snapshot, record, own, now) or Follow(leader)
        return self._compete(snapshot, record, own, now, now_ms, "the leader's lease has expired")

    def _led_astray(self, snapshot: Snapshot, own: Own, now: float) -> Step | None:
        """A node whose epoch the coordinator never gave, beside a leader that continues to renew
        its lease: so it is not the coordinator that went back. The node can only start over, which
        an operator decides. None as long as the coordinator's data may be the older."""
        leader, record = snapshot.leader, snapshot.record
        if not is_ahead(snapshot, own) or leader is None or record is None:
            self._beside = None
            return None
        term = leader.session, leader.epoch
        if self._beside is None or self._beside[0] != term:
            self._beside = term, now
        if now - self._beside[1] <= self.rules.lease_s:
            return None  # a coordinator that was restored gives old leases once more
        return self._start_over(snapshot, record, own, now) or Wait(
            f"{leader.node_id} leads epoch {record.epoch} of this cluster, and this node has seen "
            f"epoch {own.me.accepted_epoch}, which this coordinator never gave: this node was a "
            "master by its configuration meanwhile, or the cluster continued with an older copy of "
            "the coordinator's data. What only this node has taken since is in its store alone: "
            "copy that first if it is wanted, then let the node start over (tandemlog reinit "
            f"{own.me.node_id})"
        )

    # ---- a leader

    def _lead_on(self, snapshot: Snapshot, record: ClusterRecord, own: Own) -> Step:
        if record.epoch != own.leading or not record.led_by(own.member, own.me.session):
            return StepDown(f"{record.leader.node_id} leads epoch {record.epoch}: {record.reason}")
        if snapshot.removed(own.me.node_id):
            return StepDown(removed_text(own.me.node_id))
        if own.store_fault and self._others_can_lead(snapshot, record, own):
            return StepDown(f"another node can lead: {own.store_fault}")
        if snapshot.leader is None:
            if not own.lease:
                return KeepLeading()
            candidate = Candidate(own.me, own.lease)
            return Send(hold_again(self._keys, snapshot, candidate), "the leader's lease was lost")
        request = snapshot.request
        if request is None or request.outcome:
            return KeepLeading()
        if request.kind == REINIT and request.target == own.me.node_id:
            return self._answer(snapshot, request, f"{own.me.node_id} is the master by now")
        if request.kind == REINIT:
            return KeepLeading(keep_out=request.target)
        return KeepLeading(request if request.kind == SWITCHOVER else None)

    def _answer(self, snapshot: Snapshot, request: RequestValue, outcome: str) -> Send:
        txn = ask(self._keys, snapshot, replace(request, outcome=outcome))
        return Send(txn, outcome, f"refusing what an operator asks for ({request.kind})")

    def _others_can_lead(self, snapshot: Snapshot, record: ClusterRecord, own: Own) -> bool:
        return not snapshot.settings.paused and any(
            each.node_id != own.me.node_id
            and not each.obstacle
            and may_be_elected(each.member, record)
            for each in snapshot.members.values()
        )

    # ---- everyone else

    def _found(
        self, snapshot: Snapshot, own: Own, now: float, now_ms: int, fresh_uuid: str
    ) -> Step:
        """There is no cluster yet: the node with the newest log founds it once all are there."""
        if self._founding_since is None:
            self._founding_since = now
        missing = sorted(self.rules.founders - set(snapshot.members))
        if missing:
            return Wait(f"the cluster begins once these nodes are up: {', '.join(missing)}")
        waited = now - self._founding_since
        if not self.rules.founders and waited < FOUNDING_WAIT_S:
            return Wait("waiting for other nodes before the first election", 0.2)
        if own.me.obstacle or not own.lease:
            return Wait(own.me.obstacle or "no lease yet", 0.2)
        able = [each for each in snapshot.members.values() if not each.obstacle]
        best = max(able, key=_founding_order, default=None)
        if best is None or best.node_id != own.me.node_id:
            return Wait("another node has the newest log and founds the cluster", 0.2)
        above = max(each.newest_epoch for each in snapshot.members.values())
        txn = first_record(self._keys, Candidate(own.me, own.lease), fresh_uuid, above, now_ms)
        return Send(txn, "the first election of this cluster")

    def _is_gone(self, leader: LeaderValue, record: ClusterRecord, own: Own) -> str:
        """Why no node has to wait for the lease of this leader; empty if it may be alive."""
        if leader.node_id == own.me.node_id:
            return "this node led, and its process was restarted"
        if self.rules.replication is Replication.ASYNC:
            return ""
        if self._closed_port_epoch == record.epoch:
            return f"the port of {leader.node_id} is closed"
        return ""

    def _compete(
        self,
        snapshot: Snapshot,
        record: ClusterRecord,
        own: Own,
        now: float,
        now_ms: int,
        reason: str,
    ) -> Step:
        if self._leaderless is None or self._leaderless[0] != record.epoch:
            self._leaderless = record.epoch, now
        if why_not := self._why_not(snapshot, record, own):
            return Wait(f"no leader ({reason}); this node does not compete: {why_not}")
        due = self._leaderless[1] + RANK_DELAY_S * self._rank(snapshot, record, own)
        if now < due:
            return Wait(f"no leader ({reason}); nodes with a newer log compete first", due - now)
        txn = win(
            self._keys,
            snapshot,
            Candidate(own.me, own.lease),
            required=self.rules.required,
            unclean=self.rules.replication is Replication.ASYNC,
            reason=reason,
            now_ms=now_ms,
        )
        return Send(txn, reason)

    def _why_not(self, snapshot: Snapshot, record: ClusterRecord, own: Own) -> str:
        if not may_be_elected(own.member, record):
            if is_bereft(snapshot, record):
                return (
                    "no disk of the in-sync set exists any more, each of its nodes joined with "
                    "another one: an operator has to choose (tandemlog failover --to NODE "
                    "--dry-run says what may be lost)"
                )
            return "it is not in the in-sync set, so it may lack acknowledged messages"
        if self.rules.replication.waits and (
            lacks := lacks_confirmed(snapshot, own.me.end_offset, own.epochs)
        ):
            return f"its disk was rolled back: {lacks}"
        if own.me.obstacle:
            return own.me.obstacle
        if not own.lease:
            return "it has no lease at the coordinator"
        if snapshot.settings.paused and record.leader.node_id != own.me.node_id:
            return "failover is paused (tandemlog resume)"
        return ""

    def _rank(self, snapshot: Snapshot, record: ClusterRecord, own: Own) -> int:
        """How many other candidates come before this node."""
        mine = _election_order(own.me)
        return sum(
            _election_order(each) > mine
            for each in snapshot.members.values()
            if each.node_id not in (own.me.node_id, record.leader.node_id)
            and not each.obstacle
            and may_be_elected(each.member, record)
        )

    def _start_over(
        self, snapshot: Snapshot, record: ClusterRecord, own: Own, now: float
    ) -> Step | None:
        """An operator wants this node to set its log aside. First the leader drops it from the set,
        so that `required` other nodes hold every acknowledged byte; where the leader cannot, the
        operator has to force it."""
        request = snapshot.request
        if request is None or request.kind != REINIT or request.outcome:
            return None
        if request.target != own.me.node_id or request.request_id == own.started_over:
            return None
        if own.store_fault:
            return self._answer(snapshot, request, own.store_fault)
        if self._asked_at[0] != snapshot.request_revision:
            self._asked_at = snapshot.request_revision, now
        waited = now - self._asked_at[1]
        if own.member in record.in_sync and not (request.force and waited >= DROPPED_S):
            return None
        return StartOver(request)

    def _forced(
        self, snapshot: Snapshot, record: ClusterRecord, own: Own, now: float, now_ms: int
    ) -> Step | None:
        """An operator wants this node to lead, whatever it lacks. It waits until the leader's lease
        is over, so that one which acknowledges alone has stopped. One that still reaches an in-sync
        slave has not: that its processes are stopped is for the operator to make sure."""
        request = snapshot.request
        if request is None or request.kind != FORCED or request.target != own.me.node_id:
            return None
        if snapshot.leader is not None:
            # until its lease is over this node follows it, as any other
            self._held_until = 0, 0.0
            return None
        if self._held_until[0] != snapshot.request_revision:
            # the lease is gone at the coordinator; its holder's clock may differ by the margin
            self._held_until = snapshot.request_revision, now + self.rules.lease_s
        if now < self._held_until[1]:
            return Wait("forced failover: waiting for the lease of the old leader", 0.2)
        if not own.lease or own.me.obstacle:
            return Wait(f"forced failover: {own.me.obstacle or 'no lease yet'}", 0.2)
        txn = force(self._keys, snapshot, Candidate(own.me, own.lease), now_ms)
        return Send(txn, "forced by an operator")


def distrust(snapshot: Snapshot, own: Own) -> str:
    """Why this node does not act on what the coordinator says (rule: no rollback); empty if it
    does."""
    if snapshot.fault:
        return snapshot.fault
    record = snapshot.record
    if is_foreign(snapshot, own.uuid):
        return (
            f"this node belongs to the cluster {own.uuid}, the coordinator holds "
            f"{snapshot.uuid}: correct the endpoints of the coordinator"
        )
    if own.uuid and (record is None or not snapshot.uuid):
        return (
            "the coordinator has lost the record of this cluster, or is not its coordinator: "
            "correct coordinator.endpoints, or restore the coordinator's data; if that is lost, "
            "docs/operations.md, The coordinator is lost"
        )
    if record is not None and own.uuid and is_ahead(snapshot, own):
        return (
            f"the coordinator's record is of epoch {record.epoch}, but this node has seen "
            f"epoch {own.me.accepted_epoch}: its data was restored from an older backup, or this "
            "node was a master by its configuration meanwhile; docs/operations.md, A node is ahead "
            "of the coordinator"
        )
    return ""


def is_foreign(snapshot: Snapshot, uuid: str) -> bool:
    """Whether the coordinator holds the keys of another cluster than `uuid`."""
    return bool(uuid and snapshot.uuid and uuid != snapshot.uuid)


def is_ahead(snapshot: Snapshot, own: Own) -> bool:
    """Whether this node has seen an epoch above the recorded one of its own cluster."""
    record = snapshot.record
    if record is None or snapshot.uuid != own.uuid:
        return False
    return record.epoch < own.me.accepted_epoch


def may_be_elected(candidate: Member, record: ClusterRecord) -> bool:
    """The election rule: a disk that is in the recorded set holds all that was acknowledged."""
    return candidate in record.in_sync


def is_bereft(snapshot: Snapshot, record: ClusterRecord) -> bool:
    """Whether every node of the recorded set is up with another disk, so that no node can be
    elected, however long one waits."""
    up = [snapshot.members.get(each.node_id) for each in record.in_sync]
    return all(each is not None and not may_be_elected(each.member, record) for each in up)


def removed_text(node_id: str) -> str:
    return f"{node_id} was removed from the cluster; `tandemlog member add {node_id}` takes it back"


def _election_order(each: MemberValue) -> tuple[tuple[int, int, int], str]:
    return each.standing, each.node_id


def _founding_order(each: MemberValue) -> tuple[int, tuple[int, int, int], list[int]]:
    """The newest log; of equal ones the smallest name."""
    return each.newest_epoch, each.standing, [-ord(char) for char in each.node_id]
