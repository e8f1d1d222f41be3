"""Interval sets, compared with plain sets of numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.storage.leases.intervals import IntervalSet, runs_of

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=20)


def plain(pairs: list[tuple[int, int]]) -> set[int]:
    return {each for start, end in pairs for each in range(start, end)}


@given(RANGES)
def test_it_is_the_set_of_its_offsets(pairs: list[tuple[int, int]]) -> None:
    intervals, numbers = IntervalSet(pairs), plain(pairs)
    assert plain(list(intervals)) == numbers
    assert intervals.count() == len(numbers)
    assert intervals.last == max(numbers, default=-2) + 1
    bounds = [bound for pair in intervals for bound in pair]
    assert bounds == sorted(set(bounds))  # none touch
    everywhere = np.arange(-1, 62)
    assert intervals.contains(everywhere).tolist() == [each in numbers for each in range(-1, 62)]
    for offset in range(62):
        assert (offset in intervals) == (offset in numbers)
        outside = next(each for each in range(offset, 99) if each not in numbers)
        assert intervals.next_outside(offset) == outside
        inside = next((each for each in range(offset, 99) if each in numbers), None)
        assert intervals.next_inside(offset) == inside


@given(RANGES, st.integers(0, 60))
def test_advance_gives_the_first_that_is_not_there(
    pairs: list[tuple[int, int]], floor: int
) -> None:
    intervals, numbers = IntervalSet(pairs), plain(pairs)
    reached = intervals.advance(floor)
    assert reached == next(each for each in range(floor, 99) if each not in numbers)
    assert plain(list(intervals)) == {each for each in numbers if each >= reached}


@given(RANGES, RANGES)
def test_union(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> None:
    intervals = IntervalSet(one)
    intervals.update(IntervalSet(two))
    assert plain(list(intervals)) == plain(one) | plain(two)
    assert intervals == IntervalSet([*two, *one])


@given(st.sets(st.integers(0, 40)))
def test_runs(numbers: set[int]) -> None:
    starts, ends = runs_of(np.array(sorted(numbers), np.int64))
    pairs = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert plain(pairs) == numbers
    intervals = IntervalSet()
    intervals.add_runs(starts, ends)
    assert list(intervals) == pairs
