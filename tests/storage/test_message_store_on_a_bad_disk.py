"""A disk that fails, is full or cannot keep up: who is told, and what heals."""

import contextlib
import errno
import threading
from dataclasses import replace
from unittest.mock import patch

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import FlushMode, RetentionConfig
from tandemlog_server.storage.disk.file_system import Buffer
from tandemlog_server.storage.errors import (
    CorruptStoreError,
    DiskFullError,
    FlushFailedError,
    StoreBusyError,
    StoreError,
    StoreReadOnlyError,
)
from tandemlog_server.storage.housekeeping import release_maps
from tandemlog_server.storage.state_files.fsync_flag import FsyncFlag
from tandemlog_server.storage.state_files.session_file import FSYNC
from tandemlog_server.storage.tools.compare_stores import compare
from tandemlog_server.storage.tools.dump import dump
from tandemlog_server.storage.tools.recover import plan
from tandemlog_server.storage.tools.verify import verify


def fail_to_flush(bench: Bench) -> None:
    """One fdatasync of the log fails."""
    bench.files.fail("fdatasync", errno.EIO, name="commitlog", times=1)
    with pytest.raises(FlushFailedError):
        bench.store.flush()


def test_a_failed_fsync_ends_the_writing_for_good() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put()
    bench.settle()
    bench.put()
    fail_to_flush(bench)
    with pytest.raises(FlushFailedError):
        bench.put()
    assert bench.store.failure is not None
    assert len(bench.bodies()) == 1
    bench.store.close()
    assert bench.files.status(DIRECTORY / "abort") is not None


def test_after_a_failed_fsync_the_page_cache_is_not_believed() -> None:
    """In the same boot every read would show what is not on the disk, and the next flush would
    have nothing to do: what is acknowledged behind it would be lost with the power."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(5)
    bench.settle()
    held = bench.bodies()
    bench.put(5)
    fail_to_flush(bench)
    bench.kill()
    assert bench.files.locks_held == 1, "closing any handle of the lock file would end the lock"
    assert bench.bodies() == held
    assert bench.store.doubt == "", "nothing of it was acknowledged"
    bench.put(5)
    bench.store.flush()
    bench.store.reput.run_to()
    acknowledged = bench.bodies()
    assert len(acknowledged) == 10
    bench.crash()
    assert bench.bodies() == acknowledged


def test_a_process_that_dies_before_it_can_note_a_failed_fsync_hides_nothing() -> None:
    """The same, and the flag was never raised: the stop was not clean, and that is enough."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(5)
    bench.settle()
    held = bench.bodies()
    bench.put(5)
    with patch.object(FsyncFlag, "raise_it", lambda _: None):
        fail_to_flush(bench)
        bench.kill()
    assert bench.bodies() == held
    bench.put(5)
    bench.store.flush()
    bench.store.reput.run_to()
    acknowledged = bench.bodies()
    assert len(acknowledged) == 10
    bench.crash()
    assert bench.bodies() == acknowledged


def test_a_kill_leaves_the_pages_of_log_files_that_were_durable_before() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(40, size=900)
    bench.settle()
    bench.store.persist()
    bench.put(2, size=900)
    dropped: list[str] = []
    drop_cache = type(bench.files).drop_cache

    def noted(files: MemoryFiles, handle: int) -> None:
        dropped.append(str(files._opened("drop_cache", handle)[1]))
        drop_cache(files, handle)

    with patch.object(type(bench.files), "drop_cache", noted):
        bench.kill()
    logs = [name for name in dropped if "/commitlog/" in name]
    assert logs
    assert not [name for name in logs if name.endswith(f"/{0:020d}")]
    assert [name for name in dropped if "/consumequeue/" in name]


def test_a_disk_that_takes_not_even_the_note_of_it_gets_it_later() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(5)
    for call in ("fdatasync", "pwrite", "sync_all"):
        bench.files.fail(call, errno.EIO)
    with pytest.raises(FlushFailedError):
        bench.store.flush()
    flag = FsyncFlag(DIRECTORY / "tandemlog" / "fsync-failed", bench.files)
    assert not flag.is_raised()
    bench.files.heal()
    bench.clock.advance(60)
    bench.store._keeper.run_due()
    assert flag.is_raised()
    bench.kill()
    assert not flag.is_raised()
    assert bench.bodies() == []


