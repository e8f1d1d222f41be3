"""Reads below the log's begin: what the files had said before retention deleted them."""

from contextlib import suppress
from dataclasses import replace

import pytest

from fakes.archives import archive
from fakes.batches import Put, batch_of
from fakes.fake_object_store import FakeObjectStore, Trouble
from fakes.stores import CONFIG, Bench, records_of
from tandemlog.archive.errors import ArchiveDamagedError, ArchiveUnavailableError
from tandemlog.format.archive.manifest import Manifest
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.filter.parser import parse
from tandemlog.format.record.tags import tag_hashes
from tandemlog_server.node.archive import cold_reader
from tandemlog_server.node.archive.cold_reader import ColdReader
from tandemlog_server.storage.config import ConfirmSource, RetentionConfig
from tandemlog_server.storage.errors import StoreBusyError
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.reads.results import GetStatus
from tandemlog_server.storage.reads.store_reader import StoreReader
from tandemlog_server.storage.retention.cleaner import Cleaner

RETENTION = RetentionConfig(reserved_hours=1, delete_hours=tuple(range(24)), delete_batch_max=100)
QUEUES = (("T", 0), ("T", 1), ("U", 2))
CACHE_BYTES = 1 << 20


def fill(bench: Bench) -> None:
    """T/0 in every segment, T/1 in some, U/2 in the first ones and the last one alone."""
    for number in range(60):
        tag = b"TAGS\x01%s\x02" % (b"odd" if number % 2 else b"even")
        puts = [Put("T", 0, b"t0-%d-%d" % (number, each), tag) for each in range(4)]
        if number % 7 == 0:
            puts.append(Put("T", 1, b"t1-%d" % number, tag))
        if number in (3, 4, 59):
            puts.append(Put("U", 2, b"u2-%d" % number, tag))
        bench.clock.advance(0.5)
        bench.store.put(batch_of(puts))
        bench.settle()


def delete_old_files(bench: Bench) -> None:
    cleaner = Cleaner(bench.store._parts, lambda _: None)
    cleaner.run(bench.store._write_lock)
    bench.clock.advance(7200)
    bench.put(1)
    bench.settle()
    bench.store.persist()
    assert cleaner.run(bench.store._write_lock) > 2


def filled() -> Bench:
    bench = Bench(replace(CONFIG, retention=RETENTION), topics=("T", "U"))
    bench.store.epochs.append(EpochEntry(1, 0))
    fill(bench)
    return bench


def all_of(
    reader: StoreReader | ColdReader, topic: str, queue_id: int, most: int = 0
) -> list[bytes]:
    """The bodies of a queue from 0 on, without a gap and without a double."""
    found: list[bytes] = []
    while True:
        result = reader.get(topic, queue_id, len(found), most, 4096)
        if result.status is not GetStatus.FOUND:
            assert result.status is GetStatus.OFFSET_OVERFLOW_ONE, result.status
            return found
        records = records_of(result)
        assert [each.queue_offset for each in records] == [
            *range(len(found), len(found) + len(records))
        ]
        assert result.next_offset == len(found) + len(records)
        found += [each.body for each in records]


def cold(
    bench: Bench, objects: FakeObjectStore, manifest: Manifest | None, size: int = CACHE_BYTES
) -> ColdReader:
    return ColdReader(bench.store, objects, size, lambda: manifest, now=bench.clock.monotonic)


@pytest.mark.parametrize("most", [1, 3, 0])
@pytest.mark.parametrize("size", [CACHE_BYTES, 1 << 13])
def test_every_queue_is_read_from_its_first_message_to_its_last(most: int, size: int) -> None:
    bench, objects = filled(), FakeObjectStore()
    expected = {queue: all_of(bench.store.reader, *queue) for queue in QUEUES}
    manifest = archive(bench, objects)
    delete_old_files(bench)
    expected["T", 0].append(bench.bodies()[-1])
    assert bench.store.reader.get("T", 0, 0, 1, 100).status is GetStatus.OFFSET_TOO_SMALL
    reader = cold(bench, objects, manifest, size)
    for queue in QUEUES:
        assert all_of(reader, *queue, most) == expected[queue], queue
    assert reader.messages > 100
    assert reader.segments.cache.held_bytes <= size


def test_while_files_are_deleted_no_message_is_passed_over() -> None:
    bench, objects = filled(), FakeObjectStore()
    expected = {queue: all_of(bench.store.reader, *queue) for queue in QUEUES}
    manifest = archive(bench, objects)
    reader = cold(bench, objects, manifest)
    floor = reader.floor()
    assert not reader.has_moved(floor)
    bench.store._parts.log.drop_before(3 * bench.store.log.file_size)
    # the queues still have units of what is gone
    assert bench.store.reader.get("T", 0, 0, 1, 100).status is GetStatus.MESSAGE_WAS_REMOVING
    assert reader.has_moved(floor)
    for queue in QUEUES:
        assert all_of(reader, *queue, 7) == expected[queue], queue
    bench.store.queues.set_log_minimum(bench.store.log.min_offset)
    assert not reader.has_moved(reader.floor())
    for queue in QUEUES:
        assert all_of(reader, *queue, 7) == expected[queue], queue


