"""Object stores of archives: each keeps the suite, and what is its own."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from conformance.object_store_suite import ONE, TWO, ObjectStoreSuite
from fakes.fake_object_store import BAD_DAY, FakeObjectStore, Trouble
from tandemlog.archive.errors import ArchiveUnavailableError, ArchiveUrlError, ObjectMissingError
from tandemlog.archive.folder_store import STALE_PART_S, FolderStore
from tandemlog.archive.fsspec_store import FsspecStore
from tandemlog.archive.object_store import shown_url
from tandemlog.archive.open_store import open_object_store


class TestFolder(ObjectStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderStore:
        return FolderStore(tmp_path / "not" / "there yet")

    def test_an_object_gets_its_name_when_it_is_durable(
        self, store: FolderStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put(TWO, b"so that the folders are there")
        events: list[str] = []
        fsync, link = os.fsync, os.link

        def noted_fsync(handle: int) -> None:
            is_folder = Path(f"/proc/self/fd/{handle}").is_dir()
            events.append("folder" if is_folder else "file")
            fsync(handle)

        def noted_link(part: Path, path: Path) -> None:
            events.append("link")
            link(part, path)

        monkeypatch.setattr(os, "fsync", noted_fsync)
        monkeypatch.setattr(os, "link", noted_link)
        store.put(ONE, b"content")
        assert events == ["file", "link", "folder"]
        events.clear()
        store.put(ONE, b"content")
        assert events == ["folder"]

    def test_the_folders_above_are_durable_too(
        self, store: FolderStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushed: list[Path] = []
        fsync = os.fsync

        def noted_fsync(handle: int) -> None:
            flushed.append(Path(f"/proc/self/fd/{handle}").readlink())
            fsync(handle)

        monkeypatch.setattr(os, "fsync", noted_fsync)
        store.put(ONE, b"content")
        root = Path(store.url)
        for folder in (root / "log", root, root.parent, root.parent.parent):
            assert folder in flushed

    def test_without_hard_links_an_object_is_renamed(
        self, store: FolderStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        assert store.put(ONE, b"content")
        assert store.get(ONE) == b"content"
        assert len(list((Path(store.url) / "log").iterdir())) == 1

    def test_a_full_disk_leaves_no_part(
        self, store: FolderStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ArchiveUnavailableError, match=r"0-1: No space left on device"):
            store.put(ONE, b"content")
        monkeypatch.undo()
        assert store.list("log/") == []
        assert not list(Path(store.url).rglob("*.part"))
        assert store.put(ONE, b"content")

    def test_parts_of_a_writer_that_died_are_removed_an_hour_later(self, tmp_path: Path) -> None:
        (tmp_path / "log").mkdir()
        old, new = tmp_path / "log" / ".0-1.aa.part", tmp_path / "log" / ".0-1.bb.part"
        for part in (old, new):
            part.write_bytes(b"half")
        os.utime(old, (1_000, 1_000))
        os.utime(new, (2_000, 2_000))
        store = FolderStore(tmp_path, now_s=lambda: 1_001 + STALE_PART_S)
        assert store.list("log/") == []
        store.put(ONE, b"content")
        assert not old.exists()
        assert new.exists()

    def test_a_folder_that_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"no folder")
        store = FolderStore(tmp_path / "file")
        for call in (store.get, store.delete, store.list, lambda key: store.put(key, b"")):
            with pytest.raises(ArchiveUnavailableError, match="file"):
                call(ONE if call != store.list else "log/")


class TestMemory(ObjectStoreSuite):
    @pytest.fixture
    def store(self) -> FakeObjectStore:
        return FakeObjectStore()

    def test_a_late_put_is_done_later(self) -> None:
        store = FakeObjectStore(Trouble(late=1.0))
        with pytest.raises(ArchiveUnavailableError):
            store.put(ONE, b"late")
        with pytest.raises(ObjectMissingError):
            FakeObjectStore.get(store, ONE)
        store.settle()
        assert store.get(ONE) == b"late"

    def test_a_repeated_put_comes_back_after_a_delete(self) -> None:
        store = FakeObjectStore(Trouble(repeated=1.0))
        store.put(ONE, b"twice")
        store.objects.clear()
        store.settle()
        assert store.get(ONE) == b"twice"

    def test_a_lost_answer_is_of_a_put_that_was_done(self) -> None:
        store = FakeObjectStore(Trouble(lost=1.0))
        with pytest.raises(ArchiveUnavailableError):
            store.put(ONE, b"done")
        assert store.get(ONE) == b"done"

    def test_on_a_bad_day_trying_again_is_enough(self) -> None:
        store = FakeObjectStore(BAD_DAY, seed=3)
        for number in range(200):
            while True:
                try:
                    store.put(f"log/{number}", b"%d" % number)
                    break
                except ArchiveUnavailableError:
                    continue
        store.settle()
        assert store.objects == {f"log/{number}": b"%d" % number for number in range(200)}


@pytest.fixture
def fsspec() -> Any:
    return pytest.importorskip("fsspec")


class TestFsspec(ObjectStoreSuite):
    @pytest.fixture
    def store(self, fsspec: Any, request: pytest.FixtureRequest) -> FsspecStore:
        fsspec.filesystem("memory").store.clear()
        return FsspecStore("memory://bucket/archive")


class TestFsspecWithFilesThatAreSeenInPart(ObjectStoreSuite):
    @pytest.fixture
    def store(self, fsspec: Any, tmp_path: Path) -> FsspecStore:
        return FsspecStore(f"local://{tmp_path}/archive")

    def test_a_file_is_moved_when_it_is_whole(
        self, store: FsspecStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise OSError("the network is down")

        monkeypatch.setattr(type(store._files), "mv", broken)
        with pytest.raises(ArchiveUnavailableError, match="the network is down"):
            store.put(ONE, b"content")
        assert store.list("log/") == []


def test_a_url_names_its_store(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}"):
        store = open_object_store(url)
        assert isinstance(store, FolderStore)
        store.put(ONE, b"content")
    assert (tmp_path / "log" / "0-1").read_bytes() == b"content"


@pytest.mark.parametrize("url", ["", "file://another-machine/folder", "nothing-known://x"])
def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ArchiveUrlError):
        open_object_store(url)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'fsspec'", name="fsspec")

    monkeypatch.setattr("tandemlog.archive.fsspec_store.load", missing)
    with pytest.raises(ArchiveUrlError, match=r"s3://.*fsspec.*tandemlog\[archive\]"):
        open_object_store("s3://bucket/path")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/path", "s3://bucket/path"),
        ("s3://key:secret@bucket/path?token=secret", "s3://***@bucket/path"),
        ("no answer from hdfs://me:pass@host:1/x", "no answer from hdfs://***@host:1/x"),
        ("/a/folder", "/a/folder"),
    ],
)
def test_secrets_are_not_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown
