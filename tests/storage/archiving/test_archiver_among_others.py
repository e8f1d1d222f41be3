"""The archiver among other nodes that archive, with a log that was cut, and one that has gaps."""

from dataclasses import replace

import pytest

from fakes.driven_archiver import HISTORY, VIEW, Driven, kinds, segment
from tandemlog.format.files.log_history import LogHistory, LogTerm
from tandemlog_server.storage.archiving.actions import (
    Look,
    Prove,
    Proved,
    Upload,
    Uploaded,
    Wait,
)


def test_another_archivers_manifest_is_continued() -> None:
    one = Driven()
    one.run()
    two = Driven(replace(VIEW, end=500))
    two.manifests = one.manifests
    done = two.run()
    assert kinds(done) == ["Look", "Prove", "Upload", "TakeState", "Publish"]
    assert two.newest.spans() == ((0, 500),)
    # and the first one sees it at its next look
    one.view, one.now = replace(VIEW, end=600), 61.0
    assert kinds(one.run()) == ["Look", "Prove", "Upload", "TakeState", "Publish"]
    assert one.newest.spans() == ((0, 600),)


def test_an_archive_of_other_bytes_is_left_alone() -> None:
    driven = Driven()
    driven.run()
    other = Driven(replace(VIEW, end=500))
    other.manifests = driven.manifests
    other.next()
    other.answer(other.good(Look()))
    assert isinstance(other.next(), Prove)
    other.answer(Proved(False))
    assert "are not those of this log" in other.archiver.fault
    assert isinstance(other.next(), Wait)


def test_the_end_of_another_logs_archive_is_not_that_of_this_one() -> None:
    """Retention goes by it: what is not archived would be deleted."""
    driven = Driven(replace(VIEW, end=600))
    driven.run()
    for history in (LogHistory(8, (LogTerm(2, 0, 22),)), LogHistory(8, (LogTerm(9, 0, 99),))):
        other = Driven(replace(VIEW, history=history, end=400))
        other.manifests = driven.manifests
        assert kinds(other.run()) == ["Look"]
        assert "of another log" in other.archiver.fault
        assert other.archiver.archived_end == 0
    unproved = Driven(VIEW)
    unproved.manifests = driven.manifests
    unproved.view = replace(VIEW, end=700)
    assert isinstance(unproved.next(), Look)
    unproved.answer(unproved.good(Look()))
    assert isinstance(unproved.next(), Prove)
    unproved.answer(Proved(False))
    assert unproved.archiver.archived_end == 0


def test_a_cut_is_noticed_before_the_manifest() -> None:
    driven = Driven(replace(VIEW, end=900))
    driven.run()
    driven.view = replace(VIEW, end=950)
    driven.now = 10.0
    assert isinstance(driven.next(), Upload)
    driven.answer(Uploaded(segment(900, 950, 14)))
    now = LogHistory(7, (*HISTORY.terms, LogTerm(6, 800, 16)))
    driven.view = replace(VIEW, history=now, end=920)
    assert kinds(driven.run())[0] == "Look"
    assert driven.newest.spans() == ((0, 920),)
    assert driven.newest.history == now
    cut = next(each for each in driven.newest.segments if each.end == 800)
    assert not cut.is_whole or cut.name.end == 800


def test_retention_that_was_quicker_leaves_a_gap() -> None:
    driven = Driven()
    driven.run()
    driven.view = replace(VIEW, begin=2_000, end=2_100)
    driven.now = 10.0
    driven.run()
    assert driven.newest.spans() == ((0, 300),)  # another node may have it
    for minute in range(1, 5):
        driven.now = minute * 60.0
        driven.run()
    assert driven.newest.spans() == ((0, 300), (2_000, 2_100))
    assert driven.archiver.gap == (300, 2_000)
    assert driven.newest.prologue_at(2_000) is not None


def test_each_gap_is_waited_for() -> None:
    driven = Driven()
    driven.run()
    for begin, first_minute in ((2_000, 0), (4_000, 1_000)):
        spans = driven.newest.spans()
        driven.view = replace(VIEW, begin=begin, end=begin + 100)
        for minute in range(5):
            driven.now = 10.0 + (first_minute + minute) * 60.0
            driven.run()
            assert minute > 2 or driven.newest.spans() == spans, f"{begin} at minute {minute}"
    assert driven.newest.spans() == ((0, 300), (2_000, 2_100), (4_000, 4_100))


def test_a_gap_may_be_older_than_all_terms_that_are_left() -> None:
    driven = Driven()
    driven.run()
    left = LogHistory(7, (LogTerm(6, 1_800, 16),))
    driven.view = replace(VIEW, history=left, begin=2_000, end=2_100)
    for minute in range(5):
        driven.now = 10.0 + minute * 60.0
        driven.run()
    assert driven.newest.spans() == ((0, 300), (2_000, 2_100))
    assert driven.newest.history.terms == (*HISTORY.terms, *left.terms)


