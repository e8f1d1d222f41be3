import errno
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, DIRECTORY, Bench, marked, records_of
from storage.config import ConfirmSource, FlushMode, RetentionConfig, StoreConfig
from storage.errors import (
    BatchRefusedError,
    CorruptStoreError,
    DiskFullError,
    FlushFailedError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
)
from storage.message_store import MessageStore
from storage.metadata import TopicConfig
from storage.queue_search import Boundary
from storage.reads import GetStatus, NoRecordError
from tandemlog.format.epochs import EpochEntry
from tandemlog.format.errors import FormatError
from tandemlog.format.producer_mark import ProducerMark
from tandemlog.format.record import decode_record


def test_what_is_put_is_read_back() -> None:
    bench = Bench()
    result = bench.put(3)
    assert result.segments[0].queue_offsets.tolist() == [0]
    bench.settle()
    assert bench.bodies() == [b"0-0.....", b"0-1.....", b"0-2....."]
    found = bench.store.get("T", 0, 1, 1, 4096)
    (record,) = records_of(found)
    assert (record.queue_offset, record.topic, record.store_host) == (1, "T", "127.0.0.1:10911")
    assert record.store_timestamp == result.store_timestamp
    assert bench.store.reader.record_at(record.physical_offset) == found.records


def test_nothing_is_seen_before_it_is_confirmed() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(2)
    bench.store.reput.run_to()
    assert bench.bodies() == []
    bench.store.flush()
    assert bench.store.confirmed.value == bench.store.log.wrote.value
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 2


def test_async_flush_confirms_what_is_written() -> None:
    bench = Bench()
    bench.put(2)
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 2


def test_the_statuses_are_rocketmqs() -> None:
    bench = Bench()
    get = bench.store.get
    assert get("nobody", 0, 0, 1, 100).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert get("T", 0, 0, 1, 100).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    bench.put(5)
    assert get("T", 0, 7, 1, 100).status is GetStatus.NO_MESSAGE_IN_QUEUE
    bench.settle()
    for offset, status, following in (
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (0, GetStatus.FOUND, 1),
        (5, GetStatus.OFFSET_OVERFLOW_ONE, 5),
        (9, GetStatus.OFFSET_OVERFLOW_BADLY, 5),
    ):
        result = get("T", 0, offset, 1, 100)
        assert (result.status, result.next_offset) == (status, following)
        assert (result.min_offset, result.max_offset) == (0, 5)


def test_a_get_ends_with_its_queue_file() -> None:
    bench = Bench()
    bench.put(25)
    bench.settle()
    result = bench.store.get("T", 0, 15, 0, 1 << 20)
    assert (result.count, result.next_offset) == (5, 20)
    missed = bench.store.get("T", 0, 15, 0, 1 << 20, {12345})
    assert (missed.status, missed.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 20)


def test_a_get_goes_over_log_files() -> None:
    bench = Bench()
    bench.put(20, size=900)
    bench.settle()
    assert len(bench.store.log.files) > 2
    result = bench.store.get("T", 0, 0, 0, 1 << 20)
    assert [record.queue_offset for record in records_of(result)] == list(range(20))


def test_many_queues_in_one_batch() -> None:
    bench = Bench(topics=("A", "B"))
    puts = [Put("AB"[n % 2], n % 3, b"%d" % n) for n in range(300)]
    bench.store.append(batch_of(puts))
    bench.settle()
    for topic in "AB":
        for queue_id in range(3):
            expected = [put.body for put in puts if (put.topic, put.queue_id) == (topic, queue_id)]
            assert bench.bodies(topic, queue_id) == expected
    ranges = bench.store.reader.ranges(["B"])
    assert [(each.queue_id, each.max_offset) for each in ranges] == [(0, 50), (1, 50), (2, 50)]


