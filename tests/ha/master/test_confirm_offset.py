"""What counts, and what is confirmed."""

import pytest

from tandemlog_server.ha.master.confirm_offset import ConfirmTracker
from tandemlog_server.ha.protocol.frames import Ack
from tandemlog_server.ha.state import Member

M, A, B = Member("m", "1"), Member("a", "1"), Member("b", "1")
ALL = frozenset({M, A, B})


def tracker(own: int = 1000, confirmed: int = 0, required: int = 2) -> ConfirmTracker:
    made = ConfirmTracker(M, 5, confirmed, own, required)
    for member in (A, B):
        made.attach(member, 0)
        made.sent(member.node_id, 1000)
    return made


def test_the_slowest_member_decides() -> None:
    made = tracker()
    assert made.acknowledge("a", Ack(5, "1", 700))
    assert made.advance((ALL,)) == 0
    assert made.acknowledge("b", Ack(5, "1", 300))
    assert made.advance((ALL,)) == 300
    assert made.advance((frozenset({M, A}),)) == 700


def test_the_masters_own_position_counts_too() -> None:
    made = tracker(own=100)
    made.acknowledge("a", Ack(5, "1", 700))
    assert made.advance((frozenset({M, A}),)) == 100
    made.own = 800
    assert made.advance((frozenset({M, A}),)) == 700


@pytest.mark.parametrize(
    "ack",
    [Ack(4, "1", 10), Ack(6, "1", 10), Ack(5, "2", 10), Ack(5, "1", 1001)],
    ids=["old epoch", "later epoch", "another disk", "above what was sent"],
)
def test_what_does_not_count(ack: Ack) -> None:
    made = tracker()
    assert not made.acknowledge("a", ack)
    assert made.advance((frozenset({M, A}),)) == 0


def test_an_unknown_slave_does_not_count() -> None:
    assert not tracker().acknowledge("x", Ack(5, "1", 1))


def test_every_set_in_force_must_hold_it() -> None:
    made = tracker()
    made.acknowledge("a", Ack(5, "1", 700))
    made.acknowledge("b", Ack(5, "1", 200))
    assert made.advance((frozenset({M, A}), ALL)) == 200


def test_a_set_that_is_too_small_confirms_nothing() -> None:
    made = tracker()
    assert made.advance((frozenset({M}),)) == 0
    made.acknowledge("a", Ack(5, "1", 700))
    assert made.advance((frozenset({M, A}), frozenset({M}))) == 0


def test_it_never_moves_back() -> None:
    made = tracker(confirmed=500)
    made.acknowledge("a", Ack(5, "1", 100))
    assert made.advance((frozenset({M, A}),)) == 500


def test_a_new_stream_forgets_what_was_acknowledged() -> None:
    made = tracker()
    made.acknowledge("a", Ack(5, "1", 700))
    made.attach(Member("a", "2"), 0)
    assert made.durable(A) is None
    assert made.durable(Member("a", "2")) is None
    assert made.advance((frozenset({M, A}),)) == 0


def test_a_late_smaller_ack_changes_nothing() -> None:
    made = tracker()
    made.acknowledge("a", Ack(5, "1", 700))
    assert made.acknowledge("a", Ack(5, "1", 300))
    assert made.durable(A) == 700
