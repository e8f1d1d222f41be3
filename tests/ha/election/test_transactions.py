"""The transactions, executed by a coordinator's state machine."""

from dataclasses import replace

import pytest

from fakes.election import KEYS, SyncCoordinator, disk, record
from tandemlog_server.ha.coordinator.values import Txn
from tandemlog_server.ha.election.key_values import (
    FORCED,
    SWITCHOVER,
    ConfirmedValue,
    RequestValue,
    RosterValue,
    TermValue,
    encode,
)
from tandemlog_server.ha.election.keys import ClusterKeys
from tandemlog_server.ha.election.snapshot import Snapshot
from tandemlog_server.ha.election.transactions import (
    MOST_TERMS,
    Candidate,
    ask,
    change_set,
    changed,
    enter,
    first_record,
    force,
    hand_over,
    hold_again,
    next_epoch,
    renew,
    set_after_election,
    tell_confirmed,
    win,
)
from tandemlog_server.ha.frame_limits import MAX_EPOCH
from tandemlog_server.ha.state import InSyncRecord


@pytest.fixture
def keys() -> SyncCoordinator:
    return SyncCoordinator()


def winning(snapshot: Snapshot, candidate: Candidate, *, unclean: bool = False) -> Txn:
    return win(KEYS, snapshot, candidate, required=2, unclean=unclean, reason="test", now_ms=1)


def test_one_of_two_founders_wins(keys: SyncCoordinator) -> None:
    a, b = keys.join("a"), keys.join("b")
    first = [first_record(KEYS, each, f"of {each.me.node_id}", 4, 1) for each in (a, b)]
    assert [keys.txn(each).succeeded for each in first] == [True, False]
    snapshot = keys.snapshot()
    assert (snapshot.uuid, keys.record().epoch, keys.record().in_sync) == (
        "of a", 5, frozenset({disk("a")})
    )  # fmt: skip


