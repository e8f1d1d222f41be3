"""Readers of a node whose store is restored from a copy, or replaced: they are ahead of it."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from helpers.running import free_ports
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.stream import AsyncStream
from tandemlog.errors import FencedMemberError, LogCutError, OffsetOutOfRangeError
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection

OPTIONS = FollowOptions(wait_ms=200, auto_commit_ms=None)


class Server:
    """One node at an address that stays, over a store that is exchanged while it is stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        [self.port] = free_ports(1)
        self.endpoint = f"127.0.0.1:{self.port}"
        self._node: Node | None = None

    async def start(self, endpoint: str = "") -> None:
        store = StoreSection(
            directory=self.folder / "store",
            commit_log_file_size=1 << 20,
            queue_file_size=8_000,
            index_slots=500,
            index_entries=2_000,
        )
        self._node = Node(NodeConfig(listen=endpoint or self.endpoint, http_listen="", store=store))
        await self._node.start()

    async def stop(self) -> None:
        if self._node is not None:
            await self._node.stop()
        self._node = None

    def save(self) -> None:
        shutil.copytree(self.folder / "store", self.folder / "copy")

    async def restored(self, *, copy: bool = True) -> None:
        """The copy is back; without one a new store."""
        await self.stop()
        shutil.rmtree(self.folder / "store")
        if copy:
            shutil.copytree(self.folder / "copy", self.folder / "store")
        else:
            await self._begin_store()
        await self.start()

    async def _begin_store(self) -> None:
        """The topic is made at an address of its own: a reader that finds the new store at the
        node's address before the topic is there hears that there is none."""
        [port] = free_ports(1)
        await self.start(f"127.0.0.1:{port}")
        await self.topic(f"127.0.0.1:{port}")
        await self.stop()

    async def topic(self, endpoint: str = "") -> None:
        async with AsyncAdmin(endpoint or self.endpoint) as admin:
            await admin.create_topic("orders", queues=1)

    async def put(self, name: str, count: int) -> list[bytes]:
        bodies = [b"%s-%d" % (name.encode(), number) for number in range(count)]
        async with AsyncProducer(self.endpoint) as producer:
            for body in bodies:
                await (await producer.send(Message("orders", body)))
        return bodies


@asynccontextmanager
async def ahead(folder: Path) -> AsyncIterator[tuple[Server, list[bytes], list[bytes]]]:
    """A node with 13 messages, of which a copy of its store has the first 6."""
    server = Server(folder)
    await server.start()
    try:
        await server.topic()
        kept = await server.put("kept", 6)
        async with AsyncConsumer(server.endpoint, group="billing") as consumer:
            await consumer.commit({("orders", 0): 6})
        await server.stop()
        server.save()
        await server.start()
        gone = await server.put("gone", 7)
        yield server, kept, gone
    finally:
        await server.stop()


async def take(stream: AsyncStream, count: int) -> list[bytes]:
    async with asyncio.timeout(60):
        found: list[bytes] = []
        while len(found) < count:
            message = await stream.poll(500)
            if message is not None:
                found.append(message.body)
        return found


async def committed(consumer: AsyncConsumer, stream: AsyncStream, offset: int) -> None:
    """The restored table of members lacks this one, which joins again: then it reads again what it
    has not committed."""
    async with asyncio.timeout(60):
        while await consumer.committed() != {("orders", 0): offset}:
            with contextlib.suppress(FencedMemberError):
                await stream.commit()
            await stream.poll(200)


@pytest.mark.parametrize("group", [None, "billing"])
async def test_a_reader_that_is_ahead_goes_back_and_skips_nothing(
    tmp_path: Path, group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        ahead(tmp_path) as (server, kept, gone),
        AsyncConsumer(server.endpoint, group=group, options=OPTIONS) as consumer,
    ):
        stream = await consumer.follow("orders")
        first = gone if group else kept + gone
        assert await take(stream, len(first)) == first
        if group:
            await stream.commit()
        await server.restored()
        new = await server.put("new", 14)
        assert await take(stream, 14) == new
        assert stream.statistics().lost_messages == 7
        assert "7 messages that were read before 13" in caplog.text
        if group:
            await committed(consumer, stream, 20)
        await stream.close()


async def test_a_reader_within_what_is_left_hears_nothing(tmp_path: Path) -> None:
    async with ahead(tmp_path) as (server, kept, _):
        options = FollowOptions(wait_ms=200, max_messages=2, prefetch_bytes=1)
        async with AsyncConsumer(server.endpoint, options=options) as consumer:
            stream = await consumer.follow("orders")
            assert await take(stream, 3) == kept[:3]
            await server.restored()
            new = await server.put("new", 9)
            assert await take(stream, 12) == kept[3:] + new
            assert stream.statistics().lost_messages == 0
            await stream.close()


