"""Consume queues against plain lists, across flushes, truncations and crashes."""

import errno
import random
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tandemlog.format.files.queue_unit import PRE_BLANK, UNIT_DTYPE, UNIT_SIZE
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import (
    DiskFullError,
    FlushFailedError,
    StoreBusyError,
    StoreError,
)
from tandemlog_server.storage.inspect.geometry import queue_directories
from tandemlog_server.storage.queues.consume_queue_store import ConsumeQueueStore
from tandemlog_server.storage.queues.queue_checkpoint import DAMAGED_END, QueueCheckpoint
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.queues.queue_table import QueueTable
from tandemlog_server.storage.recovery.queue_loading import LoadContext, QueueFindings, load_queues

ROOT = Path("/store/consumequeue")
UNITS_A_FILE = 5
SIZE = 100


class Store:
    """A store over a list of records (queue, queue offset); record n is at log offset 100·n."""

    def __init__(self, *, log_start: int = 0, units_a_file: int = UNITS_A_FILE) -> None:
        self.files = MemoryFiles()
        self.units_a_file = units_a_file
        self.records: list[tuple[int, int]] = []
        self.log_start = log_start
        self.open()

    def open(self) -> None:
        self.files.make_directory(ROOT)
        self.table = QueueTable()
        self.queues = ConsumeQueueStore(
            ROOT, self.files, self.table,
            file_size=self.units_a_file * UNIT_SIZE, open_files=3, memory_bytes=1,
        )  # fmt: skip
        for queue in range(4):
            self.table.register("T", queue)
        self.queues.next_offset = self.log_start

    @property
    def end(self) -> int:
        return self.log_start + SIZE * len(self.records)

    def load(self, checkpoint: QueueCheckpoint | None, *, clean: bool = False) -> QueueFindings:
        self.open()
        dispatched = self.log_start if checkpoint is None else checkpoint.log_offset
        context = LoadContext(
            self.log_start, self.end, min(dispatched, self.end), checkpoint, clean
        )
        return load_queues(self.queues, self.table, queue_directories(self.files, ROOT), context)

    def add(self, *queues: int) -> None:
        """Records of these queues, each with its next number."""
        for queue in queues:
            self.records.append((queue, sum(each == queue for each, _ in self.records)))

    def dispatch(self, first: int = 0, last: int | None = None) -> list[int]:
        rows = self.records[first:last]
        units = np.zeros(len(rows), dtype=UNIT_DTYPE)
        units["physical_offset"] = self.log_start + SIZE * (first + np.arange(len(rows)))
        units["size"] = SIZE
        dense = np.array([queue for queue, _ in rows], dtype=np.int64)
        offsets = np.array([offset for _, offset in rows], dtype=np.int64)
        end = self.log_start + SIZE * (first + len(rows))
        ends: list[int] = self.queues.append(dense, offsets, units, end).tolist()
        return ends

    def expected(self, queue: int) -> list[int]:
        return [
            self.log_start + SIZE * row
            for row, (each, _) in enumerate(self.records)
            if each == queue
        ]

    def held(self, queue: int) -> list[int]:
        count = self.queues.max_offset(queue)
        places: list[int] = self.queues.read(queue, 0, count)["physical_offset"].tolist()
        return places

    def content(self, queue: int) -> bytes:
        directory = ROOT / "T" / str(queue)
        return b"".join(
            bytes(self.files.content(directory / name)) for name in self.files.listdir(directory)
        )


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


def rebuild(store: Store) -> None:
    damaged = frozenset(store.queues.damaged)
    store.queues.rebuild_begin(damaged)
    rows = [(n, *each) for n, each in enumerate(store.records) if each[0] in damaged]
    units = np.zeros(len(rows), dtype=UNIT_DTYPE)
    units["physical_offset"] = [store.log_start + SIZE * n for n, _, _ in rows]
    units["size"] = SIZE
    dense = np.array([queue for _, queue, _ in rows], dtype=np.int64)
    offsets = np.array([offset for _, _, offset in rows], dtype=np.int64)
    store.queues.rebuild_append(damaged, dense, offsets, units)
    with pytest.raises(StoreBusyError):
        store.queues.max_offset(next(iter(damaged)))
    store.queues.rebuild_end(damaged)


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


def test_more_queues_than_rows_widen_the_tails(store: Store) -> None:
    many = [store.table.register("Many", number) for number in range(600)]
    store.add(*many[:200])
    store.dispatch()
    store.add(*many)
    store.dispatch(200)
    assert all(store.held(queue) == store.expected(queue) for queue in many)


