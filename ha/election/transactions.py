"""The transactions that move a leadership or the in-sync set: pure, from a snapshot.

Each compares the revision of `state` that the sender has seen, so of two that overlap only one is
executed, and a transaction that arrives late finds another revision. Each puts the whole record.
"""

from dataclasses import dataclass, replace

from ..coordinator.values import Compare, Delete, KeyRange, Put, Txn, absent, unchanged
from ..frame_limits import MAX_EPOCH
from ..state import InSyncRecord, Member, remembered
from .key_values import (
    ClusterRecord,
    ConfirmedValue,
    LeaderValue,
    MemberValue,
    RequestValue,
    RosterValue,
    TermValue,
    encode,
)
from .keys import ClusterKeys
from .snapshot import Snapshot

MOST_TERMS = 200
"""How many terms the history keeps."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The node that wants to lead, and the lease on which its key will hang."""

    me: MemberValue
    lease: int

    def leader_value(self, epoch: int) -> LeaderValue:
        me = self.me
        return LeaderValue(me.node_id, me.session, epoch, me.endpoint, me.http_endpoint)


def set_after_election(record: ClusterRecord, winner: Member, required: int) -> frozenset[Member]:
    """The in-sync set of the next term: without the leader that is replaced, if enough remain. Its
    puts would otherwise wait until the old leader has left under the lag rule."""
    remaining = frozenset(
        member
        for member in record.in_sync
        if member.node_id != record.leader.node_id or member == winner
    )
    return remaining if len(remaining) >= required else record.in_sync


def first_record(
    keys: ClusterKeys, candidate: Candidate, uuid: str, above: int, now_ms: int
) -> Txn:
    """Found the cluster: the first term, with this node alone in the set. `above` is the highest
    epoch that any of its nodes knows."""
    me = candidate.me
    epoch = above + 1
    record = ClusterRecord(
        epoch=epoch,
        leader=me.member,
        session=me.session,
        in_sync=frozenset({me.member}),
        reason="first start",
        known=frozenset({me.node_id}),
    )
    return Txn(
        compares=(absent(keys.state), absent(keys.uuid)),
        then=(
            Put(keys.uuid, uuid.encode()),
            Delete(KeyRange(keys.confirmed)),
            *_begin(keys, candidate, record, now_ms, unclean=False),
        ),
    )


def win(
    keys: ClusterKeys,
    snapshot: Snapshot,
    candidate: Candidate,
    *,
    required: int,
    unclean: bool,
    reason: str,
    now_ms: int,
) -> Txn:
    """Take the leadership over in the next epoch. `unclean`: it may begin without acknowledged
    bytes."""
    record = _known_record(snapshot)
    me = candidate.me
    epoch = next_epoch(record)
    following = replace(
        record,
        epoch=epoch,
        leader=me.member,
        session=me.session,
        in_sync=set_after_election(record, me.member, required),
        version=record.version + 1,
        reason=reason,
        unclean_epoch=epoch if unclean else record.unclean_epoch,
    )
    return Txn(
        compares=(
            unchanged(keys.state, snapshot.record_revision),
            _as_seen(keys.leader, snapshot.leader_revision),
            _as_seen(keys.confirmed, snapshot.confirmed_revision),
        ),
        then=_begin(keys, candidate, following, now_ms, unclean=unclean),
    )


def force(keys: ClusterKeys, snapshot: Snapshot, candidate: Candidate, now_ms: int) -> Txn:
    """An operator accepts the loss: this node alone is the set of the next term."""
    record = _known_record(snapshot)
    me = candidate.me
    epoch = next_epoch(record)
    following = replace(
        record,
        epoch=epoch,
        leader=me.member,
        session=me.session,
        in_sync=frozenset({me.member}),
        version=record.version + 1,
        reason="forced by an operator",
        unclean_epoch=epoch,
        known=remembered((me.node_id,), record.known),
    )
    return Txn(
        compares=(
            unchanged(keys.state, snapshot.record_revision),
            unchanged(keys.request, snapshot.request_revision),
            _as_seen(keys.leader, snapshot.leader_revision),
        ),
        then=(
            *_begin(keys, candidate, following, now_ms, unclean=True),
            Delete(KeyRange(keys.request)),
        ),
    )


def hand_over(
    keys: ClusterKeys, snapshot: Snapshot, target: MemberValue, reason: str, now_ms: int
) -> Txn:
    """The leader gives the next epoch to `target`, whose lease holds the leader's key from then on.
    The set stays as it is: the old leader holds everything."""
    record = _known_record(snapshot)
    following = replace(
        record,
        epoch=next_epoch(record),
        leader=target.member,
        session=target.session,
        version=record.version + 1,
        reason=reason,
    )
    candidate = Candidate(target, target.lease)
    return Txn(
        compares=(
            unchanged(keys.state, snapshot.record_revision),
            unchanged(keys.request, snapshot.request_revision),
            unchanged(keys.leader, snapshot.leader_revision),
        ),
        then=(
            *_begin(keys, candidate, following, now_ms, unclean=False),
            Delete(KeyRange(keys.request)),
        ),
    )


