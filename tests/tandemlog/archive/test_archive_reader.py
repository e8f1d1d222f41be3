"""An archive as its newest manifest has it."""

from pathlib import Path

import pytest

from fakes.fake_object_store import FakeObjectStore
from fakes.log_builder import LogBuilder
from tandemlog.archive.archive_reader import ArchiveReader, newest_manifest
from tandemlog.archive.errors import ArchiveDamagedError, NotArchivedError, ObjectMissingError
from tandemlog.format.archive.manifest import Manifest, StateEntry, encode_manifest
from tandemlog.format.archive.object_name import ManifestName
from tandemlog.format.archive.segment import take_segment
from tandemlog.format.archive.segment_index import BLOCK_BYTES, encode_index
from tandemlog.format.archive.state import ArchiveState, encode_state
from tandemlog.format.files.log_history import LogHistory, LogTerm

FILE = 1 << 23
STATE = ArchiveState(0, {"topics": "{}"}, b"prologue", 5)


class Archived:
    """A log of ten records in three segments, and its archive."""

    def __init__(self) -> None:
        self.store = FakeObjectStore()
        self.builder = LogBuilder(Path(), FILE)
        for number in range(10):
            self.builder.put(body=bytes([number]) * 300_000)
        self.log = bytes(self.builder._files[0][: self.builder.end])
        starts = [record.physical_offset for record in self.builder.records]
        self.entries = []
        for start, end in [(0, starts[3]), (starts[3], starts[9]), (starts[9], self.builder.end)]:
            segment = take_segment(self.log[start:end], start, 1, FILE)
            assert segment is not None
            self.store.put(segment.name.log_key, segment.content)
            self.store.put(segment.name.index_key, encode_index(segment.index))
            self.entries.append(segment.entry)
        name, content = encode_state(STATE)
        self.store.put(name.key, content)
        self.states = (StateEntry(name, 5, True),)

    def publish(self, count: int = 3, epoch: int = 1, revision: int = 0) -> ManifestName:
        manifest = Manifest(
            FILE,
            LogHistory(7, (LogTerm(epoch, 0, 1),)),
            tuple(self.entries[:count]),
            self.states,
            self.entries[count - 1].end,
            revision,
        )
        name, content = encode_manifest(manifest)
        self.store.put(name.key, content)
        return name


@pytest.fixture
def archived() -> Archived:
    return Archived()


def test_any_range_is_read_and_checked(archived: Archived) -> None:
    archived.publish()
    reader = ArchiveReader.open(archived.store)
    end = len(archived.log)
    for start, stop in [(0, end), (0, 1), (end - 1, end), (BLOCK_BYTES - 1, 2 * BLOCK_BYTES + 1)]:
        assert reader.read(start, stop) == archived.log[start:stop]
    assert [bytes(reader.segment(each)) for each in archived.entries] == [
        archived.log[each.start : each.end] for each in archived.entries
    ]
    assert reader.state(archived.states[0]) == STATE


def test_only_the_blocks_that_are_asked_for_are_read(archived: Archived) -> None:
    archived.publish()
    reader = ArchiveReader.open(archived.store)
    reader.index(archived.entries[1])
    archived.store.calls.clear()
    start = archived.entries[1].start + BLOCK_BYTES + 10
    ((offset, content),) = reader.blocks(start, start + 5)
    assert (offset, bytes(content)) == (start, archived.log[start : start + 5])
    assert archived.store.calls == [("get", archived.entries[1].name.log_key)]


def test_what_is_not_archived_is_said(archived: Archived) -> None:
    with pytest.raises(NotArchivedError, match="no manifest"):
        ArchiveReader.open(archived.store)
    archived.publish(count=2)
    reader = ArchiveReader.open(archived.store)
    with pytest.raises(NotArchivedError, match=f"at {archived.entries[1].end}"):
        reader.read(0, len(archived.log))
    archived.publish()
    reader.refresh()
    assert reader.read(0, len(archived.log)) == archived.log


def test_a_gap_is_not_read_over(archived: Archived) -> None:
    archived.publish()
    reader = ArchiveReader.open(archived.store)
    first, middle, last = archived.entries
    reader.manifest = Manifest(FILE, LogHistory(), (first, last), (), last.end)
    assert [offset for offset, _ in reader.blocks(0, last.end)] == [0, last.start]
    with pytest.raises(NotArchivedError, match=f"at {middle.start}"):
        reader.read(0, last.end)


def test_a_segment_that_was_cut_ends_at_the_cut(archived: Archived) -> None:
    archived.publish()
    reader = ArchiveReader.open(archived.store)
    cut = archived.builder.records[5].physical_offset
    reader.manifest = reader.manifest.cut_at(cut)
    assert reader.read(0, cut) == archived.log[:cut]
    with pytest.raises(NotArchivedError):
        reader.read(0, cut + 1)
    entry = reader.manifest.segments[-1]
    assert bytes(reader.segment(entry)) == archived.log[entry.start : cut]
    assert int(reader.index(entry).units["physical_offset"].max()) < cut


@pytest.mark.parametrize("kind", ["log/", "index/", "state/", "manifests/"])
def test_a_flipped_bit_is_never_given_out(archived: Archived, kind: str) -> None:
    archived.publish()
    reader = ArchiveReader.open(archived.store)
    key = next(key for key in sorted(archived.store.objects) if key.startswith(kind))
    content = bytearray(archived.store.objects[key])
    content[len(content) // 2] ^= 16
    archived.store.objects[key] = bytes(content)

    def read_all() -> None:
        opened = ArchiveReader.open(archived.store)
        opened.state(archived.states[0])
        opened.read(0, len(archived.log))

    with pytest.raises(ArchiveDamagedError, match=r"fake://archive: "):
        read_all()
    if kind == "log/":
        with pytest.raises(ArchiveDamagedError):
            reader.segment(archived.entries[0])


def test_an_object_that_is_cut_short_is_noticed(archived: Archived) -> None:
    archived.publish()
    reader = ArchiveReader.open(archived.store)
    key = archived.entries[0].name.log_key
    archived.store.objects[key] = archived.store.objects[key][:-1]
    for read in (reader.segment, lambda entry: reader.read(entry.start, entry.end)):
        with pytest.raises(ArchiveDamagedError):
            read(archived.entries[0])


def test_the_manifest_that_counts_is_taken(archived: Archived) -> None:
    assert newest_manifest(archived.store) is None
    archived.publish(count=3, epoch=1)
    newest = archived.publish(count=2, epoch=2)
    found = newest_manifest(archived.store)
    assert found is not None
    assert found[0] == newest
    del archived.store.objects[newest.key]
    archived.store._modified.pop(newest.key)
    assert ArchiveReader.open(archived.store).manifest.end == len(archived.log)


def test_a_manifest_that_is_listed_and_gone_is_looked_for_again(
    archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived.publish()
    gone = archived.publish(epoch=2)
    listed = archived.store.list("manifests/")
    del archived.store.objects[gone.key]
    answers = [listed]
    original = FakeObjectStore.list
    monkeypatch.setattr(
        FakeObjectStore,
        "list",
        lambda store, prefix: answers.pop() if answers else original(store, prefix),
    )
    assert ArchiveReader.open(archived.store).manifest.epoch == 1
    monkeypatch.setattr(FakeObjectStore, "list", lambda store, prefix: listed[-1:])
    with pytest.raises(ObjectMissingError, match="lists are not there"):
        ArchiveReader.open(archived.store)
