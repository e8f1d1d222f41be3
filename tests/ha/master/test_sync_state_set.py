"""Who comes, who goes, and when not."""

from dataclasses import replace

from tandemlog_server.ha.master.sync_state_set import Progress, SetRules, SyncStateSet
from tandemlog_server.ha.state import InSyncRecord, Member

M, A, B = Member("m", "1"), Member("a", "1"), Member("b", "1")
RULES = SetRules(required=2, lag_s=3.0, rejoin_s=1.0, dead_s=3.0)


def set_of(*members: Member, required: int = 2) -> SyncStateSet:
    rules = SetRules(required, RULES.lag_s, RULES.rejoin_s, RULES.dead_s)
    return SyncStateSet(InSyncRecord(4, 7, frozenset(members)), rules, M, 100.0)


def following(member: Member, now: float, **changes: object) -> dict[str, Progress]:
    each = Progress(member, heard_at=now, caught_up_at=now)
    for name, value in changes.items():
        setattr(each, name, value)
    return {member.node_id: each}


def test_who_holds_what_is_confirmed_joins_at_once_where_it_is_needed() -> None:
    made = set_of(M)
    assert made.propose(following(A, 100.0), {"a": 499}, 500, 100.0) is None
    record = made.propose(following(A, 100.0), {"a": 500}, 500, 100.0)
    assert record == InSyncRecord(4, 8, frozenset({M, A}), known=frozenset({"m", "a"}))
    assert made.in_force() == (frozenset({M}), frozenset({M, A}))


def test_a_set_is_settled_once_each_member_holds_all_of_the_terms_before() -> None:
    made = set_of(M, A, B)
    made.record = replace(made.record, settled=False)
    both = following(A, 100.0) | following(B, 100.0)
    assert made.propose(both, {"a": 500, "b": 499}, 500, 100.0) is None
    other_disk = following(A, 100.0) | following(Member("b", "2"), 100.0)
    other = made.propose(other_disk, {"a": 500, "b": 500}, 500, 100.0)
    assert other is not None, "b's new disk takes the place of its old one"
    assert (other.members, other.settled) == (frozenset({M, A, Member("b", "2")}), True)
    made.proposed = None
    record = made.propose(both, {"a": 500, "b": 500}, 500, 100.0)
    known = frozenset({"m", "a", "b"})
    assert record == InSyncRecord(4, 8, frozenset({M, A, B}), known=known)
    made.resolved(record)
    assert made.propose(both, {"a": 500, "b": 500}, 500, 100.0) is None


def test_a_set_is_settled_by_who_leaves_it_too() -> None:
    made = set_of(M, A, B)
    made.record = replace(made.record, settled=False)
    record = made.propose(following(A, 110.0), {"a": 499}, 500, 110.0)
    assert record is not None
    assert record.members == {M, A}
    assert not record.settled, "a has not followed yet"
    made.resolved(record)
    record = made.propose(following(A, 110.0), {"a": 500}, 500, 110.0)
    assert record is not None
    assert (record.members, record.settled) == (frozenset({M, A}), True)


def test_who_has_acknowledged_nothing_in_this_epoch_does_not_join() -> None:
    assert set_of(M).propose(following(A, 100.0), {}, 0, 100.0) is None


def test_who_is_not_needed_joins_after_it_has_kept_up_for_a_while() -> None:
    made = set_of(M, A)
    both = following(A, 100.0) | following(B, 100.0)
    held = {"a": 500, "b": 500}
    assert made.propose(both, held, 500, 100.0) is None
    for now in (100.5, 100.9):
        both["a"].caught_up_at = both["a"].heard_at = now
        both["b"].caught_up_at = both["b"].heard_at = now
        assert made.propose(both, held, 500, now) is None
    both["b"].caught_up_at = both["b"].heard_at = 101.0
    record = made.propose(both, held, 500, 101.0)
    assert record is not None
    assert record.members == {M, A, B}


def test_who_falls_behind_again_begins_its_wait_anew() -> None:
    made = set_of(M, A)
    both = following(A, 100.0) | following(B, 100.0)
    held = {"a": 500, "b": 500}
    made.propose(both, held, 500, 100.0)
    for now in (101.5, 102.0):
        both["a"].caught_up_at = both["a"].heard_at = both["b"].heard_at = now
        assert made.propose(both, held, 500, now) is None
    assert both["b"].steady_since is None