def test_a_full_disk_still_takes_the_note() -> None:
    bench = Bench()
    bench.put(5)
    bench.files.fail("fdatasync", errno.EIO, name="commitlog", times=1)
    for call in ("preallocate", "atomic_replace"):
        bench.files.fail(call, errno.ENOSPC)
    with pytest.raises(FlushFailedError):
        bench.store.flush()
    assert FsyncFlag(DIRECTORY / "tandemlog" / "fsync-failed", bench.files).is_raised()


def test_in_async_flush_a_failed_fsync_leaves_a_doubt() -> None:
    bench = Bench()
    bench.store.count_unflushed()
    bench.put(5)
    fail_to_flush(bench)
    assert bench.kill().doubt == FSYNC
    assert bench.bodies() == []


def test_a_disk_that_still_fails_keeps_the_store_closed() -> None:
    bench = Bench()
    bench.store.count_unflushed()
    bench.put(5)
    fail_to_flush(bench)
    bench.files.fail("sync_all", errno.EIO, times=2)
    with pytest.raises(StoreError, match="cannot be opened"):
        bench.kill()
    # what the kernel has to tell of the failure before is none of now
    bench.files.fail("sync_all", errno.EIO, times=1)
    assert bench.open().doubt == FSYNC


@pytest.mark.parametrize("name", ["consumequeue", "index"])
def test_a_failed_fsync_of_what_is_derived_ends_the_writing_too(name: str) -> None:
    """A second one that succeeds would let the recovery point vouch for what is not there."""
    bench = Bench()
    bench.put(5)
    bench.settle()
    bench.files.fail("fdatasync", errno.EIO, name=name, times=1)
    bench.files.fail("sync_all", errno.EIO, times=1)
    with pytest.raises(FlushFailedError):
        bench.store.persist()
    with pytest.raises(FlushFailedError):
        bench.put()
    bench.files.heal()
    with pytest.raises(FlushFailedError):
        bench.store.persist()
    bench.store.close()
    bench.kill()
    bench.put(2)
    bench.settle()
    bench.store.persist()
    before = bench.bodies()
    assert len(before) == 7
    bench.crash()
    assert bench.bodies() == before
    assert bench.store.recovery.queues_rebuilt == {}
    bench.store.close()
    assert [str(each) for each in verify(bench.config, bench.files).faults] == []


@pytest.mark.parametrize(
    ("call", "number", "name"),
    [
        ("atomic_replace", errno.ENOSPC, "index.json"),
        ("pwrite", errno.ENOSPC, "index.json"),
        ("open", errno.EMFILE, "/index/"),
        ("open", errno.EMFILE, "/consumequeue/"),
    ],
)
def test_what_is_no_failed_fsync_heals(call: str, number: int, name: str) -> None:
    bench = Bench()
    bench.put(5)
    bench.settle()
    assert bench.store.index is not None
    bench.store.index._pool.close()
    bench.store.queues._disk.close()
    bench.files.fail(call, number, name=name, times=1)
    with pytest.raises((StoreError, OSError)) as refused:
        bench.store.persist()
    assert not isinstance(refused.value, FlushFailedError)
    bench.put(5)
    bench.settle()
    bench.store.persist()
    assert bench.store.failure is None
    before = bench.bodies()
    bench.crash()
    assert (bench.bodies(), len(before)) == (before, 10)


def test_a_write_that_cannot_be_taken_back_is_as_a_failed_fsync() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(5)
    bench.settle()
    held = bench.bodies()
    bench.files.fail("pwrite", errno.EIO, name="commitlog", times=1, took=400)
    bench.files.fail("fdatasync", errno.EIO, name="commitlog", times=1)
    with pytest.raises(StoreError):
        bench.put(5)
    assert isinstance(bench.store.failure, FlushFailedError)
    assert FsyncFlag(DIRECTORY / "tandemlog" / "fsync-failed", bench.files).is_raised()
    bench.kill()
    assert bench.bodies() == held