def test_queries_by_key_tag_and_time() -> None:
    bench = Bench()
    bench.store.append(batch_of([Put(properties=b"KEYS\x01a b\x02TAGS\x01x\x02", topic="T")]))
    bench.clock.advance(1)
    bench.store.append(batch_of([Put(properties=b"KEYS\x01b\x02UNIQ_KEY\x01u\x02", topic="T")]))
    bench.settle()
    query = bench.store.reader.query_key
    first, second = query("T", "b").physical_offsets
    assert query("T", "a").physical_offsets == (first,)
    assert query("T", "u").physical_offsets == (second,)
    assert query("T", "x").physical_offsets == ()
    assert query("T", "x", tags=True).physical_offsets == (first,)
    assert query("other", "b").physical_offsets == ()
    assert query("T", "b", max_messages=1).physical_offsets == (second,)
    time = decode_record(bench.store.reader.record_at(second)).store_timestamp
    assert query("T", "b", begin_timestamp=time).physical_offsets == (second,)
    assert query("T", "b", end_timestamp=time - 1).physical_offsets == (first,)
    search = bench.store.reader.search_offset
    assert search("T", 0, time, Boundary.LOWER) == 1
    assert search("T", 0, time - 1, Boundary.UPPER) == 0


def test_a_position_inside_a_record_is_no_record() -> None:
    bench = Bench()
    bench.put(2)
    bench.settle()
    with pytest.raises(NoRecordError, match="offset 4"):
        bench.store.reader.record_at(4)


@pytest.mark.parametrize(
    ("puts", "code"),
    [
        ([Put("nobody")], "UNKNOWN_TOPIC"),
        ([Put("T"), Put("nobody")], "UNKNOWN_TOPIC"),
        ([Put("T", 4)], "UNKNOWN_QUEUE"),
        ([Put("SCHEDULE_TOPIC_XXXX")], "INVALID_TOPIC_NAME"),
        ([Put("no way")], "INVALID_TOPIC_NAME"),
    ],
)
def test_puts_to_what_is_not_there_are_refused(puts: list[Put], code: str) -> None:
    bench = Bench()
    with pytest.raises(BatchRefusedError) as refused:
        bench.store.append(batch_of(puts))
    assert refused.value.code == code
    assert refused.value.record_index == len(puts) - 1
    assert bench.store.log.wrote.value == 0
    assert bench.store.stats.put_refused == 1


def test_a_deleted_or_closed_topic_takes_no_puts_and_stays_readable() -> None:
    bench = Bench()
    bench.put()
    bench.settle()
    bench.store.topics.create(TopicConfig("T", 4, 4, perm=4), 1, update=True)
    with pytest.raises(BatchRefusedError, match="may not be written"):
        bench.put()
    bench.store.topics.delete("T", 1)
    with pytest.raises(BatchRefusedError, match="there is no topic"):
        bench.put()
    bench.reopen()
    assert len(bench.bodies()) == 1
    bench.store.topics.create(TopicConfig("T", 1, 1), 1)
    assert bench.put().segments[0].queue_offsets.tolist() == [1]


def test_a_topic_can_grow() -> None:
    bench = Bench()
    with pytest.raises(BatchRefusedError):
        bench.put(queue_id=9)
    bench.store.topics.create(TopicConfig("T", 10, 10), 1, update=True)
    bench.put(queue_id=9)
    bench.settle()
    assert len(bench.bodies(queue_id=9)) == 1


# ---- a clean life


def test_a_clean_stop_leaves_nothing_to_do() -> None:
    bench = Bench()
    bench.put(40)
    bench.put(5, queue_id=2)
    before = bench.store
    bench.reopen()
    report = bench.store.recovery
    assert report.clean_stop
    assert not report.foreign
    assert (report.scanned_records, report.dispatched, report.queues_rebuilt) == (0, 0, {})
    assert report.log_end == before.log.wrote.value
    assert len(bench.bodies()) == 40
    assert bench.put().segments[0].queue_offsets.tolist() == [40]
    assert bench.put(queue_id=2).segments[0].queue_offsets.tolist() == [5]


def test_the_abort_file_stands_while_the_store_is_open() -> None:
    bench = Bench()
    assert bench.files.status(DIRECTORY / "abort") is not None
    bench.store.close()
    assert bench.files.status(DIRECTORY / "abort") is None
    bench.store.close()


