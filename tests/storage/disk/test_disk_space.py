"""A full disk has room for the small files of an open, and no big file takes it."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.crashed_stores import QUEUE
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import ConfirmSource, FlushMode
from tandemlog_server.storage.disk.allocator import FileAllocator
from tandemlog_server.storage.disk.disk_space import ASKED_BYTES, PAGE, Reserve, RoomForUnits
from tandemlog_server.storage.disk.small_files import write_small
from tandemlog_server.storage.errors import DiskFullError
from tandemlog_server.storage.tools.recover import recover

OWN = Path("/store/tandemlog")
LOG = Path("/store/commitlog")
RESERVE = OWN / "reserve"
LAST = ProducerMark("p", 1, 0, 0, 2)
# a thousandth of 24 MiB, in pages
SMALL = 6 * 4096


def other_program(files: MemoryFiles) -> None:
    """Somebody else takes all the room that there is."""
    files.capacity = files.disk_usage(DIRECTORY).used


class Greedy(MemoryFiles):
    """As Linux does, `preallocate` takes what there is before it fails; `meanwhile` is then."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def preallocate(self, handle: int, size: int) -> None:
        try:
            super().preallocate(handle, size)
        except OSError:
            capacity = self.capacity
            self.capacity = self._used()
            self.meanwhile()
            self.capacity = capacity
            raise


def test_a_log_file_for_which_there_is_no_room_takes_none_for_a_moment() -> None:
    """A node that was started on a full disk found no room for its replication state while the
    next log file was tried."""
    files = Greedy(capacity=6000)
    files.make_directory(LOG)
    write_small(files, OWN / "replication.json", b"old")
    files.meanwhile = lambda: write_small(files, OWN / "replication.json", b"new")
    allocator = FileAllocator(files, OWN, 9000, LOG)
    allocator._prepare_spare()
    with pytest.raises(DiskFullError, match="disk is full"):
        allocator.create(LOG / "a")
    assert files.listdir(LOG) == []
    assert files.listdir(OWN) == ["replication.json"]


def test_a_log_file_leaves_room_for_the_small_ones() -> None:
    files = MemoryFiles(capacity=9999)
    files.make_directory(LOG)
    allocator = FileAllocator(files, OWN, 5000, LOG)
    with pytest.raises(DiskFullError):
        allocator.create(LOG / "a")
    files.capacity = 10_000
    allocator.create(LOG / "a")


def test_an_index_file_leaves_room_for_the_small_ones() -> None:
    files = MemoryFiles()
    bench = Bench(files=files)
    bench.put(1)
    files.capacity = files.disk_usage(DIRECTORY).used + 1500
    bench.settle()
    assert bench.store.index is not None
    assert bench.store.index.stopped is not None
    files.capacity = 1 << 50
    bench.store.index.resume()
    bench.settle()
    assert bench.store.index.next_offset == bench.store.log.wrote.value


def test_a_disk_that_does_not_tell_its_size_is_asked() -> None:
    files = MemoryFiles(capacity=0)
    files.make_directory(LOG)
    with pytest.raises(DiskFullError):
        FileAllocator(files, OWN, 5000, LOG).create(LOG / "a")
    assert files.calls["preallocate"] == 1


