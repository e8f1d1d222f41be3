"""Who archives, and a node that does."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_object_store import FakeObjectStore
from fakes.inner_node import config, running, until
from tandemlog.admin import AsyncAdmin
from tandemlog.archive.archive_reader import ArchiveReader, newest_manifest
from tandemlog.archive.folder_store import FolderStore
from tandemlog.format.archive.state import CONSUMER_OFFSETS
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import common_pb2
from tandemlog_server.node.archive import node_archive
from tandemlog_server.node.archive.archive_service import ArchiveService
from tandemlog_server.node.archive.node_archive import NodeArchive, archiver_of
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.archive_section import ArchiveSection
from tandemlog_server.node.settings.config_error import ConfigError

MASTER, SLAVE = common_pb2.MASTER, common_pb2.SLAVE


def row(
    node_id: str,
    role: common_pb2.Role.ValueType,
    in_sync: bool = True,
    endpoint: str = "10.0.0.7:7100",
) -> common_pb2.NodeStatus:
    return common_pb2.NodeStatus(node_id=node_id, role=role, in_sync=in_sync, endpoint=endpoint)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], ""),
        ([row("a", MASTER)], "a"),
        ([row("a", MASTER), row("c", SLAVE), row("b", SLAVE)], "b"),
        ([row("a", MASTER), row("b", SLAVE, in_sync=False), row("c", SLAVE)], "c"),
        ([row("a", MASTER), row("b", SLAVE, in_sync=False)], "a"),
        ([row("z", MASTER), row("rocketmq:10.0.0.8", SLAVE, endpoint="")], "z"),
    ],
)
def test_the_first_slave_in_sync_archives(rows: list[common_pb2.NodeStatus], expected: str) -> None:
    assert archiver_of(rows) == expected


def archived(folder: Path, **fields: Any) -> Any:
    section = ArchiveSection(url=str(folder / "archive"), interval_ms=100, **fields)
    return config(folder / "n0", archive=section)


async def put(node: Node, count: int, size: int = 100) -> None:
    async with AsyncProducer(node.endpoints.listen) as producer:
        await asyncio.gather(
            *[await producer.send(Message("t", os.urandom(size))) for _ in range(count)]
        )


async def with_topic(node: Node) -> None:
    async with AsyncAdmin(node.endpoints.listen) as admin:
        await admin.create_topic("t", 4)


def log_of(node: Node) -> bytes:
    log, parts = node.store.log, []
    at = log.min_offset
    while at < node.store.confirmed.value:
        parts.append(bytes(log.read(at, node.store.confirmed.value - at)))
        at += len(parts[-1])
    return b"".join(parts)


async def test_what_is_confirmed_is_archived_and_a_stop_takes_the_rest(tmp_path: Path) -> None:
    settings = archived(tmp_path)
    store = FolderStore(tmp_path / "archive")
    async with running(settings) as node:
        await with_topic(node)
        await put(node, 50)
        await until(lambda: node.statistics()["archive_behind_bytes"] == 0)
        first = newest_manifest(store)
        assert first is not None
        await put(node, 5_000, 400)
        expected = log_of(node)
    reader = ArchiveReader.open(store)
    assert reader.manifest.archiver == "n0"
    assert reader.manifest.end == len(expected)
    assert reader.read(0, len(expected)) == expected
    state = reader.manifest.state_at(reader.manifest.end)
    assert state is not None
    assert '"t"' in reader.state(state).tables["topics"]
    # one file of the log is full: a log that begins there can be restored
    prologue = reader.manifest.prologue_at(1 << 20)
    assert prologue is not None
    # what groups had consumed by then is not known any more
    assert CONSUMER_OFFSETS not in reader.state(prologue).tables
    assert CONSUMER_OFFSETS in reader.state(state).tables


async def test_a_stop_archives_the_rest_though_the_node_has_no_role_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_archive, "CHOOSE_S", 0.001)
    async with running(archived(tmp_path)) as node:
        await with_topic(node)
        await until(lambda: node.statistics()["archive_working"])
        await put(node, 500)
        expected = log_of(node)
    assert ArchiveReader.open(FolderStore(tmp_path / "archive")).read(0, len(expected)) == expected


async def test_the_next_start_continues_in_a_new_term(tmp_path: Path) -> None:
    settings = archived(tmp_path)
    for number in range(1, 4):
        async with running(settings) as node:
            if number == 1:
                await with_topic(node)
            await put(node, 20)
            expected = log_of(node)
        manifest = ArchiveReader.open(FolderStore(tmp_path / "archive")).manifest
        assert manifest.epoch == number
        assert manifest.spans() == ((0, len(expected)),)
    reader = ArchiveReader.open(FolderStore(tmp_path / "archive"))
    assert reader.read(0, len(expected)) == expected
    names = {path.name for path in (tmp_path / "archive" / "log").iterdir()}
    assert {entry.name.log_key.removeprefix("log/") for entry in reader.manifest.segments} <= names


async def test_an_archive_that_cannot_be_written_is_a_fault_and_holds_up_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "archive").write_text("no folder")
    async with running(archived(tmp_path)) as node:
        await with_topic(node)
        await put(node, 10)
        await until(lambda: node.status().faults)
        (fault,) = node.status().faults
        assert f"the archive {tmp_path / 'archive'} gets nothing" in fault
        assert node.statistics()["archive_failed"] == 1
        began = time.monotonic()
    assert time.monotonic() - began < 5, "a stop does not wait for an archive that fails"


async def test_a_url_that_names_no_archive_stops_the_start(tmp_path: Path) -> None:
    section = ArchiveSection(url="nothing-known://key:secret@bucket/x")
    with pytest.raises(ConfigError, match=r"archive\.url: .*nothing-known://\*\*\*@bucket") as told:
        await Node(config(tmp_path / "n0", archive=section)).start()
    assert "secret" not in str(told.value)
    assert not (tmp_path / "n0" / "abort").exists()


async def test_without_a_url_there_is_no_archive(tmp_path: Path) -> None:
    async with running(config(tmp_path / "n0")) as node:
        assert node.archive.faults() == []
        assert "archive_end_offset" not in node.statistics()
    assert NodeArchive().statistics() == {}


async def test_retention_keeps_the_log_for_the_archive_up_to_a_bound(tmp_path: Path) -> None:
    async with running(config(tmp_path / "n0")) as node:
        await with_topic(node)
        await put(node, 200, 500)
        end = node.store.confirmed.value
        section = ArchiveSection(url="unused", hold_bytes=1_000)
        service = ArchiveService(node.store, section, "n0", objects=FakeObjectStore())
        # nothing is archived yet: the bound counts
        assert service.keep_from() == end - 1_000
        await until(lambda: node.store.reputed.value == end)
        for second in range(100):
            service.worker.step(float(second), is_chosen=True)
        assert service.keep_from() == end
        service.archiver.gap = (0, 500)
        (fault,) = service.faults()
        assert "lacks the log from 0 to 500" in fault


async def test_a_failure_of_a_library_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [True]
    real = FolderStore.put

    def put_or_fail(store: FolderStore, key: str, content: bytes | memoryview) -> bool:
        if broken[0]:
            raise RuntimeError("a library's own error")
        return real(store, key, content)

    monkeypatch.setattr(FolderStore, "put", put_or_fail)
    monkeypatch.setattr("tandemlog_server.node.archive.archive_service.AFTER_AN_ERROR_S", 0.1)
    async with running(archived(tmp_path)) as node:
        await with_topic(node)
        await put(node, 10)
        await until(lambda: node.status().faults)
        assert "RuntimeError: a library's own error" in node.status().faults[0]
        broken[0] = False
        await until(lambda: node.statistics()["archive_behind_bytes"] == 0)
        await until(lambda: not node.status().faults)
