"""What every FileSystem must do, the real one and the one in memory.

A test class inherits `FilesSuite` and gives it two fixtures: `files` and `root`, an empty
directory that is there.
"""

from pathlib import Path

import pytest

from tandemlog_server.storage.disk.file_system import FileSystem


class FilesSuite:
    """See the module."""

    def test_what_is_written_is_read(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"hello", 3)
        assert files.pread(handle, 100, 0) == b"\0\0\0hello"
        assert files.pread(handle, 2, 4) == b"el"
        assert files.pread(handle, 2, 100) == b""
        assert files.size(handle) == 8
        files.close(handle)

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_any_buffer_is_written(
        self, files: FileSystem, root: Path, kind: type[bytes] | type[bytearray]
    ) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, kind(b"abc"), 0)
        files.pwrite(handle, kind(b""), 1)
        files.close(handle)
        assert files.read_file(root / "a") == b"abc"

    def test_a_missing_file_is_not_opened(self, files: FileSystem, root: Path) -> None:
        with pytest.raises(FileNotFoundError):
            files.open(root / "a")
        with pytest.raises(FileNotFoundError):
            files.open(root / "no directory" / "a", create=True)
        with pytest.raises(FileNotFoundError):
            files.read_file(root / "a")

    def test_a_closed_handle_is_refused(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.close(handle)
        with pytest.raises(OSError, match="Bad file descriptor"):
            files.pread(handle, 1, 0)

    def test_reading_only(self, files: FileSystem, root: Path) -> None:
        files.close(files.open(root / "a", create=True))
        handle = files.open(root / "a", write=False)
        with pytest.raises(OSError, match="Bad file descriptor"):
            files.pwrite(handle, b"x", 0)
        files.close(handle)

    def test_opening_keeps_the_content(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"kept", 0)
        files.close(handle)
        files.close(files.open(root / "a", create=True))
        assert files.read_file(root / "a") == b"kept"

    def test_preallocated_space_is_zero_and_keeps_what_is_there(
        self, files: FileSystem, root: Path
    ) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"first", 0)
        files.preallocate(handle, 10_000)
        assert files.size(handle) == 10_000
        assert files.pread(handle, 20_000, 0) == b"first".ljust(10_000, b"\0")
        files.preallocate(handle, 100)
        assert files.size(handle) == 10_000
        files.close(handle)

    def test_truncate_grows_and_cuts(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"abcdef", 0)
        files.truncate(handle, 3)
        files.truncate(handle, 6)
        files.fdatasync(handle)
        assert files.pread(handle, 10, 0) == b"abc\0\0\0"
        files.close(handle)

    def test_a_sparse_file_is_blank_behind_what_was_written(
        self, files: FileSystem, root: Path
    ) -> None:
        handle = files.open(root / "a", create=True)
        files.truncate(handle, 1_000_000)
        assert files.is_blank(handle, 0)
        files.pwrite(handle, b"abc", 5_000)
        assert not files.is_blank(handle, 0)
        assert not files.is_blank(handle, 5_002)
        assert files.is_blank(handle, 5_003)
        files.pwrite(handle, b"abc", 700_000)
        assert not files.is_blank(handle, 5_003)
        assert files.is_blank(handle, 700_003)
        assert files.is_blank(handle, 1_000_000)
        files.close(handle)

    def test_a_range_becomes_zero(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 3_000_000)
        files.pwrite(handle, b"x" * 3_000_000, 0)
        files.zero_range(handle, 1_000, 2_500_000)
        files.zero_range(handle, 2_999_999, 1)
        files.zero_range(handle, 5, 0)
        expected = b"x" * 1_000 + bytes(2_500_000) + b"x" * 498_999 + b"\0"
        assert files.pread(handle, 3_000_000, 0) == expected
        assert files.size(handle) == 3_000_000
        files.close(handle)

    def test_a_map_shows_later_writes(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 8192)
        view = files.map(handle, 8192)
        files.pwrite(handle, b"later", 4094)
        assert bytes(view[4094:4099]) == b"later"
        files.zero_range(handle, 4094, 2)
        assert bytes(view[4094:4099]) == b"\0\0ter"
        assert view.readonly
        assert len(view) == 8192
        files.close(handle)

    def test_no_map_reaches_beyond_the_file(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 100)
        with pytest.raises(OSError, match="the file has 100 of 101 bytes"):
            files.map(handle, 101)
        files.close(handle)

    def test_what_was_written_a_moment_ago_is_cached(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"x" * 5_000, 0)
        # a file system need not know; it never says so of bytes that are not there
        assert files.is_cached(handle, 5_000, 0) or not files.is_cached(handle, 1, 0)
        assert not files.is_cached(handle, 5_001, 0)
        files.close(handle)

    def test_what_is_mapped_can_be_brought_in(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 100_000)
        files.pwrite(handle, b"x" * 50_000, 30_000)
        view = files.map(handle, 100_000)
        files.prefault(view)
        files.prefault(view[5_000:5_001])
        files.prefault(view[10:], [(0, 1), (4_090, 20), (99_000, 990)])
        files.prefault(view[:0])
        assert files.in_memory(view)
        assert files.in_memory(view[:0])
        assert bytes(view[29_999:30_001]) == b"\0x"
        files.close(handle)

    def test_a_writable_map_is_the_file(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 4096)
        view = files.map(handle, 4096, writable=True)
        view[10:13] = b"abc"
        files.fdatasync(handle)
        assert files.pread(handle, 5, 9) == b"\0abc\0"
        files.close(handle)

    def test_a_map_outlives_its_handle_and_its_name(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"still here", 0)
        view = files.map(handle, 10)
        files.close(handle)
        files.unlink(root / "a")
        assert bytes(view) == b"still here"
        assert files.status(root / "a") is None

    def test_directories(self, files: FileSystem, root: Path) -> None:
        deep = root / "one" / "two"
        files.make_directory(deep)
        files.make_directory(deep)
        files.close(files.open(deep / "b", create=True))
        files.close(files.open(deep / "a", create=True))
        files.fsync_directory(deep)
        assert files.listdir(deep) == ["a", "b"]
        assert files.listdir(root / "one") == ["two"]
        assert files.listdir(root / "nothing") == []
        with pytest.raises(OSError, match="Directory not empty"):
            files.remove_directory(deep)
        files.unlink(deep / "a")
        files.unlink(deep / "b")
        files.remove_directory(deep)
        assert files.listdir(root / "one") == []

    def test_everything_is_synced_at_once(self, files: FileSystem, root: Path) -> None:
        files.make_directory(root / "a" / "b", durable=False)
        handle = files.open(root / "a" / "b" / "c", create=True)
        files.pwrite(handle, b"x", 0)
        files.close(handle)
        files.sync_all(root)
        assert files.read_file(root / "a" / "b" / "c") == b"x"

    def test_a_dropped_cache_loses_nothing(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"synced", 0)
        files.fdatasync(handle)
        files.pwrite(handle, b"SYN", 0)
        files.drop_cache(handle)
        assert files.pread(handle, 6, 0) == b"SYNced"
        files.close(handle)

    def test_a_boot_has_one_name(self, files: FileSystem, root: Path) -> None:
        assert files.boot_id() == files.boot_id() != ""

    def test_a_mount_has_one_name(self, files: FileSystem, root: Path) -> None:
        assert files.mount_id(root) == files.mount_id(root / "not" / "yet" / "there")

    def test_status(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"12345", 0)
        files.close(handle)
        status = files.status(root / "a")
        assert status is not None
        assert status.size == 5
        assert not status.is_directory
        assert status.modified_ms > 1_600_000_000_000
        directory = files.status(root)
        assert directory is not None
        assert directory.is_directory
        assert files.status(root / "nothing") is None
        assert files.status(root / "a" / "below a file") is None

    def test_rename_replaces(self, files: FileSystem, root: Path) -> None:
        for name in ("a", "b"):
            handle = files.open(root / name, create=True)
            files.pwrite(handle, name.encode(), 0)
            files.close(handle)
        files.rename(root / "a", root / "b")
        assert files.listdir(root) == ["b"]
        assert files.read_file(root / "b") == b"a"
        with pytest.raises(FileNotFoundError):
            files.rename(root / "a", root / "c")

    def test_a_file_with_two_names(self, files: FileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"first", 0)
        files.close(handle)
        files.link(root / "a", root / "b")
        assert files.listdir(root) == ["a", "b"]
        for name in ("b", "a"):
            with pytest.raises(FileExistsError):
                files.link(root / "a", root / name)
        with pytest.raises(FileNotFoundError):
            files.link(root / "missing", root / "c")
        # another file takes one of the names
        handle = files.open(root / "c", create=True)
        files.pwrite(handle, b"second", 0)
        files.close(handle)
        files.rename(root / "c", root / "a")
        assert files.read_file(root / "b") == b"first"
        files.unlink(root / "a")
        assert files.read_file(root / "b") == b"first"

    def test_a_directory_moves_with_its_content(self, files: FileSystem, root: Path) -> None:
        files.make_directory(root / "from" / "below")
        handle = files.open(root / "from" / "below" / "a", create=True)
        files.pwrite(handle, b"moved", 0)
        files.close(handle)
        files.rename(root / "from", root / "to")
        assert files.listdir(root) == ["to"]
        assert files.read_file(root / "to" / "below" / "a") == b"moved"

    def test_atomic_replace(self, files: FileSystem, root: Path) -> None:
        files.atomic_replace(root / "a", b"a long first text")
        files.atomic_replace(root / "a", b"second")
        assert files.read_file(root / "a") == b"second"
        assert files.listdir(root) == ["a"]

    def test_unlink_wants_something_there(self, files: FileSystem, root: Path) -> None:
        with pytest.raises(FileNotFoundError):
            files.unlink(root / "a")

    def test_the_number_of_open_files_has_a_limit(self, files: FileSystem) -> None:
        assert files.open_limit() >= 64

    def test_disk_usage(self, files: FileSystem, root: Path) -> None:
        usage = files.disk_usage(root)
        assert usage.total >= usage.used >= 0
        assert usage.free > 0
        assert 0 <= usage.percent <= 100

    def test_a_record_lock_is_taken_again_by_its_own_process(
        self, files: FileSystem, root: Path
    ) -> None:
        handle = files.open(root / "lock", create=True)
        assert files.lock_range(handle, 0, 1)
        assert files.lock_range(handle, 0, 1)
        assert files.lock_holder(handle, 0, 1) is None
        files.close(handle)
