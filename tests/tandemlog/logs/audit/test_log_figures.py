"""Counts by time: added up in any order they are the same, and they never need many bins."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.arrow.dates import is_date
from tandemlog.logs.audit.log_figures import MOST_BINS, WIDTHS_S, LogFigures, TimeCounts

NOON = 1_700_000_000_000
TIMES = st.one_of(
    st.integers(NOON, NOON + 10_000),
    st.integers(0, 2 * NOON),
    st.integers(-(1 << 63), (1 << 63) - 1),
)


def counted(*parts: list[int]) -> TimeCounts:
    """The counts of each part, added up."""
    whole = TimeCounts()
    for part in parts:
        counts = TimeCounts()
        counts.add(np.array(part, np.int64))
        whole.merge(counts)
    return whole


def test_each_width_divides_the_next_one() -> None:
    assert all(wide % narrow == 0 for narrow, wide in pairwise(WIDTHS_S))


@given(st.lists(st.lists(TIMES, max_size=8), max_size=6))
def test_no_message_is_lost_and_the_order_does_not_matter(parts: list[list[int]]) -> None:
    times = [each for part in parts for each in part]
    whole = counted(*parts)
    assert whole == counted(*parts[::-1])
    assert whole == counted(times)
    bins = whole.bins()
    assert sum(count for _, count in bins) + whole.undated == len(times)
    assert whole.undated == sum(not is_date(each) for each in times)
    assert len(bins) <= MOST_BINS
    width_ms = 1000 * whole.width_s
    for begin, count in bins:
        inside = [each for each in times if is_date(each) and begin <= each < begin + width_ms]
        assert len(inside) == count


def test_the_width_is_the_first_that_suffices() -> None:
    seconds = [NOON + 1000 * number for number in range(MOST_BINS)]
    assert counted(seconds).width_s == 1
    assert counted(seconds, [NOON + 1000 * MOST_BINS]).width_s == 5
    assert counted([]).bins() == []


def test_sizes_and_bytes_of_topics() -> None:
    figures, others = LogFigures(), LogFigures()
    topics, times = ["a", "b"], np.full(4, NOON)
    figures.add(topics, np.array([0, 1, 1, 0]), np.array([127, 128, 255, 256]), times)
    others.add(["b"], np.array([0]), np.array([200]), times[:1])
    figures.merge(others)
    assert figures.topic_bytes == {"a": 383, "b": 583}
    assert figures.sizes == {7: 1, 8: 3, 9: 1}
    assert figures.times.bins() == [(NOON, 5)]