def test_a_node_that_is_not_chosen_waits_until_the_archive_stands_still() -> None:
    driven = Driven(replace(VIEW, is_chosen=False))
    assert kinds(driven.run()) == ["Look"]
    assert not driven.archiver.is_working
    driven.now = 59.0
    assert driven.run() == []
    driven.now = 61.0
    assert kinds(driven.run())[-1] == "Publish"
    # the one that is chosen publishes: this one leaves it to it
    other = Driven(replace(VIEW, end=400))
    other.manifests = driven.manifests
    other.run()
    driven.now, driven.view = 130.0, replace(VIEW, end=450, is_chosen=False)
    assert kinds(driven.run()) == ["Look"]
    assert driven.archiver.waits_for == "another node archives"


def test_a_node_that_is_chosen_begins_at_once() -> None:
    driven = Driven(replace(VIEW, is_chosen=False))
    driven.run()
    driven.view, driven.now = VIEW, 1.0
    assert kinds(driven.run()) == ["Look", "Upload", "TakeState", "Publish"]


def test_a_node_that_is_chosen_no_more_stops() -> None:
    driven = Driven()
    driven.run()
    driven.view = replace(VIEW, end=350, is_chosen=False)
    driven.now = 10.0
    assert driven.run() == []
    assert not driven.archiver.is_working


def test_what_was_archived_of_another_branch_is_not_held_for_archived() -> None:
    """Retention keeps the log from there on."""
    driven = Driven(replace(VIEW, end=900))
    driven.run()
    other = Driven(replace(VIEW, end=900, is_chosen=False))
    other.manifests = driven.manifests
    other.run()
    assert other.archiver.archived_end == 900
    cut = LogHistory(7, (*HISTORY.terms, LogTerm(6, 800, 16)))
    other.view, other.now = replace(other.view, history=cut, end=950), 1.0
    other.run()
    assert other.archiver.archived_end == 800


@pytest.mark.parametrize("is_new", [True, False])
def test_a_gap_is_left_to_the_nodes_that_have_the_log(is_new: bool) -> None:
    """The one that is chosen has deleted more than another one, as after an object store that was
    not there for long: that one takes over."""
    driven = Driven()
    driven.run()
    chosen = Driven(replace(VIEW, begin=2_000, end=2_100)) if is_new else driven
    chosen.manifests = driven.manifests
    other = Driven(replace(VIEW, is_chosen=False))
    other.manifests = driven.manifests
    other.run()
    chosen.now = other.now = 10_000.0
    chosen.view = replace(VIEW, begin=2_000, end=2_100)
    other.view = replace(VIEW, end=2_100, is_chosen=False)
    assert kinds(chosen.run()) == ["Look"]
    assert "300 to 2000" in chosen.archiver.waits_for
    for second in range(10_000, 10_600, 10):
        chosen.now = other.now = float(second)
        chosen.run()
        other.run()
    assert other.newest.spans() == ((0, 2_100),)
    assert chosen.archiver.is_working


def test_an_archive_that_another_cluster_has_taken_over_is_a_fault() -> None:
    """A copy of the cluster that was restored from the archive writes into it, in a newer epoch."""
    driven = Driven()
    driven.run()
    clone = Driven(replace(VIEW, history=LogHistory(7, (HISTORY.terms[0], LogTerm(9, 300, 99)))))
    clone.manifests = driven.manifests
    clone.view, clone.now = replace(clone.view, end=350), 1.0
    clone.run()
    assert clone.newest.epoch == 9
    driven.view = replace(VIEW, end=400)
    for minute in range(1, 6):
        driven.now = 60.0 * minute
        driven.run()
        if minute == 2:  # a slave after a failover is behind for a moment
            assert driven.archiver.fault == ""
    assert "another cluster" in driven.archiver.fault
    assert "epoch 9" in driven.archiver.fault
    assert driven.archiver.archived_end == 300
    driven.view = replace(
        driven.view, history=LogHistory(7, (HISTORY.terms[0], LogTerm(10, 350, 5)))
    )
    driven.now = 400.0
    driven.run()
    assert (driven.archiver.fault, driven.newest.epoch) == ("", 10)
    # the next failover is another one: it begins with a moment behind again
    clone.view = replace(clone.view, history=driven.view.history, end=500)
    clone.now = 500.0
    clone.run()
    driven.now = 550.0
    driven.run()
    assert driven.archiver.waits_for
    assert driven.archiver.fault == ""
