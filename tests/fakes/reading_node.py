"""A whole node in this process, and what RocketMQ's clients read it by, without a connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.inner_node import config, running, until
from fakes.remoting_calls import call_of
from tandemlog.admin import AsyncAdmin
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.node import Node
from tandemlog_server.node.remoting.door.remoting_call import Ended
from tandemlog_server.node.remoting.reads.read_methods import ReadMethods, read_methods
from tandemlog_server.rocketmq.wire.remoting import Command


@dataclass(frozen=True)
class Subscribed:
    """What a heartbeat says of a topic."""

    expression: str
    expression_type: str = "TAG"
    version: int = 0


@dataclass
class FewReaders:
    """The slaves that are in sync, who this node is among them, and who leads."""

    number: int = 0
    in_sync: tuple[int, ...] = ()
    leading: int | None = 0

    def leads(self) -> bool:
        return self.number == self.leading

    def own(self) -> int:
        return self.number

    def master(self) -> int | None:
        return self.leading

    def slaves(self) -> tuple[int, ...]:
        return self.in_sync

    def another_leads(self) -> bool:
        return self.leading not in (None, self.number)


def pull_header(offset: int, **fields: object) -> dict[str, object]:
    return {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 0,
        "suspendTimeoutMillis": 15_000,
        **fields,
    }


@dataclass
class ReadingNode:
    """`heartbeats`: by group and topic."""

    node: Node
    read: ReadMethods
    heartbeats: dict[tuple[str, str], Subscribed]
    readers: FewReaders
    sent: dict[int, int] = field(default_factory=dict)

    async def ask(self, code: int, **fields: object) -> Command:
        """The answer of the method of that code."""
        parts: Any = (self.read.pulls, self.read.offsets, self.read.queries)
        [method] = [part.methods()[code] for part in parts if code in part.methods()]
        answer = await method.serve(call_of(code, **fields))  # type: ignore[arg-type]
        assert isinstance(answer, Command)
        return answer

    async def pull(self, offset: int, **fields: object) -> Command:
        """Request 11 for queue 0 of topic t, of group g, which does not wait."""
        return await self.ask(11, **pull_header(offset, **fields))

    def begin_pull(self, offset: int, ended: Ended, **fields: object) -> bool:
        """Whether the same request is served without a task."""
        begin = self.read.pulls.begin
        return begin(call_of(11, **pull_header(offset, **fields)), ended)  # type: ignore[arg-type]

    async def send(self, *bodies: bytes, queue_id: int = 0, **fields: Any) -> None:
        """To topic t; they are in their queue when this returns."""
        async with AsyncProducer(self.node.endpoints.listen) as producer:
            for body in bodies:
                await (await producer.send(Message("t", body, queue_id=queue_id, **fields)))
        store = self.node.store
        await until(lambda: store.reputed.value == store.log.wrote.value)


@asynccontextmanager
async def reading_node(directory: Path, **settings: Any) -> AsyncIterator[ReadingNode]:
    """With a topic t of four queues."""
    async with running(config(directory, **settings)) as node:
        async with AsyncAdmin(node.endpoints.listen) as admin:
            await admin.create_topic("t", 4)
        heartbeats: dict[tuple[str, str], Subscribed] = {}
        readers = FewReaders()
        read = read_methods(
            node.store,
            node.reads,
            node.group_members,
            node._known,
            node._turns,
            node.terms,
            subscribed=lambda group, topic: heartbeats.get((group, topic)),
            readers=readers,
        )
        yield ReadingNode(node, read, heartbeats, readers)
