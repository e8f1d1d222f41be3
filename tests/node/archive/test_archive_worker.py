"""The archiver's actions, done with a store in memory."""

from dataclasses import replace

import numpy as np
import pytest

from fakes.fake_object_store import FakeObjectStore, Trouble
from fakes.stores import CONFIG, Bench
from tandemlog.archive.archive_checks import check_archive
from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.errors import NotArchivedError
from tandemlog.format.archive import segment_index
from tandemlog.format.archive.manifest import Manifest
from tandemlog.format.archive.object_name import segment_of
from tandemlog.format.archive.segment_index import decode_index, encode_index
from tandemlog_server.node.archive.archive_worker import ArchiveWorker
from tandemlog_server.storage.archiving.actions import (
    Damaged,
    Deleted,
    Failed,
    Gone,
    NothingWhole,
    Prove,
    Proved,
    Publish,
    Upload,
    Uploaded,
)
from tandemlog_server.storage.archiving.actions import Delete as DeleteAction
from tandemlog_server.storage.archiving.archiver import Archiver, ArchiverConfig
from tandemlog_server.storage.config import FlushMode


class Archiving:
    """A store with a few files of log, its archiver, and what the rate was asked for."""

    def __init__(self, trouble: Trouble | None = None) -> None:
        self.bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
        self.objects = FakeObjectStore(trouble)
        self.spent: list[int] = []
        self.fill()
        self.archiver = Archiver("a", ArchiverConfig(segment_bytes=3_000), lambda: 9)
        self.worker = ArchiveWorker(
            self.bench.store, self.objects, self.archiver, self.spent.append
        )

    def fill(self) -> None:
        for _ in range(20):
            self.bench.put(5, size=100)
        self.bench.store.flush()
        for _ in range(50):
            self.bench.store.reput.run_once()

    @property
    def end(self) -> int:
        return self.bench.store.confirmed.value

    def run(self, now: float = 0.0) -> ArchiveReader:
        for _ in range(200):
            if self.worker.step(now, is_chosen=True, hurry=True) is not None:
                break
        return ArchiveReader.open(self.objects)

    def log(self) -> bytes:
        store, at, parts = self.bench.store, 0, []
        while at < self.end:
            parts.append(bytes(store.log.read(at, self.end - at)))
            at += len(parts[-1])
        return b"".join(parts)


@pytest.fixture
def archiving() -> Archiving:
    return Archiving()


def test_the_archive_is_the_log(archiving: Archiving) -> None:
    reader = archiving.run()
    assert reader.manifest.spans() == ((0, archiving.end),)
    assert reader.read(0, archiving.end) == archiving.log()
    units = sum(len(reader.index(entry).units) for entry in reader.manifest.segments)
    assert units == 100
    assert archiving.worker.uploaded_bytes == archiving.objects.moved
    assert sum(archiving.spent) == archiving.objects.moved


def test_what_is_there_is_not_moved_again(archiving: Archiving) -> None:
    archiving.run()
    moved = archiving.objects.moved
    again = Archiver("b", ArchiverConfig(segment_bytes=3_000), lambda: 9)
    worker = ArchiveWorker(archiving.bench.store, archiving.objects, again)
    while worker.step(1.0, is_chosen=True, hurry=True) is None:
        pass
    # a state and a manifest
    assert archiving.objects.moved - moved < 3_000
    puts = [key for call, key in archiving.objects.calls if call == "put"]
    assert len([key for key in puts if key.startswith("log/")]) == len(
        archiving.run().manifest.segments
    )


def test_damage_is_not_archived(archiving: Archiving) -> None:
    path = next(file.path for file in archiving.bench.store.log.files)
    archiving.bench.files.content(path)[300] ^= 1
    first = archiving.worker.do(Upload(0, 1_000, 0))
    assert isinstance(first, Uploaded)
    assert first.entry.end <= 300
    answer = archiving.worker.do(Upload(first.entry.end, 1_000, 0))
    assert isinstance(answer, Damaged)
    assert f"cannot be archived from {first.entry.end} on" in answer.reason
    assert len(archiving.objects.objects) == 2


BORN_TIME_AT = 40
"""Of a record: no CRC covers it."""


