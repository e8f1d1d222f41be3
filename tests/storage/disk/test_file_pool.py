import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.file_pool import (
    DRAFT_NAME,
    SYNC_TOGETHER,
    FilePool,
    remove_drafts,
)
from tandemlog_server.storage.errors import FlushFailedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path("/store/consumequeue")


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def pool_of(files: MemoryFiles, open_files: int = 3) -> FilePool:
    files.make_directory(ROOT)
    return FilePool(ROOT, files, open_files=open_files)


def test_files_are_opened_when_needed_and_the_longest_unused_is_closed(files: MemoryFiles) -> None:
    pool = pool_of(files)
    paths = [f"{ROOT}/t/{queue}/0" for queue in range(6)]
    for path in paths:
        pool.create(path, 100)
        pool.write(path, 10, b"abc")
    pool.sync()
    assert [pool.read(path, 9, 5) for path in paths] == [b"\0abc\0"] * 6
    assert files.open_handles == 3
    assert [pool.read(path, 9, 5) for path in paths] == [b"\0abc\0"] * 6
    assert files.open_handles == 3
    pool.close()
    assert files.open_handles == 0
    assert pool.read(paths[0], 10, 3) == b"abc"


def test_a_descriptor_that_wrote_is_kept_until_the_fsync(files: MemoryFiles) -> None:
    """The kernel may forget a failed write-back with the last descriptor of its file."""
    pool = pool_of(files)
    paths = [f"{ROOT}/t/{queue}/0" for queue in range(6)]
    for path in paths:
        pool.create(path, 100)
    pool.sync()
    for path in paths:
        pool.write(path, 0, b"abc")
        assert files.open_handles <= 4
    for name in ("t/4", "t/5"):
        files.lose_write_back(ROOT / name / "0")
    with pytest.raises(FlushFailedError):
        pool.sync()
    with pytest.raises(FlushFailedError):
        pool.sync()


def test_many_writes_between_two_syncs_see_a_failed_one(files: MemoryFiles) -> None:
    pool = pool_of(files)
    paths = [f"{ROOT}/t/{queue}/0" for queue in range(6)]
    for path in paths:
        pool.create(path, 100)
    pool.sync()
    pool.write(paths[0], 0, b"abc")
    files.lose_write_back(ROOT / "t" / "0" / "0")
    for path in paths[1:4]:
        pool.write(path, 0, b"abc")
    with pytest.raises(FlushFailedError):
        pool.write(paths[4], 0, b"abc")


def test_reads_stay_within_the_limit_while_all_others_wait_for_an_fsync(files: MemoryFiles) -> None:
    """Else a read of every queue would use up the descriptors of the process before the next
    checkpoint."""
    pool = pool_of(files)
    paths = [f"{ROOT}/t/{queue}/0" for queue in range(9)]
    for path in paths:
        pool.create(path, 100)
    pool.sync()
    for path in paths[:3]:
        pool.write(path, 0, b"abc")
    for path in paths[3:]:
        assert pool.read(path, 0, 3) == b"\0\0\0"
        assert files.open_handles <= 4
    files.lose_write_back(ROOT / "t" / "0" / "0")
    with pytest.raises(FlushFailedError):
        pool.sync()


def test_cuts_of_many_files_stay_within_the_limit(files: MemoryFiles) -> None:
    """A node with more queues than descriptors could not be opened after kill -9: recovery cuts
    every queue, and each cut waits for an fsync."""
    pool = pool_of(files)
    paths = [f"{ROOT}/t/{queue}/0" for queue in range(9)]
    for path in paths:
        pool.create(path, 100)
        pool.write(path, 50, b"abc")
    pool.sync()
    for path in paths:
        pool.shorten(path, 50, 100)
        assert files.open_handles <= 4
    assert [pool.read(path, 50, 3) for path in paths] == [b"\0\0\0"] * 9


