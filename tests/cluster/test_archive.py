"""Nodes that archive, killed and paused: the archive is the log, whoever writes it."""

import random
from pathlib import Path
from typing import Any

import pytest

import tandemlog
from helpers.log_bytes import log_bytes
from helpers.running import NodeProcess, Running, wait_until
from tandemlog.archive.archive_reader import ArchiveReader, newest_manifest
from tandemlog.archive.folder_store import FolderStore

pytestmark = pytest.mark.cluster


def put(running: Running, count: int) -> None:
    bodies = [random.randbytes(300) for _ in range(count)]
    with tandemlog.Producer(running.endpoints) as producer:
        producer.send_many("t", bodies)


def end_of(node: NodeProcess) -> int:
    status = node.status()
    assert status is not None
    return status.confirm_offset


def begin_of(node: NodeProcess) -> int:
    status = node.status()
    assert status is not None
    return status.min_offset


def archived_end(store: FolderStore) -> int:
    found = newest_manifest(store)
    return 0 if found is None else found[1].end


def archiver_of_next(running: Running, store: FolderStore) -> str:
    """The node that archives a message which is put now."""
    put(running, 1)
    end = end_of(running.nodes[0])
    wait_until("the archive", lambda: archived_end(store) >= end, 150)
    found = newest_manifest(store)
    assert found is not None
    return found[1].archiver


def test_the_archive_follows_the_log_whoever_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    settings: dict[str, Any] = {"archive": {"url": str(folder), "interval_ms": 200}}
    store = FolderStore(folder)
    with Running(tmp_path, slaves=2, flush="sync", min_in_sync=2, extra=settings) as running:
        master, first, second = running.nodes
        with tandemlog.Admin(running.endpoints) as admin:
            admin.create_topic("t", queues=4)
        put(running, 5_000)
        running.wait_in_sync()
        wait_until("the archive", lambda: archived_end(store) == end_of(master), 150)
        # the master archived where no slave was in sync yet; a slave does as soon as one is
        wait_until("a slave that archives", lambda: archiver_of_next(running, store) != "n0", 150)
        # each of them in turn, while there is something to archive
        for killed in (first, second):
            put(running, 3_000)
            killed.kill()
            put(running, 3_000)
            wait_until("the archive", lambda: archived_end(store) == end_of(master), 150)
            killed.start()
            running.wait_in_sync()
        end = archived_end(store)
        reader = ArchiveReader.open(store)
        assert reader.manifest.spans() == ((0, end),)
        assert reader.read(0, end) == log_bytes(master.store, 0, end)


def test_a_reader_of_deleted_messages_gets_all_whoever_is_killed(tmp_path: Path) -> None:
    archive: dict[str, Any] = {
        "url": str(tmp_path / "archive"), "interval_ms": 200, "cold_reads": True,
        "cold_cache_bytes": 1 << 20,
    }  # fmt: skip
    retention = {
        "reserved_hours": 1e-6, "delete_hours": list(range(24)), "check_interval_ms": 200,
    }  # fmt: skip
    extra = {"archive": archive, "store.retention": retention}
    with Running(tmp_path, slaves=2, flush="sync", min_in_sync=2, extra=extra) as running:
        _, first, second = running.nodes
        with tandemlog.Admin(running.endpoints) as admin:
            admin.create_topic("t", queues=4)
        sent = [b"%08d" % number + random.randbytes(300) for number in range(9_000)]
        with tandemlog.Producer(running.endpoints) as producer:
            producer.send_many("t", sent[:6_000])
        running.wait_in_sync()
        # a node that does not archive looks once a minute how far the archive is
        wait_until("retention", lambda: all(begin_of(each) > 0 for each in running.nodes), 180)
        found: list[bytes] = []
        with (
            tandemlog.Consumer(running.endpoints) as consumer,
            tandemlog.Producer(running.endpoints) as producer,
            consumer.follow("t", start=tandemlog.EARLIEST) as stream,
        ):
            for message in stream:
                found.append(message.body)
                if len(found) == 1_000:
                    first.kill()
                    producer.send_many("t", sent[6_000:])
                if len(found) == 4_000:
                    first.start()
                    running.wait_in_sync()
                    second.kill()
                if len(found) == len(sent):
                    break
        assert sorted(found) == sent
