"""An archived log becomes a node's folder that opens: byte for byte, cut where it was asked, and
whatever call ends a run, the next one continues it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import CONFIG, Bench, records_of
from fakes.used_stores import used_store
from tandemlog.format.constants import Buffer
from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.files.log_history import LogHistory
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.disk.mapped_file_queue import MappedFileQueue
from tandemlog_server.storage.errors import StoreError, StoreLayoutError, StoreLockedError
from tandemlog_server.storage.log.log_scanner import LogScanner
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.state_files.restored import RestoredFile
from tandemlog_server.storage.store_paths import StorePaths
from tandemlog_server.storage.tools.restore_archive import ArchivedLog, restore_archive
from tandemlog_server.storage.tools.verify import verify

TARGET = Path("/restored/store")
DRAFT = Path("/restored/store.restoring")
SIZE = CONFIG.commit_log_file_size
INTO = replace(CONFIG, directory=TARGET, commit_log_file_size=4 * SIZE)
"""The size of log files is that of the archive, whatever is configured."""


End = Callable[[MortalFiles, int], None]
ENDS: tuple[End, ...] = (
    lambda files, _: files.kill(),
    lambda files, _: files.crash(),
    lambda files, call: files.crash(Random(call)),
)


def source() -> Bench:
    """A log of several files and two terms, with a table that is not at its start."""
    bench = Bench()
    store = bench.store
    store.become_master(3)
    for number in range(12):
        bench.put(5, queue_id=number % 2, size=300)
    bench.put_marked(ProducerMark("P", 1, 0, 0, 2), 2)
    bench.settle()
    store.consumer_offsets.commit("G", "T", 0, 15)
    store.groups.ensure("G", bench.clock.now_ms())
    store.become_slave()
    store.become_master(5)
    bench.put(6, queue_id=1, size=300)
    bench.settle()
    assert len(store.log.files) > 3
    return bench


def bytes_of(bench: Bench, start: int, end: int) -> bytes:
    found = bytearray()
    while start < end:
        data = bench.store.log.read(start, end - start)
        found += data
        start += len(data)
    return bytes(found)


def archived(bench: Bench, *, end: int | None = None, **changes: object) -> ArchivedLog:
    """What an archive has of this store."""
    store = bench.store

    def parts(start: int, stop: int) -> Iterator[tuple[int, Buffer]]:
        for at in range(start, stop, 3000):
            yield at, bytes_of(bench, at, min(at + 3000, stop))

    log = ArchivedLog(
        source="archive",
        begin=store.log.min_offset,
        end=store.log.wrote.value if end is None else end,
        file_size=store.log.file_size,
        history=store.log_identity.history,
        parts=parts,
        print_of=lambda start, stop: f"{start}-{stop}",
        topics=store.topics.to_json(),
        groups=store.groups.to_json(),
        consumer_offsets=store.consumer_offsets.to_json(),
    )
    return replace(log, **changes)  # type: ignore[arg-type]


def opened(files: MemoryFiles, config: StoreConfig = INTO) -> Bench:
    return Bench(config, files, topics=())


def check_same(restored: Bench, bench: Bench) -> None:
    """The whole log, what consumers see of it, and all that is beside it."""
    ours, theirs = restored.store, bench.store
    end = theirs.log.wrote.value
    assert (ours.log.min_offset, ours.log.wrote.value) == (theirs.log.min_offset, end)
    assert ours.confirmed.value == ours.reputed.value == end
    assert bytes_of(restored, ours.log.min_offset, end) == bytes_of(bench, ours.log.min_offset, end)
    for queue_id in range(4):
        assert restored.bodies(queue_id=queue_id) == bench.bodies(queue_id=queue_id)
    assert ours.epochs.table == theirs.epochs.table
    assert ours.log_identity.history == theirs.log_identity.history
    assert ours.topics.table == theirs.topics.table
    assert ours.groups.names() == theirs.groups.names()
    assert ours.consumer_offsets.fetch("G") == theirs.consumer_offsets.fetch("G")
    assert ours.producers.snapshot().rows == theirs.producers.snapshot().rows


def check_holds(files: MemoryFiles) -> None:
    assert [str(each) for each in verify(INTO, files).faults] == []


def record_ends(bench: Bench) -> list[int]:
    """Where the records of the log end, found by the queues."""
    ends = []
    for queue_id in (0, 1):
        dense = bench.store.queue_table.get("T", queue_id)
        for number in range(bench.store.queues.max_offset(dense)):
            found = bench.store.reader.get("T", queue_id, number, 1, 1 << 20)
            [record] = records_of(found)
            ends.append(record.physical_offset + record.size)
    return sorted(ends)


def test_a_restored_folder_is_the_store_byte_for_byte() -> None:
    bench, files = source(), MemoryFiles()
    seen: list[tuple[int, int]] = []
    report = restore_archive(
        archived(bench), INTO, files, bench.clock, progress=lambda *step: seen.append(step)
    )
    assert report.restored.records == 68
    assert report.restored.topics == 1
    assert files.status(DRAFT) is None
    check_holds(files)
    check_same(opened(files), bench)
    log = bench.store.log
    whole = 2 * (log.wrote.value - log.min_offset)
    assert seen == sorted(seen)
    assert seen[-1] == (whole, whole)


def test_several_writers_write_the_same() -> None:
    bench, files = source(), MemoryFiles()
    restore_archive(archived(bench), INTO, files, bench.clock, writers=3)
    check_same(opened(files), bench)


def test_every_record_is_a_place_to_end() -> None:
    """The log, its queues and the offsets of consumers end there, and the terms with them."""
    bench = source()
    second = bench.store.epochs.table.entries[-1].start_offset
    for end in record_ends(bench)[::5]:
        files = MemoryFiles()
        restore_archive(archived(bench, end=end), INTO, files, bench.clock)
        check_holds(files)
        restored = opened(files)
        assert bytes_of(restored, 0, end) == bytes_of(bench, 0, end)
        assert restored.store.log.wrote.value == end
        for queue_id in (0, 1):
            bodies = restored.bodies(queue_id=queue_id)
            assert bodies == bench.bodies(queue_id=queue_id)[: len(bodies)]
        kept = restored.store.consumer_offsets.offset("G", "T", 0)
        assert kept == min(15, len(restored.bodies()))
        epochs = [each.epoch for each in restored.store.epochs.table.entries]
        assert epochs == ([3, 5] if end > second else [3])
        restored_note = RestoredFile(StorePaths(TARGET).restored, files).load()
        assert restored_note is not None
        assert restored_note.newest_epoch == 5


def test_a_log_may_end_where_a_file_does() -> None:
    """Behind a BLANK: the next message begins the next file."""
    bench, files = source(), MemoryFiles()
    restore_archive(archived(bench, end=2 * SIZE), INTO, files, bench.clock)
    check_holds(files)
    restored = opened(files)
    assert restored.store.log.wrote.value == 2 * SIZE
    assert bytes_of(restored, 0, 2 * SIZE) == bytes_of(bench, 0, 2 * SIZE)
    before = restored.bodies()
    assert before == bench.bodies()[: len(before)]
    restored.store.become_master(6)
    restored.put(1)
    restored.settle()
    assert restored.store.log.files[-1].base == 2 * SIZE
    restored.reopen()
    assert restored.bodies()[:-1] == before


def test_a_reader_that_was_beyond_the_cut_sees_where_it_is() -> None:
    """The histories of the log before and after say it, whatever the epochs beyond were."""
    bench = source()
    second = bench.store.epochs.table.entries[-1].start_offset
    before = bench.store.log_identity.history
    for end in (record_ends(bench)[10], record_ends(bench)[-2]):
        files = MemoryFiles()
        restore_archive(archived(bench, end=end), INTO, files, bench.clock)
        restored = opened(files)
        note = RestoredFile(StorePaths(TARGET).restored, files).load()
        assert note is not None
        restored.store.become_master(note.newest_epoch + 1)
        restored.put(3)
        now = restored.store.log_identity.history
        assert before.cut_against(now) == end
        assert now.newest[0] > before.newest[0]
        assert now.log_id == before.log_id
    assert record_ends(bench)[10] < second < record_ends(bench)[-2]


def test_an_offset_of_a_queue_without_messages_at_the_end_is_lowered_to_nothing() -> None:
    """The next message of that queue gets offset 0, and the group would skip it."""
    bench, files = source(), MemoryFiles()
    end = bench.store.log.wrote.value
    bench.put(3, queue_id=3)
    bench.settle()
    bench.store.consumer_offsets.commit("G", "T", 3, 2)
    report = restore_archive(archived(bench, end=end), INTO, files, bench.clock)
    assert report.offsets_lowered == 1
    assert opened(files).store.consumer_offsets.offset("G", "T", 3) == 0


def test_an_offset_that_counts_messages_that_were_cut_skips_none_of_those_in_their_place() -> None:
    """The tables were read a little after the end of what was archived by then, and what came
    behind that was cut at a failover."""
    bench, files = source(), MemoryFiles()
    store = bench.store
    at = store.log.wrote.value
    bench.put(4, queue_id=1)
    bench.settle()
    cut = store.log.wrote.value
    bench.put(10, queue_id=1)
    bench.settle()
    store.consumer_offsets.commit("G", "T", 1, len(bench.bodies(queue_id=1)))
    tables = store.consumer_offsets.to_json()
    store.become_slave()
    store.truncate(cut)
    known = len(bench.bodies(queue_id=1))
    store.become_master(6)
    bench.put(12, queue_id=1)
    bench.settle()
    log = archived(bench, consumer_offsets=tables, offsets_at=at)
    report = restore_archive(log, INTO, files, bench.clock)
    assert report.offsets_lowered == 1
    restored = opened(files).store.consumer_offsets
    assert restored.offset("G", "T", 1) == known
    assert restored.offset("G", "T", 0) == 15


def test_a_topic_that_was_created_after_the_tables_comes_back_by_its_messages() -> None:
    bench, files = source(), MemoryFiles()
    before = bench.store.topics.to_json()
    bench.store.topics.create(TopicConfig("NEW", 3, 3), bench.clock.now_ms())
    bench.store.topics.create(TopicConfig("LATER", 3, 3), bench.clock.now_ms())
    bench.put(2, topic="NEW", queue_id=1)
    bench.settle()
    log = archived(bench, topics=before, later_topics=bench.store.topics.to_json())
    report = restore_archive(log, INTO, files, bench.clock)
    assert report.topics_added == ("NEW",)
    restored = opened(files)
    assert restored.store.topics.get("NEW") == TopicConfig("NEW", 3, 3)
    assert restored.store.topics.get("LATER") is None
    assert restored.bodies("NEW", 1) == bench.bodies("NEW", 1)


def test_a_topic_that_no_table_knows_gets_the_queues_that_its_messages_need() -> None:
    bench, files = source(), MemoryFiles()
    report = restore_archive(archived(bench, topics=None), INTO, files, bench.clock)
    assert report.topics_added == ("T",)
    found = opened(files).store.topics.get("T")
    assert found is not None
    assert found.write_queues == 8


def test_what_came_before_the_log_begins_is_in_its_prologue() -> None:
    """Numbers of a queue without a record, and a producer's last request."""
    bench, files = source(), MemoryFiles()
    store = bench.store
    begin = store.log.files[2].base
    prologue = store.prologue(begin)
    log = archived(bench, begin=begin, prologue=prologue)
    restore_archive(log, INTO, files, bench.clock)
    restored = opened(files)
    assert restored.store.log.min_offset == begin
    assert restored.store.prologue(begin) == prologue
    end = store.log.wrote.value
    assert bytes_of(restored, begin, end) == bytes_of(bench, begin, end)
    queue = restored.store.queue_table.get("T", 0)
    assert restored.store.queues.max_offset(queue) == len(bench.bodies())


