"""The log: what is appended, its bytes against RocketMQ's rules, and who may read them."""

import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.clock import FakeClock
from fakes.small_log import FILE_SIZE, NOW, ROOT, SIZE, Log, append, positions, sized
from tandemlog.format.columns.walk import walk
from tandemlog.format.record.record import decode_record, is_blank
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import (
    BatchRefusedError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreClosedError,
    StoreLayoutError,
)
from tandemlog_server.storage.log.commit_log import CommitLog
from tandemlog_server.storage.queues.queue_table import QueueTable


@pytest.fixture
def log() -> Log:
    return Log()


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
    log.log.limits = replace(log.log.limits, services=True)
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
        log.log._view(file, 0, 10)  # found before it went


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
    with pytest.raises(StoreLayoutError, match="not a multiple"):
        log.log.append_raw(100, b"x")
    log.log.append_raw(5 * FILE_SIZE, b"x" * 10)
    assert log.log.min_offset == 5 * FILE_SIZE
    assert positions(log.log) == (5 * FILE_SIZE + 10, 5 * FILE_SIZE + 10, 5 * FILE_SIZE)
    assert log.files.listdir(ROOT / "commitlog") == ["00000000000000020480"]


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


# -- threads


def test_readers_never_see_half_a_record(tmp_path: Path) -> None:
    config = StoreConfig(directory=tmp_path, commit_log_file_size=64 << 10)
    log = CommitLog(config, RealFileSystem(), FakeClock())
    log.start()
    table = QueueTable()
    batch = batch_of([sized(300 + number) for number in range(100)])
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
        append(log, table, batch)
    done.set()
    reader.join()
    flusher.join()
    log.close()
    assert faults == []
    assert seen == 2000
