"""The archiver's decisions, one situation at a time; histories of them are in tests/sim."""

from dataclasses import replace

import pytest

from fakes.driven_archiver import CONFIG, HISTORY, VIEW, Driven, kinds
from tandemlog_server.storage.archiving.actions import (
    Answer,
    Damaged,
    Delete,
    Differs,
    Failed,
    Gone,
    Look,
    NothingWhole,
    Publish,
    Upload,
    Wait,
)


def test_a_round_puts_bytes_then_tables_then_the_manifest() -> None:
    driven = Driven()
    assert kinds(driven.run()) == ["Look", "Upload", "TakeState", "Publish"]
    assert driven.newest.spans() == ((0, 300),)
    assert driven.newest.history == HISTORY
    assert driven.archiver.archived_end == 300
    assert driven.run() == []


def test_a_round_begins_after_the_interval_or_with_a_full_segment() -> None:
    driven = Driven()
    driven.run()
    driven.view = replace(VIEW, end=350)
    driven.now = 4.9
    waiting = driven.next()
    assert isinstance(waiting, Wait)
    assert waiting.until == 5.0
    driven.view = replace(VIEW, end=700)
    assert kinds(driven.run()) == ["Upload", "Publish"]
    driven.view = replace(VIEW, end=710)
    assert kinds(driven.run(hurry=True)) == ["Upload", "Publish"]


def test_a_segment_ends_with_its_term_its_file_and_its_size() -> None:
    driven = Driven(replace(VIEW, end=1_250))
    uploads = [each for each in driven.run() if isinstance(each, Upload)]
    assert [(each.start, each.limit, each.term_id) for each in uploads] == [
        (0, 400, 11),
        (400, 700, 11),
        (700, 1_000, 14),
        (1_000, 1_250, 14),
    ]


def test_where_a_file_begins_a_prologue_is_taken() -> None:
    driven = Driven(replace(VIEW, end=1_250))
    driven.run()
    assert driven.newest.prologue_at(1_000) is not None
    # it has no consumer offsets, which come with the tables at the end
    assert [(each.name.log_offset, each.has_prologue) for each in driven.newest.states] == [
        (1_000, True),
        (1_250, False),
    ]
    late = Driven(replace(VIEW, begin=2_000, end=2_100))
    late.run()
    assert late.newest.spans() == ((2_000, 2_100),)
    assert late.newest.prologue_at(2_000) is not None


def test_a_log_that_ends_where_a_file_does_has_its_tables_too() -> None:
    driven = Driven(replace(VIEW, end=1_000))
    driven.run()
    assert driven.newest.prologue_at(1_000) is not None
    at_the_end = driven.newest.state_at(1_000)
    assert at_the_end is not None
    assert (at_the_end.name.log_offset, at_the_end.has_prologue) == (1_000, False)


def test_small_segments_are_put_again_with_what_follows() -> None:
    driven = Driven(replace(VIEW, end=100))
    moved = 0
    for end in range(100, 401, 10):
        driven.view = replace(VIEW, end=end)
        moved += sum(
            each.limit - each.start for each in driven.run(hurry=True) if isinstance(each, Upload)
        )
    assert driven.newest.spans() == ((0, 400),)
    assert len(driven.newest.segments) <= 5
    assert moved <= 400 * 6
    # a segment that is full is not put again
    driven.view = replace(VIEW, end=500)
    assert [each for each in driven.run(hurry=True) if isinstance(each, Upload)] != []
    assert all(each.name.size <= 400 for each in driven.newest.segments)


def test_a_segment_whose_bytes_have_changed_in_the_log_is_not_put_again() -> None:
    driven = Driven(replace(VIEW, end=100))
    driven.run()
    driven.view = replace(VIEW, end=200)
    asked = driven.next(hurry=True)
    assert isinstance(asked, Upload)
    assert (asked.start, asked.limit) == (0, 200)
    assert [(each.start, each.end) for each in asked.again] == [(0, 100)]
    driven.answer(Differs())
    assert driven.next() == Upload(100, 200, 11)
    driven.run()
    driven.view = replace(VIEW, end=300)
    assert Upload(100, 300, 11, (driven.newest.segments[1].name,)) in driven.run(hurry=True)
    assert driven.newest.spans() == ((0, 300),)
    assert driven.archiver.fault == ""


def test_what_fails_is_tried_again_later_and_later() -> None:
    driven = Driven()
    driven.run()
    driven.view = replace(VIEW, end=400)
    driven.now = 10.0
    asked = driven.next()
    waits = []
    for _ in range(9):
        assert driven.next() == asked
        driven.answer(Failed("no answer from the store"))
        assert driven.archiver.fault == "no answer from the store"
        waiting = driven.next()
        assert isinstance(waiting, Wait)
        waits.append(waiting.until - driven.now)
        driven.now = waiting.until
        driven.archiver._looked_at = driven.now
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert kinds(driven.run()) == ["Upload", "Publish"]
    assert driven.archiver.fault == ""


