"""The log: its bytes against RocketMQ's rules, and what a failing disk may and may not do."""

import errno
import random
import threading
from pathlib import Path

import numpy as np
import pytest

from fakes.batches import Put, batch_of, registered
from fakes.clock import FakeClock
from fakes.memory_files import MemoryFiles
from storage.commit_log import CommitLog
from storage.config import StoreConfig
from storage.errors import (
    BatchRefusedError,
    DiskFullError,
    FlushFailedError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreClosedError,
    StoreLayoutError,
    StoreReadOnlyError,
)
from storage.files import RealFileSystem
from storage.queue_table import QueueTable
from tandemlog.format.batch import AppendSegment
from tandemlog.format.record import Record, decode_record, is_blank
from tandemlog.format.walk import walk

ROOT = Path("/store")
FILE_SIZE = 4096
NOW = 1_700_000_000_123


class Log:
    """A log on a disk in memory, and the table of its queues."""

    def __init__(self, files: MemoryFiles | None = None, **settings: object) -> None:
        self.files = files or MemoryFiles()
        chosen = {"commit_log_file_size": FILE_SIZE, "busy_timeout_ms": 0, **settings}
        self.config = StoreConfig(directory=ROOT, **chosen)  # type: ignore[arg-type]
        self.table = QueueTable()
        self.log = CommitLog(self.config, self.files, FakeClock())

    def put(self, *puts: Put) -> list[AppendSegment]:
        batch = batch_of(puts)
        return self.log.append(batch, registered(self.table, batch), self.table, NOW)

    def again(self) -> "Log":
        """The same store opened by the next process."""
        return Log(self.files, commit_log_file_size=self.config.commit_log_file_size)

    def content(self) -> bytes:
        return b"".join(bytes(file.view(0, file.size)) for file in self.log.files)

    def records(self) -> list[Record]:
        """Every record up to `committed`, by the plain decoder."""
        found = []
        offset = self.log.min_offset
        while offset < self.log.committed.value:
            data = self.log.read(offset, FILE_SIZE)
            if is_blank(data, 0):
                offset += FILE_SIZE - offset % FILE_SIZE
                continue
            found.append(decode_record(data, physical_offset=offset))
            offset += found[-1].size
        return found


@pytest.fixture
def log() -> Log:
    return Log()


def positions(log: CommitLog) -> tuple[int, int, int]:
    return log.wrote.value, log.committed.value, log.flushed.value


SIZE = len(Put().record())


def sized(size: int, **more: object) -> Put:
    """A put whose record has `size` bytes."""
    return Put(body=b"b" * (size - SIZE + 5), **more)  # type: ignore[arg-type]


# -- append


def test_an_empty_log(log: Log) -> None:
    assert positions(log.log) == (0, 0, 0)
    assert log.log.min_offset == 0
    assert bytes(log.log.read(0, 100)) == b""
    assert log.log.file_size == FILE_SIZE
    assert log.log.flush() == 0


def test_a_record_gets_what_only_the_master_knows(log: Log) -> None:
    (segment,) = log.put(Put(queue_id=2))
    assert (segment.first_index, segment.count, segment.physical_offset) == (0, 1, 0)
    assert segment.queue_offsets.tolist() == [0]
    record = log.records()[0]
    assert (record.queue_id, record.queue_offset, record.physical_offset) == (2, 0, 0)
    assert record.store_timestamp == NOW
    assert record.store_host == "127.0.0.1:10911"
    assert record.body == b"hello"
    assert positions(log.log) == (SIZE, SIZE, 0)
    assert log.log.store_timestamp == NOW


@pytest.mark.parametrize("count", [10, 200])
def test_queue_offsets_count_on_over_batches_and_files(count: int) -> None:
    log = Log()
    rng = random.Random(count)
    sent = []
    for number in range(4):
        puts = [
            sized(rng.randint(100, 400), topic=f"T{rng.randint(0, 2)}", queue_id=rng.randint(0, 2))
            for _ in range(count)
        ]
        sent += puts
        segments = log.put(*puts)
        assert sum(segment.count for segment in segments) == count
        assert number or segments[0].physical_offset == 0
    expected: dict[tuple[str, int], int] = {}
    for put, record in zip(sent, log.records(), strict=True):
        queue = (put.topic, put.queue_id)
        assert (record.topic, record.queue_id, record.body) == (*queue, put.body)
        assert record.queue_offset == expected.get(queue, 0)
        expected[queue] = record.queue_offset + 1
    for queue, after in expected.items():
        assert log.table.next_queue_offsets[log.table.get(*queue)] == after


