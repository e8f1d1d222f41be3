"""Queues that lose units: by a truncation, by retention, with their topic, with the log."""

import numpy as np
import pytest

from fakes.queue_stores import ROOT, SIZE, UNITS_A_FILE, Store, rebuild
from tandemlog.format.files.queue_unit import UNIT_DTYPE, UNIT_SIZE


@pytest.fixture
def store() -> Store:
    return Store()


def test_truncation_cuts_units_in_memory_and_on_disk(store: Store) -> None:
    store.add(*[0, 0, 1] * 8)
    store.dispatch()
    store.queues.flush()
    store.add(*[0, 1])
    store.dispatch(24)
    for keep in (25, 24, 13, 4, 0):
        del store.records[keep:]
        store.queues.truncate(store.end)
        assert store.queues.next_offset == store.end
        assert [store.held(queue) for queue in (0, 1)] == [store.expected(q) for q in (0, 1)]
    store.queues.flush()
    assert not any(store.content(0))


def test_dispatch_goes_on_after_a_truncation(store: Store) -> None:
    store.add(*[0] * 12)
    store.dispatch()
    store.queues.flush()
    del store.records[6:]
    store.queues.truncate(store.end)
    store.add(1, 0, 0)
    store.dispatch(6)
    store.queues.flush()
    units = np.frombuffer(store.content(0), dtype=UNIT_DTYPE)
    assert units["physical_offset"][:8].tolist() == store.expected(0)
    assert not units["size"][8:].any()


def test_old_files_go_with_the_log_and_the_minimum_moves(store: Store) -> None:
    store.add(*[0] * 12, 1)
    store.dispatch()
    store.queues.flush()
    assert store.queues.min_offset(0) == 0
    assert store.queues.set_log_minimum(650) == 1
    assert store.files.listdir(ROOT / "T" / "0")[0] == f"{UNITS_A_FILE * UNIT_SIZE:020d}"
    assert store.queues.min_offset(0) == 7
    assert len(store.queues.read(0, 2, 1)) == 0
    assert store.queues.set_log_minimum(10_000) == 1
    assert store.queues.min_offset(0) == 12  # empty, but it goes on counting
    assert store.queues.min_offset(1) == 1


def test_a_file_that_cannot_be_deleted_leaves_no_gap_and_keeps_no_other(store: Store) -> None:
    store.add(*[0] * 17, *[1] * 17)
    store.dispatch()
    checkpoint = store.queues.flush()
    store.log_start = 10 * SIZE
    store.files.fail("unlink", name="T/0", times=1)
    with pytest.raises(OSError, match="T/0"):
        store.queues.set_log_minimum(3000)
    assert len(store.files.listdir(ROOT / "T" / "0")) == 4
    assert len(store.files.listdir(ROOT / "T" / "1")) == 2
    assert store.queues.set_log_minimum(3000) == 3
    store.log_start = 3000
    findings = store.load(checkpoint)
    assert findings.damaged == {}


def test_a_file_that_is_missing_keeps_no_other(store: Store) -> None:
    store.add(*[0] * 17, *[1] * 17)
    store.dispatch()
    store.queues.flush()
    store.queues.close()
    store.files.unlink(ROOT / "T" / "0" / f"{0:020d}")
    assert store.queues.set_log_minimum(3000) == 2
    assert "missing" in store.queues.damaged[0]
    assert len(store.files.listdir(ROOT / "T" / "1")) == 2


@pytest.mark.parametrize("base", [0, 1, 2, 3])
def test_a_file_that_is_missing_keeps_no_truncation(store: Store, base: int) -> None:
    store.add(*[0, 1] * 17)
    store.dispatch()
    store.queues.flush()
    store.queues.close()
    store.files.unlink(ROOT / "T" / "0" / f"{base * UNITS_A_FILE * UNIT_SIZE:020d}")
    del store.records[14:]
    store.queues.truncate(store.end)
    assert store.held(1) == store.expected(1)
    assert set(store.queues.damaged) == {0}


def test_deleted_queues_leave_no_files(store: Store) -> None:
    store.add(*[0, 1] * 6)
    store.dispatch()
    store.queues.flush()
    store.queues.delete([0])
    assert store.files.listdir(ROOT / "T" / "0") == []
    assert store.queues.max_offset(0) == 0
    assert store.queues.flush().ends == {"T": {1: 6}}


def test_reset_begins_anew(store: Store) -> None:
    store.add(*[0] * 6)
    store.dispatch()
    store.queues.flush()
    store.files.rename(ROOT, ROOT.parent / "aside")
    store.queues.reset(5000)
    assert store.queues.max_offset(0) == 0
    store.log_start, store.records = 5000, [(0, 3)]
    store.dispatch()
    assert (store.queues.min_offset(0), store.queues.max_offset(0)) == (3, 4)
    assert store.queues.flush().log_offset == 5100


def test_a_second_cut_below_many_missing_numbers_cuts_too(store: Store) -> None:
    store.add(*[0] * 5)
    store.dispatch()
    store.queues.mark_damaged(0, "for a test", 305)
    rebuild(store)
    store.records.append((0, 305))
    store.dispatch(5)
    assert store.queues.max_offset(0) == 306
    store.queues.truncate(5 * SIZE)
    assert store.queues.max_offset(0) == 305
    store.queues.truncate(2 * SIZE)
    assert store.queues.max_offset(0) == 2
    assert store.held(0) == [0, SIZE]
