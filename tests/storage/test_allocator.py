"""Files made ahead of need: whole or not at all, and a full disk is a clear error."""

import errno
from pathlib import Path

import pytest

from fakes.memory_files import MemoryFiles
from storage.allocator import SPARE_NAME, FileAllocator
from storage.errors import DiskFullError, StoreReadOnlyError
from storage.files import RealFileSystem

OWN = Path("/store/tandemlog")
LOG = Path("/store/commitlog")


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(LOG)
    return files


def test_a_file_is_made_on_the_spot(files: MemoryFiles) -> None:
    FileAllocator(files, OWN, 5000).take(LOG / "a")
    assert files.read_file(LOG / "a") == bytes(5000)
    assert files.durable_content(LOG / "a") == bytes(5000)
    assert files.listdir(OWN) == []


def test_a_spare_is_made_in_the_background_and_taken_later(files: MemoryFiles) -> None:
    allocator = FileAllocator(files, OWN, 5000)
    allocator.start()
    allocator.prepare()
    allocator.prepare()
    allocator.take(LOG / "a")  # waits for the one under way, or makes it
    allocator.close()
    assert files.read_file(LOG / "a") == bytes(5000)
    assert files.listdir(OWN) == []


def test_an_unused_spare_goes_at_close_and_at_open(files: MemoryFiles) -> None:
    allocator = FileAllocator(files, OWN, 5000)
    allocator._prepare_spare()
    assert files.listdir(OWN) == [SPARE_NAME]
    allocator.close()
    assert files.listdir(OWN) == []
    allocator._prepare_spare()
    FileAllocator(files, OWN, 7000).open()
    assert files.listdir(OWN) == []


def test_a_spare_that_the_disk_does_not_let_go_is_left_for_the_next_open(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    allocator = FileAllocator(files, OWN, 5000)
    allocator._prepare_spare()
    files.fail("unlink", errno.EROFS, times=1)
    allocator.close()
    assert "spare log file not removed" in caplog.text
    FileAllocator(files, OWN, 5000).open()
    assert files.listdir(OWN) == []


def test_a_crash_while_allocating_leaves_no_log_file(files: MemoryFiles) -> None:
    files.fail("preallocate", errno.EIO)
    with pytest.raises(StoreReadOnlyError, match="cannot create log file a"):
        FileAllocator(files, OWN, 5000).take(LOG / "a")
    assert files.listdir(LOG) == []
    assert files.listdir(OWN) == []


def test_a_full_disk_heals(files: MemoryFiles, caplog: pytest.LogCaptureFixture) -> None:
    files.capacity = 6000
    handle = files.open(LOG / "other", create=True)
    files.preallocate(handle, 4000)
    allocator = FileAllocator(files, OWN, 5000)
    allocator._prepare_spare()
    assert "next log file not allocated: size=5000" in caplog.text
    with pytest.raises(DiskFullError, match="disk is full"):
        allocator.take(LOG / "a")
    files.close(handle)
    files.unlink(LOG / "other")
    allocator.take(LOG / "a")
    assert files.read_file(LOG / "a") == bytes(5000)


def test_a_log_on_a_disk_of_its_own(files: MemoryFiles) -> None:
    files.fail("rename", errno.EXDEV)
    FileAllocator(files, OWN, 5000).take(LOG / "a")
    assert files.read_file(LOG / "a") == bytes(5000)
    assert files.listdir(OWN) == []


def test_a_new_size_drops_the_spare(files: MemoryFiles) -> None:
    allocator = FileAllocator(files, OWN, 5000)
    allocator._prepare_spare()
    allocator.resize(6000)
    allocator.take(LOG / "a")
    assert len(files.read_file(LOG / "a")) == 6000


def test_warming_writes_every_page_and_locking_keeps_it(files: MemoryFiles) -> None:
    allocator = FileAllocator(files, OWN, 3 << 20, warm_up=True, lock_memory=True)
    allocator.take(LOG / "a")
    assert files.calls["pwrite"] == 3
    assert files.calls["lock_memory"] == 1


def test_memory_that_cannot_be_locked_is_no_failure(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    files.fail("lock_memory", errno.ENOMEM)
    FileAllocator(files, OWN, 5000, lock_memory=True).take(LOG / "a")
    assert "not locked in memory" in caplog.text
    assert len(files.read_file(LOG / "a")) == 5000


def test_a_real_file_has_its_blocks(tmp_path: Path) -> None:
    allocator = FileAllocator(RealFileSystem(), tmp_path / "own", 1 << 20, warm_up=True)
    (tmp_path / "log").mkdir()
    allocator.start()
    allocator.prepare()
    allocator.take(tmp_path / "log" / "a")
    allocator.close()
    found = (tmp_path / "log" / "a").stat()
    assert found.st_size == 1 << 20
    assert found.st_blocks * 512 >= 1 << 20