def test_segments_say_where_the_records_are(log: Log) -> None:
    log.put(sized(2000))
    segments = log.put(sized(1000), sized(1500, queue_id=1), sized(500), sized(3000))
    assert [(each.first_index, each.count, each.physical_offset) for each in segments] == [
        (0, 1, 2000),
        (1, 2, 4096),
        (3, 1, 8192),
    ]
    assert [each.queue_offsets.tolist() for each in segments] == [[1, -1], [2, 0], [3, -1]]
    assert log.log.wrote.value == 8192 + 3000


def test_transactional_records_take_no_queue_offset(log: Log) -> None:
    log.put(Put())
    (segment,) = log.put(Put(sys_flag=4), Put(), Put(sys_flag=12), Put(sys_flag=8))
    assert [record.queue_offset for record in log.records()] == [0, 0, 1, 0, 2]
    assert segment.queue_offsets.tolist() == [1]
    assert log.table.next_queue_offsets[0] == 3
    (segment,) = log.put(Put(sys_flag=4))
    assert segment.queue_offsets.tolist() == [0]


def test_an_ipv6_store_writes_its_host() -> None:
    log = Log(store_host="[2001:db8::1]:10911")
    log.put(Put(store_host="[::]:0"))
    assert log.records()[0].store_host == "[2001:db8:0:0:0:0:0:1]:10911"


# -- the end of a file


@pytest.mark.parametrize(
    ("left", "blank"), [(8, 8), (9, 9), (100, 100), (SIZE, SIZE), (SIZE + 7, SIZE + 7)]
)
def test_a_blank_fills_what_no_record_fits(log: Log, left: int, blank: int) -> None:
    log.put(sized(FILE_SIZE - left))
    (segment,) = log.put(Put())
    assert segment.physical_offset == FILE_SIZE
    tail = log.content()[FILE_SIZE - left : FILE_SIZE]
    assert tail == blank.to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(left - 8)


def test_a_record_may_leave_exactly_eight_bytes(log: Log) -> None:
    (segment,) = log.put(sized(FILE_SIZE - 8))
    assert segment.physical_offset == 0
    assert len(log.log.files) == 1
    (segment,) = log.put(Put())
    assert segment.physical_offset == FILE_SIZE
    assert log.content()[FILE_SIZE - 8 : FILE_SIZE] == bytes.fromhex("00000008cbd43194")


def test_a_record_that_fits_no_file_is_refused(log: Log) -> None:
    with pytest.raises(BatchRefusedError) as refused:
        log.put(Put(), sized(FILE_SIZE - 7))
    assert (refused.value.code, refused.value.limit) == ("MESSAGE_TOO_LARGE", FILE_SIZE - 8)
    assert positions(log.log) == (0, 0, 0)
    log.put(sized(FILE_SIZE - 8))


def test_the_files_are_named_by_their_offsets(log: Log) -> None:
    log.put(*[sized(1500)] * 6)
    assert log.files.listdir(ROOT / "commitlog") == [
        "00000000000000000000",
        "00000000000000004096",
        "00000000000000008192",
    ]


def test_a_blank_covers_bytes_of_an_older_life(log: Log) -> None:
    log.put(sized(100), sized(3000), sized(900))
    log.log.flush()
    offset = log.log.wrote.value
    log.log.files[0].write(offset, b"stale" * 10)  # as another program may leave it
    log.put(sized(1000))
    assert log.content()[offset + 8 : FILE_SIZE] == bytes(FILE_SIZE - offset - 8)


# -- refusals


def test_an_unknown_queue_and_a_double_one(log: Log) -> None:
    batch = batch_of([Put(), Put(queue_id=1)])
    with pytest.raises(BatchRefusedError, match="TopicTest has no queue 1") as refused:
        log.log.append(batch, np.array([0, -1]), log.table, NOW)
    assert refused.value.code == "UNKNOWN_QUEUE"
    with pytest.raises(BatchRefusedError, match="queue 1 of TopicTest is in the table twice"):
        log.log.append(batch, np.array([0, 0]), log.table, NOW)
    assert positions(log.log) == (0, 0, 0)


def test_a_bad_batch_leaves_nothing(log: Log) -> None:
    log.put(Put())
    before = log.content()
    with pytest.raises(BatchRefusedError):
        log.put(Put(), Put(property_crc=True))
    assert log.content() == before
    assert log.table.next_queue_offsets[0] == 1


