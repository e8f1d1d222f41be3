"""A whole node in this process with its port for RocketMQ's clients, and a consumer in POP mode."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from fakes.batches import Put, batch_of
from fakes.inner_node import config, running, until
from fakes.remoting_calls import records_in
from tandemlog.format.record.record import Record
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.rocketmq_clients_section import RocketmqClientsSection
from tandemlog_server.node.settings.sections import WorkSection
from tandemlog_server.rocketmq.wire.client import RemotingClient
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.metadata.topics import TopicConfig

GROUP, TOPIC = "billing", "orders"
BROKER = "broker-a"
POP, ACK, PEEK, CHANGE, NOTIFICATION, POLLING = 200050, 200051, 200052, 200053, 200054, 200055
BATCH_ACK = 200151
QUERY, SET_MODE = 400, 401
LEASE_MS = 60_000


@dataclass
class Popper:
    """One connection of a client to a node."""

    node: Node
    link: RemotingClient

    async def ask(self, code: int, body: object = b"", **fields: object) -> Command:
        """The answer, whatever its code is."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        texts = {name: str(value) for name, value in fields.items()}
        request = Command(code, next(self.link._opaque), fields=texts, body=data)
        return await self.link._exchanged(request)

    async def pop(self, count: int = 32, **fields: object) -> Command:
        header: dict[str, Any] = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": -1,
            "maxMsgNums": count,
            "invisibleTime": LEASE_MS,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
        }
        return await self.ask(POP, **{**header, **fields})

    async def popped(self, count: int = 32, **fields: object) -> list[Record]:
        """The messages, waited for."""
        answer = await self.pop(count, **{"pollTime": 5_000, **fields})
        assert answer.code == 0, answer.remark
        return records_in(answer.body)

    async def say(self, code: int, receipt: str, **fields: object) -> Command:
        """What the consumer of a message says with its receipt."""
        parts = receipt.split(" ")
        header = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": parts[6],
            "offset": parts[7],
            "extraInfo": receipt,
        }
        return await self.ask(code, **{**header, **fields})

    async def put(self, *bodies: bytes, queue_id: int = 0, properties: bytes = b"") -> None:
        puts = [Put(TOPIC, queue_id, body, properties, store_host="127.0.0.1:0") for body in bodies]
        end = self.node.store.put(batch_of(puts)).end_offset
        await until(lambda: self.node.store.reputed.value >= end)

    async def heartbeat(self, client: str = "c1", group: str = GROUP) -> Command:
        subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1}
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        return await self.ask(34, {"clientID": client, "consumerDataSet": [consumer]})


def receipt_of(record: Record) -> str:
    return record.properties["POP_CK"]


@asynccontextmanager
async def popping_node(directory: Path, **settings: Any) -> AsyncIterator[Node]:
    """With a topic of four queues."""
    fields = {
        "work": WorkSection(grace_ms=0, write_interval_ms=5),
        "rocketmq_clients": RocketmqClientsSection(listen="127.0.0.1:0", broker_name=BROKER),
    }
    async with running(config(directory, **{**fields, **settings})) as node:
        if node.store.topics.get(TOPIC) is None:
            node.store.create_topic(TopicConfig(TOPIC, 4, 4))
        yield node


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[Popper]:
    host, port = node.endpoints.rocketmq_advertise.split(":")
    async with RemotingClient(host, int(port)) as link:
        link._opaque = count(1)
        yield Popper(node, link)