def test_the_services_know_what_the_log_says() -> None:
    """Producers, delays, leases and transactions, at the end and at records before it: their
    snapshots are compared with all of the log."""
    bench = used_store()
    log, end = bench.store.log, bench.store.log.wrote.value
    ends = []
    at = log.next_record(0, end)
    while at is not None:
        ends.append(at)
        at = log.next_record(at, end)
    assert len(ends) > 20
    for cut in (*ends[::4], end):
        files = MemoryFiles()
        restore_archive(archived(bench, end=cut), INTO, files, bench.clock)
        report = verify(INTO, files)
        assert [str(each) for each in report.faults] == []
        assert {"producers", "delays", "leases", "transactions"} <= report.folds.keys()


def ended_and_continued(bench: Bench, log: ArchivedLog, call: int, end: End) -> bool:
    """Whether the first run died, in its call of that number."""
    files = MortalFiles()
    files.make_directory(TARGET.parent)
    files.calls_left = call
    with suppress(DeathError):
        restore_archive(log, INTO, files, bench.clock)
    died = files.rest()
    end(files, call)
    files.rest()
    if files.status(TARGET) is not None:
        assert files.listdir(TARGET)
    restore_archive(log, INTO, files, bench.clock)
    check_same(opened(files), bench)
    return died