def test_who_waits_hears_of_it_though_the_disk_does_not_take_the_note() -> None:
    """A disk in trouble may take minutes for that byte."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.store.start()
    takes, told = threading.Event(), threading.Event()
    pwrite = bench.files.pwrite

    def slow(handle: int, data: Buffer, offset: int) -> None:
        if bytes(data) == b"1":
            takes.wait(30)
        pwrite(handle, data, offset)

    bench.store.log.flushed.listen(told.set)
    end = bench.put(1).end_offset
    assert bench.store.log.flushed.wait(end, 10)
    told.clear()
    with patch.object(bench.files, "pwrite", slow):
        bench.files.fail("fdatasync", errno.EIO, name="commitlog", times=1)
        with pytest.raises(FlushFailedError):
            bench.store.log.flushed.wait(bench.put(1).end_offset, 5)
        assert told.wait(5)
        assert not takes.is_set()
        takes.set()
        bench.store.close()
    assert FsyncFlag(DIRECTORY / "tandemlog" / "fsync-failed", bench.files).is_raised()


def test_a_failed_fsync_counts_after_any_other_failure() -> None:
    """Else the next save would vouch for queues that are not on the disk."""
    bench = Bench()
    bench.put(5)
    bench.settle()
    bench.store.log.fail(StoreReadOnlyError("for a test"))
    bench.files.fail("fdatasync", errno.EIO, name="consumequeue", times=1)
    bench.files.fail("sync_all", errno.EIO, times=1)
    for _ in range(2):
        with pytest.raises(FlushFailedError):
            bench.store.persist()
        bench.files.heal()
    bench.clock.advance(60)
    bench.store._keeper.run_due()
    assert FsyncFlag(DIRECTORY / "tandemlog" / "fsync-failed", bench.files).is_raised()


def test_a_flag_of_which_only_the_fsync_failed_is_raised_again() -> None:
    bench = Bench()
    bench.put(5)
    path = DIRECTORY / "tandemlog" / "fsync-failed"
    bench.files.fail("fdatasync", errno.EIO, times=2)
    with pytest.raises(FlushFailedError):
        bench.store.flush()
    assert bench.files.durable_content(path) == b"0"
    bench.clock.advance(60)
    bench.store._keeper.run_due()
    assert bench.files.durable_content(path) == b"1"


def test_what_else_lies_in_the_folder_of_a_store_is_left_alone() -> None:
    bench = Bench()
    bench.put(5)
    fail_to_flush(bench)
    bench.files.make_directory(DIRECTORY / "lost+found")
    for call in ("listdir", "open", "sync_all"):
        bench.files.fail(call, errno.EACCES, name="lost+found")
    bench.kill()
    bench.put(5)


def test_the_lock_goes_though_a_file_cannot_be_closed() -> None:
    bench = Bench()
    bench.put(5)
    bench.files.fail("unlink", errno.EROFS)
    with contextlib.suppress(StoreError, OSError):
        bench.store.close()
    assert bench.files.locks_held == 0
    bench.files.heal()
    bench.open()


def put_until_refused(bench: Bench) -> None:
    for _ in range(200):
        bench.put(3)


def test_a_full_disk_refuses_and_heals() -> None:
    bench = Bench()
    bench.put()
    bench.files.fail("preallocate", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        put_until_refused(bench)
    end = bench.store.log.wrote.value
    bench.files.heal()
    bench.put(10)
    assert bench.store.log.wrote.value > end
    bench.settle()
    assert bench.store.failure is None


def test_a_disk_that_the_spare_log_file_has_filled_lets_the_store_open() -> None:
    bench = Bench()
    bench.put(10)
    bench.settle()
    held = bench.bodies()
    bench.store.log._allocator._prepare_spare()
    bench.files.capacity = bench.files.disk_usage(DIRECTORY).used
    bench.kill()
    assert bench.bodies() == held
    bench.put(1)


def test_a_disk_above_the_warning_level_takes_no_puts() -> None:
    retention = RetentionConfig(
        disk_max_used_percent=50, disk_clean_forcibly_percent=50, disk_warning_percent=50
    )
    bench = Bench(replace(CONFIG, retention=retention))
    bench.put(10)
    bench.settle()
    bench.files.capacity = bench.files.disk_usage(DIRECTORY).used * 3 // 2
    bench.store._cleaner.run(bench.store._write_lock)
    with pytest.raises(DiskFullError, match="disk_warning_percent"):
        bench.put()
    assert "% full" in bench.store.read_only_reason
    bench.files.capacity = 1 << 50
    bench.store._cleaner.run(bench.store._write_lock)
    bench.put()


def test_damage_in_what_is_being_dispatched_stops_the_puts() -> None:
    bench = Bench()
    bench.put()
    start = bench.put().segments[0].physical_offset
    bench.files.content(DIRECTORY / "commitlog" / f"{0:020d}")[start] ^= 0xFF
    with pytest.raises(CorruptStoreError, match="no record at log offset"):
        bench.store.reput.run_to()
    bench.store.reput._fail(CorruptStoreError("log", start, "no record"))
    with pytest.raises(StoreReadOnlyError, match="dispatch has stopped"):
        bench.put()
    assert bench.store.failure is not None


def test_maps_that_are_let_go_come_back() -> None:
    bench = Bench()
    bench.put(50)
    bench.settle()
    before = bench.bodies()
    release_maps(bench.store.log)
    assert bench.bodies() == before
    bench.put()


def test_back_pressure_is_busy_and_nothing_stored() -> None:
    bench = Bench(replace(CONFIG, max_dirty_bytes=2000, busy_timeout_ms=0))
    with pytest.raises(StoreBusyError):
        put_until_refused(bench)
    end = bench.store.log.wrote.value
    assert end <= 2000
    assert bench.store.stats.put_busy == 1
    bench.store.flush()
    bench.put(3)


def failed() -> Bench:
    """A store after a failed fsync, whose node has ended: five messages are on the disk, five
    more in the page cache alone."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(5)
    bench.settle()
    bench.store.persist()
    bench.put(5)
    fail_to_flush(bench)
    bench.store.close()
    return bench