def test_who_fails_or_is_silent_or_gone_does_not_join() -> None:
    for change in ({"fault": "EIO"}, {"connected": False}, {"heard_at": 96.0}):
        made = set_of(M)
        assert made.propose(following(A, 100.0, **change), {"a": 500}, 500, 100.0) is None


def test_one_change_at_a_time_and_both_sets_until_it_is_resolved() -> None:
    made = set_of(M)
    record = made.propose(following(A, 100.0), {"a": 500}, 500, 100.0)
    assert record is not None
    assert made.propose(following(B, 100.0), {"b": 500}, 500, 100.0) is None
    made.resolved(InSyncRecord(4, 7, frozenset({M})))
    assert len(made.in_force()) == 2
    made.resolved(record)
    assert made.in_force() == (frozenset({M, A}),)


def test_who_has_not_caught_up_for_long_leaves() -> None:
    made = set_of(M, A, B)
    both = following(A, 104.0) | following(B, 104.0, caught_up_at=100.9)
    record = made.propose(both, {"a": 500, "b": 100}, 500, 104.0)
    assert record is not None
    assert record.members == {M, A}


def test_who_is_silent_or_has_a_fault_leaves() -> None:
    for change in ({"heard_at": 100.0, "connected": False}, {"fault": "EIO"}):
        made = set_of(M, A, B)
        both = following(A, 104.0) | following(B, 104.0, **change)
        record = made.propose(both, {"a": 500, "b": 500}, 500, 104.0)
        assert record is not None
        assert record.members == {M, A}


def test_the_set_never_falls_below_what_is_required() -> None:
    made = set_of(M, A)
    gone = following(A, 100.0, connected=False)
    assert made.propose(gone, {}, 500, 200.0) is None
    made = set_of(M, A, B)
    lost = following(A, 150.0, connected=False) | following(B, 100.0, connected=False)
    record = made.propose(lost, {}, 500, 200.0)
    assert record is not None
    assert record.members == {M, A}, "the one that is away longest goes"


def test_who_is_about_to_set_its_log_aside_leaves_at_once_and_does_not_join() -> None:
    made = set_of(M, A, B)
    both = following(A, 100.0) | following(B, 100.0)
    held = {"a": 500, "b": 500}
    assert made.propose(both, held, 500, 100.0) is None
    made.kept_out = "b"
    record = made.propose(both, held, 500, 100.0)
    assert record is not None
    assert record.members == {M, A}
    made.resolved(record)
    for now in (100.0, 100.5, 101.1):
        for each in both.values():
            each.caught_up_at = each.heard_at = now
        assert made.propose(both, held, 500, now) is None
    made.kept_out = ""
    made.propose(both, held, 500, 101.1)
    for each in both.values():
        each.caught_up_at = each.heard_at = 102.2
    record = made.propose(both, held, 500, 102.2)
    assert record is not None
    assert record.members == {M, A, B}


def test_who_is_kept_out_stays_where_the_set_would_be_too_small() -> None:
    made = set_of(M, A)
    made.kept_out = "a"
    assert made.propose(following(A, 100.0), {"a": 500}, 500, 100.0) is None


def test_who_is_kept_out_stays_while_the_others_are_not_all_there() -> None:
    """`b` has just died, and is in the set until that is sure: the set would rest on one disk."""
    made = set_of(M, A, B)
    made.kept_out = "a"
    held = {"a": 500, "b": 500}
    alone = following(A, 100.0) | following(B, 100.0, connected=False)
    assert made.propose(alone, held, 500, 100.0) is None


def test_without_a_requirement_everybody_may_leave() -> None:
    made = set_of(M, A, required=1)
    record = made.propose(following(A, 100.0, connected=False), {}, 500, 104.0)
    assert record is not None
    assert record.members == {M}


def test_a_recorded_member_gets_time_to_come_back_after_a_restart() -> None:
    made = set_of(M, A, B)
    assert made.propose({}, {}, 500, 103.0) is None
    record = made.propose({}, {}, 500, 103.1)
    assert record is not None
    assert len(record.members) == 2


