"""What a node does next: every row is one look at the keys."""

from dataclasses import replace
from typing import Any

import pytest

from fakes.election import KEYS, disk, record, up
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.election.key_values import (
    FORCED,
    REINIT,
    SWITCHOVER,
    ClusterRecord,
    ConfirmedValue,
    LeaderValue,
    RequestValue,
    RosterValue,
    SettingsValue,
)
from tandemlog_server.ha.election.role_loop import (
    DROPPED_S,
    FOUNDING_WAIT_S,
    RANK_DELAY_S,
    ElectionRules,
    Follow,
    KeepLeading,
    Lead,
    Own,
    RoleLoop,
    Send,
    StartOver,
    Step,
    StepDown,
    Wait,
)
from tandemlog_server.ha.election.snapshot import Snapshot

A, B, C = up("a", lease=11), up("b", lease=12), up("c", lease=13)
LEADER = LeaderValue("a", "a-1", 1, "a:1")
LONG = (0.0, 100.0)
RULES = ElectionRules(Replication.SYNC, required=2)
FIRST = record("a", "b", "c")


def seen(
    *,
    leader: LeaderValue | None = LEADER,
    held: ClusterRecord | None = FIRST,
    **changes: object,
) -> Snapshot:
    base = Snapshot(
        revision=10,
        uuid="uuid",
        record=held,
        record_revision=5,
        leader=leader,
        leader_revision=0 if leader is None else 5,
        members={"a": A, "b": B, "c": C},
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def own(me: object = B, **changes: object) -> Own:
    base = Own(me, lease=12, uuid="uuid")  # type: ignore[arg-type]
    return replace(base, **changes)  # type: ignore[arg-type]


def look(
    snapshot: Snapshot,
    me: Own,
    *,
    at: tuple[float, ...] = (0.0,),
    loop: RoleLoop | None = None,
    rules: ElectionRules = RULES,
) -> Step:
    """The step of the last of these moments."""
    made = loop or RoleLoop(KEYS, rules)
    steps = [made.decide(snapshot, me, now, 1, "fresh") for now in at]
    return steps[-1]


def reason(step: Step) -> str:
    assert isinstance(step, Wait), step
    return step.reason


# ---- founding


EMPTY = Snapshot(members={"a": A, "b": B})


def test_a_cluster_begins_once_its_founders_are_there() -> None:
    rules = replace(RULES, founders=frozenset("abc"))
    me = Own(A, lease=11)
    assert "once these nodes are up: c" in reason(look(EMPTY, me, at=(0, 99), rules=rules))
    assert isinstance(look(replace(EMPTY, members={"a": A, "b": B, "c": C}), me, rules=rules), Send)


def test_without_named_founders_it_waits_a_moment_for_others() -> None:
    me = Own(A, lease=11)
    assert "waiting for other nodes" in reason(look(EMPTY, me, at=(0, FOUNDING_WAIT_S - 0.1)))
    assert isinstance(look(EMPTY, me, at=(0, FOUNDING_WAIT_S)), Send)


def test_the_newest_log_founds_the_cluster() -> None:
    ahead = replace(B, end_offset=101)
    both = Snapshot(members={"a": A, "b": ahead})
    late = (0, FOUNDING_WAIT_S)
    assert "another node" in reason(look(both, Own(A, lease=11), at=late))
    assert isinstance(look(both, Own(ahead, lease=12), at=late), Send)
    failed = Snapshot(members={"a": A, "b": replace(ahead, obstacle="its disk failed")})
    assert isinstance(look(failed, Own(A, lease=11), at=late), Send)


def test_the_first_epoch_is_above_all_that_the_nodes_know() -> None:
    both = Snapshot(members={"a": A, "b": replace(B, accepted_epoch=7)})
    me = Own(replace(B, accepted_epoch=7), lease=12)
    step = look(both, me, at=(0, FOUNDING_WAIT_S))
    assert isinstance(step, Send)
    assert any(b'"epoch":8' in each.value for each in step.txn.then if hasattr(each, "value"))


def test_the_first_epoch_is_above_the_terms_of_a_log_that_was_restored() -> None:
    """Its node has led and followed nothing yet, and refuses an epoch that its log has."""
    restored = replace(B, last_epoch=7)
    step = look(
        Snapshot(members={"a": A, "b": restored}),
        Own(restored, lease=12),
        at=(0, FOUNDING_WAIT_S),
    )
    assert isinstance(step, Send)
    assert any(b'"epoch":8' in each.value for each in step.txn.then if hasattr(each, "value"))


def test_a_restored_log_founds_the_cluster_before_a_shorter_history() -> None:
    restored, older = replace(B, last_epoch=7), replace(A, accepted_epoch=3, last_epoch=3)
    both = Snapshot(members={"a": older, "b": restored})
    late = (0, FOUNDING_WAIT_S)
    assert "another node" in reason(look(both, Own(older, lease=11), at=late))
    assert isinstance(look(both, Own(restored, lease=12), at=late), Send)


def test_the_first_epoch_is_above_that_of_a_node_that_must_not_lead() -> None:
    """It has to follow the leader, and follows none that is older than itself."""
    kept_out = replace(B, accepted_epoch=7, obstacle="the configuration forbids it")
    both = Snapshot(members={"a": A, "b": kept_out})
    step = look(both, Own(A, lease=11), at=(0, FOUNDING_WAIT_S))
    assert isinstance(step, Send)
    assert any(b'"epoch":8' in each.value for each in step.txn.then if hasattr(each, "value"))


# ---- following and leading


def test_a_leader_is_followed() -> None:
    assert look(seen(), own()) == Follow(LEADER)


def test_a_term_begins_from_the_record() -> None:
    mine = LeaderValue("b", "b-1", 2, "b:1")
    won = record("b", "c", epoch=2)
    step = look(seen(leader=mine, held=won), own())
    assert step == Lead(won, 5)
    # it is begun once: where that failed, the node waits for a new epoch
    assert not isinstance(look(seen(leader=mine, held=won), own(begun=2)), Lead)


def test_a_leadership_of_a_disk_that_is_gone_is_given_back() -> None:
    """The process lives and would renew the lease as long as it lives."""
    mine = LeaderValue("b", "b-1", 2, "b:1")
    step = look(seen(leader=mine, held=record("b", "c", epoch=2)), own(replace(B, incarnation="2")))
    assert isinstance(step, StepDown)
    assert "another disk" in step.reason


@pytest.mark.parametrize(
    "me", [replace(B, session="b-2"), replace(B, incarnation="2")], ids=["session", "disk"]
)
def test_another_process_or_disk_never_begins_it(me: object) -> None:
    mine = LeaderValue("b", "b-1", 2, "b:1")
    assert not isinstance(look(seen(leader=mine, held=record("b", "c", epoch=2)), own(me)), Lead)


def test_a_restarted_leader_competes_at_once_and_does_not_continue() -> None:
    """Lesson of Patroni 2779: no leader resumes what an earlier process has won."""
    step = look(seen(), own(replace(A, session="a-2"), lease=11), at=(0, 0.1, 2 * RANK_DELAY_S))
    assert isinstance(step, Send)
    assert "its process was restarted" in step.reason


def test_keys_of_different_terms_are_not_acted_on() -> None:
    assert "different terms" in reason(look(seen(held=record("b", "c", epoch=2)), own(C)))


@pytest.mark.parametrize(
    "held",
    [
        record("b", "c", epoch=2),
        record("a", "b", epoch=2),
        replace(FIRST, session="a-2"),
        replace(FIRST, leader=disk("a", "2")),
    ],
    ids=["another node", "a higher epoch", "another process", "another disk"],
)
def test_a_leader_steps_down_if_the_record_says_something_else(held: ClusterRecord) -> None:
    assert isinstance(look(seen(held=held), own(A, leading=1, begun=1, lease=11)), StepDown)


def test_a_leader_whose_key_is_gone_holds_it_again() -> None:
    """Lesson of Patroni 2070: a lost lease alone ends no term."""
    me = own(A, leading=1, begun=1, lease=21)
    step = look(seen(leader=None), me)
    assert isinstance(step, Send)
    assert [each.key for each in step.txn.compares] == [KEYS.state, KEYS.leader]
    assert look(seen(leader=None), replace(me, lease=0)) == KeepLeading()


def test_a_switch_is_shown_to_the_leader_until_it_is_answered() -> None:
    me = own(A, leading=1, begun=1, lease=11)
    request = RequestValue(SWITCHOVER, "b", "1")
    assert look(seen(request=request), me) == KeepLeading(request)
    assert look(seen(request=replace(request, outcome="no")), me) == KeepLeading()
    assert look(seen(request=replace(request, kind=FORCED)), me) == KeepLeading()


# ---- competing


def test_no_node_competes_while_the_lease_holds() -> None:
    assert look(seen(), own(), at=LONG) == Follow(LEADER)


@pytest.mark.parametrize("replication", [Replication.SYNC, Replication.SYNC_DEGRADE])
def test_a_closed_port_needs_no_lease_in_sync_replication(replication: Replication) -> None:
    loop = RoleLoop(KEYS, replace(RULES, replication=replication))
    loop.port_is_closed(1)
    step = look(seen(), own(), at=(0, 0.1, RANK_DELAY_S), loop=loop)
    assert isinstance(step, Send), "looking again does not make it wait longer"
    loop.port_is_open(1)
    assert look(seen(), own(), loop=loop) == Follow(LEADER)


def test_in_async_replication_every_node_waits_for_the_lease() -> None:
    loop = RoleLoop(KEYS, replace(RULES, replication=Replication.ASYNC))
    loop.port_is_closed(1)
    assert look(seen(), own(), at=(0, 9), loop=loop) == Follow(LEADER)


def test_a_closed_port_of_an_earlier_term_says_nothing() -> None:
    """Lesson of Patroni 2803: what was remembered of one term does not reach into the next."""
    loop = RoleLoop(KEYS, RULES)
    loop.port_is_closed(1)
    later = LeaderValue("c", "c-1", 2, "c:1")
    step = look(seen(leader=later, held=record("c", "b", epoch=2)), own(), at=(0, 9), loop=loop)
    assert step == Follow(later)


def test_the_newest_log_competes_first() -> None:
    ahead = replace(C, end_offset=101)
    snapshot = seen(leader=None, members={"b": B, "c": ahead})
    assert isinstance(look(snapshot, own(ahead, lease=13)), Send)
    assert "newer log" in reason(look(snapshot, own(B), at=(0, RANK_DELAY_S / 2)))
    assert isinstance(look(snapshot, own(B), at=(0, RANK_DELAY_S)), Send)


@pytest.mark.parametrize(
    "other",
    [replace(C, obstacle="its disk failed"), replace(C, incarnation="2")],
    ids=["an obstacle", "not in sync"],
)
def test_a_node_that_cannot_lead_is_not_waited_for(other: object) -> None:
    snapshot = seen(leader=None, members={"b": replace(B, end_offset=1), "c": other})
    assert isinstance(look(snapshot, own(replace(B, end_offset=1))), Send)


@pytest.mark.parametrize(
    ("me", "held", "why"),
    [
        (B, record("a", "c"), "not in the in-sync set"),
        (replace(B, incarnation="2"), FIRST, "not in the in-sync set"),
        (replace(B, obstacle="its disk failed"), FIRST, "its disk failed"),
    ],
)
def test_who_never_competes(me: object, held: ClusterRecord, why: str) -> None:
    assert why in reason(look(seen(leader=None, held=held), own(me), at=(0, 1, 100)))


@pytest.mark.parametrize(
    ("replication", "end", "competes"),
    [
        (Replication.SYNC, 101, False),
        (Replication.SYNC_DEGRADE, 101, False),
        (Replication.SYNC, 100, True),
        (Replication.ASYNC, 101, True),
    ],
)
def test_a_disk_that_lacks_what_was_confirmed_does_not_compete(
    replication: Replication, end: int, competes: bool
) -> None:
    snapshot = seen(leader=None, confirmed=ConfirmedValue(end, 1, 1), confirmed_revision=7)
    step = look(snapshot, own(), at=LONG, rules=replace(RULES, replication=replication))
    if competes:
        assert isinstance(step, Send)
    else:
        assert "its disk was rolled back: its log ends at 100" in reason(step)


def test_no_lease_no_leadership() -> None:
    assert "no lease" in reason(look(seen(leader=None), own(lease=0), at=LONG))


def test_while_paused_only_the_last_leader_takes_over() -> None:
    snapshot = seen(leader=None, settings=SettingsValue(paused=True))
    assert "paused" in reason(look(snapshot, own(), at=LONG))
    assert isinstance(look(snapshot, own(replace(A, session="a-2"), lease=11), at=LONG), Send)


def test_a_removed_node_leaves() -> None:
    snapshot = seen(leader=None, roster={"b": RosterValue(removed=True)})
    step = look(snapshot, own(), at=LONG)
    assert isinstance(step, Wait)
    assert step.leave
    gone = seen(roster={"a": RosterValue(removed=True)})
    assert isinstance(look(gone, own(A, leading=1, begun=1)), StepDown)


# ---- forced failover


FORCE: dict[str, Any] = {"request": RequestValue(FORCED, "b", "1"), "request_revision": 9}
LATER = RULES.lease_s + 0.1


def test_a_forced_failover_waits_for_the_lease() -> None:
    only = record("a")
    held = look(seen(held=only, **FORCE), own(), at=(0, LATER))
    assert isinstance(held, Follow), "the target is a slave as any other until then"
    free = seen(held=only, leader=None, **FORCE)
    assert "waiting for the lease" in reason(look(free, own(), at=(0, LATER - 0.2)))
    step = look(free, own(), at=(0, LATER))
    assert isinstance(step, Send)
    assert "forced" in step.reason


def test_a_lease_that_was_held_again_is_waited_for_again() -> None:
    loop, only = RoleLoop(KEYS, RULES), record("a")
    free, held = seen(held=only, leader=None, **FORCE), seen(held=only, **FORCE)
    look(free, own(), at=(0,), loop=loop)
    look(held, own(), at=(LATER,), loop=loop)
    assert "waiting for the lease" in reason(look(free, own(), at=(2 * LATER,), loop=loop))


def test_a_forced_failover_concerns_its_target_alone() -> None:
    free = seen(held=record("a"), leader=None, **FORCE)
    assert "not in the in-sync set" in reason(look(free, own(C, lease=13), at=LONG))


def test_a_leader_whose_store_has_failed_makes_room_for_one_that_can_lead() -> None:
    leading = own(A, leading=5, store_fault="its store has failed: EIO")
    held = record("a", "b", epoch=5)
    step = look(seen(held=held), leading)
    assert isinstance(step, StepDown), step
    assert "EIO" in step.reason
    alone = look(seen(held=record("a", epoch=5)), leading)
    assert isinstance(alone, KeepLeading), "reads continue, and no other node could lead"


# ---- a resync


RESYNC = RequestValue(REINIT, "b", "1")
WITHOUT_B = record("a", "c")


def test_a_node_starts_over_once_the_set_is_without_it() -> None:
    asked = seen(request=RESYNC, request_revision=9)
    assert look(asked, own(), at=LONG) == Follow(LEADER)
    assert look(replace(asked, record=WITHOUT_B), own()) == StartOver(RESYNC)
    another_disk = own(replace(B, incarnation="2"))
    assert look(asked, another_disk) == StartOver(RESYNC), "its disk is not in the set"
    assert look(replace(asked, record=WITHOUT_B), own(C, lease=13)) == Follow(LEADER)


def test_with_force_it_gives_the_leader_a_moment() -> None:
    forced = replace(RESYNC, force=True)
    asked = seen(request=forced, request_revision=9)
    assert look(asked, own(), at=(0, DROPPED_S - 0.1)) == Follow(LEADER)
    assert look(asked, own(), at=(0, DROPPED_S)) == StartOver(forced)
    loop = RoleLoop(KEYS, RULES)
    look(asked, own(), at=(0,), loop=loop)
    another = replace(asked, request_revision=10)
    assert look(another, own(), at=(DROPPED_S,), loop=loop) == Follow(LEADER)


@pytest.mark.parametrize(
    ("changes", "request_changes"),
    [({"started_over": "1"}, {}), ({}, {"outcome": "refused"}), ({}, {"kind": SWITCHOVER})],
    ids=["done", "given up", "another request"],
)
def test_it_starts_over_once(changes: dict[str, str], request_changes: dict[str, str]) -> None:
    asked = replace(RESYNC, **request_changes)  # type: ignore[arg-type]
    step = look(seen(held=WITHOUT_B, request=asked, request_revision=9), own(**changes), at=LONG)
    assert step == Follow(LEADER)


def test_without_a_leader_it_keeps_its_log() -> None:
    """It may be the one that has to lead next."""
    alone = seen(leader=None, request=RESYNC, request_revision=9)
    assert isinstance(look(alone, own(), at=LONG), Send)
    out = seen(leader=None, held=WITHOUT_B, request=RESYNC, request_revision=9)
    assert "not in the in-sync set" in reason(look(out, own(), at=LONG))


def test_the_leader_keeps_it_out_and_never_starts_over_itself() -> None:
    leading = own(A, leading=1, begun=1, lease=11)
    asked = seen(request=RESYNC, request_revision=9)
    assert look(asked, leading) == KeepLeading(keep_out="b")
    assert look(replace(asked, request=replace(RESYNC, outcome="no")), leading) == KeepLeading()
    step = look(replace(asked, request=replace(RESYNC, target="a")), leading)
    assert isinstance(step, Send)
    assert "a is the master by now" in step.reason


def test_a_failed_store_is_not_set_aside() -> None:
    asked = seen(held=WITHOUT_B, request=RESYNC, request_revision=9)
    step = look(asked, own(store_fault="its store has failed: EIO"))
    assert isinstance(step, Send)
    assert any(b"EIO" in each.value for each in step.txn.then if hasattr(each, "value"))


# ---- what is not believed


def test_where_no_recorded_disk_exists_any_more_the_way_out_is_named() -> None:
    others = {name: up(name, "2", lease=10) for name in "abc"}
    gone = seen(leader=None, members=others)
    said = reason(look(gone, own(others["b"]), at=(0.0, 5.0)))
    assert "no disk of the in-sync set exists any more" in said
    assert "tandemlog failover --to NODE --dry-run" in said
    one_left = seen(leader=None, members={**others, "c": C})
    assert "it is not in the in-sync set" in reason(look(one_left, own(others["b"]), at=(0.0, 5.0)))
    not_up = seen(leader=None, members={"b": others["b"]})
    assert "it is not in the in-sync set" in reason(look(not_up, own(others["b"]), at=(0.0, 5.0)))


AHEAD = own(replace(B, accepted_epoch=2))
OUTLIVED = (0.0, RULES.lease_s + 0.1)


def test_a_node_that_led_by_its_configuration_is_told_to_start_over() -> None:
    """Once the elected master has outlived a lease beside it; a coordinator that was restored gives
    the leases of its copy once more, so until then its data may be what is wrong."""
    assert "restored from an older backup, or" in reason(look(seen(), AHEAD, at=(0, RULES.lease_s)))
    said = reason(look(seen(), AHEAD, at=OUTLIVED))
    assert said.startswith("a leads epoch 1 of this cluster, and this node has seen epoch 2, which")
    assert "(tandemlog reinit b)" in said
    again = RoleLoop(KEYS, RULES)
    look(seen(), AHEAD, at=(0.0,), loop=again)
    look(seen(leader=None), AHEAD, at=(3.0,), loop=again)
    assert "older backup, or" in reason(look(seen(), AHEAD, at=(RULES.lease_s + 0.1,), loop=again))


def test_it_starts_over_when_an_operator_asks_and_the_set_does_not_need_its_disk() -> None:
    asked = seen(held=WITHOUT_B, request=RESYNC, request_revision=9)
    assert look(asked, AHEAD, at=OUTLIVED) == StartOver(RESYNC)
    assert isinstance(look(asked, AHEAD, at=(0.0,)), Wait)
    counted = seen(request=RESYNC, request_revision=9)
    assert isinstance(look(counted, AHEAD, at=OUTLIVED), Wait)
    done = replace(AHEAD, started_over=RESYNC.request_id)
    assert isinstance(look(asked, done, at=OUTLIVED), Wait)


@pytest.mark.parametrize(
    ("snapshot", "me", "why"),
    [
        (seen(uuid="another"), own(), "belongs to the cluster uuid"),
        (Snapshot(), own(), "has lost the record"),
        (seen(uuid=""), own(), "is not its coordinator: correct coordinator.endpoints"),
        (
            seen(leader=None),
            own(replace(B, accepted_epoch=2)),
            "was restored from an older backup, or this node was a master by its configuration",
        ),
        (seen(fault="state cannot be read"), own(), "cannot be read"),
    ],
)
def test_a_coordinator_that_is_not_believed(snapshot: Snapshot, me: Own, why: str) -> None:
    """Lesson of Patroni 308: what an old or foreign coordinator says moves nothing."""
    assert why in reason(look(snapshot, me, at=LONG))
    assert look(snapshot, replace(me, leading=1)) == KeepLeading()