def test_a_second_opener_is_told_who_has_the_store() -> None:
    bench = Bench()
    with pytest.raises(StoreLockedError, match="this process"):
        MessageStore.open(bench.config, files=bench.files, clock=bench.clock)
    assert bench.store.writable


def test_a_closed_store_says_so() -> None:
    bench = Bench()
    bench.store.close()
    with pytest.raises(StoreClosedError):
        bench.put()
    assert bench.store.read_only_reason == "it is closed"


def test_sizes_of_the_files_win_over_the_settings() -> None:
    bench = Bench()
    bench.put(3)
    bench.reopen(commit_log_file_size=1 << 16, queue_file_size=2000)
    assert bench.store.log.file_size == 8192
    assert bench.store.queues.file_size == 400
    assert len(bench.store.recovery.notes) == 2


def test_without_an_index_all_but_keys_is_served() -> None:
    bench = Bench(replace(CONFIG, index_enabled=False))
    bench.put(3)
    bench.settle()
    assert len(bench.bodies()) == 3
    assert bench.store.reader.query_key("T", "a").records == ()
    bench.reopen(index_enabled=True)
    assert bench.store.index is not None
    assert bench.store.index.next_offset == bench.store.log.wrote.value


def test_store_times_never_fall() -> None:
    bench = Bench()
    now = bench.clock.now_ms()
    first = bench.store.append(batch_of([Put("T")]), now_ms=now + 500)
    second = bench.store.append(batch_of([Put("T")]), now_ms=now)
    assert second.store_timestamp == first.store_timestamp
    bench.kill()
    third = bench.store.append(batch_of([Put("T")]), now_ms=now)
    assert third.store_timestamp > first.store_timestamp


def test_the_numbers_count() -> None:
    bench = Bench()
    bench.put(3)
    bench.settle()
    bench.bodies()
    values = bench.store.stats.values(bench.clock.monotonic())
    assert values["puts_total"] == 3
    assert values["put_batches_total"] == 1
    assert values["get_messages_total"] == 3
    assert values["put_bytes_total"] == bench.store.log.wrote.value


# ---- idempotent puts

MARK = ProducerMark("p1", 0, 0, 0, 3)


def test_a_repeated_request_is_stored_once() -> None:
    bench = Bench()
    first = bench.put_marked(MARK, 3)
    again = bench.put_marked(MARK, 3)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.end_offset == first.end_offset
    assert again.store_timestamp == first.store_timestamp
    assert [
        (each.first_index, each.count, each.physical_offset, each.queue_offsets.tolist())
        for each in again.segments
    ] == [(0, 3, 0, [0])]
    bench.settle()
    assert len(bench.bodies()) == 3
    assert bench.store.stats.put_duplicates == 3


@pytest.mark.parametrize("restart", [Bench.reopen, Bench.kill])
def test_a_restart_does_not_forget(restart: Callable[[Bench], MessageStore]) -> None:
    bench = Bench()
    bench.put_marked(MARK, 3)
    restart(bench)
    assert bench.put_marked(MARK, 3).duplicate
    following = replace(MARK, sequence=1)
    assert not bench.put_marked(following, 3).duplicate
    bench.settle()
    assert len(bench.bodies()) == 6


def test_a_request_over_two_files_is_answered_the_same() -> None:
    bench = Bench()
    mark = ProducerMark("p1", 0, 0, 0, 100)
    first = bench.put_marked(mark, 100)
    assert len(first.segments) > 1
    again = bench.put_marked(mark, 100)
    for one, two in zip(first.segments, again.segments, strict=True):
        assert (one.first_index, one.count, one.physical_offset) == (
            two.first_index,
            two.count,
            two.physical_offset,
        )
        assert np.array_equal(one.queue_offsets, two.queue_offsets)