def test_a_run_that_ends_in_any_call_is_continued_by_the_next() -> None:
    """Killed, or by a power cut: until the last run there is no folder of that name, or all of
    it."""
    bench = source()
    log = archived(bench)
    for first, end in enumerate(ENDS):
        call = first
        while ended_and_continued(bench, log, call, end):
            call += 23


def test_a_run_may_end_in_every_call() -> None:
    """Of a smaller log; each end in every third call, since all in all take a minute."""
    bench = Bench()
    bench.store.become_master(3)
    bench.put(2, size=300)
    bench.settle()
    bench.store.consumer_offsets.commit("G", "T", 0, 1)
    log = archived(bench)
    call = 0
    while ended_and_continued(bench, log, call, ENDS[call % len(ENDS)]):
        call += 1
    assert call > 300


def test_log_files_of_the_same_plan_are_not_written_again() -> None:
    bench, files = source(), MemoryFiles()
    asked: list[int] = []
    log = archived(bench)
    plain = log.parts

    def parts(start: int, stop: int) -> Iterator[tuple[int, Buffer]]:
        asked.append(start)
        if len(asked) == 3:
            raise StoreError("the archive does not answer")
        yield from plain(start, stop)

    with pytest.raises(StoreError, match="does not answer"):
        restore_archive(replace(log, parts=parts), INTO, files, bench.clock)
    assert files.status(TARGET) is None
    first, second, third = log.bases[:3]
    del asked[:]
    longer = replace(
        log,
        parts=lambda start, stop: parts(start, stop),
        print_of=lambda start, stop: "new" if start == first else f"{start}-{stop}",
    )
    asked.extend((-1, -1, -1))
    restore_archive(longer, INTO, files, bench.clock)
    assert asked[3:] == [first, *log.bases[2:]]
    assert second not in asked
    assert third in asked
    check_same(opened(files), bench)


