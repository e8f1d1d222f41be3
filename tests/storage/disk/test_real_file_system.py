"""The disk: one suite for the real one and the fake, and what each has alone."""

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.files_suite import FilesSuite
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.file_system import DiskUsage, write_fully, zero_by_writing
from tandemlog_server.storage.disk.real_file_system import RealFileSystem

STORE = Path("/store")


class TestRealFiles(FilesSuite):
    @pytest.fixture
    def files(self) -> RealFileSystem:
        return RealFileSystem()

    @pytest.fixture
    def root(self, disk_path: Path) -> Path:
        return disk_path

    def test_a_page_that_is_not_there_is_an_error_and_no_signal(
        self, files: RealFileSystem, root: Path
    ) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 40_960)
        view = files.map(handle, 40_960)
        os.truncate(root / "a", 16_384)  # stands for sectors that have gone bad
        files.prefault(view[:16_384])
        with pytest.raises(OSError, match="Input/output error"):
            files.prefault(view)
        with pytest.raises(OSError, match="Input/output error"):
            files.prefault(view[16_384:16_385])
        with pytest.raises(OSError, match="Input/output error"):
            files.prefault(view, [(0, 10), (30_000, 10)])
        files.close(handle)

    def test_pages_come_from_the_disk(self, files: RealFileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"x" * 1_000_000, 0)
        files.fdatasync(handle)
        files.drop_cache(handle)
        view = files.map(handle, 1_000_000)
        assert not files.in_memory(view)
        files.prefault(view[500_000:])
        assert files.in_memory(view[500_000:])
        files.prefault(view, [(10, 1), (999_999, 1)])
        assert view[999_999] == ord("x")
        files.close(handle)

    def test_a_kernel_that_cannot_be_asked(
        self, files: RealFileSystem, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before Linux 5.14; reads go on as they did."""
        monkeypatch.setattr(
            "tandemlog_server.storage.disk.real_file_system._MADV_POPULATE_READ", 99
        )
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 8192)
        files.drop_cache(handle)
        files.prefault(files.map(handle, 8192))
        files.close(handle)

    def test_another_process_holds_the_lock(self, files: RealFileSystem, root: Path) -> None:
        path = root / "lock"
        code = (
            "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX,1,0);"
            "print('held',flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            handle = files.open(path)
            assert not files.lock_range(handle, 0, 1)
            looking = files.open(path, write=False)
            assert files.lock_holder(looking, 0, 1) == holder.pid
            assert files.lock_holder(looking, 1, 1) is None
            files.close(looking)
            holder.communicate()
        assert files.lock_range(handle, 0, 1)
        files.close(handle)

    def test_a_full_device_says_so(self, files: RealFileSystem) -> None:
        handle = os.open("/dev/full", os.O_RDWR)
        with pytest.raises(OSError, match="No space left"):
            files.pwrite(handle, b"x", 0)
        os.close(handle)

    def test_pages_of_a_map_are_locked(self, files: RealFileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 4096)
        view = files.map(handle, 4096)
        files.lock_memory(view)
        locked = [
            line for line in Path("/proc/self/status").read_text().splitlines() if "VmLck" in line
        ]
        assert int(locked[0].split()[1]) >= 4
        files.close(handle)

    def test_zeros_without_the_kernels_help(self, files: RealFileSystem, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 3 << 20)
        files.pwrite(handle, b"x" * 100, (1 << 20) - 50)
        zero_by_writing(files, handle, (1 << 20) - 40, 1 << 20)
        content = files.read_file(root / "a")
        assert content.count(b"x") == 10
        assert len(content) == 3 << 20
        files.close(handle)


class TestMemoryFiles(FilesSuite):
    @pytest.fixture
    def files(self) -> MemoryFiles:
        return MemoryFiles()

    @pytest.fixture
    def root(self, files: MemoryFiles) -> Path:
        files.make_directory(STORE)
        return STORE

    def test_a_crash_loses_what_was_not_fsynced(self, files: MemoryFiles, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 20)
        files.pwrite(handle, b"safe", 0)
        files.fdatasync(handle)
        files.fsync_directory(root)
        files.pwrite(handle, b"gone", 4)
        files.close(files.open(root / "no directory entry", create=True))
        files.crash()
        assert files.listdir(root) == ["a"]
        assert files.read_file(root / "a") == b"safe".ljust(20, b"\0")
        with pytest.raises(OSError, match="Bad file"):
            files.pread(handle, 1, 0)

    def test_a_crash_may_keep_a_part(self, files: MemoryFiles, root: Path) -> None:
        files.make_directory(root)
        outcomes = set()
        for seed in range(30):
            path = root / f"{seed}"
            handle = files.open(path, create=True)
            files.preallocate(handle, 12288)
            files.fdatasync(handle)
            files.fsync_directory(root)
            files.pwrite(handle, b"x" * 12288, 0)
            files.crash(random.Random(seed))
            outcomes.add(files.content(path).count(b"x"))
        assert outcomes == {0, 4096, 8192, 12288}

    def test_a_deleted_name_comes_back_without_a_directory_fsync(
        self, files: MemoryFiles, root: Path
    ) -> None:
        files.atomic_replace(root / "a", b"1")
        files.unlink(root / "a")
        files.crash()
        assert files.read_file(root / "a") == b"1"

    def test_a_failed_fsync_drops_what_it_should_have_written(
        self, files: MemoryFiles, root: Path
    ) -> None:
        files.atomic_replace(root / "a", b"old")
        handle = files.open(root / "a")
        files.pwrite(handle, b"new", 0)
        files.fail("fdatasync", errno.EIO, times=1)
        with pytest.raises(OSError, match="Input/output"):
            files.fdatasync(handle)
        files.fdatasync(handle)
        assert files.read_file(root / "a") == b"new"
        assert files.durable_content(root / "a") == b"old"

    def test_failures_by_name_count_and_turn(self, files: MemoryFiles, root: Path) -> None:
        one, two = (files.open(root / name, create=True) for name in ("one", "two"))
        files.fail("pwrite", errno.ENOSPC, name="two", skip=1, times=1, took=2)
        files.pwrite(one, b"xx", 0)
        files.pwrite(two, b"xx", 0)
        with pytest.raises(OSError, match="No space"):
            files.pwrite(two, b"yyyy", 0)
        assert files.read_file(root / "two") == b"yy"
        files.pwrite(two, b"zzzz", 0)
        assert files.calls["pwrite"] == 4

    def test_a_small_disk_fills(self, root: Path) -> None:
        files = MemoryFiles(capacity=10_000)
        files.make_directory(root)
        handle = files.open(root / "a", create=True)
        files.preallocate(handle, 9_000)
        assert files.disk_usage(root).percent == 90
        other = files.open(root / "b", create=True)
        files.truncate(other, 1 << 20)  # sparse: takes nothing yet
        with pytest.raises(OSError, match="No space"):
            files.pwrite(other, b"x" * 2_000, 0)
        files.close(handle)
        files.unlink(root / "a")
        files.pwrite(other, b"x" * 2_000, 0)

    def test_a_mapped_file_keeps_its_length(self, files: MemoryFiles, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.truncate(handle, 10)
        view = files.map(handle, 10)
        with pytest.raises(RuntimeError, match="mapped"):
            files.truncate(handle, 20)
        view.release()
        files.truncate(handle, 20)

    def test_a_killed_process_leaves_every_byte(self, files: MemoryFiles, root: Path) -> None:
        handle = files.open(root / "a", create=True)
        files.pwrite(handle, b"kept", 0)
        files.kill()
        assert files.open_handles == 0
        assert files.read_file(root / "a") == b"kept"

    def test_a_lock_held_elsewhere(self, files: MemoryFiles, root: Path) -> None:
        files.lock_elsewhere(root / "lock")
        assert not files.lock_range(files.open(root / "lock", create=True), 0, 1)


def test_short_writes_go_on_where_they_stopped() -> None:
    target = bytearray(10)

    def write(handle: int, data: memoryview, offset: int) -> int:
        took = min(len(data), 3)
        target[offset : offset + took] = data[:took]
        return took

    write_fully(write, 1, b"abcdefgh", 1)
    assert target == b"\0abcdefgh\0"


def test_a_write_that_takes_nothing_ends() -> None:
    with pytest.raises(OSError, match="no bytes"):
        write_fully(lambda handle, data, offset: 0, 1, b"x", 0)


def test_use_in_percent_is_rounded_up() -> None:
    assert DiskUsage(total=1000, used=301, free=599).percent == 34
    assert DiskUsage(total=0, used=0, free=0).percent == 0
