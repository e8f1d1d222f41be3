"""What an operator asks of a cluster: is it allowed now, and with which transaction. Any node.

    all keys, read now ─▶ plan_of ─▶ refused, or one change ─▶ transaction ─▶ done
              ▲                                                   │ a key has changed meanwhile
              └───────────────────────────────────────────────────┘

A switch is only asked for here: the leader executes it (switchover.py), or the target of a forced
failover or of a resync (role_loop.py). Such a request has a lease of its own, so that it cannot
take effect days later, when a leader dies and the operator has long gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from ..coordinator.coordinator import Coordinator
from ..coordinator.values import Compare, Delete, KeyRange, Put, Txn, absent, unchanged
from ..errors import HaError
from .key_values import (
    FORCED,
    REINIT,
    SWITCHOVER,
    ClusterRecord,
    MemberValue,
    RequestValue,
    RosterValue,
    encode,
)
from .keys import ClusterKeys
from .role_loop import may_be_elected
from .snapshot import Snapshot, SnapshotBuilder
from .switchover import CannotSwitchError, switch_target

TRIES = 5
LEAST_REQUEST_S = 30


class Action(Enum):
    """What is asked for; see ChangeClusterRequest in admin.proto."""

    SWITCHOVER = "switchover"
    FAILOVER = "failover"
    PAUSE = "pause"
    RESUME = "resume"
    ADD_MEMBER = "add"
    REMOVE_MEMBER = "remove"
    WITHDRAW = "withdraw"
    REINIT = "reinit"


@dataclass(frozen=True, slots=True)
class Change:
    """`epoch`, if not 0, is the only one in which the change is wanted."""

    action: Action
    node_id: str = ""
    request_id: str = ""
    epoch: int = 0
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """`revision` of the change, or of the view if there was none; `node_id` the target."""

    revision: int
    node_id: str
    changed: bool


class ChangeRefusedError(HaError):
    """The state of the cluster does not allow the change; nothing was done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One transaction: `key` gets `value`, or is deleted if that is empty. `leased`: it hangs on
    a lease. An empty `key` means that there is nothing to change."""

    node_id: str = ""
    key: bytes = b""
    value: bytes = b""
    compares: tuple[Compare, ...] = ()
    leased: bool = False


@dataclass(frozen=True, slots=True)
class FreshView:
    """All keys as they are now. `revisions`: of the last change, by key; `required` is the
    cluster's min_in_sync, 1 where it does not count; `lease_ttl_s` that of the nodes' leases."""

    snapshot: Snapshot
    revisions: Mapping[bytes, int] = field(default_factory=dict)
    required: int = 1
    lease_ttl_s: int = 0

    def as_seen(self, key: bytes) -> Compare:
        revision = self.revisions.get(key, 0)
        return unchanged(key, revision) if revision else absent(key)


def plan_of(keys: ClusterKeys, view: FreshView, change: Change) -> Plan:
    """The transaction that does it. Raises ChangeRefusedError."""
    snapshot = view.snapshot
    if snapshot.fault:
        raise ChangeRefusedError(snapshot.fault)
    record = snapshot.record
    if record is None:
        raise ChangeRefusedError("the cluster has elected no master yet")
    if change.epoch and change.epoch != record.epoch:
        raise ChangeRefusedError(
            f"meanwhile {record.leader.node_id} leads epoch {record.epoch}, not {change.epoch}: "
            "look at the cluster again (tandemlog topology)"
        )
    match change.action:
        case Action.SWITCHOVER:
            return _switchover(keys, view, change)
        case Action.FAILOVER:
            return _failover(keys, view, change)
        case Action.PAUSE | Action.RESUME:
            settings = replace(snapshot.settings, paused=change.action is Action.PAUSE)
            if settings == snapshot.settings:
                return Plan()
            seen = (view.as_seen(keys.settings),)
            return Plan(key=keys.settings, value=encode(settings), compares=seen)
        case Action.ADD_MEMBER:
            return _member(keys, view, change, removed=False)
        case Action.REMOVE_MEMBER:
            _check_removal(view, change)
            return _member(keys, view, change, removed=True)
        case Action.REINIT:
            _check_reinit(view, record, change)
            request = RequestValue(REINIT, change.node_id, change.request_id, force=change.force)
            return _request(keys, view, request, change.node_id)
        case Action.WITHDRAW:
            present = snapshot.request
            if present is None or present.request_id != change.request_id:
                return Plan()
            return Plan(present.target, keys.request, compares=(view.as_seen(keys.request),))


def _switchover(keys: ClusterKeys, view: FreshView, change: Change) -> Plan:
    snapshot = view.snapshot
    if snapshot.leader is None:
        raise ChangeRefusedError(
            "there is no master now, so there is none to switch from; if none is elected within "
            "some seconds, `tandemlog check` says why"
        )
    wanted = RequestValue(SWITCHOVER, change.node_id, change.request_id)
    try:
        target = switch_target(_without_removed(snapshot), wanted)
    except CannotSwitchError as error:
        raise ChangeRefusedError(str(error)) from error
    return _request(keys, view, wanted, target.node_id)


def _failover(keys: ClusterKeys, view: FreshView, change: Change) -> Plan:
    snapshot, target = view.snapshot, change.node_id
    member = snapshot.members.get(target)
    if snapshot.leader is not None and snapshot.leader.node_id == target:
        raise ChangeRefusedError(f"{target} leads already")
    if snapshot.removed(target):
        raise ChangeRefusedError(f"{target} was removed from the cluster")
    if member is None:
        raise ChangeRefusedError(_not_up(target, snapshot))
    if member.obstacle:
        raise ChangeRefusedError(f"{target} cannot lead: {member.obstacle}")
    return _request(keys, view, RequestValue(FORCED, target, change.request_id), target)


def _request(keys: ClusterKeys, view: FreshView, wanted: RequestValue, target: str) -> Plan:
    present = view.snapshot.request
    if present is not None and not present.outcome:
        if present.request_id == wanted.request_id:
            return Plan(target)
        raise ChangeRefusedError(
            f"a {present.kind} {target_text(present)} is under way "
            f"(request {present.request_id}): wait until it is done"
        )
    seen = (view.as_seen(keys.request), view.as_seen(keys.state))
    return Plan(target, keys.request, encode(wanted), seen, leased=True)


def target_text(request: RequestValue) -> str:
    """Whom a request concerns."""
    if request.kind == REINIT:
        return f"of {request.target}"
    return f"to {request.target or 'the best node'}"


def _check_reinit(view: FreshView, record: ClusterRecord, change: Change) -> None:
    """Raises ChangeRefusedError for a node that cannot give its log away now."""
    snapshot, target = view.snapshot, change.node_id
    if record.leader.node_id == target:
        raise ChangeRefusedError(
            f"{target} is the master: a node that follows can be resynced, never the master. First "
            "make another node the master (tandemlog switchover)"
        )
    if snapshot.leader is None:
        raise ChangeRefusedError(
            f"there is no master now from which {target} could be resynced; `tandemlog check` says "
            "why"
        )
    if snapshot.removed(target):
        raise ChangeRefusedError(f"{target} was removed from the cluster")
    member = snapshot.members.get(target)
    if member is None:
        raise ChangeRefusedError(_not_up(target, snapshot))
    rest = sorted(
        each.node_id
        for each in snapshot.members.values()
        if each.node_id != target
        and not snapshot.removed(each.node_id)
        and may_be_elected(each.member, record)
    )
    needed = may_be_elected(member.member, record) and len(rest) < view.required
    if needed and not change.force:
        raise ChangeRefusedError(
            f"without {target} the nodes in sync would be {', '.join(rest) or 'none'}, but "
            f"min_in_sync is {view.required}: puts would be refused until {target} is in sync "
            "again, and the loss of a disk meanwhile can lose acknowledged messages. First bring "
            "another node in sync, or accept that with --force"
        )


def _check_removal(view: FreshView, change: Change) -> None:
    """Raises ChangeRefusedError for a node that the cluster needs now."""
    snapshot, node_id = view.snapshot, change.node_id
    record = snapshot.record
    if record is not None and record.leader.node_id == node_id:
        raise ChangeRefusedError(
            f"{node_id} is the master: first make another node the master (tandemlog switchover)"
        )
    if node_id in snapshot.members and not change.force and not snapshot.removed(node_id):
        raise ChangeRefusedError(
            f"{node_id} is up: stop it first. If it has crashed already, it counts as up until its "
            f"lease ends, {view.lease_ttl_s} s after the crash at most: try again then. Or remove "
            "it with --force; if it is up, it then takes no role and refuses puts"
        )


def _member(keys: ClusterKeys, view: FreshView, change: Change, *, removed: bool) -> Plan:
    node_id, snapshot = change.node_id, view.snapshot
    entry = snapshot.roster.get(node_id)
    if entry is None:
        names = ", ".join(sorted(snapshot.roster)) or "none"
        hint = "" if removed else "; a new node joins by being started, no command is needed"
        raise ChangeRefusedError(f"the cluster knows no node {node_id} (known: {names}){hint}")
    if entry.removed is removed:
        return Plan(node_id)
    key = keys.in_roster(node_id)
    seen = [view.as_seen(key)]
    if removed:
        seen.append(view.as_seen(keys.state))
        if not change.force:
            seen.append(absent(keys.member(node_id)))
    value = encode(RosterValue(entry.starts, removed))
    return Plan(node_id, key, value, tuple(seen))


def why_not_in_sync(snapshot: Snapshot, node_id: str) -> str:
    """Why this node is not in the recorded in-sync set; empty if it is."""
    record, member = snapshot.record, snapshot.members.get(node_id)
    if snapshot.removed(node_id):
        return "it was removed from the cluster"
    if record is None:
        return "no master was elected yet"
    if member is None:
        recorded = any(each.node_id == node_id for each in record.in_sync)
        return "" if recorded else "it is not up"
    if may_be_elected(member.member, record):
        return ""
    if any(each.node_id == node_id for each in record.in_sync):
        return "its disk is not the one that is in the set: it joins as a new one"
    return _lag(record.leader.node_id, snapshot.members, member)


def _lag(leader_id: str, members: Mapping[str, MemberValue], member: MemberValue) -> str:
    leader = members.get(leader_id)
    if leader is None:
        return "it was not in the set when the master was lost"
    behind = max(0, leader.end_offset - member.end_offset)
    return f"it catches up, {behind} bytes behind" if behind else "it is about to join"


def _without_removed(snapshot: Snapshot) -> Snapshot:
    up = {name: each for name, each in snapshot.members.items() if not snapshot.removed(name)}
    return replace(snapshot, members=up)


def _not_up(node_id: str, snapshot: Snapshot) -> str:
    up = ", ".join(sorted(snapshot.members)) or "none"
    return f"{node_id} is not up; nodes that are: {up}"


class ClusterRequests:
    """See the module. Every call raises CoordinatorError."""

    def __init__(
        self, coordinator: Coordinator, keys: ClusterKeys, lease_ttl_s: int, required: int
    ) -> None:
        self._coordinator = coordinator
        self._keys = keys
        self._required = required
        self._lease_ttl_s = lease_ttl_s
        # a forced failover waits for the lease of the leader, and once more for its clock
        self._request_ttl_s = max(LEAST_REQUEST_S, 3 * lease_ttl_s)

    async def read(self) -> FreshView:
        """All keys as they are now."""
        listing = await self._coordinator.range(self._keys.all)
        snapshot = SnapshotBuilder(self._keys).apply(listing)
        revisions = {kv.key: kv.mod_revision for kv in listing.kvs}
        return FreshView(snapshot, revisions, self._required, self._lease_ttl_s)

    async def change(self, change: Change) -> Changed:
        """Do it, or only check it. Raises ChangeRefusedError, and UnknownOutcomeError."""
        for _ in range(TRIES):
            view = await self.read()
            plan = plan_of(self._keys, view, change)
            if change.dry_run or not plan.key:
                return Changed(view.snapshot.revision, plan.node_id, changed=False)
            result = await self._coordinator.txn(await self._transaction(plan))
            if result.succeeded:
                return Changed(result.revision, plan.node_id, changed=True)
        raise ChangeRefusedError("the cluster's keys change all the time; try again")

    async def _transaction(self, plan: Plan) -> Txn:
        if not plan.value:
            return Txn(compares=plan.compares, then=(Delete(KeyRange(plan.key)),))
        lease = 0
        if plan.leased:
            lease = (await self._coordinator.grant_lease(self._request_ttl_s)).lease_id
        return Txn(compares=plan.compares, then=(Put(plan.key, plan.value, lease),))
