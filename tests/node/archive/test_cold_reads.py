"""A node whose retention deletes files: its readers get all messages, from archive and files."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fakes.inner_node import QUICK, config, running, stubs, until
from fakes.reading_node import reading_node
from tandemlog.admin import AsyncAdmin
from tandemlog.archive.errors import ArchiveUnavailableError
from tandemlog.archive.folder_store import FolderStore
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.reading.positions import EARLIEST
from tandemlog.errors import TandemlogError
from tandemlog.format.record.record import decode_record
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.archive_section import ArchiveSection

QUEUES = 3
DELETED = 1 << 20
"""Of the log, before a reader begins: one of its files."""


def settings(folder: Path, **fields: Any) -> Any:
    section = ArchiveSection(
        **{"url": str(folder / "archive"), "interval_ms": 100, "cold_reads": True, **fields}
    )
    retention = {
        "reserved_hours": 1e-6, "delete_hours": tuple(range(24)), "check_interval_ms": 50,
    }  # fmt: skip
    return config(folder / "n0", archive=section, store={"retention": retention})


async def put(node: Node, first: int, count: int) -> None:
    """Numbered messages, one after another in each queue."""
    async with AsyncProducer(node.endpoints.listen) as producer:
        await asyncio.gather(
            *[
                await producer.send(
                    Message("t", b"%08d" % number + bytes(392), queue_id=number % QUEUES)
                )
                for number in range(first, first + count)
            ]
        )


async def filled(node: Node, count: int) -> None:
    async with AsyncAdmin(node.endpoints.listen) as admin:
        await admin.create_topic("t", QUEUES)
    await put(node, 0, count)
    await deleted(node)


async def deleted(node: Node) -> None:
    """Until retention has left the log's last file alone, and the queues begin behind the rest:
    a queue hears of it a moment after the files are gone."""
    store = node.store

    def left() -> bool:
        end = store.log.wrote.value
        return DELETED <= store.log.min_offset == end - end % store.log.file_size

    await until(left)
    ranges = store.reader.ranges
    await until(lambda: all(each.min_timestamp > 0 < each.min_offset for each in ranges(["t"])))


def refused(store: FolderStore, key: str, start: int = 0, end: int | None = None) -> bytes:
    raise ArchiveUnavailableError(f"no answer for {key}")


async def test_a_scan_reads_what_retention_has_deleted_while_it_deletes_more(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        await filled(node, 5_000)
        async with AsyncConsumer(node.endpoints.listen) as consumer:
            ranges = await consumer.ranges("t")
            assert [(each.min_offset, each.queue_id) for each in ranges] == [
                (0, queue) for queue in range(QUEUES)
            ]
            writing = asyncio.create_task(put(node, 5_000, 4_000))
            found: dict[int, list[int]] = {queue: [] for queue in range(QUEUES)}
            stream = await consumer.follow("t", start=EARLIEST)
            async for message in stream:
                found[message.queue_id].append(int(message.body[:8]))
                if sum(map(len, found.values())) == 9_000:
                    break
            await writing
            await stream.close()
            for queue in range(QUEUES):
                assert found[queue] == list(range(queue, 9_000, QUEUES))
            assert node.statistics()["archive_read_messages_total"] > 1_000
            assert node.statistics()["archive_read_bytes_total"] > DELETED
            assert node.statistics()["archive_cache_hits_total"] > 0
            # a time: the first message is in the archive alone
            first_ms = ranges[0].min_timestamp
            scan = await consumer.scan("t", start=first_ms)
            count = 0
            async for rows in scan:
                count += rows.num_rows
            assert count == 9_000


async def test_a_reader_is_not_sent_forward_while_the_archive_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(settings(tmp_path)) as node:
        await filled(node, 5_000)
        monkeypatch.setattr(FolderStore, "get", refused)
        async with AsyncConsumer(node.endpoints.listen, connection=QUICK) as consumer:
            with pytest.raises(TandemlogError):
                await consumer.pull("t", 0, 0)
        ranges = {each.queue_id: each for each in node.store.reader.ranges(["t"])}
        request = broker_pb2.PullRequest(max_messages=5)
        request.positions.add(topic="t", queue_id=0, queue_offset=0)
        request.positions.add(topic="t", queue_id=1, queue_offset=ranges[1].min_offset)
        async with stubs(node) as direct:
            answer = await direct.broker.Pull(request)
        assert [(each.position_index, each.count) for each in answer.queues] == [(1, 5)]


async def test_clients_of_rocketmq_read_them_too(tmp_path: Path) -> None:
    made = settings(tmp_path)
    fields = {"archive": made.archive, "store": {"retention": made.store.retention}}
    async with reading_node(tmp_path / "n0", **fields) as door:
        await put(door.node, 0, 5_000)
        await deleted(door.node)
        queue = {"topic": "t", "queueId": 1}
        (first,) = [each for each in door.node.store.reader.ranges(["t"]) if each.queue_id == 1]
        assert first.min_offset > 0
        found: list[bytes] = []
        while len(found) < 5_000 // QUEUES:
            answer = await door.pull(len(found), queueId=1, maxMsgNums=1_000)
            assert answer.code == 0
            end = 0
            while end < len(answer.body):
                record = decode_record(answer.body, end, limit=len(answer.body))
                found.append(record.body)
                end += record.size
        assert [int(each[:8]) for each in found[:1_600]] == list(range(1, 4_801, QUEUES))
        assert (await door.ask(31, **queue)).fields["offset"] == "0"
        earliest = int((await door.ask(32, **queue)).fields["timestamp"])
        assert 0 < earliest <= first.min_timestamp
        for time in (earliest, earliest - 1):
            answer = await door.ask(29, **queue, timestamp=time, boundaryType="LOWER")
            assert answer.fields["offset"] == "0"


async def test_without_cold_reads_a_reader_is_told_where_the_files_begin(tmp_path: Path) -> None:
    async with running(settings(tmp_path, cold_reads=False)) as node:
        await filled(node, 5_000)
        async with AsyncConsumer(node.endpoints.listen) as consumer:
            batch = await consumer.pull("t", 0, 0)
            assert batch.status == "OFFSET_TOO_SMALL"
            assert 0 < batch.next_offset == (await consumer.ranges("t"))[0].min_offset
        assert node.statistics()["archive_read_messages_total"] == 0
