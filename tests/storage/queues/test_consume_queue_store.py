"""Consume queues against plain lists: batches, flushes, power failures, searches, full disks."""

import errno
import random

import numpy as np
import pytest

from fakes.queue_stores import ROOT, SIZE, UNITS_A_FILE, Store
from tandemlog.format.files.queue_unit import UNIT_DTYPE, UNIT_SIZE
from tandemlog_server.storage.errors import (
    DiskFullError,
    FlushFailedError,
)
from tandemlog_server.storage.queues.queue_checkpoint import QueueCheckpoint
from tandemlog_server.storage.queues.queue_search import Boundary


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_batch_of_many_queues_costs_no_system_call(store: Store) -> None:
    before = sum(store.files.calls.values())
    store.add(*[0, 1, 2, 3] * 4)
    assert store.dispatch() == [0, 1, 2, 3]
    assert sum(store.files.calls.values()) == before
    assert [store.held(queue) for queue in range(4)] == [store.expected(q) for q in range(4)]
    assert store.queues.next_offset == store.end


def test_a_full_row_goes_to_its_file(store: Store) -> None:
    store.add(*[1] * 15, 0)
    store.dispatch()
    store.add(1, 1, 0)
    store.dispatch(16)
    assert store.files.listdir(ROOT / "T") == ["1"]
    assert store.held(1) == store.expected(1)
    assert store.queues.read(1, 10, 5)["physical_offset"].tolist() == store.expected(1)[10:15]
    assert store.queues.read(1, 12, 99)["physical_offset"].tolist() == store.expected(1)[12:]
    assert len(store.queues.read(1, 17, 5)) == 0


def test_a_run_longer_than_a_row_goes_to_its_file_at_once(store: Store) -> None:
    store.add(2, *[1] * 40, 2)
    assert store.dispatch() == [1, 2]
    assert store.held(1) == store.expected(1)
    assert store.held(2) == store.expected(2)


def test_a_flush_that_finds_nothing_new_names_no_queue_again(store: Store) -> None:
    store.add(0, 1, 1, 3)
    store.dispatch()
    checkpoint = store.queues.flush()
    assert store.queues.flush().ends is checkpoint.ends
    store.queues.mark_damaged(1, "test")
    assert store.queues.flush().ends == {"T": {0: 1, 1: -1, 3: 1}}
    assert checkpoint.ends == {"T": {0: 1, 1: 2, 3: 1}}
    store.add(2)
    store.dispatch(4)
    assert store.queues.flush().ends == {"T": {0: 1, 1: -1, 2: 1, 3: 1}}


def test_flush_answers_what_a_power_failure_leaves(store: Store) -> None:
    store.add(0, 1, 1, 3)
    store.dispatch()
    checkpoint = store.queues.flush()
    assert checkpoint == QueueCheckpoint(4 * SIZE, {"T": {0: 1, 1: 2, 3: 1}})
    store.add(0, 0, 2)
    store.dispatch(4)
    store.files.crash()
    findings = store.load(checkpoint)
    assert not findings.damaged
    assert store.queues.next_offset == 4 * SIZE
    assert [store.queues.max_offset(queue) for queue in range(4)] == [1, 2, 0, 1]
    assert store.queues.ends_of([3, 1, -1, 1]) == [1, 2, 0, 2]
    store.dispatch(4)
    assert [store.held(queue) for queue in range(4)] == [store.expected(q) for q in range(4)]


class OneWriteLost(random.Random):
    """The first write since the last fsync is lost, the later ones are kept."""

    def __init__(self) -> None:
        self.answers = [0.9]
        super().__init__()

    def random(self) -> float:
        return self.answers.pop() if self.answers else 0.1


def test_what_a_power_failure_leaves_behind_a_hole_is_cut() -> None:
    store = Store(units_a_file=100)
    store.add(*[0] * 16)
    store.dispatch()
    checkpoint = store.queues.flush()
    for first in range(16, 80, 16):
        store.add(*[0] * 16)
        store.dispatch(first)
    store.files.crash(OneWriteLost())
    written = np.frombuffer(store.content(0), dtype=UNIT_DTYPE)["size"]
    assert not written[16]
    assert written[32]
    store.load(checkpoint)
    assert store.queues.max_offset(0) == 16
    assert not any(store.content(0)[16 * UNIT_SIZE :])


def test_files_are_what_rocketmq_writes(store: Store) -> None:
    store.add(*[0] * 7)
    store.dispatch()
    store.queues.flush()
    content = store.content(0)
    units = np.frombuffer(content, dtype=UNIT_DTYPE)
    assert units["physical_offset"][:7].tolist() == store.expected(0)
    assert len(content) == 2 * UNITS_A_FILE * UNIT_SIZE
    assert not any(content[7 * UNIT_SIZE :])


def test_units_that_are_there_are_passed_over(store: Store) -> None:
    store.add(*[0, 1] * 6)
    store.dispatch()
    assert store.dispatch(4) == []
    store.add(0, 1)
    assert store.dispatch(9) == [0, 1]
    assert [store.held(queue) for queue in range(2)] == [store.expected(q) for q in range(2)]
    assert not store.queues.damaged


def test_search_by_time(store: Store) -> None:
    store.add(*[0, 1] * 10)
    store.dispatch()

    def time_of(physical_offset: int, size: int) -> int:
        return physical_offset // (4 * SIZE)

    assert store.queues.search(0, 2, Boundary.LOWER, time_of) == 4
    assert store.queues.search(0, 2, Boundary.UPPER, time_of) == 5
    assert store.queues.search(2, 2, Boundary.LOWER, time_of) == 0


def test_a_full_disk_is_an_error_and_the_batch_can_come_again(store: Store) -> None:
    store.add(*[0] * 40, *[1] * 5)
    store.files.fail("pwrite", errno.ENOSPC, times=1, took=30)
    with pytest.raises(DiskFullError, match="no space"):
        store.dispatch()
    assert store.queues.next_offset == 0
    store.dispatch()
    assert not store.queues.damaged
    assert [store.held(queue) for queue in (0, 1)] == [store.expected(q) for q in (0, 1)]
    store.files.fail("pwrite", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError):
        store.queues.flush()
    assert store.queues.flush().log_offset == store.end


def test_a_failed_fsync_is_fatal(store: Store) -> None:
    store.add(0)
    store.dispatch()
    store.files.fail("fdatasync")
    with pytest.raises(FlushFailedError, match="consumequeue"):
        store.queues.flush()


def test_more_queues_than_rows_widen_the_tails(store: Store) -> None:
    many = [store.table.register("Many", number) for number in range(600)]
    store.add(*many[:200])
    store.dispatch()
    store.add(*many)
    store.dispatch(200)
    assert all(store.held(queue) == store.expected(queue) for queue in many)