def test_another_disk_takes_the_place_of_the_old_one_by_the_expand_rule() -> None:
    made = set_of(M, A)
    again = Member("a", "2")
    assert made.propose(following(again, 101.0), {"a": 499}, 500, 101.0) is None
    record = made.propose(following(again, 101.0), {"a": 500}, 500, 101.0)
    assert record is not None
    assert record.members == {M, again}


def test_a_dead_member_is_swapped_for_a_live_one() -> None:
    made = set_of(M, A)
    both = following(A, 100.0, connected=False) | following(B, 110.0)
    both["b"].steady_since = 108.0
    record = made.propose(both, {"b": 500}, 500, 110.0)
    assert record is not None
    assert record.members == {M, A, B}
    made.resolved(record)
    record = made.propose(both, {"b": 500}, 500, 110.0)
    assert record is not None
    assert record.members == {M, B}


def test_a_slave_has_caught_up_to_a_time_when_it_holds_what_the_master_held_then() -> None:
    each = Progress(A)
    assert each.behind_s(5.0) is None
    each.held(50, 100, 1.0)
    assert each.behind_s(1.5) is None
    each.held(100, 200, 2.0)
    assert each.caught_up_at == 1.0
    each.held(150, 300, 3.0)
    assert each.caught_up_at == 1.0
    each.held(250, 400, 4.0)
    assert each.caught_up_at == 2.0
    each.held(400, 400, 5.0)
    assert each.behind_s(5.5) == 0.5


def after_a_loss(*members: Member, unheard: set[Member]) -> SyncStateSet:
    made = set_of(*members)
    made.record = InSyncRecord(4, 7, frozenset(members), frozenset(unheard))
    return made


def test_nobody_joins_while_a_slave_has_acknowledged_bytes_that_the_master_lacks() -> None:
    made = set_of(M)
    joins = following(A, 100.0), {"a": 500}, 500, 100.0
    assert made.propose(*joins, alarmed={"b"}) is None
    assert made.propose(*joins, alarmed=()) is not None


def test_who_has_acknowledged_bytes_that_the_master_lacks_does_not_leave() -> None:
    made = set_of(M, A, B)
    one = following(A, 200.0)
    assert made.propose(one, {"a": 500}, 500, 200.0, alarmed={"b"}) is None
    record = made.propose(one, {"a": 500}, 500, 200.0)
    assert record is not None
    assert record.members == {M, A}


def test_nobody_joins_before_those_are_heard_who_may_have_what_the_master_lacks() -> None:
    made = after_a_loss(M, A, unheard={A})
    assert made.propose(following(B, 100.0), {"b": 500}, 500, 100.0) is None
    both = following(A, 101.0) | following(B, 101.0, steady_since=100.0)
    record = made.propose(both, {"a": 500, "b": 500}, 500, 101.0)
    assert record is not None
    assert (record.members, record.unheard) == (frozenset({M, A, B}), frozenset())


def test_a_disk_that_is_gone_for_good_is_not_waited_for() -> None:
    made = after_a_loss(M, A, B, unheard={A, B})
    again, anew = Member("a", "2"), Member("b", "2")
    one = following(again, 100.0)
    assert made.propose(one, {"a": 500}, 500, 100.0) is None, "b may have it"
    both = one | following(anew, 100.0)
    record = made.propose(both, {"a": 500, "b": 500}, 500, 100.0)
    assert record is not None
    assert (record.members, record.unheard) == (frozenset({M, again, B}), frozenset({B}))
    made.resolved(record)
    record = made.propose(both, {"a": 500, "b": 500}, 500, 100.0)
    assert record is not None
    assert (record.members, record.unheard) == (frozenset({M, again, anew}), frozenset())


def test_other_threads_ask_for_the_sets_in_force_while_a_change_is_recorded() -> None:
    """The thread that appends asks whether this master acts alone."""

    class Recorded(SyncStateSet):
        """Its change is recorded by the event loop right after the first look at it."""

        def __getattribute__(self, name: str) -> object:
            found = super().__getattribute__(name)
            if name == "proposed" and found is not None:
                self.resolved(found)
            return found

    rules = SetRules(2, RULES.lag_s, RULES.rejoin_s, RULES.dead_s)
    made = Recorded(InSyncRecord(4, 7, frozenset({M})), rules, M, 100.0)
    object.__setattr__(made, "proposed", InSyncRecord(4, 8, frozenset({M, A})))
    assert frozenset({M, A}) in made.in_force()