def test_a_folder_that_is_not_empty_is_left_alone() -> None:
    bench, files = source(), MemoryFiles()
    files.make_directory(TARGET)
    files.atomic_replace(TARGET / "mine", b"1")
    with pytest.raises(StoreLayoutError, match="is not empty"):
        restore_archive(archived(bench), INTO, files, bench.clock)
    assert files.listdir(TARGET) == ["mine"]


def test_what_was_restored_is_not_restored_twice() -> None:
    bench, files = source(), MemoryFiles()
    first = restore_archive(archived(bench), INTO, files, bench.clock)
    again = restore_archive(archived(bench), INTO, files, bench.clock)
    assert again.was_there
    assert again.restored == first.restored
    restored = opened(files)
    restored.put(1)
    restored.settle()
    restored.store.close()
    with pytest.raises(StoreLayoutError, match="written to it since"):
        restore_archive(archived(bench), INTO, files, bench.clock)


def test_two_processes_do_not_restore_into_one_folder() -> None:
    bench, files = source(), MemoryFiles()
    own = StorePaths(DRAFT).own
    files.make_directory(own)
    assert files.lock_directory(own) is not None
    with pytest.raises(StoreLockedError, match="another process"):
        restore_archive(archived(bench), INTO, files, bench.clock)


def test_bytes_that_the_archive_lacks_end_the_run() -> None:
    bench, files = source(), MemoryFiles()
    log = archived(bench)
    for parts in (
        lambda start, stop: [(start, bytes_of(bench, start, stop - 1))],
        lambda start, stop: [(start + 1, bytes_of(bench, start + 1, stop))],
        lambda start, stop: [(start, bytes_of(bench, start, stop) + b"\0")],
    ):
        with pytest.raises(StoreError, match="archive has no byte of the log at"):
            restore_archive(replace(log, parts=parts), INTO, files, bench.clock)
        assert files.status(TARGET) is None


