"""A node on a copy of RocketMQ's store serves what RocketMQ's own client saw of the broker."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers import golden
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.format.record.sys_flag import COMPRESSED
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection

if TYPE_CHECKING:
    from tandemlog.consume.received.received_message import ReceivedMessage

pytestmark = pytest.mark.golden

STORES = [each for each in golden.stores() if each.label != "rocketmq-5.5.0-pair-node1"]

# What RocketMQ's client makes of the status of a get.
CLIENT_STATUS = {
    "FOUND": "FOUND",
    "NO_MATCHED_MESSAGE": "NO_MATCHED_MSG",
    "MESSAGE_WAS_REMOVING": "NO_MATCHED_MSG",
    "OFFSET_OVERFLOW_ONE": "NO_NEW_MSG",
    "OFFSET_FOUND_NULL": "NO_NEW_MSG",
    "OFFSET_OVERFLOW_BADLY": "OFFSET_ILLEGAL",
    "OFFSET_TOO_SMALL": "OFFSET_ILLEGAL",
}


@asynccontextmanager
async def serving(copy: golden.GoldenCopy) -> AsyncIterator[Node]:
    sizes = copy.sizes
    node = Node(
        NodeConfig(
            listen="127.0.0.1:0",
            http_listen="",
            store=StoreSection(
                directory=copy.store,
                queue_file_size=sizes["queue_file_size"],
                index_slots=sizes["index_slots"],
                index_entries=sizes["index_entries"],
            ),
        )
    )
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@pytest.mark.parametrize("store", STORES, ids=lambda each: each.label)
async def test_a_node_serves_what_rocketmqs_client_saw(
    store: golden.Golden, tmp_path: Path
) -> None:
    copy = store.copy(tmp_path)
    async with (
        serving(copy) as node,
        AsyncConsumer(node.endpoints.listen) as consumer,
        AsyncAdmin(node.endpoints.listen) as admin,
    ):
        await ranges_hold(admin, copy.client("range"))
        await messages_hold(consumer, copy.client("message"))
        await pulls_hold(consumer, copy.client("pull"))
        await times_hold(admin, copy.client("search_offset"))
        for row in copy.client("query_key"):
            found = await admin.query_by_key(row["topic"], row["key"])
            assert [each.physical_offset for each in found] == row["physical_offsets"], row
        for row in copy.client("view"):
            message = await admin.query_by_id(row["offset_msg_id"])
            assert message is not None, row
            place = (message.topic, message.queue_id, message.queue_offset)
            assert place == (row["topic"], row["queue_id"], row["queue_offset"])
            assert message.physical_offset == row["physical_offset"]


async def ranges_hold(admin: AsyncAdmin, expected: list[dict[str, Any]]) -> None:
    held = {(each.topic, each.queue_id): each for each in await admin.ranges()}
    for row in expected:
        each = held.get((row["topic"], row["queue_id"]))
        found = (0, 0) if each is None else (each.min_offset, each.max_offset)
        assert found == (row["min_offset"], row["max_offset"]), row


async def messages_hold(consumer: AsyncConsumer, expected: list[dict[str, Any]]) -> None:
    held: dict[tuple[str, int, int], ReceivedMessage] = {}
    for topic in sorted({row["topic"] for row in expected}):
        async with await consumer.follow(topic, until_end=True) as stream:
            async for message in stream:
                held[topic, message.queue_id, message.queue_offset] = message
    assert len(held) == len(expected)
    for row in expected:
        message = held[row["topic"], row["queue_id"], row["queue_offset"]]
        record = message.record
        found = {
            "physical_offset": record.physical_offset,
            "size": record.size,
            "client_msg_id": record.uniq_key or record.msg_id,
            "offset_msg_id": record.msg_id,
            # RocketMQ's client may take the flag off the message when it decompresses the body
            "sys_flag": record.sys_flag & ~COMPRESSED | row.get("sys_flag", 0) & COMPRESSED,
            "flag": record.flag,
            "born_timestamp": record.born_timestamp,
            "store_timestamp": record.store_timestamp,
            "reconsume_times": record.reconsume_times,
            "prepared_transaction_offset": record.prepared_transaction_offset,
            "body_crc": record.body_crc,
            "tags": record.tags,
            "keys": record.keys,
            "body_length_after_decompression": len(message.body),
            "length": len(message.body),
            "sha256": hashlib.sha256(message.body).hexdigest(),
            "body_after_decompression_sha256": hashlib.sha256(message.body).hexdigest(),
        }
        assert {key: found[key] for key in row if key in found} == {
            key: row[key] for key in row if key in found
        }


async def pulls_hold(consumer: AsyncConsumer, expected: list[dict[str, Any]]) -> None:
    for row in expected:
        batch = await consumer.pull(
            row["topic"],
            row["queue_id"],
            row["offset"],
            max_messages=row["max_messages"],
            tags=row["tags"],
        )
        status = CLIENT_STATUS[batch.status]
        if status == "FOUND" and not len(batch):
            status = "NO_MATCHED_MSG"  # equal hashes, other tags: the client sees nothing
        found = (status, batch.next_offset, [each.queue_offset for each in batch])
        assert found == (row["status"], row["next_begin_offset"], row["offsets"]), row


async def times_hold(admin: AsyncAdmin, expected: list[dict[str, Any]]) -> None:
    held: dict[tuple[str, int, str], dict[tuple[str, int], int]] = {}
    for row in expected:
        topic, time, boundary = row["topic"], row["timestamp"], row["boundary"]
        if (topic, time, boundary) not in held:
            held[topic, time, boundary] = await admin.search_offset(
                topic, time, upper=boundary == "upper"
            )
        assert held[topic, time, boundary][topic, row["queue_id"]] == row["offset"], row
