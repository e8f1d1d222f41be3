"""Spans cover the log once, whatever they are asked to be."""

from hypothesis import given
from hypothesis import strategies as st

from tandemlog.logs.reading.log_files import LogFile, LogFiles
from tandemlog.logs.reading.log_spans import MOST_PIECES, grouped, pieces_wanted, split


def files(count: int, size: int) -> LogFiles:
    return LogFiles("x", None, size, tuple(LogFile(f"x/{i}", i * size, size) for i in range(count)))


@given(
    st.integers(1, 5), st.integers(64, 5000), st.integers(1, 9000), st.floats(0, 1), st.floats(0, 1)
)
def test_spans_cover_what_was_asked_for_once(
    count: int, size: int, piece: int, first: float, last: float
) -> None:
    log = files(count, size)
    total = count * size
    start, end = sorted((int(first * total), int(last * total)))
    spans = split(log, start, end, piece)
    assert sum(span.length for span in spans) == end - start
    position = start
    for span in spans:
        assert span.start == position
        assert span.base <= span.start < span.end <= span.file_end == span.base + size
        assert span.at_record == (span.start == span.base)
        position = span.end
    assert position == end


@given(st.lists(st.integers(1, 100), max_size=30), st.integers(1, 9))
def test_groups_keep_order_and_number(lengths: list[int], groups: int) -> None:
    log = LogFiles("x", None, 100, tuple(LogFile("", i * 100, n) for i, n in enumerate(lengths)))
    spans = split(log, 0, 100 * len(lengths), 100)
    made = grouped(spans, groups)
    assert [span for group in made for span in group] == spans
    assert len(made) <= groups
    assert all(made)


def test_no_file_is_split_near_its_end() -> None:
    spans = split(files(1, 4000), 0, 4000, 500)
    assert max(span.start for span in spans) <= 3000
    assert spans[-1].end == 4000


def test_pieces_are_a_multiple_of_the_cores() -> None:
    assert pieces_wanted(537 << 20, 128 << 20, 2) == 6
    assert pieces_wanted(100 << 20, 128 << 20, 2) == 2
    assert pieces_wanted(1 << 20, 128 << 20, 8) == 1
    assert pieces_wanted(0, 128 << 20, 2) == 1


def test_a_target_of_a_few_bytes_makes_no_million_tasks() -> None:
    assert MOST_PIECES <= pieces_wanted(1 << 30, 128, 3) < MOST_PIECES + 3