def test_the_reserve_comes_and_goes_with_the_room(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles(capacity=24 << 20)
    files.make_directory(OWN)
    other = files.open(OWN / "other", create=True)
    files.preallocate(other, files.capacity - 2 * SMALL + 1)
    reserve = Reserve(RESERVE, files)
    reserve.restore()
    assert files.listdir(OWN) == ["other"], "it would be the one that fills the disk"
    files.capacity += 1
    reserve.restore()
    reserve.restore()
    assert files.disk_usage(OWN).free == SMALL
    assert not reserve.release()
    files.capacity -= 1
    assert reserve.release()
    assert f"it is restored when {2 * SMALL} bytes are free" in caplog.text
    assert not reserve.release()
    assert files.listdir(OWN) == ["other"]
    files.capacity += 1
    files.fail("preallocate", errno.ENOSPC, times=1)
    with pytest.raises(OSError, match="No space"):
        reserve.restore()
    assert files.listdir(OWN) == ["other"]


def test_the_reserve_is_small_beside_its_disk() -> None:
    for capacity, size in ((1 << 40, 1 << 20), (24 << 20, SMALL), (1 << 20, 0)):
        files = MemoryFiles(capacity=capacity)
        files.make_directory(OWN)
        Reserve(RESERVE, files).restore()
        assert files.disk_usage(OWN).used == size


def filled() -> Bench:
    """A store with its reserve, ten messages, and not a byte left on its disk."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(10)
    bench.settle()
    bench.store.persist()
    bench.files.capacity = 24 << 20
    bench.clock.advance(60)
    bench.store._keeper.run_due()
    assert bench.files.status(RESERVE) is not None
    other_program(bench.files)
    return bench


def put_until_refused(bench: Bench) -> None:
    for _ in range(300):
        bench.put(5)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_a_store_on_a_full_disk_opens_again_and_again(power: bool) -> None:
    bench = filled()
    held = bench.bodies()
    for _ in range(4):
        if power:
            bench.crash()
        else:
            bench.kill()
        assert bench.bodies() == held
        bench.store.persist()
    with pytest.raises(DiskFullError):
        put_until_refused(bench)
    bench.files.capacity = 24 << 20
    bench.put(5)
    bench.clock.advance(60)
    bench.store._keeper.run_due()
    assert bench.files.status(RESERVE) is not None


def test_a_store_that_was_closed_on_a_full_disk_opens_again() -> None:
    bench = filled()
    held = bench.bodies()
    for _ in range(4):
        bench.reopen()
        assert bench.bodies() == held


def crowded(batches: int) -> Bench:
    """A store that is killed with much that was never dispatched, on a disk that takes no queue
    unit. Each of 4 queues has `batches` of 120 messages, queue 0 three more before them, which are
    dispatched, queue 3 two more behind them."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(3)
    bench.settle()
    bench.store.persist()
    for _ in range(batches):
        for queue_id in range(4):
            bench.put(120, queue_id=queue_id)
    assert not bench.put_marked(LAST, 2, queue_id=3).duplicate
    bench.store.flush()
    bench.store.consumer_offsets.commit("G", "T", 1, 120 * batches)
    bench.store.consumer_offsets.save(bench.clock.now_ms())
    bench.files.fail("pwrite", errno.ENOSPC, name="consumequeue")
    return bench


def test_queue_units_leave_the_room_that_an_open_gave_up() -> None:
    """Else dispatch eats it before the replication state finds room."""
    files = MemoryFiles(capacity=24 << 20)
    files.make_directory(OWN)
    files.preallocate(files.open(OWN / "other", create=True), (24 << 20) - SMALL - 10_000)
    room = RoomForUnits(OWN, files)
    room.claim(5000)
    files.capacity -= 5000
    with pytest.raises(OSError, match="No space"):
        room.claim(1000)
    files.capacity += 1 << 30
    asked = files.calls["disk_usage"]
    for _ in range(ASKED_BYTES // (PAGE + 20)):
        room.claim(20)
    assert files.calls["disk_usage"] == asked + 1
    files.capacity = 0
    room.claim(ASKED_BYTES)
    RoomForUnits(OWN / "not made yet", files).claim(20)


def ends(batches: int) -> list[int]:
    return [120 * batches + more for more in (3, 0, 0, 2)]


def put_everywhere(bench: Bench) -> list[int]:
    """A message into every queue; the queue offsets that they got."""
    answers = [bench.put(1, queue_id=queue_id) for queue_id in range(4)]
    return [int(each.segments[0].queue_offsets[0]) for each in answers]


def test_what_the_queues_have_no_room_for_is_served_from_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = crowded(1)
    for _ in range(2):
        bench.kill()
        assert [len(bench.bodies(queue_id=each)) for each in range(4)] == ends(1)
        assert "consumequeue" in bench.store.recovery.waits
        assert "the store is open on a full disk" in caplog.text
    bench.files.heal()
    bench.crash()
    assert bench.store.recovery.waits == ""
    assert [len(bench.bodies(queue_id=each)) for each in range(4)] == ends(1)


@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "a queue damaged"])
def test_where_not_all_can_be_dispatched_the_rest_waits_for_room(
    damaged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What is dispatched is served, retention may make room, and what comes gets the numbers
    behind what waits."""
    bench = crowded(9)
    for times in range(2):
        if damaged and not times:
            for name in bench.files.listdir(QUEUE):
                bench.files.unlink(QUEUE / name)
        bench.kill()
        store = bench.store
        assert "dispatch is waiting at" in store.recovery.waits
        assert any("dispatch is waiting" in line for line in store.recovery.lines())
        assert "the store is open on a full disk" in caplog.text
        assert store.reputed.value < store.confirmed.value
        assert put_everywhere(bench) == [end + times for end in ends(9)]
        assert bench.put_marked(LAST, 2, queue_id=3).duplicate
        assert store.consumer_offsets.offset("G", "T", 1) == 1080
        with pytest.raises(DiskFullError):
            store.reput.run_to()
        bench.store.flush()
    bench.files.heal()
    bench.settle()
    bench.store.persist()
    held = [bench.bodies(queue_id=each) for each in range(4)]
    assert [len(each) for each in held] == [end + 2 for end in ends(9)]
    assert len({body for each in held for body in each}) == sum(ends(9)) + 8
    bench.crash()
    assert [bench.bodies(queue_id=each) for each in range(4)] == held
    assert bench.store.recovery.queues_rebuilt == {}
    assert bench.store.recovery.waits == ""


def test_recover_says_that_it_had_no_room_for_all() -> None:
    bench = crowded(9)
    bench._abandon()
    bench.files.kill()
    with pytest.raises(DiskFullError, match="dispatch is waiting at"):
        recover(bench.config, bench.files)
    bench.files.heal()
    assert recover(bench.config, bench.files).waits == ""


def test_a_master_takes_over_though_the_queues_have_no_room() -> None:
    bench = crowded(9)
    bench.kill(confirm=ConfirmSource.REPLICATION)
    for times in range(2):
        bench.store.become_master(1 + times)
        assert put_everywhere(bench) == [end + times for end in ends(9)]
        assert bench.put_marked(LAST, 2, queue_id=3).duplicate
        bench.store.flush()
        bench.store.advance_confirmed(bench.store.log.wrote.value)
        with pytest.raises(DiskFullError):
            bench.store.reput.run_to()
        if not times:
            bench.kill()
    bench.files.heal()
    bench.settle()
    assert [len(bench.bodies(queue_id=each)) for each in range(4)] == [e + 2 for e in ends(9)]
