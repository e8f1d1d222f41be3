"""Which manifest counts, and how a log continues it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.archive.branches import (
    Behind,
    Continue,
    Foreign,
    continuation,
    is_cut,
    newest_first,
)
from tandemlog.format.archive.manifest import Manifest, SegmentEntry
from tandemlog.format.archive.object_name import ManifestName, SegmentName, digest_of
from tandemlog.format.files.log_history import LogHistory, LogTerm

DIGEST = digest_of(b"")
FILE = 1_000


def log(*terms: tuple[int, int, int], log_id: int = 7) -> LogHistory:
    return LogHistory(log_id, tuple(LogTerm(*term) for term in terms))


def manifest(history: LogHistory, *bounds: tuple[int, int]) -> Manifest:
    segments = tuple(SegmentEntry(SegmentName(a, b, 1, DIGEST), b) for a, b in bounds)
    return Manifest(FILE, history, segments, (), bounds[-1][1] if bounds else 0)


ARCHIVED = manifest(log((1, 0, 11), (4, 700, 14)), (0, 700), (700, 1_000), (1_000, 1_500))


def test_the_newest_epoch_counts_then_the_longest_then_the_last() -> None:
    names = [
        ManifestName(epoch, end, revision, DIGEST)
        for epoch, end, revision in [(5, 1_400, 3), (5, 1_400, 2), (5, 1_300, 9), (4, 1_900, 9)]
    ]
    keys = [each.key for each in names]
    assert newest_first([*reversed(keys), "manifests/other", "log/0"]) == names


def test_an_empty_archive_begins_where_the_log_does() -> None:
    assert continuation(None, log((4, 0, 1)), 300, 900, FILE) == Continue(300)


def test_the_same_log_continues_at_the_end() -> None:
    found = continuation(ARCHIVED, log((1, 0, 11), (4, 700, 14)), 0, 1_700, FILE)
    assert found == Continue(1_500, ARCHIVED, ARCHIVED.segments[-1])


def test_a_new_term_behind_the_end_continues_at_the_end() -> None:
    now = log((1, 0, 11), (4, 700, 14), (6, 1_600, 16))
    assert continuation(ARCHIVED, now, 0, 1_700, FILE) == Continue(
        1_500, ARCHIVED, ARCHIVED.segments[-1]
    )


def test_a_cut_log_ends_the_branch_at_the_cut() -> None:
    now = log((1, 0, 11), (4, 700, 14), (6, 1_200, 16))
    found = continuation(ARCHIVED, now, 0, 1_300, FILE)
    assert isinstance(found, Continue)
    assert (found.offset, found.cut) == (1_200, 1_200)
    assert found.base is not None
    assert found.base.spans() == ((0, 1_200),)
    assert found.base.segments[-1].name.end == 1_500
    assert found.proof == found.base.segments[-1]
    assert is_cut(ARCHIVED, manifest(now, (0, 700), (700, 1_000), (1_000, 1_200)))
    assert not is_cut(found.base, ARCHIVED)


def test_a_log_that_is_cut_below_all_begins_again() -> None:
    late = manifest(log((1, 0, 11), (4, 700, 14)), (800, 1_000))
    found = continuation(late, log((1, 0, 11), (6, 700, 16)), 0, 900, FILE)
    assert found == Continue(0, cut=700)


@pytest.mark.parametrize(
    ("now", "confirmed"),
    [
        # an old master, a slave that has not followed yet, and one that is not there yet
        (log((1, 0, 11), (3, 650, 13)), 2_000),
        (log(), 0),
        (log((1, 0, 11), (4, 700, 14)), 1_499),
    ],
)
def test_a_log_that_is_behind_waits(now: LogHistory, confirmed: int) -> None:
    assert isinstance(continuation(ARCHIVED, now, 0, confirmed, FILE), Behind)


def test_two_masters_of_one_epoch_are_not_mixed() -> None:
    found = continuation(ARCHIVED, log((1, 0, 11), (4, 700, 99)), 0, 2_000, FILE)
    assert isinstance(found, Foreign)
    assert "differ from 700 on" in found.reason


def test_another_log_does_not_wait_until_its_epoch_is_higher() -> None:
    found = continuation(ARCHIVED, log((2, 0, 91), log_id=8), 0, 2_000, FILE)
    assert isinstance(found, Foreign)
    assert "of another log" in found.reason


@pytest.mark.parametrize("log_id", [8, 0])
def test_another_log_is_not_archived_there(log_id: int) -> None:
    found = continuation(ARCHIVED, log((9, 0, 91), log_id=log_id), 0, 2_000, FILE)
    assert isinstance(found, Foreign)


def test_a_log_of_which_nothing_is_left_is_archived_from_its_begin() -> None:
    assert continuation(ARCHIVED, log((9, 0, 91)), 0, 2_000, FILE) == Continue(0, cut=0)
    two_masters = continuation(ARCHIVED, log((4, 0, 99)), 0, 2_000, FILE)
    assert isinstance(two_masters, Foreign)


def test_a_log_that_forgot_its_oldest_terms_is_known_by_its_bytes() -> None:
    found = continuation(ARCHIVED, log((8, 2_500, 18)), 0, 3_500, FILE)
    assert found == Continue(1_500, ARCHIVED, ARCHIVED.segments[-1])


def test_files_of_another_size_are_of_another_log() -> None:
    found = continuation(ARCHIVED, ARCHIVED.history, 0, 2_000, 2 * FILE)
    assert isinstance(found, Foreign)


def test_what_retention_was_quicker_with_is_a_gap() -> None:
    found = continuation(ARCHIVED, log((4, 700, 14)), 3_000, 3_500, FILE)
    assert found == Continue(3_000, ARCHIVED, None, gap=(1_500, 3_000))
    # its terms are gone with the files: the log's identity is all that is left
    later = log((8, 2_500, 18))
    assert continuation(ARCHIVED, later, 3_000, 3_500, FILE) == found
    stranger = log((8, 2_500, 18), log_id=8)
    assert isinstance(continuation(ARCHIVED, stranger, 3_000, 3_500, FILE), Foreign)


@st.composite
def histories(draw: st.DrawFn) -> list[LogHistory]:
    """What one log's history was, from cut to cut: each adds a term at or below the last end."""
    terms: tuple[LogTerm, ...] = ()
    found = []
    end = 0
    for epoch in range(1, draw(st.integers(2, 6))):
        start = draw(st.integers(0, end))
        kept = (each for each in terms if each.start_offset < start)
        terms = (*kept, LogTerm(epoch, start, epoch))
        end = start + draw(st.integers(1, 2_000))
        found.append(LogHistory(7, terms))
    return found


@given(histories(), st.data())
def test_what_is_kept_is_of_the_log(past: list[LogHistory], data: st.DataObject) -> None:
    """Whatever was archived of an earlier branch: the base is a prefix that both have."""
    old, now = past[data.draw(st.integers(0, len(past) - 1))], past[-1]
    end = old.terms[-1].start_offset + data.draw(st.integers(1, 2_000))
    bounds = sorted({0, end, *range(FILE, end, FILE)})
    archived = manifest(old, *pairwise(bounds))
    confirmed = now.terms[-1].start_offset + 2_000
    found = continuation(archived, now, 0, confirmed, FILE)
    if isinstance(found, Behind):
        assert confirmed < archived.end
        return
    if isinstance(found, Foreign):
        assert old.cut_against(now) == 0
        return
    assert found.offset <= min(archived.end, old.cut_against(now))
    if found.base is not None:
        assert found.base.end == found.offset
        assert found.base.history.cut_against(now) >= found.base.end