def test_reads_beside_dispatch_and_truncation_see_whole_units() -> None:
    store = Store(units_a_file=40)
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        dice = random.Random(1)
        while not ended.is_set():
            queue = dice.randrange(4)
            first = max(store.queues.max_offset(queue) - dice.randrange(40), 0)
            found = store.queues.read(queue, first, 50)
            expected = 1000 * (first + np.arange(len(found))) + queue
            if found["physical_offset"].tolist() != expected.tolist():
                wrong.append((queue, first, found))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()
    dice = random.Random(2)
    for round_number in range(150):
        queue, count = dice.randrange(4), dice.randrange(1, 30)
        offsets = int(store.queues.ends()[queue]) + np.arange(count)
        units = np.zeros(count, dtype=UNIT_DTYPE)
        units["physical_offset"] = 1000 * offsets + queue
        units["size"] = 1
        store.queues.append(np.full(count, queue), offsets, units, 0)
        if round_number % 10 == 9:
            store.queues.truncate(1000 * (int(store.queues.ends().min()) // 2))
            store.queues.flush()
    ended.set()
    for each in readers:
        each.join()
    assert not wrong


class QueuesAgainstLists(RuleBasedStateMachine):
    """Whatever happens, every queue holds what the records say, on disk after a crash too."""

    @initialize()
    def begin(self) -> None:
        # three spills of a row to a file: a crash may keep a later one and lose an earlier
        self.store = Store(units_a_file=40)
        self.checkpoint = QueueCheckpoint(0)
        self.dispatched = 0

    @rule(queues=st.lists(st.integers(0, 3), max_size=25))
    def append(self, queues: list[int]) -> None:
        self.store.add(*queues)

    @rule(queue=st.integers(0, 3), count=st.integers(0, 60))
    def append_run(self, queue: int, count: int) -> None:
        self.store.add(*[queue] * count)

    @rule(count=st.integers(1, 50), back=st.integers(0, 8))
    def dispatch(self, count: int, back: int) -> None:
        first = max(self.dispatched - back, 0)
        last = min(first + back + count, len(self.store.records))
        if last > first:
            self.store.dispatch(first, last)
            self.dispatched = max(last, self.dispatched)

    @rule()
    def flush(self) -> None:
        self.checkpoint = self.store.queues.flush()
        assert self.checkpoint.log_offset == SIZE * self.dispatched
        for queue in range(4):
            content = np.frombuffer(self.store.content(queue), dtype=UNIT_DTYPE)
            expected = self.expected(queue)
            assert content["physical_offset"][: len(expected)].tolist() == expected
            assert not any(content[len(expected) :].tobytes())

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        keep = round(share * len(self.store.records))
        del self.store.records[keep:]
        self.store.queues.truncate(self.store.end)
        self.dispatched = min(self.dispatched, keep)
        self.flush()

    @rule(seed=st.integers(0, 999), survive=st.booleans())
    def lose_power(self, seed: int, survive: bool) -> None:
        self.store.files.crash(random.Random(seed) if survive else None)
        self.reopen(clean=False)

    @rule()
    def kill(self) -> None:
        self.store.files.kill()
        self.reopen(clean=False)

    @rule()
    def close(self) -> None:
        self.flush()
        self.store.queues.close()
        self.reopen(clean=True)

    @rule(share=st.floats(0, 1))
    def lose_power_and_the_log_beyond(self, share: float) -> None:
        self.store.files.crash()
        del self.store.records[round(share * len(self.store.records)) :]
        self.reopen(clean=False)

    def reopen(self, *, clean: bool) -> None:
        findings = self.store.load(self.checkpoint, clean=clean)
        assert not findings.damaged
        self.dispatched = self.store.queues.next_offset // SIZE
        self.flush()

    def expected(self, queue: int) -> list[int]:
        rows = enumerate(self.store.records[: self.dispatched])
        return [SIZE * row for row, (each, _) in rows if each == queue]

    @invariant()
    def queues_hold_what_was_dispatched(self) -> None:
        if not hasattr(self, "store"):
            return
        store = self.store
        assert not store.queues.damaged
        for queue in range(4):
            expected = self.expected(queue)
            assert store.held(queue) == expected
            middle = len(expected) // 2
            found = store.queues.read(queue, middle, 7)["physical_offset"].tolist()
            assert found == expected[middle : middle + 7]


TestQueuesAgainstLists = QueuesAgainstLists.TestCase
TestQueuesAgainstLists.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