def test_a_second_reader_reads_nothing_of_the_object_store() -> None:
    bench, objects = filled(), FakeObjectStore()
    manifest = archive(bench, objects)
    delete_old_files(bench)
    reader = cold(bench, objects, manifest)
    all_of(reader, "T", 0)
    calls = len(objects.calls)
    all_of(reader, "T", 0)
    all_of(reader, "T", 1)
    assert len(objects.calls) == calls
    assert reader.segments.cache.hits > reader.segments.cache.misses > 0


def test_ranges_begin_where_the_archive_does() -> None:
    bench, objects = filled(), FakeObjectStore()
    before = {(each.topic, each.queue_id): each for each in bench.store.reader.ranges()}
    manifest = archive(bench, objects)
    delete_old_files(bench)
    reader = cold(bench, objects, manifest)
    for _ in range(2):
        begins = reader.begins([*QUEUES, ("T", 3), ("none", 0)])
        assert begins.keys() == set(QUEUES)
        for queue, begin in begins.items():
            assert (begin.number, begin.time_ms) == (0, before[queue].min_timestamp)


def test_a_time_is_found_in_archive_and_files_as_in_the_files_before() -> None:
    bench, objects = filled(), FakeObjectStore()
    times = [
        *range(bench.clock.now_ms() - 31_000, bench.clock.now_ms() + 2_000, 250), 0, 1 << 50
    ]  # fmt: skip
    manifest = archive(bench, objects)
    expected = {
        (queue, time, boundary): bench.store.reader.search_offset(*queue, time, boundary)
        for queue in QUEUES[1:]  # no message comes into these later
        for time in times
        for boundary in Boundary
    }
    delete_old_files(bench)
    reader = cold(bench, objects, manifest)
    for (queue, time, boundary), offset in expected.items():
        assert reader.search_offset(*queue, time, boundary) == offset, (queue, time, boundary)
    assert len(set(expected.values())) > 8


def hashes_of(tag: str) -> list[int]:
    return sorted(tag_hashes((tag,)) or ())


def test_filters_choose_in_the_archive_as_in_the_files() -> None:
    bench, objects = filled(), FakeObjectStore()
    hashes = hashes_of("odd")
    condition = parse("TAGS = 'even'")
    by_tag = bench.store.reader.get("T", 0, 0, 5, 4096, hashes)
    by_condition = bench.store.reader.get("T", 0, 0, 5, 4096, (), condition)
    manifest = archive(bench, objects)
    delete_old_files(bench)
    reader = cold(bench, objects, manifest)
    for expected, result in (
        (by_tag, reader.get("T", 0, 0, 5, 4096, hashes)),
        (by_condition, reader.get("T", 0, 0, 5, 4096, (), condition)),
    ):
        assert result.status is expected.status is GetStatus.FOUND
        assert bytes(result.records) == bytes(expected.records)
        assert result.next_offset <= expected.next_offset
    nothing = reader.get("T", 0, 0, 5, 4096, hashes_of("none"))
    assert nothing.status is GetStatus.NO_MATCHED_MESSAGE
    assert nothing.next_offset > 0


def test_what_the_archive_lacks_too_is_too_small() -> None:
    bench, objects = filled(), FakeObjectStore()
    begin = bench.store.log.file_size
    manifest = archive(bench, objects, begin=begin)
    delete_old_files(bench)
    result = cold(bench, objects, manifest).get("T", 0, 0, 1, 100)
    assert result.status is GetStatus.OFFSET_TOO_SMALL
    assert 0 < result.next_offset == result.min_offset < bench.store.reader.ranges()[0].min_offset
    there = cold(bench, objects, manifest).get("T", 0, result.next_offset, 1, 100)
    assert there.status is GetStatus.FOUND
    empty = cold(bench, FakeObjectStore(), None).get("T", 0, 0, 1, 100)
    assert (empty.status, empty.next_offset) == (
        GetStatus.OFFSET_TOO_SMALL,
        bench.store.reader.ranges()[0].min_offset,
    )


def test_a_damaged_object_is_not_served() -> None:
    bench, objects = filled(), FakeObjectStore()
    expected = all_of(bench.store.reader, "T", 0)
    manifest = archive(bench, objects)
    delete_old_files(bench)
    for key in [manifest.segments[0].name.log_key, manifest.segments[0].name.index_key]:
        whole = objects.objects[key]
        for number in range(0, len(whole), 397):
            flipped = bytearray(whole)
            flipped[number] ^= 0x10
            objects.objects[key] = bytes(flipped)
            with pytest.raises(ArchiveDamagedError):
                cold(bench, objects, manifest).get("T", 0, 0, 32, 4096)
        objects.objects[key] = whole[: len(whole) // 2]
        with pytest.raises(ArchiveDamagedError):
            cold(bench, objects, manifest).get("T", 0, 0, 32, 4096)
        objects.objects[key] = whole
    result = cold(bench, objects, manifest).get("T", 0, 0, 2, 4096)
    assert [each.body for each in records_of(result)] == expected[:2]


def test_an_object_store_that_does_not_answer_is_asked_again() -> None:
    bench, objects = filled(), FakeObjectStore(seed=3)
    expected = all_of(bench.store.reader, "T", 0)
    manifest = archive(bench, objects)
    objects.trouble = Trouble(refused=0.4)
    delete_old_files(bench)
    reader = cold(bench, objects, manifest, size=1 << 13)
    found: list[bytes] = []
    failures = 0
    while len(found) < len(expected):
        try:
            result = reader.get("T", 0, len(found), 5, 4096)
        except ArchiveUnavailableError:
            failures += 1
            continue
        found += [each.body for each in records_of(result)]
    assert found[: len(expected)] == expected
    assert failures == reader.segments.failures > 0


def test_an_archive_of_other_bytes_is_not_read() -> None:
    bench, other, objects = filled(), Bench(topics=("T", "U")), FakeObjectStore()
    other.store.epochs.append(EpochEntry(1, 0))
    other.clock.advance(7)
    fill(other)
    manifest = replace(archive(other, objects), history=bench.store.log_identity.history)
    delete_old_files(bench)
    result = cold(bench, objects, manifest).get("T", 0, 0, 1, 100)
    assert result.status is GetStatus.OFFSET_TOO_SMALL
    assert result.next_offset == bench.store.reader.ranges()[0].min_offset


def new_slave(master: Bench) -> Bench:
    """A node that was empty a moment ago: it has the master's log, and not its tables yet."""
    begin, end = master.store.log.min_offset, master.store.confirmed.value
    slave = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), topics=())
    store = slave.store
    store.reset(begin)
    store.take_prologue(master.store.prologue(begin))
    for entry in master.store.epochs.table.entries:
        store.epochs.append(entry)
    while (at := store.log.wrote.value) < end:
        store.append_raw(at, master.store.log.view(at, min(1024, end - at)))
    store.flush()
    store.advance_confirmed(end)
    slave.settle()
    return slave


def test_a_node_that_does_not_know_yet_which_log_it_has_sends_no_reader_forward() -> None:
    bench, objects = (
        Bench(replace(CONFIG, retention=RETENTION), topics=("T", "U")),
        FakeObjectStore(),
    )
    bench.store.become_master(1)
    fill(bench)
    expected = all_of(bench.store.reader, "T", 0)
    manifest = archive(bench, objects)
    delete_old_files(bench)
    slave = new_slave(bench)
    reader = cold(slave, objects, manifest)
    with pytest.raises(StoreBusyError, match="try again"):
        reader.get("T", 0, 0, 1, 100)
    slave.store.log_identity.replace_from_json(bench.store.log_identity.to_json())
    assert all_of(reader, "T", 0)[: len(expected)] == expected


def test_before_the_archiver_has_looked_the_reader_looks_itself() -> None:
    bench, objects = filled(), FakeObjectStore()
    archive(bench, objects)
    delete_old_files(bench)
    reader = cold(bench, objects, None)
    objects.trouble = Trouble(refused=1)
    with pytest.raises(ArchiveUnavailableError):
        reader.get("T", 0, 0, 1, 100)
    objects.trouble = Trouble()
    assert reader.get("T", 0, 0, 1, 100).status is GetStatus.FOUND
    assert sum(call == "list" for call, _ in objects.calls) == 2
    assert reader.get("T", 0, 1, 1, 100).status is GetStatus.FOUND
    assert sum(call == "list" for call, _ in objects.calls) == 2


def test_a_long_search_ends_and_the_next_one_continues_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, objects = filled(), FakeObjectStore()
    manifest = archive(bench, objects)
    delete_old_files(bench)
    reader = cold(bench, objects, manifest)
    get = objects.get

    def slow(key: str, start: int = 0, end: int | None = None) -> bytes:
        bench.clock.advance(11)
        return get(key, start, end)

    monkeypatch.setattr(objects, "get", slow)
    with pytest.raises(StoreBusyError, match="try again"):
        reader.get("U", 2, 0, 1, 100)
    for _ in range(60):
        with suppress(StoreBusyError):
            result = reader.get("U", 2, 0, 1, 100)
            break
    assert records_of(result)[0].body == b"u2-3"
    assert cold_reader.SEARCH_S < 11