def test_a_file_has_its_length_from_the_moment_it_has_its_name(files: MemoryFiles) -> None:
    """A broker does not start, or deletes it, where a queue file has no length."""
    files.make_directory(ROOT.parent / "own")
    pool = FilePool(ROOT, files, workshop=ROOT.parent / "own")
    files.fail("truncate", errno.ENOSPC, times=1)
    with pytest.raises(OSError, match="No space"):
        pool.create(f"{ROOT}/t/0/0", 100)
    assert files.listdir(ROOT / "t" / "0") == []
    assert files.listdir(ROOT.parent / "own") == []
    files.fail("rename", errno.EXDEV, times=1)
    pool.create(f"{ROOT}/t/0/0", 100)
    assert pool.length(f"{ROOT}/t/0/0") == 100
    # killed in the middle
    files.open(ROOT.parent / "own" / DRAFT_NAME, create=True)
    files.kill()
    remove_drafts(files, ROOT.parent / "own", ROOT)
    assert files.listdir(ROOT.parent / "own") == []


@pytest.mark.parametrize("count", [1, SYNC_TOGETHER + 1])
def test_sync_makes_files_and_names_durable(files: MemoryFiles, count: int) -> None:
    pool = pool_of(files, open_files=100)
    paths = [f"{ROOT}/t/{queue}/0" for queue in range(count)]
    for path in paths:
        pool.create(path, 8)
        pool.write(path, 0, b"kept")
    pool.sync()
    assert files.calls["sync_all"] == (count > 1)
    before = files.calls.copy()
    pool.sync()
    assert files.calls == before
    pool.write(paths[0], 4, b"lost")
    files.crash()
    pool = pool_of(files)
    assert [pool.read(path, 0, 8) for path in paths] == [b"kept\0\0\0\0"] * count


def test_nothing_dirty_costs_nothing(files: MemoryFiles) -> None:
    pool = pool_of(files)
    pool.sync()
    assert not files.calls["fdatasync"]
    assert not files.calls["fsync_directory"]


def test_a_deleted_file_is_closed_and_its_removal_durable(files: MemoryFiles) -> None:
    pool = pool_of(files)
    path = f"{ROOT}/t/0/0"
    pool.create(path, 8)
    pool.write(path, 0, b"x")
    pool.sync()
    pool.delete(path)
    assert files.open_handles == 0
    pool.sync()
    files.crash()
    assert files.listdir(ROOT / "t" / "0") == []
    with pytest.raises(FileNotFoundError):
        pool.read(path, 0, 1)


