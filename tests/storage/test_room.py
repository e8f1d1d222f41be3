"""A full disk has room for the small files of an open, and no big file takes it."""

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.memory_files import MemoryFiles
from fakes.stores import CONFIG, DIRECTORY, Bench
from storage.allocator import FileAllocator
from storage.config import FlushMode
from storage.errors import DiskFullError
from storage.room import Reserve
from storage.small_files import write_small

OWN = Path("/store/tandemlog")
LOG = Path("/store/commitlog")
RESERVE = OWN / "reserve"
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
        allocator.take(LOG / "a")
    assert files.listdir(LOG) == []
    assert files.listdir(OWN) == ["replication.json"]


def test_a_log_file_leaves_room_for_the_small_ones() -> None:
    files = MemoryFiles(capacity=9999)
    files.make_directory(LOG)
    allocator = FileAllocator(files, OWN, 5000, LOG)
    with pytest.raises(DiskFullError):
        allocator.take(LOG / "a")
    files.capacity = 10_000
    allocator.take(LOG / "a")


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
        FileAllocator(files, OWN, 5000, LOG).take(LOG / "a")
    assert files.calls["preallocate"] == 1


def test_the_reserve_comes_and_goes_with_the_room(caplog: pytest.LogCaptureFixture) -> None:
    files = MemoryFiles(capacity=24 << 20)
    files.make_directory(OWN)
    other = files.open(OWN / "other", create=True)
    files.preallocate(other, files.capacity - 2 * SMALL + 1)
    reserve = Reserve(RESERVE, files)
    reserve.keep()
    assert files.listdir(OWN) == ["other"], "it would be the one that fills the disk"
    files.capacity += 1
    reserve.keep()
    reserve.keep()
    assert files.disk_usage(OWN).free == SMALL
    assert not reserve.give_up()
    files.capacity -= 1
    assert reserve.give_up()
    assert f"is made again when there are {2 * SMALL} bytes free" in caplog.text
    assert not reserve.give_up()
    assert files.listdir(OWN) == ["other"]
    files.capacity += 1
    files.fail("preallocate", errno.ENOSPC, times=1)
    with pytest.raises(OSError, match="No space"):
        reserve.keep()
    assert files.listdir(OWN) == ["other"]


def test_the_reserve_is_small_beside_its_disk() -> None:
    for capacity, size in ((1 << 40, 1 << 20), (24 << 20, SMALL), (1 << 20, 0)):
        files = MemoryFiles(capacity=capacity)
        files.make_directory(OWN)
        Reserve(RESERVE, files).keep()
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


def test_an_open_that_finds_no_room_for_the_queues_says_so_and_loses_nothing() -> None:
    """The reserve is for small files: what was not dispatched may need more."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    for queue_id in range(4):
        bench.put(10, queue_id=queue_id)
    bench.store.flush()
    bench.files.fail("pwrite", errno.ENOSPC, name="consumequeue")
    for _ in range(2):
        with pytest.raises(DiskFullError, match=r"no space to write unit .*consumequeue"):
            bench.kill()
    bench.files.heal()
    bench.open()
    assert [len(bench.bodies(queue_id=each)) for each in range(4)] == [10] * 4