def test_one_of_two_candidates_wins(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b", "c")
    keys.end(nodes["a"].lease)
    snapshot = keys.snapshot()
    sent = [keys.txn(winning(snapshot, nodes[name])).succeeded for name in "bc"]
    assert sent == [True, False]
    won = keys.record()
    assert (won.epoch, won.leader, won.session) == (2, disk("b"), "b-1")
    assert won.in_sync == {disk("b"), disk("c")}, "without the leader that is replaced"
    assert won.version == 2


def test_a_leader_that_held_its_key_again_is_not_replaced(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b", "c")
    keys.end(nodes["a"].lease)
    snapshot = keys.snapshot()
    back = keys.join("a")
    assert keys.txn(hold_again(KEYS, snapshot, back)).succeeded
    assert not keys.txn(winning(snapshot, nodes["b"])).succeeded
    assert keys.record().epoch == 1


def test_a_leader_that_was_replaced_does_not_hold_its_key_again(keys: SyncCoordinator) -> None:
    """Lesson of Patroni 2779: the lock was free again, after another node had promoted."""
    nodes = keys.found("a", "b", "c")
    keys.end(nodes["a"].lease)
    stale, back = keys.snapshot(), keys.join("a")
    assert keys.txn(winning(keys.snapshot(), nodes["b"])).succeeded
    keys.end(nodes["b"].lease)
    assert not keys.txn(hold_again(KEYS, stale, back)).succeeded


def test_the_set_never_gets_too_small_by_an_election() -> None:
    two = record("a", "b")
    assert set_after_election(two, disk("b"), 2) == two.in_sync
    assert set_after_election(two, disk("b"), 1) == {disk("b")}
    assert set_after_election(two, disk("a"), 1) == two.in_sync, "it replaces itself"


def test_a_change_of_the_set_that_arrives_late_changes_nothing(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b", "c")
    before = keys.snapshot()
    proposed = InSyncRecord(1, 2, frozenset({disk("a"), disk("b")}))
    late = change_set(KEYS, keys.record(), before.record_revision, proposed)
    keys.end(nodes["a"].lease)
    assert keys.txn(winning(keys.snapshot(), nodes["c"])).succeeded
    assert not keys.txn(late).succeeded
    assert keys.record().epoch == 2


def test_of_repeated_changes_of_the_set_one_is_executed(keys: SyncCoordinator) -> None:
    keys.found("a", "b", "c")
    proposed = InSyncRecord(1, 2, frozenset({disk("a"), disk("b")}))
    txn = change_set(KEYS, keys.record(), keys.snapshot().record_revision, proposed)
    assert [keys.txn(txn).succeeded for _ in range(3)] == [True, False, False]
    assert keys.record() == changed(record("a", "b", "c"), proposed)


def test_an_election_after_a_change_of_the_set_looks_again(keys: SyncCoordinator) -> None:
    """A node that has just left the set is not elected with the record that it has seen."""
    nodes = keys.found("a", "b", "c")
    keys.end(nodes["a"].lease)
    stale = keys.snapshot()
    proposed = InSyncRecord(1, 2, frozenset({disk("a"), disk("b")}))
    keys.txn(change_set(KEYS, keys.record(), stale.record_revision, proposed))
    assert not keys.txn(winning(stale, nodes["c"])).succeeded


def test_unclean_terms_are_remembered(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b", "c")
    assert keys.txn(winning(keys.snapshot(), nodes["b"], unclean=True)).succeeded
    assert keys.txn(winning(keys.snapshot(), nodes["c"])).succeeded
    assert (keys.record().epoch, keys.record().unclean_epoch) == (3, 2)
    assert [(term.epoch, term.unclean) for term in keys.snapshot().history] == [
        (2, True),
        (3, False),
    ]


def test_handing_over(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b", "c")
    keys.put(KEYS.request, RequestValue(SWITCHOVER, "b", "1"))
    snapshot = keys.snapshot()
    txn = hand_over(KEYS, snapshot, snapshot.members["b"], "planned", 1)
    assert keys.txn(txn).succeeded
    after = keys.snapshot()
    assert (keys.record().leader, keys.record().epoch) == (disk("b"), 2)
    assert keys.record().in_sync == record("a", "b", "c").in_sync
    assert after.request is None
    assert after.leader is not None
    keys.end(nodes["b"].lease)
    assert keys.snapshot().leader is None, "the key hangs on the new leader's lease"
    assert not keys.txn(txn).succeeded


def test_a_hand_over_that_was_given_up_is_not_executed_late(keys: SyncCoordinator) -> None:
    keys.found("a", "b", "c")
    request = RequestValue(SWITCHOVER, "b", "1")
    keys.put(KEYS.request, request)
    snapshot = keys.snapshot()
    late = hand_over(KEYS, snapshot, snapshot.members["b"], "planned", 1)
    assert keys.txn(ask(KEYS, snapshot, replace(request, outcome="too slow"))).succeeded
    assert not keys.txn(late).succeeded


def test_forcing(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b")
    outside = keys.join("c")
    keys.put(KEYS.request, RequestValue(FORCED, "c", "1"))
    held = keys.snapshot()
    keys.end(nodes["a"].lease)
    assert not keys.txn(force(KEYS, held, outside, 1)).succeeded, "the leader's key has changed"
    assert keys.txn(force(KEYS, keys.snapshot(), outside, 1)).succeeded
    forced = keys.record()
    assert (forced.in_sync, forced.unclean_epoch) == (frozenset({disk("c")}), 2)
    assert "c" in forced.known
    assert keys.snapshot().request is None


@pytest.mark.parametrize("how", ["an election", "a switch"])
def test_a_replaced_leader_proves_nothing(keys: SyncCoordinator, how: str) -> None:
    """Lesson of Patroni 308: leadership is proved by a change that only its leader can make. The
    key of the next leader may replace that of the last one without having been absent."""
    nodes = keys.found("a", "b", "c")
    seen = keys.snapshot()
    mine = renew(KEYS, seen.leader_revision, nodes["a"].me, nodes["a"].lease)
    assert keys.txn(mine).succeeded
    if how == "an election":
        assert keys.txn(winning(seen, nodes["b"])).succeeded
    else:
        assert keys.txn(hand_over(KEYS, seen, seen.members["b"], "planned", 1)).succeeded
    assert not keys.txn(mine).succeeded
    assert not keys.txn(winning(seen, nodes["c"])).succeeded


def test_what_was_confirmed_never_moves_back(keys: SyncCoordinator) -> None:
    keys.found("a", "b", "c")
    late = tell_confirmed(KEYS, keys.snapshot(), ConfirmedValue(10, 1, 1))
    for offset in (20, 30):
        told = ConfirmedValue(offset, 1, 1)
        assert keys.txn(tell_confirmed(KEYS, keys.snapshot(), told)).succeeded
    assert not keys.txn(late).succeeded
    assert keys.snapshot().confirmed == ConfirmedValue(30, 1, 1)


def test_only_the_leader_tells_what_is_confirmed(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b", "c")
    late = tell_confirmed(KEYS, keys.snapshot(), ConfirmedValue(10, 1, 1))
    assert keys.txn(winning(keys.snapshot(), nodes["b"])).succeeded
    assert not keys.txn(late).succeeded


def test_a_candidate_has_seen_what_was_told_last(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b", "c")
    stale = keys.snapshot()
    assert keys.txn(tell_confirmed(KEYS, stale, ConfirmedValue(200, 1, 1))).succeeded
    assert not keys.txn(winning(stale, nodes["b"])).succeeded
    assert keys.txn(winning(keys.snapshot(), nodes["b"])).succeeded


def test_a_new_cluster_has_confirmed_nothing(keys: SyncCoordinator) -> None:
    """Its state was deleted by hand, to found it again."""
    keys.put(KEYS.confirmed, ConfirmedValue(200, 1, 1))
    assert keys.txn(first_record(KEYS, keys.join("a"), "uuid", 0, 1)).succeeded
    assert keys.snapshot().confirmed is None


@pytest.mark.parametrize("before", [None, RosterValue(2)])
def test_an_entry_of_the_roster_replaces_the_one_that_was_seen(
    keys: SyncCoordinator, before: RosterValue | None
) -> None:
    revision = 0 if before is None else keys.put(KEYS.in_roster("a"), before)
    txn = enter(KEYS, "a", RosterValue(3), revision)
    assert [keys.txn(txn).succeeded for _ in range(2)] == [True, False]
    assert keys.snapshot().roster["a"] == RosterValue(3)


def test_old_terms_are_forgotten(keys: SyncCoordinator) -> None:
    nodes = keys.found("a", "b", "c")
    for epoch in range(1, MOST_TERMS + 20):
        keys.put(KEYS.term(epoch), TermValue(epoch, "a", "test", 1))
    keys.put(KEYS.state, replace(keys.record(), epoch=MOST_TERMS + 19))
    for name in "bcbcb":
        assert keys.txn(winning(keys.snapshot(), nodes[name])).succeeded
    history = [term.epoch for term in keys.snapshot().history]
    assert history[-1] == MOST_TERMS + 24
    assert len(history) <= MOST_TERMS + 20


def test_epochs_end() -> None:
    assert next_epoch(replace(record("a"), epoch=MAX_EPOCH - 1)) == MAX_EPOCH
    with pytest.raises(ValueError, match="the last one"):
        next_epoch(replace(record("a"), epoch=MAX_EPOCH))


def test_keys_of_clusters_are_apart() -> None:
    assert ClusterKeys("c1").state not in KEYS.all
    assert KEYS.term(9) < KEYS.term(10)
    assert b"session" in encode(record("a"))