def test_a_file_that_somebody_has_deleted_is_gone(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    pool = pool_of(files)
    path = f"{ROOT}/t/0/0"
    pool.create(path, 8)
    files.unlink(ROOT / "t" / "0" / "0")
    pool.delete(path)
    pool.sync()
    assert f"was gone before it was deleted: {path}" in caplog.text


def test_shorten_clears_the_rest(files: MemoryFiles) -> None:
    pool = pool_of(files)
    path = f"{ROOT}/t/0/0"
    pool.create(path, 8)
    pool.write(path, 0, b"abcdefgh")
    pool.shorten(path, 3, 8)
    assert pool.length(path) == 8
    assert pool.read(path, 0, 8) == b"abc\0\0\0\0\0"


def test_what_is_blank_need_not_be_cut(files: MemoryFiles) -> None:
    """Else an open after kill -9 waits for an fsync of each queue's file."""
    pool = pool_of(files)
    path = f"{ROOT}/t/0/0"
    pool.create(path, 8)
    pool.write(path, 0, b"abc")
    pool.sync()
    files.fail("truncate", errno.EIO)
    pool.shorten(path, 3, 8)
    with pytest.raises(OSError, match="error"):
        pool.shorten(path, 2, 8)
    with pytest.raises(OSError, match="error"):
        pool.shorten(path, 3, 16)


def test_a_rest_that_cannot_be_read_is_cut(files: MemoryFiles) -> None:
    pool = pool_of(files)
    path = f"{ROOT}/t/0/0"
    pool.create(path, 8)
    pool.write(path, 0, b"abcdefgh")
    files.fail("pread", errno.EIO, times=1)
    pool.shorten(path, 3, 8)
    assert pool.read(path, 0, 8) == b"abc\0\0\0\0\0"


def test_a_failed_write_is_raised_and_synced_no_less(files: MemoryFiles) -> None:
    pool = pool_of(files)
    path = f"{ROOT}/t/0/0"
    pool.create(path, 8)
    pool.sync()
    files.fail("pwrite", errno.ENOSPC, times=1, took=2)
    with pytest.raises(OSError, match="No space"):
        pool.write(path, 0, b"abcd")
    before = files.calls["fdatasync"]
    pool.sync()
    assert files.calls["fdatasync"] == before + 1
    pool.write(path, 0, b"abcd")
    pool.sync()
    files.crash()
    assert pool_of(files).read(path, 0, 4) == b"abcd"


def test_a_touched_file_is_synced(files: MemoryFiles) -> None:
    pool = pool_of(files)
    path = f"{ROOT}/t/0/0"
    pool.create(path, 8)
    pool.sync()
    before = files.calls["fdatasync"]
    pool.mark_dirty(path)
    pool.sync()
    assert files.calls["fdatasync"] == before + 1


def test_a_file_that_cannot_be_closed_keeps_no_other_open(files: MemoryFiles) -> None:
    pool = pool_of(files)
    paths = [f"{ROOT}/t/{queue}/0" for queue in range(3)]
    for path in paths:
        pool.create(path, 8)
        pool.write(path, 0, b"x")
    files.fail("close", name="t/0", times=1)
    with pytest.raises(StoreError, match=f"{paths[0]} could not be closed"):
        pool.close()
    assert files.open_handles == 1
    assert pool.read(paths[1], 0, 1) == b"x"


def test_a_file_is_made_empty_where_one_was_left(files: MemoryFiles) -> None:
    pool = pool_of(files)
    path = f"{ROOT}/t/0/0"
    pool.create(path, 8)
    pool.write(path, 0, b"abcdefgh")
    pool.create(path, 8)
    assert pool.read(path, 0, 8) == bytes(8)


class DuringOpen(MemoryFiles):
    """Does something else between the opening of a file and what its opener does next."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], None] | None = None

    def open(self, path: Path | str, *, create: bool = False, write: bool = True) -> int:
        handle = super().open(path, create=create, write=write)
        then, self.then = self.then, None
        if then is not None:
            then()
        return handle


def test_while_a_file_is_opened_others_can_be_read() -> None:
    files = DuringOpen()
    pool = pool_of(files)
    for name in ("a", "b"):
        pool.create(f"{ROOT}/{name}", 3)
        pool.write(f"{ROOT}/{name}", 0, name.encode())
    pool.sync()
    pool.close()
    pool.read(f"{ROOT}/b", 0, 1)
    others: list[bytes] = []

    def read_other() -> None:
        thread = threading.Thread(target=lambda: others.append(pool.read(f"{ROOT}/b", 0, 1)))
        thread.start()
        thread.join(10)

    files.then = read_other
    assert pool.read(f"{ROOT}/a", 0, 1) == b"a"
    assert others == [b"b"]


def test_of_a_file_that_is_replaced_while_it_is_opened_the_new_one_is_read() -> None:
    files = DuringOpen()
    pool, path = pool_of(files), f"{ROOT}/a"

    def create(content: bytes) -> None:
        pool.create(path, 3)
        pool.write(path, 0, content)

    def replace() -> None:
        pool.delete(path)
        create(b"new")
        pool.sync()
        pool.close()

    create(b"old")
    pool.sync()
    pool.close()
    files.then = replace
    assert pool.read(path, 0, 3) == b"new"
    assert files.open_handles == 1


def test_a_file_that_two_open_at_once_has_one_descriptor() -> None:
    files = DuringOpen()
    pool, path = pool_of(files), f"{ROOT}/a"
    pool.create(path, 3)
    pool.sync()
    pool.close()
    files.then = lambda: pool.write(path, 0, b"new")
    assert pool.read(path, 0, 3) == b"new"
    assert files.open_handles == 1
