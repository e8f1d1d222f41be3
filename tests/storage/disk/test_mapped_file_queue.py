"""A row of files: load rules, rolling, cutting at both ends."""

import errno
from contextlib import nullcontext
from pathlib import Path

import pytest

from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.mapped_file_queue import MappedFileQueue
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import DiskFullError, StoreLayoutError, StoreReadOnlyError

ROOT = Path("/queue")


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(ROOT)
    return files


def put(files: MemoryFiles, name: str, size: int) -> None:
    handle = files.open(ROOT / name, create=True)
    files.truncate(handle, size)
    files.fdatasync(handle)
    files.close(handle)
    files.fsync_directory(ROOT)


def bases(mapped: MappedFileQueue) -> list[int]:
    return [file.base for file in mapped.files]


def test_an_empty_directory_is_an_empty_row(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT / "none yet", 100)
    assert (mapped.start, mapped.end, mapped.files) == (0, 0, ())
    assert mapped.find(0) is None
    assert files.status(ROOT / "none yet") is None


def test_the_length_of_the_files_wins(files: MemoryFiles) -> None:
    put(files, "00000000000000000300", 300)
    put(files, "00000000000000000600", 300)
    mapped = MappedFileQueue(files, ROOT, 1000)
    assert mapped.file_size == 300
    assert (mapped.start, mapped.end) == (300, 900)
    assert mapped.find(299) is None
    assert mapped.find(900) is None
    assert [file.base for file in map(mapped.find, (300, 599, 600, 899)) if file] == [
        300,
        300,
        600,
        600,
    ]


def test_what_is_no_file_of_ours_is_ignored(files: MemoryFiles) -> None:
    put(files, "00000000000000000000", 300)
    put(files, "notes.txt", 7)
    put(files, "12", 7)
    files.make_directory(ROOT / "00000000000000000300")
    mapped = MappedFileQueue(files, ROOT, 1000)
    assert bases(mapped) == [0]
    assert files.listdir(ROOT) == [
        "00000000000000000000",
        "00000000000000000300",
        "12",
        "notes.txt",
    ]


def test_an_empty_last_file_is_deleted(files: MemoryFiles) -> None:
    put(files, "00000000000000000000", 300)
    put(files, "00000000000000000300", 0)
    mapped = MappedFileQueue(files, ROOT, 1000)
    assert bases(mapped) == [0]
    assert files.listdir(ROOT) == ["00000000000000000000"]


def test_reading_only_touches_nothing(files: MemoryFiles) -> None:
    put(files, "00000000000000000000", 300)
    put(files, "00000000000000000300", 0)
    mapped = MappedFileQueue(files, ROOT, 1000, read_only=True)
    assert bases(mapped) == [0]
    assert files.listdir(ROOT) == ["00000000000000000000", "00000000000000000300"]


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({0: 300, 300: 200}, "00000000000000000300 has 200 bytes"),
        ({0: 200, 300: 300, 600: 300}, "00000000000000000000 has 200 bytes"),
        ({0: 300, 300: 0, 600: 300}, "00000000000000000300 has 0 bytes"),
        ({0: 300, 600: 300}, "00000000000000000300 is missing"),
        ({100: 300}, "cannot start at 100"),
    ],
)
def test_files_that_do_not_fit_are_named(
    files: MemoryFiles, sizes: dict[int, int], named: str
) -> None:
    for base, size in sizes.items():
        put(files, f"{base:020d}", size)
    with pytest.raises(StoreLayoutError, match=named):
        MappedFileQueue(files, ROOT, 300)