def everything(bench: Bench) -> dict[str, bytes]:
    paths = [DIRECTORY / "commitlog", DIRECTORY / "consumequeue" / "T" / "0", DIRECTORY / "index"]
    return {
        str(path / name): bytes(bench.files.content(path / name))
        for path in [*paths, DIRECTORY / "tandemlog", DIRECTORY / "tandemlog" / "folds"]
        for name in bench.files.listdir(path)
        if name != "folds"
    }


def test_a_dump_after_a_failed_fsync_shows_what_reads_show_and_says_so() -> None:
    """What is only in the page cache may be the last copy: nothing is dropped."""
    bench = failed()
    before = everything(bench)
    rows = dump(bench.config, "messages", bench.files)
    assert len(list(rows)) == 10
    assert any("page cache" in note for note in rows.notes)
    assert everything(bench) == before
    bench.open()
    bench.store.close()
    rows = dump(bench.config, "messages", bench.files)
    assert len(list(rows)) == 5
    assert not any("page cache" in note for note in rows.notes)


def test_verify_after_a_failed_fsync_vouches_for_nothing() -> None:
    bench = failed()
    before = everything(bench)
    report = verify(bench.config, bench.files)
    assert "page cache" in report.faults[0].reason
    assert report.faults[0].file.endswith("fsync-failed")
    compared = compare(bench.config, bench.config, bench.files)
    assert "page cache" in compared.faults[0].reason
    assert any("page cache" in note for note in plan(bench.config, bench.files).notes)
    assert everything(bench) == before
    bench.open()
    bench.store.close()
    assert verify(bench.config, bench.files).faults == []
    assert compare(bench.config, bench.config, bench.files).faults == []
