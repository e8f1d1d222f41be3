"""The methods of RocketMQ's producers on a whole node in this process, without a connection."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from fakes.inner_node import config, running, until
from tandemlog.format.record.record import Record, decode_record
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.node import Node
from tandemlog_server.node.remoting.cluster.topic_creation import TopicCreation
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall
from tandemlog_server.node.remoting.sends.joint_sends import JointSends
from tandemlog_server.node.remoting.sends.return_methods import ReturnMethods
from tandemlog_server.node.remoting.sends.send_methods import MakeHalf, SendMethods
from tandemlog_server.rocketmq.clients.broker_topics import broker_topics
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.clients.stored_properties import BrokerFacts
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.metadata.topics import TopicConfig

FACTS = BrokerFacts("cluster-1")


@dataclass
class FakeConnection:
    """That of a client, to which nothing is pushed."""

    peer: str = "ipv4:10.0.0.7:51234"
    local_address: tuple[str, int] = ("127.0.0.1", 1)
    closed: bool = False

    def push(self, code: int, fields: dict[str, str], body: bytes = b"") -> None:
        raise AssertionError("nothing is pushed to a producer")

    async def ask(
        self, code: int, fields: dict[str, str], body: bytes = b"", *, timeout_s: float = 3.0
    ) -> Command:
        raise AssertionError("a producer is not asked")

    def on_close(self, callback: Callable[[], None]) -> None:
        return


@dataclass
class SendRig:
    """See the module. `joint` is what all methods append by."""

    node: Node
    joint: JointSends
    sends: SendMethods
    returns: ReturnMethods
    keys: Any = field(default_factory=lambda: count(1))

    async def ask(
        self,
        code: int,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        caller: Caller | None = None,
        peer: str = "ipv4:10.0.0.7:51234",
        flag: int = 0,
    ) -> Command | None:
        """The answer to one request."""
        method = {**self.sends.methods(), **self.returns.methods()}[code]
        request = Command(code, 1, flag, fields=fields, body=body)
        at = asyncio.get_running_loop().time()
        call = RemotingCall(request, caller or Caller(peer), FakeConnection(peer), at)
        async with asyncio.timeout(20):
            return await method.serve(call)

    async def send(
        self, topic: str = "T", body: bytes = b"x", *, properties: str = "", **fields: str
    ) -> Command:
        """The answer to a request 310; `fields` by their short names, over the usual ones."""
        usual = {
            "a": "g", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0",
            "g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false",
        }  # fmt: skip
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, {**usual, **fields}, body)
        assert answer is not None
        return answer

    async def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """All that stand in a queue, once they are dispatched."""
        store = self.node.store
        await until(lambda: store.reputed.value >= store.log.wrote.value)
        dense = store.queue_table.get(topic, queue_id)
        if dense < 0:
            return []
        found = []
        for offset in range(store.queues.max_offset(dense)):
            got = store.reader.get(topic, queue_id, offset, 1, 1 << 20)
            found.append(decode_record(bytes(got.records)))
        return found


@asynccontextmanager
async def send_rig(
    directory: Path, *topics: str, make_half: MakeHalf | None = None, park_s: float = 2.5
) -> AsyncIterator[SendRig]:
    """A node that leads alone, with `topics` of two queues."""
    async with running(config(directory)) as node:
        for topic in topics:
            node.store.create_topic(TopicConfig(topic, 2, 2))
        joint = JointSends(
            node.pump, node.terms, timeout_s=5, most_parked_bytes=100_000, park_s=park_s
        )
        creation = TopicCreation(node.store, node.terms, broker_topics("cluster-1", "broker-a"))
        keys = count(1)
        sends = SendMethods(
            node.store,
            joint,
            creation,
            node._turns,
            FACTS,
            broker_name="broker-a",
            new_key=lambda: f"KEY{next(keys)}",
            make_half=make_half,
        )
        returns = ReturnMethods(node.store, joint, creation, node._turns, node._recall)
        try:
            yield SendRig(node, joint, sends, returns)
        finally:
            joint.close()
