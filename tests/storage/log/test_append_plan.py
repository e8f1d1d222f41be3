"""Where a batch's records go, against the rule told one record at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.storage.log.append_plan import (
    Blank,
    Piece,
    assign_counted,
    assign_few,
    assign_queue_offsets,
    first_queue_offsets,
    plan_append,
    plan_raw,
)

FILE_SIZE = 1000


def one_by_one(sizes: list[int], wrote: int) -> tuple[list[int], list[tuple[int, int]], int]:
    """RocketMQ's loop: the offset of each record, the blanks, the end."""
    offsets, blanks = [], []
    for size in sizes:
        left = FILE_SIZE - wrote % FILE_SIZE
        if size + 8 > left:
            blanks.append((wrote, left))
            wrote += left
        offsets.append(wrote)
        wrote += size
    return offsets, blanks, wrote


@given(
    st.lists(st.integers(91, FILE_SIZE - 8), min_size=1, max_size=40),
    st.integers(0, 5 * FILE_SIZE),
)
def test_records_and_blanks_lie_where_rocketmq_puts_them(sizes: list[int], wrote: int) -> None:
    # a log ends anywhere but in the last 1..7 bytes of a file
    wrote -= max(wrote % FILE_SIZE - (FILE_SIZE - 8), 0)
    plan = plan_append(np.cumsum(np.array(sizes, np.int64)), wrote, FILE_SIZE)
    offsets, blanks, end = one_by_one(sizes, wrote)
    found = []
    for piece in plan.pieces:
        offset = piece.offset
        assert sum(sizes[: piece.first]) == piece.start
        assert sum(sizes[: piece.first + piece.count]) == piece.end
        for size in sizes[piece.first : piece.first + piece.count]:
            found.append(offset)
            offset += size
    assert found == offsets
    assert [(blank.offset, blank.size) for blank in plan.blanks] == blanks
    assert plan.end == end


def test_a_record_may_leave_just_the_blanks_header() -> None:
    whole = plan_append(np.array([400]), 592, FILE_SIZE)
    assert whole.pieces == (Piece(0, 1, 0, 400, 592),)
    assert whole.blanks == ()
    one_more = plan_append(np.array([401]), 592, FILE_SIZE)
    assert one_more.blanks == (Blank(592, 408),)
    assert one_more.pieces == (Piece(0, 1, 0, 401, 1000),)
    split = plan_append(np.array([200, 401]), 592, FILE_SIZE)
    assert split.pieces == (Piece(0, 1, 0, 200, 592), Piece(1, 1, 200, 401, 1000))
    assert split.blanks == (Blank(792, 208),)
    assert split.end == 1201


def test_a_file_that_is_full_to_its_last_byte() -> None:
    plan = plan_append(np.array([100]), 2 * FILE_SIZE, FILE_SIZE)
    assert plan.pieces == (Piece(0, 1, 0, 100, 2000),)
    assert plan.blanks == ()


def test_a_record_that_fits_no_file_is_an_error() -> None:
    with pytest.raises(ValueError, match="record 1 does not fit"):
        plan_append(np.array([100, 100 + FILE_SIZE - 7]), 0, FILE_SIZE)


def test_raw_bytes_are_one_piece() -> None:
    plan = plan_raw(500, 20)
    assert plan.pieces == (Piece(0, 0, 0, 20, 500),)
    assert plan.end == 520


@given(
    st.integers(1, 6).flatmap(
        lambda table: st.tuples(
            st.lists(st.integers(0, 1000), min_size=table, max_size=table),
            st.lists(st.tuples(st.integers(0, table - 1), st.booleans()), min_size=1, max_size=300),
        )
    )
)
def test_queue_offsets_are_counted_in_order(
    case: tuple[list[int], list[tuple[int, bool]]],
) -> None:
    next_offsets, records = case
    indexes = np.array([index for index, _ in records], np.uint16)
    counted = np.array([count for _, count in records], np.bool_)
    expected = list(next_offsets)
    wanted = []
    for index, count in records:
        wanted.append(expected[index] if count else 0)
        expected[index] += count
    start = np.array(next_offsets, np.int64)
    offsets, counts = assign_counted(indexes, counted, start)
    assert offsets.tolist() == wanted
    assert (start + counts).tolist() == expected
    if counted.all():
        few, few_counts = assign_few(indexes, start)
        assert few.tolist() == wanted
        assert few_counts.tolist() == counts.tolist()
        plain, plain_counts = assign_queue_offsets(indexes, start)
        assert plain.tolist() == wanted
        assert plain_counts.tolist() == counts.tolist()


def test_first_offsets_of_a_segment() -> None:
    indexes = np.array([0, 2, 2, 3], np.uint16)
    counted = np.array([True, True, True, False])
    start = np.array([10, 20, 30, 40], np.int64)
    _, counts = assign_counted(indexes, counted, start)
    assert first_queue_offsets(indexes, counts, start).tolist() == [10, -1, 30, 0]