def test_bytes_that_are_no_records_are_no_store() -> None:
    bench, files = source(), MemoryFiles()
    end = record_ends(bench)[20]
    log = archived(bench, end=end - 1)
    with pytest.raises(StoreError, match="bytes that are no records"):
        restore_archive(log, INTO, files, bench.clock)
    assert files.status(TARGET) is None


def test_what_was_walked_through_is_dispatched_and_not_walked_through_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts: list[int] = []

    class Noted(LogScanner):
        def __init__(self, mapped: MappedFileQueue, start: int, **rest: Any) -> None:
            starts.append(start)
            super().__init__(mapped, start, **rest)

    monkeypatch.setattr("tandemlog_server.storage.recovery.analysis.LogScanner", Noted)
    bench = source()
    ends = record_ends(bench)
    for last in (0, ends[20], ends[-2]):
        files = MemoryFiles()
        starts.clear()
        restore_archive(archived(bench, last_start=last), INTO, files, bench.clock)
        assert starts == [last]
        check_same(opened(files), bench)
        check_holds(files)


def test_what_is_no_record_is_found_by_the_dispatch_too() -> None:
    """Below `last_start` nothing else looks."""
    bench, files = source(), MemoryFiles()
    ends = record_ends(bench)
    log = archived(bench, last_start=ends[-2])

    def damaged(start: int, stop: int) -> Iterator[tuple[int, Buffer]]:
        for at, data in log.parts(start, stop):
            content = bytearray(data)
            if at <= ends[20] < at + len(data):
                content[ends[20] - at] ^= 0xFF
            yield at, content

    with pytest.raises(StoreError, match="bytes that are no records"):
        restore_archive(replace(log, parts=damaged), INTO, files, bench.clock)
    assert files.status(TARGET) is None


def test_a_log_begins_where_a_file_does() -> None:
    bench = source()
    with pytest.raises(FormatError, match="a log from 1 to"):
        archived(bench, begin=1)


def test_a_log_without_terms_is_a_brokers() -> None:
    bench, files = Bench(), MemoryFiles()
    bench.put(30, size=300)
    bench.settle()
    restore_archive(archived(bench, history=LogHistory()), INTO, files, bench.clock)
    restored = opened(files)
    assert len(restored.store.epochs.table) == 0
    assert restored.bodies() == bench.bodies()
    restored.store.become_master(1)
    assert restored.store.epochs.table.last == EpochEntry(1, bench.store.log.wrote.value)