def test_gaps_and_old_epochs_are_refused_with_both_numbers() -> None:
    bench = Bench()
    bench.put_marked(MARK, 3)
    with pytest.raises(BatchRefusedError) as gap:
        bench.put_marked(replace(MARK, sequence=5), 3)
    assert (gap.value.code, gap.value.limit, gap.value.actual) == ("SEQUENCE_GAP", 1, 5)
    bench.put_marked(replace(MARK, epoch=2), 3)
    with pytest.raises(BatchRefusedError) as fenced:
        bench.put_marked(replace(MARK, sequence=1), 3)
    assert fenced.value.code == "PRODUCER_FENCED"
    with pytest.raises(BatchRefusedError) as conflict:
        bench.put_marked(replace(MARK, epoch=2, count=2), 2)
    assert conflict.value.code == "SEQUENCE_CONFLICT"


def test_a_torn_request_is_completed_by_its_retry() -> None:
    bench = Bench()
    bench.put(1)
    bench.put_marked(MARK, 3)
    bench.store.flush()
    # the last of the three records is lost
    last = bench.store.log.wrote.value - int(batch_of(marked(MARK, 3)).sizes[2])
    bench.files.content(DIRECTORY / "commitlog" / f"{0:020d}")[last : last + 200] = bytes(200)
    bench.kill()
    assert bench.store.log.wrote.value == last
    bench.put(1)  # a stranger in between
    answer = bench.put_marked(MARK, 3)
    assert not answer.duplicate
    assert [each.count for each in answer.segments] == [2, 1]
    assert bench.put_marked(MARK, 3).duplicate
    bench.settle()
    bodies = bench.bodies()
    assert [body for body in bodies if body.startswith(b"p1")] == [b"p1-0-0", b"p1-0-1", b"p1-0-2"]
    bench.kill()
    assert bench.put_marked(MARK, 3).duplicate


def test_producers_are_forgotten_after_their_time() -> None:
    bench = Bench()
    bench.put_marked(MARK, 3)
    bench.clock.advance(CONFIG.producer_retention_ms / 1000 + 1)
    bench.store._forget_producers()
    with pytest.raises(BatchRefusedError) as refused:
        bench.put_marked(replace(MARK, sequence=1), 3)
    assert refused.value.code == "UNKNOWN_PRODUCER"


# ---- a disk in trouble


def test_a_failed_fsync_ends_the_writing_for_good() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put()
    bench.settle()
    bench.put()
    bench.files.fail("fdatasync", errno.EIO, name="commitlog", times=1)
    with pytest.raises(FlushFailedError):
        bench.store.flush()
    with pytest.raises(FlushFailedError):
        bench.put()
    assert bench.store.failure is not None
    assert len(bench.bodies()) == 1
    bench.store.close()
    assert bench.files.status(DIRECTORY / "abort") is not None


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


def test_a_disk_above_the_warning_level_takes_no_puts() -> None:
    retention = RetentionConfig(
        disk_max_used_percent=50, disk_clean_forcibly_percent=50, disk_warning_percent=50
    )
    bench = Bench(replace(CONFIG, retention=retention))
    bench.put(10)
    bench.settle()
    bench.files.capacity = bench.files.disk_usage(DIRECTORY).used * 3 // 2
    bench.store._clean()
    with pytest.raises(DiskFullError, match="disk_warning_percent"):
        bench.put()
    assert "% full" in bench.store.read_only_reason
    bench.files.capacity = 1 << 50
    bench.store._clean()
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
    bench.store._release_maps()
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


# ---- retention


def test_old_files_go_with_their_queues_and_index() -> None:
    bench = Bench(replace(CONFIG, retention=RetentionConfig(reserved_hours=1)))
    bench.store.epochs.append(EpochEntry(1, 0))
    bench.store.epochs.append(EpochEntry(2, 100))
    for _ in range(30):
        bench.put(10, size=50)
        bench.settle()
    files = len(bench.store.log.files)
    bench.clock.advance(7200)
    bench.files.now_ms = bench.clock.now_ms()
    bench.put(1)
    bench.settle()
    bench.store.persist()
    while len(bench.store.log.files) > 1:
        bench.store.clean_now()
    start = bench.store.log.min_offset
    assert start > 0
    (only,) = (each for each in bench.store.reader.ranges() if each.queue_id == 0)
    assert 0 < only.min_offset < only.max_offset == 301
    assert bench.files.listdir(DIRECTORY / "consumequeue" / "T" / "0")[0] != f"{0:020d}"
    assert bench.store.epochs.table.entries == (EpochEntry(2, 100),)
    assert bench.store.stats.files_deleted == files - 1
    assert bench.store.get("T", 0, 0, 1, 100).status is GetStatus.OFFSET_TOO_SMALL
    assert len(bench.bodies()) == 301 - only.min_offset
    bench.reopen()
    first = bench.store.reader.ranges()[0]
    assert (first.min_offset, first.max_offset) == (only.min_offset, 301)