async def test_what_waits_in_the_buffer_is_not_counted_as_read(tmp_path: Path) -> None:
    async with (
        ahead(tmp_path) as (server, kept, _),
        AsyncConsumer(server.endpoint, options=OPTIONS) as consumer,
    ):
        stream = await consumer.follow("orders")
        assert await take(stream, 8)
        await server.restored()
        new = await server.put("new", 9)
        async with asyncio.timeout(60):
            while not stream.statistics().lost_messages:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.02)
        assert await take(stream, 9) == new
        assert stream.statistics().lost_messages == 2
        await stream.close()
    assert kept


async def test_a_new_store_is_read_from_its_beginning(tmp_path: Path) -> None:
    async with (
        ahead(tmp_path) as (server, _, __),
        AsyncConsumer(server.endpoint, options=OPTIONS) as consumer,
    ):
        stream = await consumer.follow("orders")
        await take(stream, 13)
        await server.restored(copy=False)
        new = await server.put("new", 20)
        assert await take(stream, 20) == new
        assert stream.statistics().lost_messages == 13
        await stream.close()


async def test_a_position_at_the_end_of_an_idle_queue_is_one_too(tmp_path: Path) -> None:
    """Nothing was read: LATEST is 13, and 6..12 come again."""
    async with (
        ahead(tmp_path) as (server, _, __),
        AsyncConsumer(server.endpoint, options=OPTIONS) as consumer,
    ):
        stream = await consumer.follow("orders", start="latest")
        assert await stream.poll(300) is None
        await server.restored()
        new = await server.put("new", 14)
        assert await take(stream, 14) == new
        await stream.close()


async def test_a_loss_may_end_the_reading(tmp_path: Path) -> None:
    async with ahead(tmp_path) as (server, _, __):
        options = FollowOptions(wait_ms=200, on_data_loss="error")
        async with AsyncConsumer(server.endpoint, options=options) as consumer:
            stream = await consumer.follow("orders")
            await take(stream, 13)
            await server.restored()
            await server.put("new", 14)
            with pytest.raises(LogCutError, match="7 messages that were read"):
                await take(stream, 1)
            await stream.close()


async def test_a_commit_of_what_is_gone_is_refused(tmp_path: Path) -> None:
    async with (
        ahead(tmp_path) as (server, _, __),
        AsyncConsumer(server.endpoint, group="billing", options=OPTIONS) as consumer,
    ):
        stream = await consumer.follow("orders", queues=[0])
        await take(stream, 6)
        last = await stream.poll(5_000)
        assert last is not None
        await server.restored()
        await server.put("new", 14)
        with pytest.raises(LogCutError):
            await stream.commit(last)
        with pytest.raises(LogCutError):
            await stream.commit({("orders", 0): 13})
        new = await take(stream, 8)
        assert new[0] == b"new-0"
        await stream.commit({("orders", 0): 13})
        await stream.close()


async def test_a_commit_beyond_the_end_is_refused(tmp_path: Path) -> None:
    async with (
        ahead(tmp_path) as (server, _, __),
        AsyncConsumer(server.endpoint, group="billing") as consumer,
    ):
        with pytest.raises(OffsetOutOfRangeError, match="ends at 13, 14 is beyond"):
            await consumer.commit({("orders", 0): 14})
        assert await consumer.committed() == {("orders", 0): 6}
        await consumer.commit({("orders", 0): 13})


async def test_offsets_of_a_group_that_was_away_are_set_back(tmp_path: Path) -> None:
    """The copy has the log of before and the offsets of after: other tools copy files, too."""
    async with (
        ahead(tmp_path) as (server, _, __),
        AsyncConsumer(server.endpoint, group="billing", options=OPTIONS) as consumer,
    ):
        await consumer.commit({("orders", 0): 13})
        await server.stop()
        config = tmp_path / "store" / "config"
        shutil.copytree(config, tmp_path / "copy" / "config", dirs_exist_ok=True)
        await server.restored()
        async with AsyncConsumer(server.endpoint, group="billing", options=OPTIONS) as consumer:
            assert await consumer.committed() == {("orders", 0): 6}
            new = await server.put("new", 14)
            stream = await consumer.follow("orders")
            assert await take(stream, 14) == new
            await stream.close()
