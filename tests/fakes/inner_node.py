"""Whole nodes in this process: their settings, and their services as they are on the wire."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpc import aio

from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import admin_pb2_grpc, broker_pb2, broker_pb2_grpc
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection

QUICK = ConnectionOptions(
    request_timeout_ms=5_000, retry_timeout_ms=200, discovery_timeout_ms=1_000
)
SMALL: dict[str, Any] = {
    "commit_log_file_size": 1 << 20,
    "queue_file_size": 8_000,
    "index_slots": 500,
    "index_entries": 2_000,
}
"""Sizes of files with which a test soon has several."""


def config(directory: Path, **fields: Any) -> NodeConfig:
    store = {
        "directory": directory,
        **SMALL,
        "max_message_size": 100_000,
        **fields.pop("store", {}),
    }
    return NodeConfig(
        listen=fields.pop("listen", "127.0.0.1:0"),
        http_listen="",
        store=StoreSection(**store),
        **fields,
    )


@asynccontextmanager
async def running(settings: NodeConfig) -> AsyncIterator[Node]:
    node = Node(settings)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@dataclass
class Stubs:
    """The services of a node, called without a client."""

    broker: Any
    admin: Any
    channel: aio.Channel


@asynccontextmanager
async def stubs(node: Node) -> AsyncIterator[Stubs]:
    async with aio.insecure_channel(node.endpoints.listen) as channel:
        yield Stubs(broker_pb2_grpc.BrokerStub(channel), admin_pb2_grpc.AdminStub(channel), channel)


async def until(condition: Callable[..., Any]) -> None:
    """Wait for what happens in other tasks, threads and nodes."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - there is no event for all of it
            await asyncio.sleep(0.01)


async def dispatched(node: Node) -> None:
    """What is in the node's log is in its queues."""
    store = node.store
    await until(lambda: store.reputed.value >= store.log.wrote.value)


async def append(channel: Stubs, request: broker_pb2.AppendRequest) -> broker_pb2.AppendResponse:
    call = channel.broker.Append(iter([request]))
    async with asyncio.timeout(10):
        answer = await call.read()
    assert isinstance(answer, broker_pb2.AppendResponse)
    return answer


def put_request(topic: str = "t", **fields: Any) -> broker_pb2.AppendRequest:
    record = encode_record(topic=topic, body=b"body")
    values = {
        "request_id": 1,
        "topics": [topic],
        "queue_topics": [0],
        "queue_ids": [0],
        "records": record,
        "sizes": len(record).to_bytes(4, "little"),
        "queue_indexes": b"\0\0",
        **fields,
    }
    return broker_pb2.AppendRequest(**values)
