"""Files made ahead of need: whole or not at all, and a full disk is a clear error."""

import errno
from pathlib import Path

import pytest

from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import Bench
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.allocator import SPARE_NAME, FileAllocator
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import DiskFullError, StoreReadOnlyError

OWN = Path("/store/tandemlog")
LOG = Path("/store/commitlog")


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(LOG)
    return files


def test_a_file_is_made_on_the_spot(files: MemoryFiles) -> None:
    FileAllocator(files, OWN, 5000, LOG).create(LOG / "a")
    assert files.read_file(LOG / "a") == bytes(5000)
    assert files.durable_content(LOG / "a") == bytes(5000)
    assert files.listdir(OWN) == []


def test_a_spare_is_made_in_the_background_and_taken_later(files: MemoryFiles) -> None:
    allocator = FileAllocator(files, OWN, 5000, LOG)
    allocator.start()
    allocator.prepare()
    allocator.prepare()
    allocator.create(LOG / "a")  # waits for the one under way, or makes it
    allocator.close()
    assert files.read_file(LOG / "a") == bytes(5000)
    assert files.listdir(OWN) == []


def test_an_unused_spare_goes_at_close_and_at_open(files: MemoryFiles) -> None:
    allocator = FileAllocator(files, OWN, 5000, LOG)
    allocator._prepare_spare()
    assert files.listdir(OWN) == [SPARE_NAME]
    allocator.close()
    assert files.listdir(OWN) == []
    allocator._prepare_spare()
    FileAllocator(files, OWN, 7000, LOG).open()
    assert files.listdir(OWN) == []


def test_a_spare_that_the_disk_does_not_let_go_is_left_for_the_next_open(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    allocator = FileAllocator(files, OWN, 5000, LOG)
    allocator._prepare_spare()
    files.fail("unlink", errno.EROFS, times=1)
    allocator.close()
    assert "spare log file not removed" in caplog.text
    FileAllocator(files, OWN, 5000, LOG).open()
    assert files.listdir(OWN) == []


def test_a_crash_while_allocating_leaves_no_log_file(files: MemoryFiles) -> None:
    files.fail("preallocate", errno.EIO)
    with pytest.raises(StoreReadOnlyError, match="cannot create log file a"):
        FileAllocator(files, OWN, 5000, LOG).create(LOG / "a")
    assert files.listdir(LOG) == []
    assert files.listdir(OWN) == []


def test_a_full_disk_heals(files: MemoryFiles, caplog: pytest.LogCaptureFixture) -> None:
    files.capacity = 10_000
    handle = files.open(LOG / "other", create=True)
    files.preallocate(handle, 4000)
    allocator = FileAllocator(files, OWN, 5000, LOG)
    allocator._prepare_spare()
    assert "next log file not allocated: size=5000" in caplog.text
    with pytest.raises(DiskFullError, match="disk is full"):
        allocator.create(LOG / "a")
    files.close(handle)
    files.unlink(LOG / "other")
    allocator.create(LOG / "a")
    assert files.read_file(LOG / "a") == bytes(5000)


def test_a_log_on_a_disk_of_its_own(files: MemoryFiles) -> None:
    files.fail("rename", errno.EXDEV, name=str(OWN))
    allocator = FileAllocator(files, OWN, 5000, LOG)
    for name in ("a", "b"):
        allocator.create(LOG / name)
        assert files.read_file(LOG / name) == bytes(5000)
    assert files.listdir(OWN) == []
    allocator.close()
    assert files.listdir(LOG) == ["a", "b"]


def test_a_crash_while_allocating_on_a_disk_of_its_own_leaves_no_short_log_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk reserves a gigabyte in several steps; a short file would be refused at every open."""
    files = MortalFiles()
    files.fail("rename", errno.EXDEV, name=str(OWN / SPARE_NAME))
    bench = Bench(files=files)
    for _ in range(2):
        bench.put(10, size=200)
    bench.settle()
    held = bench.bodies()
    preallocate = files.preallocate

    def die(handle: int, size: int) -> None:
        if LOG in Path(files._handles[handle][1]).parents:
            preallocate(handle, size // 2)
            files.calls_left = 0
        preallocate(handle, size)

    monkeypatch.setattr(files, "preallocate", die)
    with pytest.raises(DeathError):
        bench.put(15, size=200)
    monkeypatch.undo()
    files.rest()
    bench.kill()
    assert bench.bodies() == held
    for _ in range(10):
        bench.put(10, size=200)
    bench.store.close()
    assert all(name.isdecimal() for name in files.listdir(LOG))
    assert len(files.listdir(LOG)) > 2


def test_a_new_size_drops_the_spare(files: MemoryFiles) -> None:
    allocator = FileAllocator(files, OWN, 5000, LOG)
    allocator._prepare_spare()
    allocator.resize(6000)
    allocator.create(LOG / "a")
    assert len(files.read_file(LOG / "a")) == 6000


def test_warming_writes_every_page_and_locking_keeps_it(files: MemoryFiles) -> None:
    allocator = FileAllocator(files, OWN, 3 << 20, LOG, warm_up=True, lock_memory=True)
    allocator.create(LOG / "a")
    assert files.calls["pwrite"] == 3
    assert files.calls["lock_memory"] == 1


def test_memory_that_cannot_be_locked_is_no_failure(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.fail("lock_memory", errno.ENOMEM)
    FileAllocator(files, OWN, 5000, LOG, lock_memory=True).create(LOG / "a")
    assert "not locked in memory" in caplog.text
    assert len(files.read_file(LOG / "a")) == 5000


def test_a_real_file_has_its_blocks(tmp_path: Path) -> None:
    allocator = FileAllocator(
        RealFileSystem(), tmp_path / "own", 1 << 20, tmp_path / "log", warm_up=True
    )
    (tmp_path / "log").mkdir()
    allocator.start()
    allocator.prepare()
    allocator.create(tmp_path / "log" / "a")
    allocator.close()
    found = (tmp_path / "log" / "a").stat()
    assert found.st_size == 1 << 20
    assert found.st_blocks * 512 >= 1 << 20
