import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.storage.queues.queue_search import Boundary, search_by_time

TIMES = [10, 20, 20, 20, 30]


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [
        (5, 0, 0),  # all newer
        (10, 0, 0),
        (15, 1, 0),
        (20, 1, 3),
        (25, 4, 3),
        (30, 4, 4),
        (35, 5, 4),  # all older: after the last, and the last
    ],
)
def test_boundaries(timestamp: int, lower: int, upper: int) -> None:
    assert search_by_time(0, 5, timestamp, Boundary.LOWER, TIMES.__getitem__) == lower
    assert search_by_time(0, 5, timestamp, Boundary.UPPER, TIMES.__getitem__) == upper


def test_the_answer_lies_between_minimum_and_maximum() -> None:
    assert search_by_time(2, 4, 5, Boundary.UPPER, TIMES.__getitem__) == 2
    assert search_by_time(2, 4, 99, Boundary.LOWER, TIMES.__getitem__) == 4
    assert search_by_time(3, 3, 20, Boundary.UPPER, TIMES.__getitem__) == 3


def test_a_queue_of_holes_alone_answers_its_beginning() -> None:
    for boundary in Boundary:
        assert search_by_time(2, 9, 20, boundary, lambda _: -1) == 2


def lower_of(times: list[int], timestamp: int) -> int:
    """By a look at every unit; -1 is a hole."""
    if all(time < 0 for time in times):
        return 0
    return next((n for n, time in enumerate(times) if time >= max(timestamp, 0)), len(times))


def upper_of(times: list[int], timestamp: int) -> int:
    return max((n for n, time in enumerate(times) if 0 <= time <= timestamp), default=0)


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=40), st.integers(-1, 31))
def test_holes_are_passed_over_whatever_their_pattern(
    units: list[tuple[int, bool]], timestamp: int
) -> None:
    times = [-1 if hole else time for time, hole in sorted(units, key=lambda unit: unit[0])]
    asked: list[int] = []

    def time_of(queue_offset: int) -> int:
        asked.append(queue_offset)
        return times[queue_offset - 7]

    end = 7 + len(times)
    assert search_by_time(7, end, timestamp, Boundary.LOWER, time_of) == 7 + lower_of(
        times, timestamp
    )
    assert len(asked) == len(set(asked)), "a unit is looked at twice"
    assert search_by_time(7, end, timestamp, Boundary.UPPER, time_of) == 7 + upper_of(
        times, timestamp
    )


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(-1, 31))
def test_as_a_scan_finds_it(times: list[int], timestamp: int) -> None:
    times.sort()
    lower = sum(time < timestamp for time in times)
    upper = max(sum(time <= timestamp for time in times) - 1, 0)
    count = len(times)
    assert search_by_time(0, count, timestamp, Boundary.LOWER, times.__getitem__) == lower
    assert search_by_time(0, count, timestamp, Boundary.UPPER, times.__getitem__) == upper
