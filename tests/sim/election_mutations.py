"""Rules of the election, each switched off by one patch: the search must notice every one.

Where two rules guard the same thing (a node that is not in the set is neither a candidate nor
begins a term) both are switched off. The rules of replication that an election relies on are here
too: what a deposed leader may do is decided by the slaves.
"""

from dataclasses import replace
from typing import Any

from fakes.fake_store import FakeStore
from sim.election_cluster import ElectionCluster
from sim.ha_mutations import (
    NO_MASTER_PROOF,
    NO_PROOF,
    Patch,
    any_disk_is_the_same,
    equal_as_far_as_both_go,
    every_ack_counts,
    flush_without_fsync,
    joins_with_anything,
    keep_epoch_entry,
    only_proposed,
    only_recorded,
    second_lowest,
    written_is_enough,
)
from sim.ha_nodes import SimNode
from tandemlog.format.files.epochs import EpochTable
from tandemlog_server.ha.coordinator.values import Compare, Put, Relation, Subject, Txn
from tandemlog_server.ha.election.elected_keeper import ElectedKeeper
from tandemlog_server.ha.election.key_values import ClusterRecord, ConfirmedValue, encode
from tandemlog_server.ha.election.role_host import OwnLog
from tandemlog_server.ha.election.role_loop import Own, RoleLoop
from tandemlog_server.ha.election.rolled_back import lacks_confirmed, why_rolled_back
from tandemlog_server.ha.election.snapshot import Snapshot
from tandemlog_server.ha.election.transactions import win
from tandemlog_server.ha.master import confirm_offset, sync_state_set, term
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.sync_state_set import SyncStateSet
from tandemlog_server.ha.master.term import Idleness, WonTerm
from tandemlog_server.ha.protocol.frames import Answer, Hello
from tandemlog_server.ha.protocol.handshake import (
    MasterView,
    SlaveView,
    Verdict,
    check_answer,
    decide,
)
from tandemlog_server.ha.state import InSyncRecord, Member


def anyone(candidate: Member, record: ClusterRecord) -> bool:
    return True


def set_with_winner(record: ClusterRecord, winner: Member, required: int) -> frozenset[Member]:
    return record.in_sync | {winner}


def set_of_any_size(record: ClusterRecord, winner: Member, required: int) -> frozenset[Member]:
    return frozenset(each for each in record.in_sync if each.node_id != record.leader.node_id)


async def unchanged_means_done(this: ElectedKeeper, proposed: InSyncRecord) -> bool:
    return True


async def any_failure_means_done(this: ElectedKeeper, proposed: InSyncRecord) -> bool:
    """It is not looked at whether the transaction was executed."""
    await RECORD(this, proposed)
    return True


def any_revision(key: bytes, mod_revision: int) -> Compare:
    return Compare(key, Subject.MOD_REVISION, Relation.NOT_EQUAL, 1 << 60)


def any_renewal(keys: Any, leader_revision: int, me: Any, lease: int) -> Txn:
    return Txn(then=(Put(keys.member(me.node_id), encode(me), lease),))


def one_name(this: ElectionCluster, node: SimNode) -> str:
    return f"the session of {node.name}"


def any_won_record(won: WonTerm, me: Member, lowest_epoch: int) -> InSyncRecord:
    return InSyncRecord(won.epoch, won.version, won.in_sync, frozenset(), won.known)


def any_epoch_joins(hello: Hello, view: MasterView) -> Verdict:
    epochs = tuple(each for each in hello.epochs if each.epoch <= view.epoch)
    return DECIDE(replace(hello, accepted_epoch=0, epochs=epochs), view)


def follow_any_epoch(answer: Answer, me: SlaveView) -> None:
    CHECK_ANSWER(answer, replace(me, accepted_epoch=0))


def believe(snapshot: Any, own: Any) -> str:
    return ""


def one_of_us(snapshot: Any, uuid: str) -> bool:
    return False


def to_any_cluster(keys: Any, me: Any, lease: int, uuid_revision: int) -> Txn:
    return Txn(then=(Put(keys.member(me.node_id), encode(me), lease),))


def no_more_puts(store: Any) -> None:
    """The note stays: whoever led once is doubted after a power cut."""
    store.become_slave()


def never_due(this: Idleness, log: Any, now: float) -> bool:
    return False


def only_at_the_start_of_a_term(this: FakeStore) -> None:
    if not this.counts:
        COUNT_UNFLUSHED(this)


def never_rolled_back(*arguments: object, **more: object) -> str:
    return ""


def counted_starts_only(
    snapshot: Snapshot, node_id: str, starts: int, log: OwnLog, *, waits: bool
) -> str:
    return WHY_ROLLED_BACK(snapshot, node_id, starts, log, waits=False)


def length_only(snapshot: Snapshot, end_offset: int, epochs: EpochTable) -> str:
    return LACKS_CONFIRMED(snapshot, end_offset, EpochTable())


def over_any_entry(keys: Any, node_id: str, entry: Any, revision: int) -> Txn:
    return Txn(then=(Put(keys.in_roster(node_id), encode(entry)),))


def by_one_process(this: MasterGroup) -> bool:
    return False


def forced_at_once(
    this: RoleLoop, snapshot: Snapshot, record: ClusterRecord, own: Own, now: float, now_ms: int
) -> Any:
    this._held_until = snapshot.request_revision, now
    return FORCED(this, replace(snapshot, leader=None), record, own, now, now_ms)


