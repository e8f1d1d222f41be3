"""Backups on bad days, of logs that are cut, shortened and continued: what counts is a prefix of
the log, and is restored to the same bytes."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fakes.archives import state_of
from fakes.fake_object_store import BAD_DAY, FakeObjectStore, Trouble
from fakes.stores import CONFIG, Bench
from tandemlog.archive.archive_checks import check_archive
from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.backup import BackupReport, backup
from tandemlog.archive.errors import ArchiveError, BackupRefusedError
from tandemlog.archive.prune import prune
from tandemlog.archive.restore_point import Until
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.cli.shared.archived_log import archived_log
from tandemlog_server.storage.retention.cleaner import Cleaner
from tandemlog_server.storage.state_files.restored import RestoredFile
from tandemlog_server.storage.store_paths import StorePaths
from tandemlog_server.storage.tools.restore_archive import restore_archive
from tandemlog_server.storage.tools.stored_log import StoredLog

SIZE = CONFIG.commit_log_file_size
TARGET = Path("/restored/store")
BORN_TIME_AT = 40
"""Of a record: no CRC covers it."""


class Source:
    """A store between its backups."""

    def __init__(self, epoch: int = 1) -> None:
        self.bench = Bench()
        self.bench.store.become_master(epoch)
        self.now_ms = 0

    def put(self, count: int, size: int = 300) -> None:
        for _ in range(count):
            self.bench.put(size=size)
        self.bench.settle()
        end = len(self.bench.bodies())
        self.bench.store.consumer_offsets.commit("G", "T", 0, end)

    def cut(self, log_offset: int, epoch: int) -> None:
        """As after a failover that lost messages."""
        store = self.bench.store
        store.become_slave()
        store.truncate(log_offset)
        store.become_master(epoch)

    def backup(
        self, objects: FakeObjectStore, segment_bytes: int = 3000, confirmed: int = 1 << 62
    ) -> BackupReport:
        self.now_ms += 1000
        self.bench.store.close()
        log = StoredLog(self.bench.config, self.bench.files, self.bench.clock)
        log.end = min(log.end, confirmed)
        try:
            return backup(objects, log, now_ms=self.now_ms, segment_bytes=segment_bytes)
        finally:
            log.close()
            self.bench.open()

    def log(self, start: int, end: int) -> bytes:
        found = bytearray()
        while start < end:
            data = self.bench.store.log.read(start, end - start)
            found += data
            start += len(data)
        return bytes(found)


def restored(objects: FakeObjectStore) -> Bench:
    files = MemoryFiles()
    found = archived_log(ArchiveReader.open(objects), Until())
    config = replace(CONFIG, directory=TARGET)
    restore_archive(found.log, config, files)
    return Bench(config, files, topics=())


def check_same(source: Source, objects: FakeObjectStore) -> None:
    """Restored, it is the store byte for byte."""
    reader = ArchiveReader.open(objects)
    assert check_archive(reader).faults == ()
    bench, store = restored(objects), source.bench.store
    log = bench.store.log
    assert log.wrote.value == store.log.wrote.value
    begin = log.min_offset
    end = store.log.wrote.value
    assert reader.read(begin, end) == source.log(begin, end)
    assert bench.bodies() == source.bench.bodies()[-len(bench.bodies()) :]
    assert bench.store.consumer_offsets.fetch("G") == store.consumer_offsets.fetch("G")
    assert bench.store.log_identity.history == store.log_identity.history


def test_each_backup_takes_what_is_new() -> None:
    source, objects = Source(), FakeObjectStore()
    source.put(40)
    first = source.backup(objects)
    assert first.put_objects > 5
    assert source.backup(objects).put_objects == 0
    for _ in range(3):
        source.put(20)
        before = objects.moved
        report = source.backup(objects)
        assert 0 < objects.moved - before < first.put_bytes
        check_same(source, objects)
        assert report.manifest.revision > first.manifest.revision


def test_small_backups_leave_few_objects() -> None:
    """A small last segment is put again with what is new, of the same file."""
    source, objects = Source(), FakeObjectStore()
    for _ in range(60):
        source.put(1)
        report = source.backup(objects, segment_bytes=1 << 20)
    files = report.manifest.end // SIZE + 1
    assert len(report.manifest.segments) <= 7 * files
    check_same(source, objects)


def test_a_bit_that_turns_later_does_not_come_into_the_archive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tandemlog.archive.backup.PROOF_BYTES", 100)
    source, objects = Source(), FakeObjectStore()
    source.put(1)
    first = source.backup(objects).manifest
    good = source.log(0, first.end)
    source.bench.files.content(source.bench.store.log.files[0].path)[BORN_TIME_AT] ^= 1
    source.put(4)
    newest = source.backup(objects).manifest
    assert newest.segments[0] == first.segments[0]
    assert newest.spans() == ((0, source.bench.store.log.wrote.value),)
    assert ArchiveReader.open(objects).read(0, first.end) == good


def test_tables_that_changed_without_a_message_are_taken() -> None:
    source, objects = Source(), FakeObjectStore()
    source.put(10)
    source.backup(objects)
    source.bench.store.consumer_offsets.commit("G", "T", 0, 3)
    assert source.backup(objects).put_objects == 2
    check_same(source, objects)


def test_a_log_that_was_cut_continues_at_the_cut() -> None:
    source, objects = Source(), FakeObjectStore()
    source.put(40)
    first = source.backup(objects)
    cut = first.manifest.segments[-3].start
    source.cut(cut, epoch=2)
    source.put(1)
    with_cut = source.backup(objects)
    assert with_cut.cut == cut
    assert cut < with_cut.manifest.end < first.manifest.end
    check_same(source, objects)
    source.put(30)
    assert source.backup(objects).cut is None
    check_same(source, objects)


def test_a_term_that_begins_above_what_is_confirmed_counts() -> None:
    """Else a master that this term has deposed could write a manifest that is chosen before, and
    the cluster of a restored folder would count to the same epoch again."""
    source, objects = Source(), FakeObjectStore()
    source.put(20)
    source.backup(objects)
    source.put(20)
    confirmed = source.bench.store.log.wrote.value
    source.put(5)
    source.cut(source.bench.store.log.wrote.value, epoch=4)
    source.put(5)
    manifest = source.backup(objects, confirmed=confirmed).manifest
    assert (manifest.epoch, manifest.end) == (4, confirmed)
    assert manifest.history.terms[-1].start_offset > confirmed
    bench = restored(objects)
    assert bench.store.log.wrote.value == confirmed
    assert [each.epoch for each in bench.store.epochs.table.entries] == [1]
    note = RestoredFile(StorePaths(TARGET).restored, bench.files).load()
    assert note is not None
    assert note.newest_epoch == 4
    source.backup(objects)
    check_same(source, objects)


def test_what_retention_deleted_before_a_backup_is_a_gap() -> None:
    source, objects = Source(), FakeObjectStore()
    source.put(20)
    first = source.backup(objects)
    source.put(100)
    begin = source.bench.store.log.files[3].base
    Cleaner(source.bench.store._parts, sleep=lambda _: None).drop_before(begin)
    report = source.backup(objects)
    assert report.gap == (first.manifest.end, begin)
    assert report.manifest.begin == begin
    assert report.manifest.prologue_at(begin) is not None
    bench = restored(objects)
    assert bench.store.log.min_offset == begin
    queue = bench.store.queue_table.get("T", 0)
    assert bench.store.queues.max_offset(queue) == 120


def test_a_log_of_an_older_term_and_another_log_are_refused() -> None:
    source, other, objects = Source(3), Source(2), FakeObjectStore()
    source.put(20)
    other.put(30)
    source.backup(objects)
    with pytest.raises(BackupRefusedError, match="no term in common"):
        other.backup(objects)
    other.cut(0, epoch=4)
    other.put(30)
    with pytest.raises(BackupRefusedError, match="no term in common"):
        other.backup(objects)
    copied = Source()
    copied.bench = restored(objects)
    source.cut(source.bench.store.log.wrote.value, epoch=5)
    source.put(10)
    source.backup(objects)
    with pytest.raises(BackupRefusedError, match="epoch 5, this log epoch 3"):
        copied.backup(objects)


def test_pruned_to_any_place_the_rest_is_whole() -> None:
    source, objects = Source(), FakeObjectStore()
    for _ in range(6):
        source.put(30)
        source.backup(objects)
    end = source.bench.store.log.wrote.value
    begun = 0
    for keep_from in range(0, end + SIZE, SIZE // 2):
        report = prune(objects, keep_from, now_ms=source.now_ms, grace_ms=0)
        assert begun <= report.begin <= keep_from
        begun = report.begin
        check_same(source, objects)
    assert begun > SIZE
    assert len(ArchiveReader.open(objects).manifest.segments) < 10


@pytest.mark.parametrize("seed", range(10))
def test_on_a_bad_day_what_counts_is_a_prefix_and_the_next_run_continues(seed: int) -> None:
    source, random = Source(), Random(seed)
    objects = FakeObjectStore(BAD_DAY, seed)
    epoch, done = 1, 0
    for _ in range(50):
        if random.random() < 0.2:
            source.put(random.randint(1, 20))
        if random.random() < 0.05 and source.bench.store.log.wrote.value > 2 * SIZE:
            epoch += 1
            record = source.bench.store.reader.get("T", 0, 3, 1, 1 << 20)
            assert record.count
            source.cut(SIZE, epoch)
            source.put(1)
        try:
            source.backup(objects)
            done += 1
        except ArchiveError:
            continue
    assert done > 1
    objects.trouble = Trouble()
    source.backup(objects)
    check_same(source, objects)


def test_states_are_those_of_the_store() -> None:
    source, objects = Source(), FakeObjectStore()
    source.put(10)
    source.backup(objects)
    reader = ArchiveReader.open(objects)
    (entry,) = reader.manifest.states
    assert reader.state(entry).tables.keys() == state_of(source.bench).tables.keys()