def test_files_that_are_not_dispatched_stay() -> None:
    bench = Bench(
        replace(
            CONFIG,
            confirm=ConfirmSource.REPLICATION,
            retention=RetentionConfig(reserved_hours=0),
        )
    )
    bench.store.become_master(1)
    for _ in range(20):
        bench.put(10, size=50)
    bench.store.flush()
    bench.store.clean_now()
    assert bench.store.log.min_offset == 0


# ---- replication


def replica(bench: Bench) -> Bench:
    return Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), topics=())


def copy_log(source: Bench, target: Bench, step: int = 1000, end: int | None = None) -> None:
    log = source.store.log
    position = target.store.log.wrote.value
    end = log.committed.value if end is None else end
    while position < end:
        piece = bytes(log.read(position, min(step, end - position)))
        target.store.append_raw(position, piece)
        position += len(piece)
    target.store.flush()


def test_a_replica_is_equal_byte_for_byte() -> None:
    master = Bench()
    for number in range(30):
        master.put(7, queue_id=number % 3)
    master.put_marked(MARK, 3)
    master.settle()
    slave = replica(master)
    copy_log(master, slave)
    assert slave.bodies() == []
    slave.store.advance_confirmed(master.store.confirmed.value)
    slave.store.reput.run_to()
    for queue_id in range(3):
        assert slave.bodies(queue_id=queue_id) == master.bodies(queue_id=queue_id)
    assert slave.store.producers.describe("p1") == master.store.producers.describe("p1")
    for folder in ("commitlog", "consumequeue/T/0"):
        names = master.files.listdir(DIRECTORY / folder)
        assert slave.files.listdir(DIRECTORY / folder) == names
    with pytest.raises(StoreReadOnlyError, match="slave"):
        slave.put()


def test_a_replica_shows_no_more_than_is_confirmed_even_after_a_restart() -> None:
    master = Bench()
    master.put(10)
    half = master.store.log.wrote.value
    master.put(10)
    slave = replica(master)
    copy_log(master, slave)
    slave.store.advance_confirmed(half)
    slave.store.reput.run_to()
    assert len(slave.bodies()) == 10
    slave.store.persist()
    slave.kill()
    assert slave.store.confirmed.value == half
    assert len(slave.bodies()) == 10
    slave.store.advance_confirmed(1 << 40)
    assert slave.store.confirmed.value == slave.store.log.wrote.value
    slave.store.reput.run_to()
    assert len(slave.bodies()) == 20


def test_a_slave_becomes_master_and_goes_on_behind_what_is_not_confirmed() -> None:
    master = Bench()
    master.put(10)
    half = master.store.log.wrote.value
    master.put_marked(MARK, 3)
    slave = replica(master)
    copy_log(master, slave)
    slave.store.advance_confirmed(half)
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    slave.store.become_master(4)
    assert slave.store.epochs.table.last == EpochEntry(4, master.store.log.wrote.value)
    assert slave.put_marked(MARK, 3).duplicate
    assert slave.put(1).segments[0].queue_offsets.tolist() == [13]
    slave.store.reput.run_to()
    assert len(slave.bodies()) == 10
    slave.store.advance_confirmed(slave.store.log.wrote.value)
    slave.store.reput.run_to()
    assert len(slave.bodies()) == 14
    slave.store.become_slave()
    with pytest.raises(StoreReadOnlyError):
        slave.put(1)
    with pytest.raises(FormatError):
        slave.store.become_master(3)


