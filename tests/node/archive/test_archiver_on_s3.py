"""The archiver with an object store that speaks S3: killed again and again, on a bad day."""

import random
from collections.abc import Iterator

import pytest

from fakes.stores import Bench
from helpers.s3_server import BUCKET, S3Server, Trouble, s3_server
from tandemlog.archive.archive_reader import ArchiveReader, newest_manifest
from tandemlog.archive.object_store import ObjectStore
from tandemlog.archive.open_store import open_object_store
from tandemlog_server.node.archive.archive_worker import ArchiveWorker
from tandemlog_server.storage.archiving.actions import ArchiverConfig
from tandemlog_server.storage.archiving.archiver import Archiver

pytestmark = pytest.mark.s3

CONFIG = ArchiverConfig(interval_s=1.0, segment_bytes=3_000, retry_s=2.0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as running:
        yield running


@pytest.mark.parametrize("seed", range(3))
def test_what_is_archived_is_the_log(server: S3Server, seed: int) -> None:
    chance = random.Random(seed)
    objects = open_object_store(f"s3://{BUCKET}/archive")
    troubles: list[Trouble] = ["lost", "late", "repeated", "refused"]

    def bad(method: str, path: str) -> Trouble:
        if method == "PUT" and chance.random() < 0.2:
            return chance.choice(troubles)
        return "pass"

    bench = Bench()
    bench.store.become_master(3)
    now = 0.0

    def work(steps: int) -> None:
        nonlocal now
        worker = ArchiveWorker(bench.store, objects, Archiver("n0", CONFIG))
        for _ in range(steps):
            until = worker.step(now, is_chosen=True)
            now = max(now, now if until is None else until) + 0.01

    server.trouble = bad
    for _ in range(8):
        bench.put(chance.randint(1, 5), size=300)
        bench.settle()
        work(chance.randint(3, 12))
        if newest_manifest(objects) is not None:
            assert_prefix(bench, objects)
    server.settle()
    server.trouble = lambda method, path: "pass"
    work(60)
    assert assert_prefix(bench, objects) == bench.store.confirmed.value


def assert_prefix(bench: Bench, objects: ObjectStore) -> int:
    """Returns up to where the archive goes."""
    newest = newest_manifest(objects)
    assert newest is not None
    _, manifest = newest
    end = manifest.end
    assert manifest.begin == 0
    archived = ArchiveReader(objects, manifest).read(0, end)
    found = bytearray()
    while len(found) < end:
        found += bench.store.log.read(len(found), end - len(found))
    assert archived == found
    return end