def test_too_much_that_is_not_flushed_is_refused() -> None:
    log = Log(max_dirty_bytes=3 * SIZE)
    log.put(Put(), Put(), Put())
    with pytest.raises(StoreBusyError, match="try again later"):
        log.put(Put())
    log.log.flush()
    log.put(Put(), Put())


def test_a_batch_above_the_dirty_limit_goes_alone() -> None:
    log = Log(max_dirty_bytes=3 * SIZE)
    log.put(*[Put()] * 5)
    with pytest.raises(StoreBusyError):
        log.put(Put())
    log.log.flush()
    log.put(*[Put()] * 5)


def test_a_put_waits_for_the_disk_before_it_is_refused() -> None:
    log = Log(max_dirty_bytes=3 * SIZE, busy_timeout_ms=60_000)
    log.put(Put(), Put(), Put())
    flusher = threading.Thread(target=log.log.flush)
    stop = log.log.flushed.listen(lambda: None)
    flusher.start()
    log.put(Put())
    flusher.join()
    stop()
    assert log.log.wrote.value == 4 * SIZE


# -- reading


def test_reads_stay_in_a_file_and_below_the_end(log: Log) -> None:
    log.put(sized(3000), sized(2000))
    assert len(log.log.read(0, 10_000)) == FILE_SIZE
    assert len(log.log.read(100, 50)) == 50
    assert len(log.log.read(4096, 10_000)) == 2000
    assert len(log.log.read(6096, 10)) == 0
    assert bytes(log.log.view(4096, 8)) == log.content()[4096:4104]
    for offset, size in ((6097, 0), (4090, 10), (6000, 97), (-1, 1), (9000, 1)):
        with pytest.raises(OffsetOutOfRangeError) as refused:
            log.log.view(offset, size)
        assert (refused.value.minimum, refused.value.maximum) == (0, 6096)
    for offset in (-1, 6097):
        with pytest.raises(OffsetOutOfRangeError):
            log.log.read(offset, 1)


def test_what_was_dropped_is_out_of_range_but_views_stay(log: Log) -> None:
    log.put(*[sized(3000)] * 3)
    log.log.flush()
    view = log.log.view(0, 3000)
    file = log.log.files[0]
    log.log.drop_before(4096)
    assert decode_record(view).physical_offset == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.log.read(0, 10)
    with pytest.raises(OffsetOutOfRangeError):
        log.log._reader._view(file, 0, 10)  # found before it went


# -- raw append


def test_a_slaves_log_becomes_the_same_bytes() -> None:
    master, slave = Log(), Log()
    rng = random.Random(7)
    for _ in range(30):
        master.put(*[sized(rng.randint(91 + 40, 900)) for _ in range(rng.randint(1, 5))])
    while (at := slave.log.wrote.value) < master.log.wrote.value:
        chunk = master.log.read(at, rng.randint(1, 700))
        assert slave.log.append_raw(at, bytes(chunk)) == at + len(chunk)
    assert slave.content() == master.content()
    assert len(slave.records()) == len(master.records())


def test_raw_bytes_must_continue_the_log(log: Log) -> None:
    log.log.append_raw(0, b"x" * 10)
    for offset in (0, 9, 11, FILE_SIZE):
        with pytest.raises(OffsetOutOfRangeError):
            log.log.append_raw(offset, b"y")
    with pytest.raises(StoreLayoutError, match="cross the end of a log file"):
        log.log.append_raw(10, bytes(FILE_SIZE - 9))
    assert log.log.append_raw(10, b"") == 10
    assert log.log.append_raw(10, bytes(FILE_SIZE - 10)) == FILE_SIZE
    assert log.log.append_raw(FILE_SIZE, b"next") == FILE_SIZE + 4


def test_an_empty_log_may_begin_at_any_file(log: Log) -> None:
    with pytest.raises(StoreLayoutError, match="no multiple"):
        log.log.append_raw(100, b"x")
    log.log.append_raw(5 * FILE_SIZE, b"x" * 10)
    assert log.log.min_offset == 5 * FILE_SIZE
    assert positions(log.log) == (5 * FILE_SIZE + 10, 5 * FILE_SIZE + 10, 5 * FILE_SIZE)
    assert log.files.listdir(ROOT / "commitlog") == ["00000000000000020480"]


# -- a failing disk


def test_a_full_disk_refuses_whole_batches_and_heals() -> None:
    files = MemoryFiles(capacity=2 * FILE_SIZE)
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
    with pytest.raises(FlushFailedError, match="mend the disk"):
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


# -- truncation