def test_each_try_of_a_manifest_has_a_revision_of_its_own() -> None:
    driven = Driven()
    while not isinstance(first := driven.next(), Publish):
        driven.answer(driven.good(first))
    driven.answer(Failed("no answer"))
    driven.now += 1
    again = driven.next()
    assert isinstance(again, Publish)
    assert again.manifest.revision == first.manifest.revision + 1


def test_damage_is_waited_for() -> None:
    driven = Driven()
    driven.next()
    driven.answer(driven.good(Look()))
    assert isinstance(driven.next(), Upload)
    driven.answer(Damaged("record at 0: body_crc"))
    assert driven.archiver.fault == "record at 0: body_crc"
    driven.now = 61.0
    assert "Publish" in kinds(driven.run())
    assert driven.archiver.fault == ""


def test_a_record_larger_than_a_segment_has_one_of_its_own() -> None:
    driven = Driven(replace(VIEW, end=650))
    driven.next()
    driven.answer(driven.good(Look()))
    limits = []
    for _ in range(2):
        asked = driven.next()
        assert isinstance(asked, Upload)
        limits.append(asked.limit)
        driven.answer(NothingWhole())
    assert limits == [400, 650]
    assert "no record that begins at 0 ends before 650" in driven.archiver.fault


@pytest.mark.parametrize("answer", [Gone()])
def test_what_is_gone_is_looked_for_again(answer: Answer) -> None:
    driven = Driven()
    driven.next()
    driven.answer(driven.good(Look()))
    driven.next()
    driven.answer(answer)
    assert driven.next() == Look()


def test_what_was_replaced_is_deleted_an_hour_later() -> None:
    driven = Driven(replace(VIEW, end=10))
    driven.run()
    old = driven.newest
    driven.view = replace(VIEW, end=30)
    driven.run(hurry=True)
    assert driven.newest.segments[0].name.size == 30
    deleted: list[str] = []
    for minute in range(1, 125):
        driven.now = 60.0 * minute + 1
        deleted += [each.key for each in driven.run() if isinstance(each, Delete)]
        if minute < 60:
            assert deleted == []
    assert old.segments[0].name.log_key in deleted
    assert old.segments[0].name.index_key in deleted
    assert any(key.startswith("manifests/") for key in deleted)
    assert not {*driven.newest.keys()} & {*deleted}


def test_what_a_manifest_replaces_late_is_deleted_late() -> None:
    """The hour begins when the manifest without it is there, not when the larger object is: until
    then readers and other archivers begin with the one that names it."""
    driven = Driven(replace(VIEW, end=10))
    driven.run()
    old = driven.newest.segments[0].name
    driven.view, driven.now = replace(VIEW, end=30), 10.0
    upload = driven.next()
    assert isinstance(upload, Upload)
    driven.answer(driven.good(upload))
    for _ in range(50):  # the store takes no manifest for most of an hour
        while isinstance(action := driven.next(), Wait):
            driven.now = action.until
        driven.answer(Failed("slow") if isinstance(action, Publish) else driven.good(action))
    assert driven.now > 1_500.0
    driven.run()
    published = driven.now
    deleted: dict[str, float] = {}
    while driven.now < published + 4_000.0:
        driven.now += 60.0
        for each in driven.run():
            if isinstance(each, Delete):
                deleted[each.key] = driven.now
    assert deleted[old.log_key] >= published + CONFIG.grace_s
    assert deleted[old.index_key] >= published + CONFIG.grace_s


def test_a_manifest_stays_for_the_grace_time_after_the_next_one() -> None:
    """Who began with it finds it, and a prune what it names, however long the log was quiet."""
    driven = Driven()
    driven.run()
    first, _ = driven.manifests[0]
    for driven.now in (100.0, 2 * CONFIG.grace_s):
        driven.run()
    driven.view = replace(VIEW, end=350)
    driven.run(hurry=True)
    assert len(driven.manifests) == 2
    for after, expected in ((100.0, False), (CONFIG.grace_s + 200.0, True)):
        driven.now = 2 * CONFIG.grace_s + after
        deleted = [each.key for each in driven.run() if isinstance(each, Delete)]
        assert (first.key in deleted) is expected


def test_a_list_may_lag_and_an_archive_may_be_gone() -> None:
    driven = Driven()
    driven.run()
    published = list(driven.manifests)
    driven.manifests.clear()
    for look in range(1, 4):
        driven.now = 61.0 * look
        assert kinds(driven.run()) == ["Look"]
        assert driven.archiver.archived_end == published[0][1].end
    driven.now = 61.0 * 4
    assert kinds(driven.run()) == ["Look", "Upload", "TakeState", "Publish"]


def test_tables_that_change_are_archived_without_new_records() -> None:
    driven = Driven()
    driven.run()
    driven.view = replace(VIEW, tables=(2,))
    driven.now = 6.0
    assert kinds(driven.run()) == ["TakeState", "Publish"]
    assert len(driven.newest.states) == 2
