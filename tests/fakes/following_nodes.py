"""Whole nodes in the process of a test that follow a broker which the test holds in its hand."""

import asyncio
from pathlib import Path
from typing import Any

from fakes.fake_rocketmq import FakeRocketmq
from fakes.log_builder import LogBuilder
from fakes.replicas import eventually
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import FollowingSection, StoreSection

FILE = 8192
QUICK = ConnectionOptions(
    request_timeout_ms=5_000, retry_timeout_ms=2_000, discovery_timeout_ms=1_000
)


def filled(broker: FakeRocketmq, count: int = 60) -> FakeRocketmq:
    """The broker with so many messages more."""
    for number in range(count):
        broker.builder.put("Orders", number % 4, b"body %d" % number)
    return broker


def new_broker(**fields: Any) -> FakeRocketmq:
    return FakeRocketmq(LogBuilder(Path("/unused"), FILE), **fields)


def config(folder: Path, **fields: Any) -> NodeConfig:
    return NodeConfig(
        cluster_id="c",
        listen="127.0.0.1:0",
        http_listen="",
        store=StoreSection(
            directory=folder, queue_file_size=8_000, index_slots=500, index_entries=2_000
        ),
        following=FollowingSection(offsets_interval_ms=20, tables_interval_ms=20),
        **fields,
    )


async def started(settings: NodeConfig) -> Node:
    node = Node(settings)
    await node.start()
    return node


async def caught_up(node: Node, broker: FakeRocketmq) -> None:
    await eventually(lambda: node.store.reputed.value == broker.builder.end)
    await eventually(lambda: node.store.topics.names() == ["Orders"])


async def bodies(node: Node, group: str = "") -> list[bytes]:
    """What a reader finds from where its group is, and commits."""
    async with AsyncConsumer(
        node.endpoints.listen, group=group or None, connection=QUICK
    ) as consumer:
        stream = await consumer.follow("Orders", until_end=True)
        found = [message.body async for message in stream]
        if group:
            await stream.commit()
        await stream.close()
    return found


async def put(node: Node, body: bytes, topic: str = "Orders") -> None:
    async with AsyncProducer(node.endpoints.listen) as producer:
        await (await producer.send(Message(topic, body, queue_id=0)))


async def taken_over(node: Node, *, force: bool = False, within_s: float = 8) -> str:
    """Empty once the node has taken over, else what it waits for in the end."""
    reason = "nothing was asked"
    deadline = asyncio.get_running_loop().time() + within_s
    while asyncio.get_running_loop().time() < deadline:
        reason = (await node.take_over(force=force, dry_run=False)).waits_for
        if not reason:
            return ""
        await asyncio.sleep(0.1)
    return reason
