"""What a prune deletes while others work with an archive that nothing was put into for long."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fakes.fake_object_store import FakeObjectStore
from fakes.stores import CONFIG, Bench
from tandemlog.archive.archive_checks import check_archive
from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.backup import backup
from tandemlog.archive.errors import ObjectMissingError
from tandemlog.archive.prune import prune
from tandemlog.format.archive.object_name import STATE
from tandemlog.format.archive.state import ArchiveState
from tandemlog_server.node.archive.archive_worker import ArchiveWorker
from tandemlog_server.storage.archiving.archiver import Archiver, ArchiverConfig
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.tools.stored_log import StoredLog

HOUR_MS = 3_600_000


def test_an_archiver_in_a_quiet_log_finds_all_that_its_manifest_names() -> None:
    """It looks at the manifests once a minute, and continues the one that it has."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    objects, config = FakeObjectStore(), ArchiverConfig(segment_bytes=3_000)
    worker = ArchiveWorker(bench.store, objects, Archiver("a", config, lambda: 1), lambda _: None)

    def archive(now: float) -> ArchiveReader:
        bench.put(20, size=300)
        bench.settle()
        while worker.step(now, is_chosen=True, hurry=True) is None:
            pass
        return ArchiveReader.open(objects)

    archive(0.0)
    before = archive(10.0)
    end = before.manifest.end
    # long after the last manifest, and a moment after the archiver's last look
    report = prune(objects, end, now_ms=2 * HOUR_MS, grace_ms=HOUR_MS)
    assert report.begin > 0
    assert check_archive(before).faults == ()
    after = archive(20.0)
    assert after.manifest.end > end
    assert check_archive(after).faults == ()
    # that one has taken them back; the next look is at what a prune leaves
    prune(objects, end, now_ms=4 * HOUR_MS, grace_ms=HOUR_MS)
    kept = ArchiveReader.open(objects)
    assert kept.manifest.begin > 0
    prune(objects, end, now_ms=6 * HOUR_MS, grace_ms=HOUR_MS)
    assert check_archive(ArchiveReader.open(objects)).faults == ()
    left = set(objects.objects) - {key for key in objects.objects if key.startswith("manifests/")}
    assert left == set(kept.manifest.keys())


def test_a_backup_names_nothing_that_a_prune_deleted_while_it_ran() -> None:
    bench, objects = Bench(), FakeObjectStore()
    config = replace(bench.config)

    def take(before_tables: Callable[[], object] = lambda: None) -> None:
        bench.put(20, size=300)
        bench.settle()
        bench.store.close()
        log = StoredLog(config, bench.files, bench.clock)
        state = log.state

        def slow(log_offset: int, *, prologue: bool) -> ArchiveState:
            before_tables()
            return state(log_offset, prologue=prologue)

        log.state = slow  # type: ignore[method-assign]
        try:
            backup(objects, log, now_ms=1, segment_bytes=3_000)
        finally:
            log.close()
            bench.open()

    take()
    manifest = ArchiveReader.open(objects).manifest
    with pytest.raises(ObjectMissingError, match="Run the backup again"):
        take(lambda: prune(objects, 0, now_ms=2 * HOUR_MS, grace_ms=HOUR_MS))
    assert ArchiveReader.open(objects).manifest == manifest
    take()
    assert check_archive(ArchiveReader.open(objects)).faults == ()


def test_an_archiver_names_nothing_that_a_prune_deleted_before_its_manifest() -> None:
    """Objects that it has found there may be as old as an archiver that died before its own."""
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))

    class Pruned(FakeObjectStore):
        """A prune runs once the tables are put, after which the manifest follows."""

        waits = False

        def put(self, key: str, content: bytes | memoryview) -> bool:
            is_new = super().put(key, content)
            if self.waits and key.startswith(STATE):
                self.waits = False
                prune(self, 0, now_ms=2 * HOUR_MS, grace_ms=HOUR_MS)
            return is_new

    objects, config = Pruned(), ArchiverConfig(segment_bytes=3_000)
    worker = ArchiveWorker(bench.store, objects, Archiver("a", config, lambda: 1), lambda _: None)
    for now in (0.0, 10.0):
        bench.put(20, size=300)
        bench.settle()
        while worker.step(now, is_chosen=True, hurry=True) is None:
            pass
        reader = ArchiveReader.open(objects)
        assert reader.manifest.end == bench.store.confirmed.value
        assert check_archive(reader).faults == ()
        objects.waits = True
