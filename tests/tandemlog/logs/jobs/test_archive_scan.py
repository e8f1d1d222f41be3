"""A scan gives the same of an archive as of the log's files, and reads no more than it must."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.built_archives import archive_log, put_manifest, put_segments
from fakes.log_builder import LogBuilder, varied
from tandemlog.archive.folder_store import FolderStore
from tandemlog.archive.fsspec_store import FsspecStore
from tandemlog.archive.open_store import open_object_store
from tandemlog.format.files.log_history import LogHistory, LogTerm
from tandemlog.logs.executors import InProcess
from tandemlog.logs.job_errors import (
    CorruptLogError,
    FetchError,
    OnCorruption,
    OptionError,
    StoreMissingError,
)
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.scan import Damage, ScanOptions, scan
from tandemlog.logs.reading.archived_log import ArchivedLogSource
from tandemlog.logs.reading.log_source import open_log, open_store
from tandemlog.logs.reading.selection import Selection
from tandemlog.logs.reading.span_scan import Piece

FILE = 1 << 14


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    made = varied(LogBuilder(tmp_path / "store", FILE, garbage=b"\xff" * FILE), 80)
    made.write()
    return made


@pytest.fixture
def memory() -> Iterator[str]:
    """The URL of an empty archive."""
    files = pytest.importorskip("fsspec").filesystem("memory")
    yield "memory://archived"
    files.store.clear()


def raw(piece: Piece) -> list[bytes]:
    walked = piece.walk
    return [
        piece.data[start : start + size].tobytes()
        for start, size in zip(walked.positions.tolist(), walked.sizes.tolist(), strict=True)
    ]


def scanned(place: str | Path, options: ScanOptions | None = None) -> list[bytes]:
    chosen = options or ScanOptions(piece_bytes=3000)
    return [each for window in scan(open_store(place), chosen, raw) for each in window]


def offsets_of(place: str | Path, **options: Any) -> list[int]:
    records = scanned(place, ScanOptions(piece_bytes=3000, **options))
    return [int.from_bytes(each[28:36]) for each in records]


@pytest.mark.parametrize("segment_bytes", [1, 5000, FILE])
def test_an_archive_gives_what_the_files_give(
    builder: LogBuilder, tmp_path: Path, memory: str, segment_bytes: int
) -> None:
    archive_log(FolderStore(tmp_path / "archive"), builder, segment_bytes)
    archive_log(open_object_store(memory), builder, segment_bytes)
    expected = scanned(builder.store)
    assert len(expected) == len(builder.records)
    for place in (str(tmp_path / "archive"), (tmp_path / "archive").as_uri(), memory):
        assert scanned(place) == expected
        assert scanned(place, ScanOptions(piece_bytes=1 << 20, readers=1)) == expected


@pytest.mark.parametrize("topic", ["Orders", "six", "SCHEDULE_TOPIC_XXXX", "bad", "not there"])
def test_topics_are_chosen(builder: LogBuilder, memory: str, topic: str) -> None:
    archive_log(open_object_store(memory), builder, 900)
    expected = [each.physical_offset for each in builder.records if each.topic == topic]
    for place in (builder.store, memory):
        assert offsets_of(place, selection=Selection({topic})) == expected


def test_store_times_are_chosen(builder: LogBuilder, memory: str) -> None:
    archive_log(open_object_store(memory), builder, 900)
    times = [each.store_timestamp for each in builder.records]
    for since, before in [(times[5], times[9]), (0, times[3]), (times[-3] - 1, times[-1] + 9)]:
        expected = [
            each.physical_offset
            for each in builder.records
            if since <= each.store_timestamp < before
        ]
        chosen = Selection((), since, before)
        assert expected
        for place in (builder.store, memory):
            assert offsets_of(place, selection=chosen) == expected


@pytest.mark.parametrize(("first", "last"), [(0, 1), (10, 60), (33, 34), (90, 10_000)])
def test_offsets_are_chosen(builder: LogBuilder, memory: str, first: int, last: int) -> None:
    """Also those inside of a record."""
    archive_log(open_object_store(memory), builder, 900)
    places = [each.physical_offset for each in builder.records]
    end = places[last] if last < len(places) else builder.end
    for extra in (0, -1, 1):
        start = max(places[first] + extra, 0)
        expected = [each for each in places if start <= each < end]
        for place in (builder.store, memory):
            assert offsets_of(place, start=start, end=end) == expected
    chosen = (
        Selection({"Orders"}, before_ms=builder.records[last - 1].store_timestamp + 1)
        if (last < len(places))
        else Selection({"Orders"})
    )
    expected = [
        each.physical_offset
        for each in builder.records
        if each.topic == "Orders" and places[first] < each.physical_offset < end
    ]
    found = offsets_of(memory, start=places[first] + 1, end=end, selection=chosen)
    assert found == expected


def test_a_folder_may_be_the_archive_of_a_log_that_began_later(tmp_path: Path, memory: str) -> None:
    builder = LogBuilder(tmp_path / "store", FILE, start=3 * FILE)
    for number in range(200):
        builder.put(body=bytes(100 + number))
    store = open_object_store(memory)
    entries = put_segments(store, builder, 2000, start=3 * FILE)
    put_manifest(store, builder, entries[4:])
    expected = [each.physical_offset for each in builder.records]
    kept = [each for each in expected if each >= entries[4].start]
    assert offsets_of(memory) == kept
    assert len(kept) < len(expected)


def test_a_gap_is_named_unless_it_is_outside(builder: LogBuilder, memory: str) -> None:
    store = open_object_store(memory)
    entries = put_segments(store, builder, 1000)
    behind = next(n for n, each in enumerate(entries) if each.start == FILE)
    put_manifest(store, builder, [*entries[:3], *entries[behind:]])
    gap, after = entries[2].end, FILE
    with pytest.raises(
        CorruptLogError, match=f"offset {gap}: the archive has nothing up to {FILE}"
    ):
        offsets_of(memory)
    places = [each.physical_offset for each in builder.records]
    assert offsets_of(memory, start=after) == [each for each in places if each >= after]
    assert offsets_of(memory, end=gap) == [each for each in places if each < gap]
    rest = offsets_of(memory, on_corruption=OnCorruption.SKIP)
    assert rest == [each for each in places if not gap <= each < after]


def test_a_segment_that_was_cut_ends_at_the_cut(builder: LogBuilder, memory: str) -> None:
    """Of its object, what is behind the cut is of a dead branch."""
    store = open_object_store(memory)
    (entry, *_) = put_segments(store, builder, FILE)
    cut = builder.records[7].physical_offset
    new = LogHistory(7, (LogTerm(1, 0, 1), LogTerm(2, cut, 2)))
    put_manifest(store, builder, [type(entry)(entry.name, cut, entry.records, 1, 1 << 60)], new)
    expected = [each.physical_offset for each in builder.records[:7]]
    assert offsets_of(memory) == expected
    orders = [each.physical_offset for each in builder.records[:7] if each.topic == "Orders"]
    assert offsets_of(memory, selection=Selection({"Orders"})) == orders


@pytest.mark.parametrize(
    "selection",
    [Selection({"rare"}), Selection((), 1_700_000_000_000 + 7 * 18, 1_700_000_000_000 + 7 * 20)],
)
def test_what_cannot_be_wanted_is_not_fetched(
    tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch, selection: Selection
) -> None:
    """One record in 24 of half a MiB: one block of its object, of the other objects nothing."""
    builder = LogBuilder(tmp_path / "store", 1 << 24)
    for number in range(24):
        builder.put("rare" if number == 18 else "Orders", body=bytes([number]) * (1 << 19))
    archive_log(open_object_store(memory), builder, 3 << 20)
    read = 0
    get = FsspecStore.get

    def counted(self: FsspecStore, key: str, start: int = 0, end: int | None = None) -> bytes:
        nonlocal read
        content = get(self, key, start, end)
        read += len(content) if key.startswith("log/") else 0
        return content

    monkeypatch.setattr(FsspecStore, "get", counted)
    found = offsets_of(memory, selection=selection)
    assert found
    assert set(found) <= {each.physical_offset for each in builder.records[17:20]}
    assert read <= 3 << 20


def test_a_damaged_object_is_named(builder: LogBuilder, memory: str) -> None:
    store = open_object_store(memory)
    entries = put_segments(store, builder, 2000)
    put_manifest(store, builder, entries)
    key = entries[3].name.log_key
    content = bytearray(store.get(key))
    content[100] ^= 1
    store.delete(key)
    store.put(key, bytes(content))
    words = f"offset {entries[3].start}: .*{key} is damaged.*backup verify"
    with pytest.raises(CorruptLogError, match=words):
        offsets_of(memory)
    places = [each.physical_offset for each in builder.records]
    start = entries[3].end
    assert offsets_of(memory, start=start) == [e for e in places if e >= start]
    store.delete(key)
    with pytest.raises(CorruptLogError, match=f"{key} is not in .*backup verify"):
        offsets_of(memory)


@pytest.mark.parametrize("topic", ["", "Orders"])
def test_objects_that_are_joined_while_they_are_read(
    builder: LogBuilder, memory: str, topic: str
) -> None:
    store = open_object_store(memory)
    put_manifest(store, builder, old := put_segments(store, builder, 1000))
    options = ScanOptions(Selection({topic} if topic else ()), piece_bytes=2000, readers=1)
    windows = scan(open_store(memory), options, raw)
    found = next(windows)
    put_manifest(store, builder, put_segments(store, builder, FILE), revision=1)
    for each in old:
        store.delete(each.name.log_key)
        store.delete(each.name.index_key)
    found += [each for window in windows for each in window]
    expected = scanned(builder.store, ScanOptions(options.selection))
    assert found == expected


@pytest.mark.parametrize("what", ["pruned", "cut"])
def test_what_is_taken_away_while_it_is_read_is_not_skipped(
    builder: LogBuilder, memory: str, what: str
) -> None:
    store = open_object_store(memory)
    put_manifest(store, builder, old := put_segments(store, builder, 1000))
    options = ScanOptions(piece_bytes=2000, readers=1)
    windows = scan(open_store(memory), options, raw)
    next(windows)
    if what == "pruned":
        put_manifest(store, builder, old[-2:], revision=1)
    else:
        cut = old[0].end
        new = LogHistory(7, (LogTerm(1, 0, 1), LogTerm(2, cut, 2)))
        put_manifest(store, builder, put_segments(store, builder, FILE), new)
    for each in old[:-2]:
        store.delete(each.name.log_key)
        store.delete(each.name.index_key)
    with pytest.raises(FetchError, match=r"no longer has the log at .*Read it again"):
        list(windows)


def test_what_is_archived_later_is_not_read(builder: LogBuilder, memory: str) -> None:
    store = open_object_store(memory)
    entries = put_segments(store, builder, 1000)
    put_manifest(store, builder, entries[:5])
    source = open_store(memory)
    put_manifest(store, builder, entries)
    found = [each for window in scan(source, ScanOptions(), raw) for each in window]
    places = [each.physical_offset for each in builder.records]
    assert len(found) == sum(each < entries[4].end for each in places)


def test_damaged_records_are_told_in_order(builder: LogBuilder) -> None:
    record = builder.records[20]
    path = builder.path(record.physical_offset)
    content = bytearray(path.read_bytes())
    content[record.physical_offset % FILE + 88] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptLogError, match=f"offset {record.physical_offset}"):
        scanned(builder.store)
    told: list[Damage] = []
    options = ScanOptions(piece_bytes=3000, on_corruption=OnCorruption.SKIP)
    windows = scan(open_store(builder.store), options, raw, told.append)
    assert sum(map(len, windows)) == len(builder.records) - 1
    assert [each.start for each in told] == [record.physical_offset]


def test_urls_that_are_no_archive() -> None:
    with pytest.raises(StoreMissingError, match="memory://empty has no manifest"):
        open_store("memory://empty")
    with pytest.raises(OptionError, match=r"nope://x/y"):
        open_store("nope://x/y")


def test_secrets_are_not_shown(builder: LogBuilder, memory: str) -> None:
    archive_log(open_object_store(memory), builder, 5000)
    source = open_log(memory, storage={"secret": "sesame"})
    assert isinstance(source, ArchivedLogSource)
    assert "sesame" not in repr(source)


def test_an_offset_behind_the_end(builder: LogBuilder) -> None:
    with pytest.raises(OptionError, match=f"ends at {builder.end}"):
        scanned(builder.store, ScanOptions(start=builder.end + 1))


def test_numbers_of_batch_queues_are_no_gaps(tmp_path: Path, memory: str) -> None:
    """Which topics have such queues is in the archive's tables."""
    builder = LogBuilder(tmp_path / "store", FILE)
    for number in range(10):
        builder.put("batches", queue_offset=number * 5)
    store = open_object_store(memory)
    entries = put_segments(store, builder, 500)
    put_manifest(store, builder, entries)
    assert not audit(InProcess(), memory).holds
    table = {"batches": {"attributes": {"queue.type": "BatchCQ"}}}
    topics = json.dumps({"topicConfigTable": table})
    put_manifest(store, builder, entries, revision=1, topics=topics)
    assert audit(InProcess(), memory).holds
    store.delete(next(each.key for each in store.list("state/")))
    with pytest.raises(CorruptLogError, match="state/"):
        audit(InProcess(), memory)


def test_a_store_that_has_an_archive_in_its_folder_is_a_store(builder: LogBuilder) -> None:
    archive_log(FolderStore(builder.store), builder, 4000)
    assert not isinstance(open_store(builder.store), ArchivedLogSource)
    assert len(scanned(builder.store)) == len(builder.records)
