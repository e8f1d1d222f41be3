"""Which block is checked next, and when."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.storage.scrub.scrub_plan import MAX_OPEN, RETRY_MS, SOON_MS, ScrubPlan

DAY = 86_400_000


def walk(plan: ScrubPlan, begin: int, end: int, now_ms: int, step: int = 10) -> list[int]:
    """The blocks of what is due now."""
    starts = []
    while (start := plan.next_block(begin, end, now_ms)) is not None:
        starts.append(start)
        plan.passed(min(start + step, end))
    return starts


def test_a_round_goes_through_the_log_once() -> None:
    plan = ScrubPlan(DAY)
    assert walk(plan, 100, 145, 1_000) == [100, 110, 120, 130, 140]
    assert plan.progress.rounds == 1
    assert plan.progress.ended_ms == 1_000
    assert walk(plan, 100, 200, 1_000 + DAY - 1) == []
    assert walk(plan, 120, 140, 1_000 + DAY) == [120, 130]


def test_a_round_that_took_longer_than_the_interval_is_followed_at_once() -> None:
    plan = ScrubPlan(DAY)
    assert plan.next_block(0, 20, 1_000) == 0
    plan.passed(20)
    assert plan.next_block(0, 20, 1_000 + 2 * DAY) is None  # the round ends
    assert plan.next_block(0, 20, 1_000 + 2 * DAY) == 0


def test_an_empty_log_has_no_round() -> None:
    plan = ScrubPlan(DAY)
    assert plan.next_block(0, 0, 5) is None
    assert plan.progress.began_ms == 0


def test_a_round_can_be_asked_for() -> None:
    plan = ScrubPlan(DAY)
    walk(plan, 0, 20, 1_000)
    plan.begin_round(2_000)
    assert walk(plan, 0, 20, 2_000) == [0, 10]


def test_what_readers_could_not_read_comes_before_the_round() -> None:
    plan = ScrubPlan(DAY)
    assert plan.next_block(0, 100, 1) == 0
    plan.passed(10)
    plan.look_at(60, 75)
    plan.look_at(90, 95)
    found = []
    while (start := plan.next_first(0, 100)) is not None:
        found.append(start)
        plan.passed_first(start + 10)
    assert found == [60, 70, 90]
    assert plan.next_block(0, 100, 1) == 10
    plan.look_at(60, 75)
    plan.look_at(20, 30)
    assert plan.next_first(25, 70) == 60
    assert plan.next_first(25, 60) is None, "retention has dropped one, the other is above the end"
    plan.look_at(20, 30)
    plan.cut(100)
    assert plan.next_first(0, 100) is None


def test_retention_moves_the_round_on_and_a_cut_takes_it_back() -> None:
    plan = ScrubPlan(DAY)
    plan.next_block(0, 100, 1)
    plan.passed(10)
    assert plan.next_block(50, 100, 1) == 50
    plan.keep_open(50, 60, "differs", 1, lost=False)
    plan.keep_open(70, 90, "differs", 1, lost=False)
    plan.passed(90)
    plan.cut(80)
    assert plan.next_block(50, 100, 1) == 80
    assert list(plan.open) == [50]


def test_an_open_block_is_left_alone_as_long_as_it_has_been_open() -> None:
    plan, looks, now_ms = ScrubPlan(DAY), [], 0
    plan.keep_open(0, 10, "damaged", 0, lost=True)
    while now_ms < 4 * RETRY_MS:
        if plan.next_open(0, now_ms) is not None:
            looks.append(now_ms // 1_000)
            plan.keep_open(0, 10, "damaged", now_ms, lost=True)
        now_ms += 1_000
    assert looks == [5, 10, 20, 40, 80, 140, 200]


def test_open_blocks_are_looked_at_again_in_turn() -> None:
    plan = ScrubPlan(DAY)
    assert plan.keep_open(0, 10, "damaged", 1_000, lost=True)
    assert plan.keep_open(20, 30, "differs", 2_000, lost=False)
    assert plan.next_open(0, 1_000 + SOON_MS - 1) is None
    first = plan.next_open(0, 1_000 + SOON_MS)
    assert first is not None
    assert first.start == 0
    assert not plan.keep_open(0, 10, "damaged", 1_000 + SOON_MS, lost=True)  # no news
    assert plan.open[0].since_ms == 1_000
    assert plan.next_open(0, 1_001 + SOON_MS) is None
    second = plan.next_open(0, 2_000 + SOON_MS)
    assert second is not None
    assert second.start == 20
    plan.settle(25, 40)
    assert list(plan.open) == [0]
    assert plan.next_open(5, 10 * RETRY_MS) is None  # dropped by retention
    assert not plan.open


def test_open_blocks_are_bounded() -> None:
    plan = ScrubPlan(DAY)
    for number in range(MAX_OPEN + 5):
        plan.keep_open(10 * number, 10 * number + 10, "damaged", 1, lost=True)
    assert len(plan.open) == MAX_OPEN


def test_it_continues_after_a_restart() -> None:
    plan, again = ScrubPlan(DAY), ScrubPlan(DAY)
    plan.next_block(0, 100, 7)
    plan.passed(40)
    plan.keep_open(10, 20, "copies differ", 7, lost=False)
    again.take_json(json.loads(json.dumps(plan.to_json())))
    assert again.progress == plan.progress
    assert again.open == plan.open
    for value in ({}, {"next_offset": "x"}, {**plan.to_json(), "open": [[1]]}):
        with pytest.raises((ValueError, KeyError, TypeError)):
            again.take_json(value)
    assert again.open == plan.open


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60), st.integers(1, 3 * DAY)), min_size=1)
)
def test_no_block_is_older_than_an_interval_and_a_round(
    steps: list[tuple[int, int, int]],
) -> None:
    """Whatever is dropped and appended, and however long a call takes to come."""
    plan, begin, end, now = ScrubPlan(DAY), 0, 10, 1
    checked: dict[int, int] = {}
    for dropped, appended, later in steps:
        begin, now = min(begin + dropped, end), now + later
        end += appended
        round_began = now
        for start in walk(plan, begin, end, now) + walk(plan, begin, end, now):
            assert begin <= start < end
            for each in range(start, min(start + 10, end)):
                checked[each] = now
        if plan.progress.began_ms == round_began:
            assert all(checked.get(each) == now for each in range(begin, end))
