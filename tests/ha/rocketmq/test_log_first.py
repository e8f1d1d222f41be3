"""Far behind, a follower stores log first."""

from ha.rocketmq.follow.log_first import FAR_BYTES, HOLD_S, LogFirst

END = 10 * FAR_BYTES


def test_far_behind_the_position_stands_still_but_not_for_long() -> None:
    first = LogFirst()
    assert first.position(1_000, END, 0.0) == 0
    assert first.position(5_000, END, HOLD_S - 0.1) == 0
    assert first.position(9_000, END, HOLD_S) == 9_000
    assert first.position(12_000, END, HOLD_S + 1) == 9_000
    assert first.position(20_000, END, 2 * HOLD_S + 1) == 20_000


def test_near_the_end_it_follows_at_once() -> None:
    first = LogFirst()
    assert first.position(1_000, END, 0.0) == 0
    assert first.position(END - FAR_BYTES, END, 1.0) == END - FAR_BYTES
    assert first.position(END, END, 1.1) == END
    assert first.position(END + 500, END, 1.2) == END + 500


def test_a_log_that_was_cut_is_never_confirmed_beyond_its_end() -> None:
    first = LogFirst()
    assert first.position(END, END, 0.0) == END
    assert first.position(700, END, 1.0) == 700
