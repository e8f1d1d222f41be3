from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.spark.cluster.live_options import Partitioning
from tandemlog.spark.live.partition_plan import ANY_NUMBER, QUEUES, SMALL, plan

SPANS = st.lists(st.integers(1, 200_000), min_size=1, max_size=12).map(
    lambda counts: [QueueSpan("t", number, 3, 3 + count) for number, count in enumerate(counts)]
)
WISHES = st.builds(
    Partitioning,
    min_partitions=st.none() | st.integers(1, 30),
    max_partitions=st.none() | st.integers(30, 60),
    max_records=st.none() | st.integers(1_000, 100_000),
)


def read_in_order(groups: list[tuple[QueueSpan, ...]]) -> list[QueueSpan]:
    """The spans that the partitions' pieces make up, put together again."""
    pieces = [piece for group in groups for piece in group]
    whole = []
    for queue, of_queue in groupby(pieces, key=lambda piece: piece.queue):
        parts = list(of_queue)
        assert all(a.end == b.start for a, b in pairwise(parts))
        whole.append(QueueSpan(queue[0], queue[1], parts[0].start, parts[-1].end))
    return whole


@given(SPANS, WISHES)
def test_every_message_is_in_one_partition(spans: list[QueueSpan], wishes: Partitioning) -> None:
    groups = plan(spans, wishes)
    assert read_in_order(groups) == spans
    assert all(group for group in groups)
    assert len(groups) >= min(wishes.min_partitions or 1, sum(each.count for each in spans))
    if wishes.max_partitions is not None:
        assert len(groups) <= wishes.max_partitions
    elif wishes.max_records is not None:
        assert max(sum(each.count for each in group) for group in groups) <= wishes.max_records


@given(SPANS, WISHES)
def test_the_same_spans_make_the_same_partitions(
    spans: list[QueueSpan], wishes: Partitioning
) -> None:
    assert plan(spans, wishes) == plan(list(spans), wishes)


def test_small_queues_share_a_task_and_large_ones_do_not() -> None:
    small = [QueueSpan("t", number, 0, 100) for number in range(4)]
    assert plan(small, Partitioning()) == [tuple(small)]
    large = [QueueSpan("t", number, 0, SMALL) for number in range(3)]
    assert plan(large, Partitioning()) == [(span,) for span in large]


def test_many_short_queues_are_spread_over_tasks() -> None:
    spans = [QueueSpan(f"t{number:04d}", 0, 0, 40) for number in range(1_000)]
    groups = plan(spans, Partitioning())
    assert [len(group) for group in groups] == [QUEUES] * 10
    assert [span for group in groups for span in group] == spans
    assert len(plan(spans, Partitioning(max_partitions=4))) == 4
    assert plan(spans, Partitioning(), ANY_NUMBER) == [tuple(spans)]


def test_a_queue_stays_in_one_task_unless_it_is_asked_otherwise() -> None:
    one = [QueueSpan("t", 0, 0, 10_000_000)]
    assert plan(one, Partitioning()) == [tuple(one)]
    assert len(plan(one, Partitioning(min_partitions=4))) == 4
    assert len(plan(one, Partitioning(max_records=1_000_000))) == 10


def test_the_larger_queues_are_split_first() -> None:
    spans = [QueueSpan("t", 0, 0, 90_000), QueueSpan("t", 1, 0, 10_000)]
    counts = [sum(each.count for each in group) for group in plan(spans, Partitioning(4))]
    assert counts == [30_000, 30_000, 30_000, 10_000]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_few_partitions_are_of_about_one_size(most: int) -> None:
    spans = [QueueSpan("t", number, 0, 60_000) for number in range(6)]
    groups = plan(spans, Partitioning(max_partitions=most))
    assert [len(group) for group in groups] == [6 // most] * most


def test_nothing_to_read_is_no_partition() -> None:
    assert plan([], Partitioning(min_partitions=4)) == []
    assert plan([QueueSpan("t", 0, 5, 5)], Partitioning()) == []
