"""Queues that do not agree with the log: damaged alone, and rebuilt from it."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from fakes.queue_stores import ROOT, SIZE, UNITS_A_FILE, Store, rebuild
from tandemlog.format.files.queue_unit import PRE_BLANK, UNIT_SIZE
from tandemlog_server.storage.errors import (
    StoreBusyError,
    StoreError,
)
from tandemlog_server.storage.queues.queue_checkpoint import DAMAGED_END, QueueCheckpoint


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_gap_damages_its_queue_alone(store: Store) -> None:
    store.records = [(0, 0), (1, 0), (0, 2), (1, 1), (0, 3)]
    assert store.dispatch() == [1]
    assert list(store.queues.damaged) == [0]
    with pytest.raises(StoreBusyError, match="T/0"):
        store.queues.read(0, 0, 1)
    with pytest.raises(StoreBusyError):
        store.queues.max_offset(0)
    assert store.queues.ends_of([0, -1]) == [DAMAGED_END, 0]
    assert store.held(1) == store.expected(1)
    assert store.queues.flush().ends == {"T": {0: DAMAGED_END, 1: 2}}


def test_other_units_than_the_log_has_damage_the_queue(store: Store) -> None:
    store.add(0, 0, 0)
    store.dispatch()
    store.records = [(1, 0), (1, 1), (0, 1), (0, 2)]  # number 1 is elsewhere now
    store.dispatch(2)
    assert list(store.queues.damaged) == [0]


def test_a_damaged_queue_is_made_again(store: Store) -> None:
    store.add(*[0, 1] * 8)
    store.dispatch()
    store.queues.mark_damaged(0, "for a test")
    rebuild(store)
    assert store.held(0) == store.expected(0)
    store.add(0)
    store.dispatch(16)
    assert store.held(0) == store.expected(0)


def test_files_that_cannot_be_deleted_keep_no_other_and_are_told_of(store: Store) -> None:
    store.add(*[0, 1] * 17)
    store.dispatch()
    store.queues.flush()
    for queue in (0, 1):
        store.queues.mark_damaged(queue, "for a test")
    stays = f"{UNITS_A_FILE * UNIT_SIZE:020d}"
    store.files.fail("unlink", name=f"T/0/{stays}")
    with pytest.raises(StoreError, match=f"consume queue T/0.*T/0/{stays}"):
        rebuild(store)
    assert store.files.listdir(ROOT / "T" / "0") == [stays]
    assert store.files.listdir(ROOT / "T" / "1") == []
    assert set(store.queues.damaged) == {0, 1}
    store.files.heal()
    rebuild(store)
    assert [store.held(queue) for queue in (0, 1)] == [store.expected(q) for q in (0, 1)]


def test_a_queue_with_a_gap_leaves_no_file_behind_that_a_shorter_one_ends_before(
    store: Store,
) -> None:
    """It would be the far side of a gap at every open."""
    store.add(*[0] * 17)
    store.dispatch()
    checkpoint = store.queues.flush()
    store.files.unlink(ROOT / "T" / "0" / f"{UNITS_A_FILE * UNIT_SIZE:020d}")
    del store.records[2:]
    findings = store.load(replace(checkpoint, log_offset=store.end))
    assert "missing" in findings.damaged["T/0"]
    rebuild(store)
    checkpoint = store.queues.flush()
    # numbers that were given once are kept, and stand for nothing
    assert checkpoint.ends == {"T": {0: 17}}
    assert store.content(0)[2 * UNIT_SIZE : 17 * UNIT_SIZE] == PRE_BLANK * 15
    findings = store.load(checkpoint)
    assert findings.damaged == {}
    assert store.held(0)[:2] == store.expected(0)


def test_what_the_log_itself_misses_becomes_pre_blank(store: Store) -> None:
    # in between there is room for as many records as are missing
    others = [(1, number) for number in range(30)]
    store.records = [(0, 0), (0, 1), (0, 1), *others, (0, 4)]
    store.dispatch()
    rebuild(store)
    store.queues.flush()
    units = store.queues.read(0, 0, 9)
    assert units["physical_offset"].tolist() == [0, SIZE, 0, 0, 33 * SIZE]
    assert units[2:4].tobytes() == PRE_BLANK * 2
    assert store.queues.min_offset(0) == 0


def test_a_queue_may_begin_later_where_the_log_does() -> None:
    store = Store(log_start=1000)
    store.records = [(0, 7), (0, 8)]
    store.dispatch()
    assert not store.queues.damaged
    assert store.queues.min_offset(0) == 7
    assert store.queues.max_offset(0) == 9
    checkpoint = store.queues.flush()
    assert store.content(0)[: 2 * UNIT_SIZE] == PRE_BLANK * 2
    store.load(checkpoint, clean=True)
    assert (store.queues.min_offset(0), store.queues.max_offset(0)) == (7, 9)


def test_a_queue_that_begins_later_in_the_middle_of_the_log_is_damaged(store: Store) -> None:
    store.add(0)
    store.dispatch()
    store.load(store.queues.flush(), clean=True)
    store.records += [(1, 3)]
    store.dispatch(1)
    assert list(store.queues.damaged) == [1]


def test_a_flush_beside_the_end_of_a_rebuild_keeps_the_floor_of_the_queue(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(1, 1, 1)
    store.dispatch()
    store.queues.mark_damaged(1, "test", 5)
    end, sync = store.queues.rebuild_end, store.queues._disk.sync
    checkpoints: list[QueueCheckpoint] = []

    def beside_flush(queues: Iterable[int]) -> None:
        checkpoints.append(store.queues.flush())

    def beside_dispatch() -> None:
        end([1])
        sync()

    monkeypatch.setattr(store.queues, "rebuild_end", beside_flush)
    monkeypatch.setattr(store.queues._disk, "sync", beside_dispatch)
    rebuild(store)
    assert store.queues.max_offset(1) == 5
    store.files.crash()
    assert store.load(checkpoints[0]).damaged
    assert store.queues.next_offsets()[1] == 5