@pytest.mark.parametrize("cut", [0, SIZE, 3 * SIZE])
def test_a_cut_is_durable_and_leaves_nothing_to_find(log: Log, cut: int) -> None:
    log.put(*[Put()] * 5, sized(3900), sized(3900))
    log.log.flush()
    deleted = log.log.truncate(cut)
    assert [path.name for path in deleted] == ["00000000000000008192", "00000000000000004096"]
    assert positions(log.log) == (cut, cut, cut)
    log.files.crash()
    after = log.again()
    content = after.content()
    assert len(content) == FILE_SIZE
    assert not any(content[cut:])
    assert walk(content).end == cut


def test_old_records_do_not_come_back_behind_new_ones(log: Log) -> None:
    log.put(*[Put()] * 5)
    log.log.flush()
    log.log.truncate(SIZE)
    log.put(Put(body=b"newer"))  # just as long: it ends where an old one began
    log.log.flush()
    log.files.crash()
    assert walk(log.again().content()).count == 2


def test_a_cut_keeps_what_was_not_flushed_before_it(log: Log) -> None:
    log.put(Put(), Put())
    log.log.truncate(SIZE)
    assert positions(log.log) == (SIZE, SIZE, 0)
    log.log.flush()
    assert log.log.flushed.value == SIZE


def test_the_first_cut_after_a_kill_makes_the_rest_durable(log: Log) -> None:
    log.put(sized(3000), sized(3000), Put())
    log.files.kill()
    after = log.again()
    after.log.truncate(4096 + 3000)
    log.files.crash()
    assert walk(log.again().log.read(0, FILE_SIZE)).count == 1
    assert walk(log.again().log.read(4096, FILE_SIZE)).count == 1


def test_a_cut_outside_the_log_is_refused(log: Log) -> None:
    log.put(*[sized(3000)] * 3)
    log.log.flush()
    log.log.drop_before(4096)
    for offset in (0, 4095, 8192 + 3001):
        with pytest.raises(OffsetOutOfRangeError):
            log.log.truncate(offset)


def test_a_cut_at_the_end_of_a_file(log: Log) -> None:
    log.put(*[sized(3000)] * 2)
    log.log.truncate(FILE_SIZE)
    assert len(log.log.files) == 2
    log.log.append_raw(FILE_SIZE, b"next")
    assert bytes(log.log.read(FILE_SIZE, 10)) == b"next"


# -- reset and deletion


def test_a_reset_begins_anew_and_keeps_the_old_files_aside(log: Log) -> None:
    log.put(*[sized(3000)] * 2)
    log.log.flush()
    log.log.reset(3 * FILE_SIZE, move_to=ROOT / "resync-1" / "commitlog")
    assert positions(log.log) == (3 * FILE_SIZE,) * 3
    assert log.log.min_offset == 3 * FILE_SIZE
    assert len(log.files.listdir(ROOT / "resync-1" / "commitlog")) == 2
    log.log.append_raw(3 * FILE_SIZE, b"new")
    assert log.files.listdir(ROOT / "commitlog") == ["00000000000000012288"]
    with pytest.raises(StoreLayoutError, match="no multiple"):
        log.log.reset(100)
    assert log.log.wrote.value == 3 * FILE_SIZE + 3


def test_a_reset_may_bring_another_file_size(log: Log) -> None:
    log.put(Put())
    log.log.reset(16384, file_size=8192)
    assert log.log.file_size == 8192
    log.log.append_raw(16384, bytes(8192))
    status = log.files.status(ROOT / "commitlog" / "00000000000000016384")
    assert status is not None
    assert status.size == 8192


def test_files_go_from_the_front_but_only_flushed_ones(log: Log) -> None:
    log.put(*[sized(3000)] * 4)
    assert log.log.drop_before(4 * FILE_SIZE) == []
    log.log.flush()
    assert len(log.log.drop_before(2 * FILE_SIZE)) == 2
    assert log.log.min_offset == 2 * FILE_SIZE
    assert len(log.log.drop_before(100 * FILE_SIZE)) == 1
    assert log.log.min_offset == 3 * FILE_SIZE


# -- open and close


def test_an_existing_store_keeps_its_file_size(log: Log) -> None:
    log.put(*[sized(3000)] * 2)
    log.log.close()
    after = Log(log.files, commit_log_file_size=1 << 20)
    assert after.log.file_size == FILE_SIZE
    after.log.truncate(7096)
    after.put(sized(3000))
    assert len(after.log.files) == 3
    assert after.log.limits.max_record == FILE_SIZE - 8


