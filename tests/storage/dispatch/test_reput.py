"""Dispatch to queues, index and producers, over a log in memory."""

import errno
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from fakes.derived import Derived
from fakes.memory_log import MemoryLog
from tandemlog.format.files.index_layout import key_hash
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.dispatch import reput
from tandemlog_server.storage.dispatch.reput import FEW_BYTES, GATHER_S, MANY_BYTES, gathering_s
from tandemlog_server.storage.errors import (
    CorruptStoreError,
    DiskFullError,
    StoreBusyError,
    StoreError,
)
from tandemlog_server.storage.producers.producer_requests import Duplicate, Resume

ROOT = Path("/store")


class World:
    """A log, a disk, and what is derived from it."""

    def __init__(self, *, start: int = 0, batch_bytes: int = 600) -> None:
        self.log = MemoryLog(4096, start)
        self.files = MemoryFiles()
        self.batch_bytes = batch_bytes
        self.derived = self.made()

    def made(self) -> Derived:
        return Derived.over(self.log, self.files, ROOT, batch_bytes=self.batch_bytes)

    def put(self, records: int, topics: int = 2, queues: int = 2) -> None:
        for _ in range(records):
            number = len(self.log.times)
            names = {"UNIQ_KEY": f"u{number}", "TAGS": f"t{number % 3}"}
            topic = f"T{number % topics}"
            self.log.put(topic, number // topics % queues, properties=names, later_ms=1)

    def check(self, derived: Derived | None = None) -> None:
        """Everything is as if the log had been dispatched by itself, once, to a fresh disk."""
        found = derived if derived is not None else self.derived
        fresh = Derived.over(self.log, MemoryFiles(), ROOT).dispatch()
        assert sorted(found.table.names()) == sorted(fresh.table.names())
        for topic, queue_id in fresh.table.names():
            assert found.units(topic, queue_id) == fresh.units(topic, queue_id)
        assert [each[1:] for each in found.entries()] == [each[1:] for each in fresh.entries()]
        assert found.reput.reputed.value == self.log.end


@pytest.fixture
def world() -> World:
    return World()


def test_the_log_reaches_queues_index_and_producers(world: World) -> None:
    world.put(30)
    mark = ProducerMark("p", 0, 0, 0, 2)
    offset = world.log.put("T0", 0, properties={"__TL_SEQ": mark.encode(), "KEYS": "order"})
    world.log.put("T0", 1)
    derived = world.derived.dispatch()
    world.check()
    assert list(derived.index.query("T0", "order")) == [offset]
    found = derived.producers.check(mark, 2)
    assert isinstance(found, Duplicate)
    assert found.extents[0].physical_offset == offset
    assert derived.reput.messages == 32
    assert derived.reput.bytes == world.log.end
    assert derived.reput.store_timestamp == world.log.store_timestamp


def test_nothing_beyond_what_is_confirmed_is_dispatched(world: World) -> None:
    world.put(10)
    seventh = sorted(world.log.times)[7]
    world.derived.confirmed.retreat(seventh + 5)
    assert world.derived.reput.run_to() == seventh
    assert world.derived.reput.run_once() == 0
    world.derived.confirmed.advance(world.log.end)
    world.derived.reput.run_to()
    world.check()


def test_a_limit_of_the_caller(world: World) -> None:
    world.put(10)
    third = sorted(world.log.times)[3]
    steps: list[int] = []
    assert world.derived.reput.run_to(third, steps.append) == third
    assert sum(steps) == third


def test_listeners_hear_which_queues_grew(world: World) -> None:
    heard: list[list[int]] = []
    stop = world.derived.reput.listen(lambda dense: heard.append(dense.tolist()))
    world.put(2)
    world.derived.dispatch()
    names = [world.derived.table.name(dense) for dense in heard[0]]
    assert names == [("T0", 0), ("T1", 0)]
    stop()
    world.put(2)
    world.derived.dispatch()
    assert len(heard) == 1


@pytest.mark.parametrize(
    ("sys_flag", "units", "keys"), [(0, 1, 1), (4, 0, 1), (8, 1, 1), (12, 0, 0)]
)
def test_transactions_are_dispatched_as_rocketmq_does(
    world: World, sys_flag: int, units: int, keys: int
) -> None:
    world.log.put("T", sys_flag=sys_flag, properties={"KEYS": "k"})
    derived = world.derived.dispatch()
    dense = derived.table.get("T", 0)
    assert (0 if dense < 0 else derived.queues.max_offset(dense)) == units
    assert len(list(derived.index.query("T", "k"))) == keys


@pytest.mark.parametrize("position", [0, 1, 12, 29])
def test_corrupt_bytes_stop_dispatch_before_them(world: World, position: int) -> None:
    world.put(30)
    bad = sorted(world.log.times)[position]
    world.log.data[bad + 4] ^= 0xFF
    with pytest.raises(CorruptStoreError, match=f"log offset {bad}"):
        world.derived.dispatch()
    assert world.derived.reput.reputed.value == bad
    assert world.derived.index.next_offset == bad
    assert sum(world.derived.queues.ends()) == position


def test_a_queue_id_that_cannot_be_is_corruption(world: World) -> None:
    world.put(1)
    bad = world.log.put("T", 1 << 25)
    with pytest.raises(CorruptStoreError, match="queue_id"):
        world.derived.dispatch()
    assert world.derived.reput.reputed.value <= bad


def test_truncation_takes_back_everything(world: World) -> None:
    world.put(25)
    world.derived.dispatch()
    cut = sorted(world.log.times)[11]
    world.derived.reput.truncate(cut)
    world.log.cut(cut)
    assert world.derived.reput.reputed.value == cut
    world.check()


@pytest.mark.parametrize("keep", [0, 7, 25])
def test_dispatch_after_a_truncation(world: World, keep: int) -> None:
    world.put(25)
    world.derived.dispatch()
    cut = [*sorted(world.log.times), world.log.end][keep]
    world.derived.reput.truncate(cut)
    world.log.cut(cut)
    ends = world.derived.queues.ends().tolist()
    for (topic, queue_id), end in zip(world.derived.table.names(), ends, strict=True):
        world.log.next_queue_offsets[(topic, queue_id)] = end
    world.put(20)
    world.derived.dispatch()
    world.check()


def test_a_second_dispatch_of_the_same_log_changes_nothing(world: World) -> None:
    world.put(20)
    world.derived.dispatch()
    derived = world.derived
    derived.queues.next_offset = derived.index.next_offset = derived.producers.next_offset = 0
    derived.dispatch()
    assert not derived.queues.damaged
    for topic, queue_id in derived.table.names():
        assert len(derived.units(topic, queue_id)) == 5


def test_the_index_catches_up_after_a_full_disk(world: World) -> None:
    world.put(70)
    world.files.fail("preallocate", errno.ENOSPC, times=1)
    world.derived.dispatch()
    assert world.derived.index.stopped is not None
    assert world.derived.reput.reputed.value == world.log.end
    assert world.derived.entries() == []
    assert world.derived.index.resume()
    world.put(5)
    world.derived.dispatch()
    world.check()


def test_a_producer_table_that_lags_catches_up(world: World) -> None:
    mark = ProducerMark("p", 0, 0, 0, 9)
    world.log.put("T0", properties={"__TL_SEQ": mark.encode()})
    world.put(20)
    derived = world.derived.dispatch()
    snapshot = derived.producers.snapshot().encode()
    derived.producers.reset(0)
    assert derived.reput.run_once() > 0
    derived.reput.run_to()
    assert derived.producers.check(mark, 9) == Resume(1)
    assert derived.producers.snapshot().encode() == snapshot


def test_a_damaged_queue_is_made_again_while_dispatch_goes_on(world: World) -> None:
    world.put(40)
    derived = world.derived.dispatch()
    dense = derived.table.get("T0", 1)
    derived.queues.mark_damaged(dense, "for a test")
    heard: list[int] = []
    derived.reput.listen(lambda touched: heard.extend(touched.tolist()))
    world.put(8)
    derived.confirmed.advance(world.log.end)
    assert derived.reput.run_once() > 0
    with pytest.raises(StoreBusyError):
        derived.queues.max_offset(dense)
    derived.reput.run_to()
    assert dense in heard
    world.check()


def test_a_missing_queue_directory_is_made_again(world: World) -> None:
    world.put(40)
    derived = world.derived.dispatch()
    checkpoint = derived.queues.flush()
    derived.index.flush()
    for name in world.files.listdir(ROOT / "consumequeue" / "T1" / "0"):
        world.files.unlink(ROOT / "consumequeue" / "T1" / "0" / name)
    world.files.remove_directory(ROOT / "consumequeue" / "T1" / "0")
    again = world.made().open(checkpoint=checkpoint, clean=True)
    assert again.queue_findings is not None
    assert list(again.queue_findings.damaged) == ["T1/0"]
    again.producers.next_offset = again.queues.next_offset
    world.put(3)
    again.dispatch()
    world.check(again)


def test_after_a_power_failure_dispatch_goes_on_from_the_checkpoint(world: World) -> None:
    world.put(30)
    world.derived.dispatch()
    checkpoint = world.derived.queues.flush()
    world.derived.index.flush()
    world.put(30)
    world.derived.dispatch()
    world.files.crash()
    again = world.made().open(checkpoint=checkpoint)
    again.reput.reputed.retreat(checkpoint.log_offset)
    again.dispatch()
    assert again.reput.messages < 60
    world.check(again)


def test_a_log_that_begins_later() -> None:
    world = World(start=8192)
    world.log.next_queue_offsets = {("T0", 0): 17, ("T1", 0): 4}
    world.put(10)
    derived = world.derived.dispatch()
    assert not derived.queues.damaged
    dense = derived.table.get("T0", 0)
    assert derived.queues.min_offset(dense) == 17
    assert list(derived.index.query("T0", "u0")) == [8192]


def test_retention_does_not_stop_a_slow_dispatch(world: World) -> None:
    world.put(60)
    del world.log.data[:4096]
    world.log.min_offset = 4096
    assert world.derived.queues.mender.from_log_start
    derived = world.derived.dispatch()
    assert derived.reput.reputed.value == world.log.end


def test_a_full_disk_lets_the_same_batch_come_again(world: World) -> None:
    world.put(200, topics=1, queues=1)  # more than a row of the tails
    world.files.fail("pwrite", errno.ENOSPC, name="consumequeue", times=1, took=50)
    with pytest.raises(DiskFullError):
        world.derived.dispatch()
    assert 0 < world.derived.reput.reputed.value < world.log.end
    world.derived.dispatch()
    world.check()


def test_begin_at_a_new_log(world: World) -> None:
    world.put(10)
    derived = world.derived.dispatch()
    for each in (derived.queues, derived.index, derived.producers):
        each.reset(4096)
    derived.reput.begin_at(4096)
    assert derived.reput.reputed.value == 4096


class TestThread:
    """The thread; each test waits for a position and never for a time."""

    def test_it_follows_what_is_confirmed(self, world: World) -> None:
        reput = world.derived.reput
        reput.start()
        try:
            for _ in range(3):
                world.put(10)
                world.derived.confirmed.advance(world.log.end)
                assert reput.reputed.wait(world.log.end, 20)
        finally:
            reput.stop()
        world.check()

    def test_corrupt_bytes_end_it_and_tell_who_waits(self, world: World) -> None:
        world.put(10)
        bad = sorted(world.log.times)[5]
        world.log.data[bad + 4] ^= 0xFF
        reput = world.derived.reput
        world.derived.confirmed.advance(world.log.end)
        reput.start()
        with pytest.raises(CorruptStoreError, match="dispatched"):
            reput.reputed.wait(world.log.end, 20)
        reput.stop()
        assert reput.reputed.value == bad
        assert isinstance(reput.failure, CorruptStoreError)
        with pytest.raises(CorruptStoreError):
            reput.run_once()

    def test_it_goes_on_where_the_damage_was_cut_off(self, world: World) -> None:
        world.put(10)
        bad = sorted(world.log.times)[5]
        world.log.data[bad + 4] ^= 0xFF
        reput = world.derived.reput
        world.derived.confirmed.advance(world.log.end)
        reput.start()
        with pytest.raises(CorruptStoreError):
            reput.reputed.wait(world.log.end, 20)
        world.derived.confirmed.retreat(bad)
        reput.truncate(bad)
        world.log.cut(bad)
        for (topic, queue_id), end in zip(
            world.derived.table.names(), world.derived.queues.ends().tolist(), strict=True
        ):
            world.log.next_queue_offsets[(topic, queue_id)] = end
        world.put(7)
        world.derived.confirmed.advance(world.log.end)
        assert reput.reputed.wait(world.log.end, 20)
        reput.stop()
        world.check()

    @pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
    def test_a_failing_disk_is_waited_out(self, world: World, number: int) -> None:
        world.put(200, topics=1, queues=1)  # more than a row of the tails
        world.files.fail("pwrite", number, name="consumequeue", times=3, took=50)
        world.derived.confirmed.advance(world.log.end)
        reput = world.derived.reput
        troubles: list[StoreError | None] = []
        reput.listen(lambda _: troubles.append(reput.trouble))
        reput.start()
        while not reput.reputed.wait(world.log.end, 0.05):
            reput.wake()  # the thread would look again after a second
        reput.stop()
        world.check()
        assert any(troubles)
        assert reput.trouble is None
        assert reput.failure is None

    def test_what_no_layer_below_has_a_word_for_is_waited_out(self, world: World) -> None:
        """No descriptor is free for a moment: another file of the process wants one too."""
        world.put(20)
        world.derived.confirmed.advance(world.log.end)
        reput = world.derived.reput
        troubles: list[str] = []
        reput.listen(lambda _: troubles.append(str(reput.trouble)))
        refusals = [OSError(errno.EMFILE, "Too many open files")] * 2
        read = world.log.read

        def refused(offset: int, max_bytes: int) -> memoryview:
            if refusals:
                raise refusals.pop()
            return read(offset, max_bytes)

        with patch.object(world.log, "read", refused):
            reput.start()
            while not reput.reputed.wait(world.log.end, 0.05):
                reput.wake()  # the thread would look again after a second
            reput.stop()
        world.check()
        assert "Too many open files" in troubles[0]
        assert reput.trouble is None
        assert reput.failure is None

    def test_the_index_is_tried_again_after_a_while(self, world: World) -> None:
        derived = world.derived
        world.files.fail("preallocate", errno.ENOSPC, times=1)
        world.put(5)
        derived.dispatch()
        assert derived.index.stopped is not None
        indexed = threading.Event()
        derived.reput.listen(lambda _: indexed.set())
        derived.clock.advance(60)
        derived.reput.start()
        world.put(5)
        derived.confirmed.advance(world.log.end)
        assert indexed.wait(20)
        derived.reput.stop()
        derived.reput.run_to()
        world.check()

    def test_stopping_twice_and_without_a_start(self, world: World) -> None:
        world.derived.reput.stop()
        world.derived.reput.start()
        world.derived.reput.wake()
        world.derived.reput.stop()
        world.derived.reput.stop()


def test_hashes_are_those_of_the_format(world: World) -> None:
    world.log.put("T", properties={"UNIQ_KEY": "u", "TAGS": "t"})
    world.derived.dispatch()
    assert [each[2] for each in world.derived.entries()] == [
        key_hash("T", "u"),
        key_hash("T", "T#t"),
    ]


def test_small_requests_gather_until_the_time_is_over() -> None:
    assert gathering_s(FEW_BYTES, 0, 0.001) == pytest.approx(GATHER_S - 0.001)
    assert gathering_s(FEW_BYTES, MANY_BYTES - 1, 0.0) == GATHER_S
    assert gathering_s(FEW_BYTES, 0, GATHER_S + 1) == 0


def test_small_rounds_take_a_quarter_of_the_time() -> None:
    assert gathering_s(FEW_BYTES - 1, 0, 0.0005) == pytest.approx(0.0015)
    assert gathering_s(FEW_BYTES - 1, 0, GATHER_S) == GATHER_S
    assert gathering_s(FEW_BYTES - 1, 0, 0.0) == 0


def test_dispatch_that_is_behind_does_not_wait() -> None:
    assert gathering_s(FEW_BYTES, MANY_BYTES, 0.0) == 0


def test_the_thread_gathers_and_a_stop_ends_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def gathering_long(dispatched: int, left: int, spent_s: float) -> float:
        asked.set()
        return 3_600.0

    monkeypatch.setattr(reput, "gathering_s", gathering_long)
    log = MemoryLog(4096)
    derived = Derived.over(log, MemoryFiles(), Path("/store"))
    log.put("T", 0)
    derived.confirmed.advance(log.end)
    derived.reput.start()
    assert asked.wait(10)
    log.put("T", 0)
    derived.confirmed.advance(log.end)
    derived.reput.stop()
    assert derived.reput.messages == 1
    monkeypatch.setattr(reput, "gathering_s", gathering_s)
    derived.reput.start()
    assert derived.reput.reputed.wait(log.end, 10)
    derived.reput.stop()
    assert derived.reput.messages == 2