def test_a_new_master_cuts_a_record_that_came_in_part() -> None:
    master = Bench()
    master.put(10)
    slave = replica(master)
    whole = master.store.log.wrote.value
    copy_log(master, slave, end=whole - 5)
    slave.store.advance_confirmed(whole - 5)
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    slave.store.become_master(2)
    assert slave.store.log.wrote.value < whole - 5
    assert slave.put(1).segments[0].queue_offsets.tolist() == [9]


def test_truncation_takes_everything_back() -> None:
    master = Bench()
    master.put(10)
    half = master.store.log.wrote.value
    master.put_marked(MARK, 3)
    master.put(10, queue_id=1)
    slave = replica(master)
    slave.store.epochs.append(EpochEntry(1, 0))
    slave.store.epochs.append(EpochEntry(2, half))
    copy_log(master, slave)
    slave.store.advance_confirmed(master.store.log.wrote.value)
    slave.store.reput.run_to()
    slave.store.consumer_offsets.commit("G", "T", 0, 12)
    slave.store.consumer_offsets.commit("G", "T", 1, 3)
    slave.store.truncate(half)
    store = slave.store
    assert store.log.wrote.value == store.confirmed.value == store.reputed.value == half
    assert len(slave.bodies()) == 10
    assert slave.bodies(queue_id=1) == []
    assert store.epochs.table.entries == (EpochEntry(1, 0),)
    assert store.producers.describe("p1") is None
    assert store.consumer_offsets.offset("G", "T", 0) == 10
    assert store.consumer_offsets.offset("G", "T", 1) == 0
    slave.crash()
    assert slave.store.log.wrote.value == half
    assert len(slave.bodies()) == 10
    copy_log(master, slave)
    slave.store.advance_confirmed(master.store.log.wrote.value)
    slave.store.reput.run_to()
    assert (
        slave.bodies(queue_id=1) == master.bodies(queue_id=1) or len(slave.bodies(queue_id=1)) == 10
    )


def test_reset_sets_everything_aside() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), topics=())
    master = Bench()
    master.put(10)
    copy_log(master, bench)
    bench.store.advance_confirmed(1 << 40)
    bench.store.reput.run_to()
    bench.store.persist()
    bench.store.reset(2 * 8192)
    assert bench.store.log.wrote.value == 2 * 8192
    assert bench.store.reputed.value == 2 * 8192
    assert bench.bodies() == []
    (aside,) = (name for name in bench.files.listdir(DIRECTORY) if name.startswith("resync-"))
    assert bench.files.listdir(DIRECTORY / aside) == ["commitlog", "consumequeue", "index"]
    assert bench.files.listdir(DIRECTORY / aside / "commitlog") == [f"{0:020d}"]
    bench.store.append_raw(2 * 8192, b"")
    bench.reopen()
    assert bench.store.log.files == () or bench.store.log.min_offset == 2 * 8192


def test_an_empty_log_takes_another_file_size() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), topics=())
    bench.store.adopt_commit_log_file_size(16384)
    assert bench.store.log.file_size == 16384
    bench.store.append_raw(0, b"x" * 100)
    with pytest.raises(StoreError, match=r"0\.\.100"):
        bench.store.adopt_commit_log_file_size(4096)


def test_threads_do_the_same() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.store.start()
    touched: list[list[int]] = []
    stop = bench.store.on_dispatch(lambda queues: touched.append(queues.tolist()))
    result = bench.put(5)
    assert bench.store.confirmed.wait(result.end_offset, 10)
    assert bench.store.reputed.wait(result.end_offset, 10)
    assert len(bench.bodies()) == 5
    assert touched == [[0]]
    stop()
    bench.reopen()
    assert bench.store.recovery.clean_stop


def test_the_config_is_the_one_of_the_files() -> None:
    config = StoreConfig(directory=DIRECTORY, commit_log_file_size=4096)
    bench = Bench(config)
    assert bench.store.config.commit_log_file_size == 4096
    assert bench.store.directory == DIRECTORY