def test_files_are_made_as_they_are_needed(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    assert mapped.ensure(250).base == 200
    assert bases(mapped) == [200]
    assert mapped.ensure(299).base == 200
    assert mapped.ensure(450).base == 400
    assert bases(mapped) == [200, 300, 400]
    with pytest.raises(StoreLayoutError, match="before the first file"):
        mapped.ensure(150)


def test_writes_go_over_the_ends_of_files(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    data = bytes(range(200)) + bytes(range(50))
    mapped.write(30, data)
    assert bases(mapped) == [0, 100, 200]
    parts = [bytes(mapped.view(offset, 1000)) for offset in (30, 100, 200)]
    assert b"".join(parts)[: len(data)] == data
    assert bytes(mapped.view(300, 10)) == b""


def test_what_is_synced_survives_a_crash_with_its_name(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"a" * 250)
    mapped.sync(0, 150)
    files.crash()
    mapped = MappedFileQueue(files, ROOT, 100)
    assert bytes(mapped.view(0, 100)) == b"a" * 100
    assert bytes(mapped.view(100, 100)) == b"a" * 100
    # the third file has a name, but no length yet: it was left out
    assert bases(mapped) == [0, 100]


def test_only_dirty_files_are_synced(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"a" * 300)
    mapped.sync(0, 300)
    assert files.calls["fdatasync"] == 3
    mapped.write(210, b"b")
    mapped.sync(210, 211)
    assert files.calls["fdatasync"] == 4
    assert files.calls["fsync_directory"] == 1


def test_a_failed_directory_sync_is_tried_again(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"a")
    files.fail("fsync_directory", times=1)
    with pytest.raises(OSError, match="Input/output"):
        mapped.sync(0, 1)
    mapped.sync(0, 1)
    files.crash()
    assert bytes(MappedFileQueue(files, ROOT, 100).view(0, 1)) == b"a"


def test_cutting_the_end(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.ensure(0)
    mapped.ensure(399)
    assert [path.name[-3:] for path in mapped.truncate_after(150)] == ["300", "200"]
    assert bases(mapped) == [0, 100]
    files.crash()
    assert files.listdir(ROOT) == ["00000000000000000000", "00000000000000000100"]
    assert mapped.truncate_after(150) == []


def test_a_file_that_begins_at_the_cut_stays(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.ensure(0)
    mapped.ensure(299)
    mapped.truncate_after(100)
    assert bases(mapped) == [0, 100]


def test_dropping_the_beginning_keeps_the_last_file(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"x" * 300)
    view = mapped.view(0, 100)
    assert mapped.drop_before(99) == []
    assert [path.name[-3:] for path in mapped.drop_before(100)] == ["000"]
    assert mapped.start == 100
    assert bytes(view) == b"x" * 100
    assert len(mapped.drop_before(10_000)) == 1
    assert bases(mapped) == [200]


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_file_that_cannot_be_deleted_stays_in_the_row(files: MemoryFiles, number: int) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"x" * 400)
    mapped.sync(0, 400)
    files.fail("unlink", number, name="0100", times=1)
    with pytest.raises(OSError, match="0100"):
        mapped.drop_before(300)
    assert bases(mapped) == [100, 200, 300]
    assert bytes(mapped.view(150, 100)) == b"x" * 50
    files.fail("unlink", number, name="0200", times=1)
    with pytest.raises(OSError, match="0200"):
        mapped.truncate_after(100)
    assert bases(mapped) == [100, 200]
    assert bases(MappedFileQueue(files, ROOT, 100)) == [100, 200]
    assert len(mapped.drop_before(300)) == 1
    assert bases(MappedFileQueue(files, ROOT, 100)) == [200]


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_is_in_the_row_until_it_is_gone(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """One that cannot be deleted would else let the beginning jump forth and back at every try."""
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"x" * 300)
    mapped.release()
    unlink, seen = files.unlink, []

    def look(path: Path) -> None:
        if fails:
            seen.append((mapped.start, bytes(mapped.view(mapped.start, 1))))
            raise OSError(errno.EPERM, "no", str(path))
        unlink(path)
        seen.append((mapped.start, bytes(mapped.view(mapped.start, 1))))

    monkeypatch.setattr(files, "unlink", look)
    with pytest.raises(OSError, match="no") if fails else nullcontext():
        mapped.drop_before(200)
    assert seen == [(0, b"x")] if fails else [(0, b"x"), (100, b"x")]
    assert mapped.start == (0 if fails else 200)
    mapped.close()
    assert files.open_handles == 0


def test_a_file_that_cannot_be_closed_keeps_no_other_open(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"x" * 300)
    files.fail("close", name="0000", times=1)
    with pytest.raises(OSError, match="0000"):
        mapped.close()
    assert files.open_handles == 1


def test_a_file_that_somebody_has_deleted_is_gone(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"x" * 500)
    files.unlink(ROOT / "00000000000000000000")
    files.unlink(ROOT / "00000000000000000300")
    assert len(mapped.drop_before(200)) == 2
    assert "was gone before it was deleted: /queue/00000000000000000000" in caplog.text
    mapped.clear(Path("/aside"))
    assert files.listdir(ROOT) == []
    assert files.listdir(Path("/aside")) == ["00000000000000000200", "00000000000000000400"]


def test_a_missing_folder_to_move_to_is_no_missing_file(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"x" * 200)
    files.fail("rename", errno.ENOENT, times=1)
    with pytest.raises(FileNotFoundError):
        mapped.clear(Path("/aside"))
    assert bases(mapped) == [0, 100]


def test_clearing_deletes_or_moves(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"x" * 200)
    mapped.sync(0, 200)
    mapped.clear(Path("/aside/commitlog"))
    assert files.listdir(ROOT) == []
    assert len(files.listdir(Path("/aside/commitlog"))) == 2
    mapped.write(500, b"y")
    assert bases(mapped) == [500]
    mapped.clear()
    assert files.listdir(ROOT) == []
    files.crash()
    assert files.listdir(ROOT) == []
    assert bytes(files.read_file(Path("/aside/commitlog/00000000000000000100"))) == b"x" * 100


def test_handles_are_given_back(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    mapped.write(0, b"x" * 300)
    assert files.open_handles == 3
    mapped.sync(0, 300)
    mapped.release()
    assert files.open_handles == 0
    mapped.write(0, b"y")
    mapped.close()
    assert files.open_handles == 0


def test_a_full_disk_and_another_fault(files: MemoryFiles) -> None:
    mapped = MappedFileQueue(files, ROOT, 100)
    files.fail("truncate", errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError, match="free some space"):
        mapped.ensure(0)
    files.fail("open", errno.EACCES, times=1)
    with pytest.raises(StoreReadOnlyError, match="Permission"):
        mapped.ensure(0)
    assert bases(mapped) == []
    assert mapped.ensure(0).base == 0


def test_queue_files_are_sparse_on_a_real_disk(tmp_path: Path) -> None:
    mapped = MappedFileQueue(RealFileSystem(), tmp_path / "q", 6_000_000)
    mapped.write(20, b"unit")
    mapped.sync(0, 24)
    found = (tmp_path / "q" / "00000000000000000000").stat()
    assert found.st_size == 6_000_000
    assert found.st_blocks * 512 < 100_000
    assert bytes(mapped.view(20, 4)) == b"unit"
    mapped.close()
