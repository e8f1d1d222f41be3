"""The in-sync set: who must hold a byte before it counts as safe, and when members come and go.

             durable >= max(confirm, epoch start), and caught up for a while
    outside ────────────────────────────────────────────────────────────────▶ member
            ◀────────────────────────────────────────────────────────────────
                 not caught up, or silent, for replica_lag_time; disk failed;
                 never below `required` members

The expand rule looks at the start of the epoch too: the master of the epoch before may still
send acknowledgements for anything below it. A change is proposed, recorded (a file here, one
compare-and-set in a coordinator), then resolved; until it is resolved both sets are in force, so
whichever of them is found after a crash is safe. One change is under way at a time. A member that
comes back with another incarnation is another member: it takes its old place by the expand rule.

A node may hold acknowledged bytes that this master has lost: perhaps a member of `unheard`,
certainly a slave that an alarm names. Until that is settled it cannot leave the set, and no node
joins: a follower of this master may lack the same bytes, and an election would take it for safe. A
member of `unheard` is settled when it has followed, or when its node has come back with another
disk, so that the old one is gone permanently.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..state import MAX_KNOWN_NODES, InSyncRecord, Member, remembered

NO_TABLES: Mapping[str, int] = {}


@dataclass(slots=True)
class Progress:
    """How close a slave follows. Times are the caller's `now`, in seconds.

    A slave had caught up at time t if it now holds everything the master held at t. One sample
    (end, time) is enough to find such a t while it lags by a steady flow of new bytes.

    `foreign`: a slave of another protocol, which fetches the tables by itself and does not say
    which versions it has (foreign_slaves.py).
    """

    member: Member
    caught_up_at: float | None = None
    steady_since: float | None = None
    heard_at: float = 0.0
    connected: bool = True
    fault: str = ""
    sample_end: int = 0
    sample_at: float = 0.0
    tables: dict[str, int] = field(default_factory=dict)
    foreign: bool = False

    def held(self, durable: int, end: int, now: float) -> None:
        """The slave holds `durable`, the master `end`."""
        if durable >= end:
            self.caught_up_at = now
        elif self.sample_at and durable >= self.sample_end:
            self.caught_up_at = max(self.caught_up_at or 0.0, self.sample_at)
        if not self.sample_at or durable >= self.sample_end:
            self.sample_end, self.sample_at = end, now

    def has_table(self, kind: str, version: int) -> bool:
        """Whether it has taken at least that version, as far as it tells."""
        return self.foreign or self.tables.get(kind, -1) >= version

    def behind_s(self, now: float) -> float | None:
        """Seconds since it last held everything; None if it never has in this stream."""
        return None if self.caught_up_at is None else max(0.0, now - self.caught_up_at)


@dataclass(frozen=True, slots=True)
class SetRules:
    """`required` members at least; seconds for the two times."""

    required: int
    lag_s: float
    rejoin_s: float
    dead_s: float


class SyncStateSet:
    """The recorded set and at most one proposed one. Owned by the master's loop. `kept_out` is the
    id of a slave that is about to set its log aside: it leaves at once, and does not join."""

    def __init__(
        self, record: InSyncRecord, rules: SetRules, me: Member, started_at: float
    ) -> None:
        self.record = record
        self.proposed: InSyncRecord | None = None
        self.me = me
        self.rules = rules
        self.started_at = started_at
        self.kept_out = ""

    @property
    def members(self) -> frozenset[Member]:
        """The recorded set, the master included; a proposed one is not in it."""
        return self.record.members

    def in_force(self) -> tuple[frozenset[Member], ...]:
        """Every set that an acknowledgement must satisfy. Any thread may ask."""
        # read once, and before the record: a proposed set becomes that first
        proposed = self.proposed
        if proposed is None:
            return (self.record.members,)
        return self.record.members, proposed.members

    def propose(
        self,
        progress: dict[str, Progress],
        durable: dict[str, int],
        need: int,
        now: float,
        alarmed: Collection[str] = (),
        tables: Mapping[str, int] = NO_TABLES,
    ) -> InSyncRecord | None:
        """The next change that the rules require, now in force beside the recorded set; None if
        none is due.

        `durable` is per node id what is acknowledged in this epoch; `need` what a new member must
        hold: max(confirm offset, epoch start); `alarmed` are the node ids that an alarm names;
        `tables` the versions of the tables that a new member must have taken.
        """
        if self.proposed is not None:
            return None
        unheard = self.record.unheard
        heard = {each.member for node_id, each in progress.items() if node_id in durable}
        holding = {
            each.member
            for node_id, each in progress.items()
            if may_join(durable.get(node_id), need)
        }
        changed = None
        if all_is_here(unheard, heard, alarmed):
            candidates = {
                node_id: each
                for node_id, each in progress.items()
                if node_id != self.kept_out
                and all(each.has_table(kind, least) for kind, least in tables.items())
            }
            changed = self._expanded(candidates, durable, need, now)
        changed = changed or self._shrunk(progress, now, alarmed)
        members = changed or self.members
        settled = self.record.settled or members <= holding | {self.me}
        if changed is None and not unheard & heard and settled == self.record.settled:
            return None
        unheard -= heard
        self.proposed = InSyncRecord(
            self.record.epoch,
            self.record.version + 1,
            members,
            unheard & members,
            remembered((each.node_id for each in members), self.record.known),
            settled,
        )
        return self.proposed

    def resolved(self, record: InSyncRecord) -> None:
        """`record` is known to be durable: it alone is in force."""
        if record.version > self.record.version:
            self.record = record
            if self.proposed is not None and self.proposed.version <= record.version:
                self.proposed = None

    def _expanded(
        self, progress: dict[str, Progress], durable: dict[str, int], need: int, now: float
    ) -> frozenset[Member] | None:
        if len(self.members) >= MAX_KNOWN_NODES // 2:
            return None
        for node_id, each in sorted(progress.items()):
            if each.member in self.members or not each.connected or each.fault:
                continue
            if now - each.heard_at > self.rules.dead_s:
                continue
            if may_join(durable.get(node_id), need) and self._steady(each, now):
                stale = {old for old in self.members if old.node_id == node_id}
                return (self.members - stale) | {each.member}
        return None

    def _steady(self, each: Progress, now: float) -> bool:
        """Caught up for long enough not to leave at once; who is needed need not wait."""
        if len(self.members) < self.rules.required or self._replaces(each):
            return True
        behind = each.behind_s(now)
        if behind is None or behind > self.rules.rejoin_s:
            each.steady_since = None
            return False
        if each.steady_since is None:
            each.steady_since = now
        return now - each.steady_since >= self.rules.rejoin_s

    def _replaces(self, each: Progress) -> bool:
        return any(old.node_id == each.member.node_id for old in self.members)

    def _shrunk(
        self, progress: dict[str, Progress], now: float, alarmed: Collection[str]
    ) -> frozenset[Member] | None:
        leaving = {
            member
            for member in self.members
            if member != self.me
            and member.node_id not in alarmed
            and (
                self._out(member, progress.get(member.node_id), now)
                or (member.node_id == self.kept_out and self._enough_without(member, progress, now))
            )
        } - self.record.unheard
        # Never below the required number: the longest absent go first, the rest stay and block.
        spare = len(self.members) - self.rules.required
        chosen = sorted(leaving, key=lambda member: self._absence(member, progress, now))
        dropped = leaving - set(chosen[max(0, spare) :])
        return self.members - dropped if dropped else None

    def _enough_without(self, member: Member, progress: dict[str, Progress], now: float) -> bool:
        """Whether enough others of the set are there: what is acknowledged is about to be on their
        disks alone."""
        here = {self.me} | {
            each.member
            for each in progress.values()
            if each.connected and not each.fault and now - each.heard_at <= self.rules.dead_s
        }
        return len((self.members & here) - {member}) >= self.rules.required

    def _absence(self, member: Member, progress: dict[str, Progress], now: float) -> float:
        each = progress.get(member.node_id)
        behind = each.behind_s(now) if each is not None and each.member == member else None
        return -(behind if behind is not None else float("inf"))

    def _out(self, member: Member, each: Progress | None, now: float) -> bool:
        if each is None or each.member != member:
            return now - self.started_at > self.rules.lag_s
        if each.fault:
            return True
        since = each.caught_up_at if each.caught_up_at is not None else self.started_at
        return now - since > self.rules.lag_s or now - each.heard_at > self.rules.lag_s


def may_join(durable: int | None, need: int) -> bool:
    """The expand rule: all that is confirmed, and all below the start of the epoch."""
    return durable is not None and durable >= need


def all_is_here(
    unheard: Collection[Member], heard: Collection[Member], alarmed: Collection[str]
) -> bool:
    """Whether no node is known, or suspected, to hold acknowledged bytes that the master lacks."""
    nodes = {member.node_id for member in heard}
    return not alarmed and all(member.node_id in nodes for member in unheard)