def clean_win(*arguments: Any, **more: Any) -> Txn:
    return WIN(*arguments, **{**more, "unclean": False})


def mark_of_any_epoch(told: ConfirmedValue, record: ClusterRecord) -> bool:
    return True


def no_pause(this: MasterGroup, now: float) -> bool:
    return False


DECIDE, CHECK_ANSWER, RECORD = decide, check_answer, ElectedKeeper.record
WHY_ROLLED_BACK, LACKS_CONFIRMED = why_rolled_back, lacks_confirmed
WIN, FORCED = win, RoleLoop._forced
COUNT_UNFLUSHED = FakeStore.count_unflushed
MUTATIONS: dict[str, list[Patch]] = {
    "any node may be elected": [
        ("tandemlog_server.ha.election.role_loop", "may_be_elected", anyone),
        ("tandemlog_server.ha.election.switchover", "may_be_elected", anyone),
        ("tandemlog_server.ha.election.transactions", "set_after_election", set_with_winner),
    ],
    "an election may leave a set of any size": [
        ("tandemlog_server.ha.election.transactions", "set_after_election", set_of_any_size)
    ],
    "an unchanged record means that it was changed": [
        (ElectedKeeper, "_known_now", unchanged_means_done)
    ],
    "the outcome of a change does not matter": [(ElectedKeeper, "record", any_failure_means_done)],
    "transactions compare no revision": [
        ("tandemlog_server.ha.election.transactions", "unchanged", any_revision)
    ],
    "a renewal proves nothing": [("tandemlog_server.ha.election.agent", "renew", any_renewal)],
    "a restarted process continues its term": [
        (ElectionCluster, "new_name", one_name),
        (term, "won_record", any_won_record),
        (FakeStore, "become_master", keep_epoch_entry),
        NO_PROOF,
        NO_MASTER_PROOF,
    ],
    "slaves accept lower epochs": [
        ("tandemlog_server.ha.master.session", "decide", any_epoch_joins),
        ("tandemlog_server.ha.slave.session", "check_answer", follow_any_epoch),
        ("tandemlog_server.ha.election.role_loop", "distrust", believe),
    ],
    "what the coordinator of another cluster says is obeyed": [
        ("tandemlog_server.ha.election.role_loop", "is_foreign", one_of_us)
    ],
    "a node shows itself to another cluster": [
        ("tandemlog_server.ha.election.agent", "is_foreign", one_of_us),
        ("tandemlog_server.ha.election.agent", "show", to_any_cluster),
    ],
    "a leader that stood still continues": [(MasterGroup, "stood_still", no_pause)],
    "slaves keep what their leader does not have": [
        (EpochTable, "find_consistent_point", equal_as_far_as_both_go),
        NO_PROOF,
        NO_MASTER_PROOF,
    ],
    "the second slowest member is enough": [(confirm_offset, "lowest", second_lowest)],
    "acks count in any epoch and incarnation": [(confirm_offset, "counts", every_ack_counts)],
    "a slave acknowledges before its fsync": [(FakeStore, "flush", flush_without_fsync)],
    "a leader counts what it has not fsynced": [(term, "own_position", written_is_enough)],
    "a member joins without what was confirmed": [
        (sync_state_set, "may_join", joins_with_anything)
    ],
    "a joining member counts only when recorded": [(SyncStateSet, "in_force", only_recorded)],
    "a leaving member is not waited for any more": [(SyncStateSet, "in_force", only_proposed)],
    "a disk that lost its tail keeps its name": [
        (ElectionCluster, "incarnation", any_disk_is_the_same)
    ],
    "a term that has ended still counts what is not fsynced": [
        ("tandemlog_server.ha.master.term", "end_term", no_more_puts)
    ],
    "a master that rests still counts what is not fsynced": [(Idleness, "is_due", never_due)],
    "a put does not wait for the note that it counts": [
        (FakeStore, "count_unflushed", only_at_the_start_of_a_term)
    ],
    "a disk may be put back to a snapshot of this run": [
        ("tandemlog_server.ha.election.registration", "why_rolled_back", counted_starts_only),
        ("tandemlog_server.ha.election.role_loop", "lacks_confirmed", never_rolled_back),
    ],
    "a disk may be put back to any snapshot": [
        ("tandemlog_server.ha.election.registration", "why_rolled_back", never_rolled_back),
        ("tandemlog_server.ha.election.role_loop", "lacks_confirmed", never_rolled_back),
    ],
    "a log that is long enough was not put back": [
        ("tandemlog_server.ha.election.rolled_back", "lacks_confirmed", length_only),
        ("tandemlog_server.ha.election.role_loop", "lacks_confirmed", length_only),
    ],
    "what was confirmed before an unclean epoch counts": [
        ("tandemlog_server.ha.election.rolled_back", "still_counts", mark_of_any_epoch)
    ],
    "a start is counted over any entry of the roster": [
        ("tandemlog_server.ha.election.registration", "enter", over_any_entry)
    ],
    "a forced failover does not wait for the lease": [(RoleLoop, "_forced", forced_at_once)],
    "who acknowledges alone needs no lease": [(MasterGroup, "acts_alone", by_one_process)],
    "elections in async replication are clean": [
        ("tandemlog_server.ha.election.role_loop", "win", clean_win)
    ],
}
