"""Histories of logs: where two logs part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.files.log_history import NO_CUT, LogHistory, LogTerm

OLD = LogHistory(7, (LogTerm(1, 0, 11), LogTerm(3, 600, 13)))


def terms(*rows: tuple[int, int, int]) -> LogHistory:
    return LogHistory(7, tuple(LogTerm(*row) for row in rows))


@pytest.mark.parametrize(
    ("now", "cut"),
    [
        (OLD, NO_CUT),
        # the same log, gone on
        (terms((1, 0, 11), (3, 600, 13), (4, 900, 14)), 900),
        # a new master that had less of the last term, or nothing of it
        (terms((1, 0, 11), (4, 500, 14)), 500),
        (terms((1, 0, 11), (4, 700, 14)), 600),
        (terms((1, 0, 11), (2, 550, 12), (4, 700, 14)), 550),
        # a slave that has not followed yet: nothing of its own
        (terms((1, 0, 11)), 600),
        # another master that counted to the same epochs, from the same places
        (terms((1, 0, 11), (3, 600, 99)), 600),
        (terms((1, 0, 99), (3, 600, 98)), 0),
        # ids that are not known fit
        (terms((1, 0, 0), (3, 600, 0)), NO_CUT),
        (terms((1, 0, 0), (4, 650, 14)), 600),
        # nothing in common: a log made anew, or all of it is deleted by now
        (terms((5, 0, 15)), 0),
        (LogHistory(), NO_CUT),
    ],
)
def test_where_a_log_was_cut(now: LogHistory, cut: int) -> None:
    assert OLD.cut_against(now) == cut


def test_a_reader_that_knows_nothing_is_not_cut() -> None:
    assert LogHistory().cut_against(OLD) == NO_CUT


def test_where_a_term_ends() -> None:
    assert OLD.end_of(1, 11) == 600
    assert OLD.end_of(3, 13) == OLD.end_of(3) == NO_CUT
    assert OLD.end_of(3, 99) is None
    assert OLD.end_of(2) is None
    assert OLD.newest == (3, 13)
    assert LogHistory().newest == (0, 0)


def test_as_json() -> None:
    assert LogHistory.from_json(OLD.to_json()) == OLD
    largest = LogHistory(2**64 - 1, (LogTerm(1, 0, 2**64 - 1),))
    assert LogHistory.from_json(largest.to_json()) == largest


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"log_id": "7", "terms": []}, {"log_id": "0" * 16, "terms": [[1, 0]]},
     {"log_id": "0" * 16, "terms": [["1", 0, "0" * 16]]},
     {"log_id": "0" * 16, "terms": [[2, 0, "0" * 16], [1, 5, "0" * 16]]}],
)  # fmt: skip
def test_what_is_no_history(value: object) -> None:
    with pytest.raises(FormatError):
        LogHistory.from_json(value)


Log = list[tuple[int, int]]
"""Each byte of a log as (master's term, value)."""


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Log], list[LogHistory]]:
    """Logs that masters have written in turn, each going on from a prefix of some log of before;
    one may count to an epoch that another has had."""
    logs: list[Log] = [[]]
    histories = [LogHistory()]
    for number in range(1, draw(st.integers(1, 7))):
        base = draw(st.integers(0, len(logs) - 1))
        kept = draw(st.integers(0, len(logs[base])))
        before = [each for each in histories[base].terms if each.start_offset < kept]
        lowest = before[-1].epoch + 1 if before else 1
        epoch = draw(st.integers(lowest, lowest + 2))
        written = draw(st.integers(0, 4))
        logs.append(logs[base][:kept] + [(number, each) for each in range(written)])
        histories.append(LogHistory(0, (*before, LogTerm(epoch, kept, number))))
    return logs, histories


@given(worlds(), st.data())
def test_below_the_cut_two_logs_are_equal_and_behind_it_they_are_not(
    world: tuple[list[Log], list[LogHistory]], data: st.DataObject
) -> None:
    logs, histories = world
    one, other = (data.draw(st.integers(0, len(logs) - 1)) for _ in range(2))
    cut = histories[one].cut_against(histories[other])
    mine, theirs = logs[one], logs[other]
    if not histories[one].terms or not histories[other].terms:
        return
    assert mine[: min(cut, len(mine))] == theirs[: min(cut, len(mine))]
    common = next(
        (each for each, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
        min(len(mine), len(theirs)),
    )
    if cut < len(mine):
        # nothing that both hold is called cut, apart from what two terms of one place leave open
        assert cut == common