def test_a_closed_log_takes_nothing_and_leaves_nothing(log: Log) -> None:
    log.log.start()
    log.put(Put())
    log.log.flush()
    log.log.close()
    with pytest.raises(StoreClosedError):
        log.put(Put())
    with pytest.raises(OffsetOutOfRangeError):
        log.log.read(0, 10)
    assert log.files.open_handles == 0
    assert log.files.listdir(ROOT / "tandemlog") == []
    assert log.files.listdir(ROOT / "commitlog") == ["00000000000000000000"]


def test_the_next_file_is_made_when_half_of_this_one_is_used(log: Log) -> None:
    log.put(sized(1500))
    assert not log.log._allocator._asked
    log.put(sized(1500))
    assert log.log._allocator._asked


# -- buffered


@pytest.fixture
def buffered() -> Log:
    return Log(buffered=True)


def test_readers_see_only_what_was_committed(buffered: Log) -> None:
    buffered.put(sized(1000))
    assert positions(buffered.log) == (1000, 0, 0)
    assert bytes(buffered.log.read(0, 100)) == b""
    with pytest.raises(OffsetOutOfRangeError):
        buffered.log.view(0, 10)
    assert buffered.log.commit() == 1000
    assert positions(buffered.log) == (1000, 1000, 0)
    assert len(buffered.records()) == 1


def test_a_flush_drives_the_commit(buffered: Log) -> None:
    buffered.put(*[sized(3000)] * 3)
    assert buffered.log.flush() == 2 * FILE_SIZE + 3000
    assert len(buffered.records()) == 3
    buffered.files.crash()
    assert walk(buffered.again().log.read(2 * FILE_SIZE, FILE_SIZE)).count == 1


def test_buffered_and_direct_logs_are_the_same_bytes(buffered: Log, log: Log) -> None:
    rng = random.Random(3)
    for number in range(60):
        puts = [sized(rng.randint(140, 900)) for _ in range(rng.randint(1, 4))]
        log.put(*puts)
        buffered.put(*puts)
        if number % 7 == 0:
            buffered.log.commit()
    buffered.log.flush()
    assert buffered.content() == log.content()


def test_many_small_appends_become_few_writes(buffered: Log) -> None:
    for _ in range(20):
        buffered.put(Put())
    before = buffered.files.calls["pwrite"]
    buffered.log.commit()
    assert buffered.files.calls["pwrite"] == before + 1


def test_a_failed_commit_ends_writing(buffered: Log) -> None:
    buffered.put(Put())
    buffered.files.fail("pwrite", errno.EIO, times=1)
    with pytest.raises(FlushFailedError, match="write of the log failed"):
        buffered.log.commit()
    with pytest.raises(FlushFailedError):
        buffered.put(Put())


def test_cutting_and_resetting_what_is_still_in_memory(buffered: Log) -> None:
    buffered.put(Put(), Put(), Put())
    buffered.log.truncate(SIZE)
    assert positions(buffered.log) == (SIZE, SIZE, 0)
    assert len(buffered.records()) == 1
    buffered.put(Put())
    buffered.log.reset(0)
    assert positions(buffered.log) == (0, 0, 0)
    assert buffered.log.commit() == 0
    buffered.put(Put())
    buffered.log.flush()
    assert len(buffered.records()) == 1


# -- threads


def test_readers_never_see_half_a_record(tmp_path: Path) -> None:
    config = StoreConfig(directory=tmp_path, commit_log_file_size=64 << 10)
    log = CommitLog(config, RealFileSystem(), FakeClock())
    log.start()
    table = QueueTable()
    batch = batch_of([sized(300 + number) for number in range(100)])
    dense = registered(table, batch)
    done = threading.Event()
    faults: list[object] = []
    seen = 0

    def read() -> None:
        nonlocal seen
        offset = 0
        while not done.is_set() or offset < log.committed.value:
            data = log.read(offset, 1 << 20)
            if not data:
                continue
            if is_blank(data, 0):
                offset += config.commit_log_file_size - offset % config.commit_log_file_size
                continue
            found = walk(data)
            if not found.count:
                faults.append((offset, found))
                return
            seen += found.count
            offset += found.end

    reader = threading.Thread(target=read)
    flusher = threading.Thread(target=lambda: [log.flush() for _ in range(20)])
    reader.start()
    flusher.start()
    for _ in range(20):
        log.append(batch, dense, table, NOW)
    done.set()
    reader.join()
    flusher.join()
    log.close()
    assert faults == []
    assert seen == 2000