def hold_again(keys: ClusterKeys, snapshot: Snapshot, candidate: Candidate) -> Txn:
    """The leader's lease expired and no other node has won: its key on a new lease. No new epoch:
    the same process continues its term, and the record shows that it is still its own."""
    record = _known_record(snapshot)
    return Txn(
        compares=(unchanged(keys.state, snapshot.record_revision), absent(keys.leader)),
        then=(Put(keys.leader, encode(candidate.leader_value(record.epoch)), candidate.lease),),
    )


def renew(keys: ClusterKeys, leader_revision: int, me: MemberValue, lease: int) -> Txn:
    """That this node leads is proved by a change that compares its key, not by a renewed lease.
    The next leader may put the key without it having been absent, so what is compared is its last
    change, not its creation."""
    return Txn(
        compares=(unchanged(keys.leader, leader_revision),),
        then=(Put(keys.member(me.node_id), encode(me), lease),),
    )


def show(keys: ClusterKeys, me: MemberValue, lease: int, uuid_revision: int) -> Txn:
    """What this node says of itself, if the cluster is the one that it has read of: its uuid is as
    it was at `uuid_revision` (0: not there). In another cluster, to whose coordinator a wrong
    address leads, it would take the place of a node of the same name."""
    return Txn(
        compares=(_as_seen(keys.uuid, uuid_revision),),
        then=(Put(keys.member(me.node_id), encode(me), lease),),
    )


def tell_confirmed(keys: ClusterKeys, snapshot: Snapshot, confirmed: ConfirmedValue) -> Txn:
    """The leader tells how far the log is confirmed. One that arrives late changes nothing: what a
    later one has told never moves back."""
    return Txn(
        compares=(
            unchanged(keys.leader, snapshot.leader_revision),
            _as_seen(keys.confirmed, snapshot.confirmed_revision),
        ),
        then=(Put(keys.confirmed, encode(confirmed)),),
    )


def enter(keys: ClusterKeys, node_id: str, entry: RosterValue, revision: int) -> Txn:
    """This node's entry in the roster, if it is as it was at `revision` (0: not there): an operator
    may remove the node at the same time."""
    key = keys.in_roster(node_id)
    return Txn(compares=(_as_seen(key, revision),), then=(Put(key, encode(entry)),))


def change_set(
    keys: ClusterKeys, record: ClusterRecord, revision: int, proposed: InSyncRecord
) -> Txn:
    """The leader's record with another in-sync set, if `state` is still as it was at `revision`."""
    return Txn(
        compares=(unchanged(keys.state, revision),),
        then=(Put(keys.state, encode(changed(record, proposed))),),
    )


def changed(record: ClusterRecord, proposed: InSyncRecord) -> ClusterRecord:
    """What change_set writes."""
    return replace(record, in_sync=proposed.members, version=proposed.version, known=proposed.known)


def ask(keys: ClusterKeys, snapshot: Snapshot, request: RequestValue) -> Txn:
    """An operator's request, in place of the one that the snapshot shows."""
    return Txn(
        compares=(unchanged(keys.request, snapshot.request_revision),),
        then=(Put(keys.request, encode(request)),),
    )


def started_over(keys: ClusterKeys, snapshot: Snapshot, me: MemberValue, lease: int) -> Txn:
    """This node has set its log aside, as was asked: the request ends, and in the same moment the
    node shows its new incarnation."""
    shown = (Put(keys.member(me.node_id), encode(me), lease),) if lease else ()
    return Txn(
        compares=(unchanged(keys.request, snapshot.request_revision),),
        then=(Delete(KeyRange(keys.request)), *shown),
    )


def next_epoch(record: ClusterRecord) -> int:
    """Raises ValueError if the record has the last epoch that can be."""
    if record.epoch >= MAX_EPOCH:
        raise ValueError(f"epoch {record.epoch} is the last one that a cluster can have")
    return record.epoch + 1


def _begin(
    keys: ClusterKeys, candidate: Candidate, record: ClusterRecord, now_ms: int, *, unclean: bool
) -> tuple[Put | Delete, ...]:
    me = candidate.me
    term = TermValue(record.epoch, me.node_id, record.reason, now_ms, unclean, me.end_offset)
    oldest = max(0, record.epoch - MOST_TERMS)
    return (
        Delete(KeyRange(keys.history, keys.term(oldest))),
        Put(keys.state, encode(record)),
        Put(keys.leader, encode(candidate.leader_value(record.epoch)), candidate.lease),
        Put(keys.term(record.epoch), encode(term)),
    )


def _as_seen(key: bytes, revision: int) -> Compare:
    """The key is as it was seen at `revision`, or is still absent (0)."""
    return unchanged(key, revision) if revision else absent(key)


def _known_record(snapshot: Snapshot) -> ClusterRecord:
    if snapshot.record is None:
        raise ValueError("there is no record yet")
    return snapshot.record
