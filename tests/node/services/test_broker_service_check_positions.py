"""The calls that say what a position is a position in, of a real node."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.reading.positions import Queue
from tandemlog.errors import UnknownTopicError
from tandemlog.format.files.log_history import LogHistory
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection

QUEUES = [("orders", 0), ("orders", 1)]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    store = StoreSection(
        directory=folder,
        commit_log_file_size=1 << 20,
        queue_file_size=8_000,
        index_slots=500,
        index_entries=2_000,
    )
    node = Node(NodeConfig(listen="127.0.0.1:0", http_listen="", store=store))
    await node.start()
    try:
        async with AsyncAdmin(node.endpoints.listen) as admin:
            if "orders" not in {each.name for each in await admin.topics()}:
                await admin.create_topic("orders", queues=2)
        yield node.endpoints.listen
    finally:
        await node.stop()


async def put(endpoint: str, *counts: int) -> None:
    async with AsyncProducer(endpoint) as producer:
        for queue_id, count in enumerate(counts):
            for _ in range(count):
                await (await producer.send(Message("orders", b"x", queue_id=queue_id)))


async def check(
    endpoint: str, history: LogHistory | None = None, *offsets: int
) -> tuple[LogHistory, dict[Queue, int]]:
    async with AsyncConsumer(endpoint) as consumer:
        positions = dict(zip(QUEUES, offsets, strict=False))
        found = await consumer.check_positions(positions, history)
        return found.history, dict(found.cut)


async def test_positions_of_a_log_that_goes_on_are_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as endpoint:
        await put(endpoint, 4, 2)
        before, _ = await check(endpoint)
        assert await check(endpoint, before, 4, 2) == (before, {})
    async with serving(tmp_path) as endpoint:
        await put(endpoint, 4, 2)
        after, cut = await check(endpoint, before, 4, 2)
        assert cut == {}
        assert after.newest[0] > before.newest[0]
        assert after.log_id == before.log_id


async def test_a_restored_copy_cuts_what_came_behind_it(tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    async with serving(store) as endpoint:
        await put(endpoint, 3, 1)
    shutil.copytree(store, copy)
    async with serving(store) as endpoint:
        await put(endpoint, 6, 0)
        read, _ = await check(endpoint)
        assert await check(endpoint, read, 9, 1) == (read, {})
    shutil.rmtree(store)
    shutil.copytree(copy, store)
    async with serving(store) as endpoint:
        await put(endpoint, 12, 4)
        now, cut = await check(endpoint, read, 9, 1)
        assert now.newest[0] == read.newest[0], "both copies count alike"
        assert cut == {QUEUES[0]: 3}


async def test_a_store_made_anew_begins_at_its_beginning(tmp_path: Path) -> None:
    async with serving(tmp_path / "one") as endpoint:
        await put(endpoint, 3, 1)
        read, _ = await check(endpoint)
    async with serving(tmp_path / "two") as endpoint:
        await put(endpoint, 9, 9)
        now, cut = await check(endpoint, read, 3, 0)
        assert cut == {QUEUES[0]: 0}
        assert now.log_id != read.log_id


async def test_a_history_goes_through_json(tmp_path: Path) -> None:
    async with serving(tmp_path) as endpoint:
        history, _ = await check(endpoint)
        assert LogHistory.from_json(history.to_json()) == history


async def test_each_pull_names_the_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as endpoint, AsyncConsumer(endpoint) as consumer:
        await put(endpoint, 1)
        history, _ = await check(endpoint)
        batch = await consumer.pull("orders", 0, 0)
        assert batch.log_term == history.newest


async def test_too_much_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as endpoint:
        history, _ = await check(endpoint)
        with pytest.raises(UnknownTopicError):
            async with AsyncConsumer(endpoint) as consumer:
                await consumer.pull("gone", 0, 0)
        async with AsyncConsumer(endpoint) as consumer:
            many = {("orders", number): 1 for number in range(5_000)}
            assert len((await consumer.check_positions(many, history)).cut) == 0