def test_a_bit_that_turns_later_does_not_come_into_the_archive(archiving: Archiving) -> None:
    archiving.run()
    archiving.bench.put(2, size=100)
    archiving.bench.settle()
    small = archiving.run(10.0).manifest.segments[-1]
    good = archiving.log()
    file = archiving.bench.store.log.files[-1]
    archiving.bench.files.content(file.path)[small.start - file.base + BORN_TIME_AT] ^= 1
    archiving.bench.put(4, size=100)  # it would be put again with these
    archiving.bench.settle()
    reader = archiving.run(20.0)
    assert small in reader.manifest.segments
    assert reader.manifest.end == archiving.end
    assert reader.read(0, len(good)) == good
    assert archiving.archiver.fault == ""


def test_bytes_that_are_gone_and_records_that_are_not_whole(archiving: Archiving) -> None:
    assert archiving.worker.do(Upload(0, 50, 0)) == NothingWhole()
    assert archiving.worker.do(Upload(archiving.end, archiving.end + 100, 0)) == Gone()
    archiving.bench.store._cleaner.drop_before(8_192)
    assert archiving.worker.do(Upload(0, 1_000, 0)) == Gone()


def test_an_archive_proves_to_be_of_this_log_or_of_another(archiving: Archiving) -> None:
    manifest = archiving.run().manifest
    last = manifest.segments[-1]
    assert archiving.worker.do(Prove(last, manifest.end)) == Proved(True)
    other = Archiving()
    other.bench.store.truncate(0)
    other.bench.put(1, size=50)
    other.fill()
    worker = ArchiveWorker(other.bench.store, archiving.objects, archiving.archiver)
    assert worker.do(Prove(last, manifest.end)) == Proved(False)
    del archiving.objects.objects[last.name.log_key]
    answer = archiving.worker.do(Prove(last, manifest.end))
    assert isinstance(answer, Failed)
    assert "names what is not there" in answer.reason


def test_a_store_that_does_not_answer_is_a_failure() -> None:
    archiving = Archiving(Trouble(refused=1.0))
    for action in (
        Upload(0, 1_000, 0),
        Publish(Manifest(8_192, archiving.bench.store.log_identity.history)),
        DeleteAction("log/0"),
    ):
        answer = archiving.worker.do(action)
        assert isinstance(answer, Failed)
        assert "no answer for" in answer.reason
    archiving.objects.trouble = Trouble()
    assert archiving.worker.do(DeleteAction("log/0")) == Deleted()
    assert isinstance(archiving.worker.do(Upload(0, 1_000, 0)), Uploaded)


def test_nothing_is_archived_that_is_not_dispatched() -> None:
    archiving = Archiving()
    archiving.bench.put(5, size=100)
    archiving.bench.store.flush()
    reputed = archiving.bench.store.reputed.value
    assert reputed < archiving.end
    assert archiving.run().manifest.end == reputed


@pytest.mark.parametrize("what", ["packed otherwise", "other levels", "no units", "torn"])
def test_the_index_of_another_node_is_taken_for_its_own(
    archiving: Archiving, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An archiver has died before its manifest. The next one puts the same segments, and packs or
    reads their indexes in another way: another zlib, other delay levels, another version."""
    other = Archiving()
    other.run()
    for key, content in other.objects.objects.items():
        if key.startswith("log/"):
            archiving.objects.put(key, content)
        elif key.startswith("index/"):
            name = segment_of(key)
            assert name is not None
            index = decode_index(name, content)
            units = index.units.copy()
            if what == "other levels":
                units["tags_code"] = np.arange(len(units)) * 7_919
            if what == "no units":
                index = replace(index, runs=())
                units = units[:0]
            with monkeypatch.context() as patch:
                if what == "packed otherwise":
                    patch.setattr(segment_index, "_LEVEL", 0)
                packed = encode_index(replace(index, units=units))
            archiving.objects.put(key, content[:-1] if what == "torn" else packed)
            assert len(archiving.objects.objects[key]) != len(content)
    if what in ("packed otherwise", "other levels"):
        assert archiving.run().manifest.end == archiving.end
        assert archiving.archiver.fault == ""
        assert check_archive(ArchiveReader.open(archiving.objects)).faults == ()
        assert archiving.log() == ArchiveReader.open(archiving.objects).read(0, archiving.end)
    else:
        with pytest.raises(NotArchivedError):
            archiving.run()
        assert "index/" in archiving.archiver.fault
