"""What a failing disk and a crash may and may not do to the log."""

import errno

import pytest

from fakes.batches import Put
from fakes.small_log import FILE_SIZE, NOW, SIZE, Log, positions, sized
from tandemlog.format.columns.walk import walk
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import (
    DiskFullError,
    FlushFailedError,
    StoreBusyError,
    StoreReadOnlyError,
)


@pytest.fixture
def log() -> Log:
    return Log()


# -- a failing disk


def test_a_full_disk_refuses_whole_batches_and_heals() -> None:
    files = MemoryFiles(capacity=3 * FILE_SIZE)  # one is left to small files
    log = Log(files)
    log.put(sized(3000), sized(3000))
    before = positions(log.log)
    with pytest.raises(DiskFullError, match="disk is full"):
        log.put(sized(500), sized(3000))  # the first would fit, the second wants a file
    assert positions(log.log) == before
    assert len(log.records()) == 2  # and is still read
    log.log.flush()
    log.put(sized(500))  # what fits the file is taken
    log.log.drop_before(FILE_SIZE)
    log.put(sized(3000))
    assert [record.queue_offset for record in log.records()] == [1, 2, 3]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("size", [200, 3900])
def test_no_descriptor_is_no_fault_of_the_disk(log: Log, number: int, size: int) -> None:
    """In the same file, which was let go meanwhile, and in the next one."""
    log.put(sized(300))
    log.log.flush()
    before = log.content()
    log.log.mapped.release()
    log.files.fail("open", number)
    with pytest.raises(StoreBusyError, match="no file descriptor left"):
        log.put(sized(size))
    log.files.heal()
    assert log.content()[: len(before)] == before
    assert not any(log.content()[len(before) :])
    assert log.log.failure is None
    log.put(sized(size))
    log.log.flush()
    assert [record.queue_offset for record in log.records()] == [0, 1]


def test_a_flush_waits_for_a_descriptor_of_the_folder(log: Log) -> None:
    log.put(sized(300))
    log.files.fail("fsync_directory", errno.EMFILE, times=1)
    with pytest.raises(StoreBusyError):
        log.log.flush()
    assert log.log.flushed.value == 0
    assert log.log.failure is None
    assert log.log.flush() == log.log.wrote.value


def test_a_cut_waits_for_a_descriptor(log: Log) -> None:
    log.put(sized(300), sized(300))
    log.log.flush()
    before = log.content()
    log.log.mapped.release()
    log.files.fail("open", errno.EMFILE)
    with pytest.raises(StoreBusyError, match="is not cut"):
        log.log.truncate(0)
    log.files.heal()
    assert log.content() == before
    log.log.truncate(0)
    assert log.log.wrote.value == 0


def test_a_file_that_may_not_be_written_is_no_damage(log: Log) -> None:
    log.put(sized(300))
    log.log.flush()
    log.log.mapped.release()
    log.files.fail("open", errno.EACCES)
    with pytest.raises(StoreReadOnlyError) as refused:
        log.put(sized(200))
    assert not isinstance(refused.value, FlushFailedError)
    assert "repair" not in str(refused.value)
    log.files.heal()
    log.put(sized(200))


@pytest.mark.parametrize("took", [0, 1, 100, 700])
def test_a_failed_write_leaves_no_bytes(log: Log, took: int) -> None:
    log.put(sized(3500))
    log.files.fail("pwrite", errno.ENOSPC, times=1, took=took)
    before = log.content()
    with pytest.raises(DiskFullError):
        log.put(sized(300), sized(300), sized(800))
    assert log.content()[: len(before)] == before
    assert not any(log.content()[len(before) :])
    assert log.table.next_queue_offsets[0] == 1
    log.put(sized(200))
    assert [record.queue_offset for record in log.records()] == [0, 1]


def test_a_write_that_cannot_be_taken_back_ends_writing(log: Log) -> None:
    log.put(Put())
    log.files.fail("pwrite", errno.EIO, times=1, took=50)
    log.files.fail("zero_range", errno.EIO)
    with pytest.raises(StoreReadOnlyError):
        log.put(Put())
    log.files.heal()
    with pytest.raises(StoreReadOnlyError, match="could not be taken back"):
        log.put(Put())
    assert len(log.records()) == 1


def test_a_failed_fsync_is_fatal_for_good(log: Log) -> None:
    log.put(Put())
    log.log.flush()
    log.put(Put())
    log.files.fail("fdatasync", errno.EIO, times=1)
    with pytest.raises(FlushFailedError, match="repair the disk"):
        log.log.flush()
    assert isinstance(log.log.flushed.failure, FlushFailedError)
    assert isinstance(log.log.failure, FlushFailedError)
    assert log.log.flushed.wait(SIZE, 0)
    with pytest.raises(FlushFailedError):
        log.log.flushed.wait(2 * SIZE, 10)
    for call in (
        lambda: log.put(Put()),
        lambda: log.log.append_raw(2 * SIZE, b"x"),
        log.log.flush,
        lambda: log.log.truncate(0),
        lambda: log.log.reset(0),
    ):
        with pytest.raises(FlushFailedError):
            call()
    assert len(log.records()) == 2  # reading goes on


@pytest.mark.parametrize("call", ["fdatasync", "zero_range", "unlink", "fsync_directory"])
def test_a_cut_that_fails_ends_writing(log: Log, call: str) -> None:
    log.put(*[sized(3000)] * 3)
    log.log.flush()
    log.files.fail(call, errno.EIO, times=1)
    with pytest.raises(FlushFailedError, match="truncation"):
        log.log.truncate(3000)
    with pytest.raises(FlushFailedError):
        log.put(Put())


# -- flush and crash


def test_flushed_bytes_survive_and_only_they() -> None:
    log = Log()
    log.put(sized(3000), sized(2000))
    assert log.log.flush() == 6096
    assert log.log.flushed_timestamp == NOW
    log.put(Put())
    log.files.crash()
    after = log.again()
    assert positions(after.log) == (8192, 8192, 8192)  # recovery says where it ends
    found = walk(after.log.read(4096, FILE_SIZE))
    assert found.count == 1
    after.log.truncate(4096 + found.end)
    assert positions(after.log) == (6096, 6096, 6096)
    assert len(after.records()) == 2


def test_one_flush_serves_all_dirty_files(log: Log) -> None:
    log.put(*[sized(3000)] * 5)
    before = log.files.calls["fdatasync"]
    log.log.flush()
    assert log.files.calls["fdatasync"] == before + 5
    log.log.flush()
    assert log.files.calls["fdatasync"] == before + 5
