"""A master in this process, for requests of the corpus: what they must leave as it was.

async with OneNode.running(folder) as node:
    await node.play(calls)      what the oracle says of the answers
    await node.check()          puts, pulls and the list of members are as they were
    await node.restart()        and so they are after a start
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpc import aio

from fakes.batches import Put
from fuzz.caller import Caller
from fuzz.loop_watch import TICK_S, LoopWatch
from fuzz.methods import KEY, TOPIC, Method, methods_of, put_request
from fuzz.oracle import Outcome, finding, refused
from fuzz.requests import Call
from helpers.running import free_ports
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc
from tandemlog_server.ha.config import Replication
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import ReplicationSection, StoreSection

MOST_DESCRIPTION_BYTES = 64 << 10
PAUSE_S = 1.0
ANSWER_S = 60.0
BIG_BODY = 60_000

CLIENT_HAS_LEFT = "ExecuteBatchError raised in core by servicer method "
"""What gRPC logs when a client cancels its call while the answer is on its way, if gRPC has not yet
seen the cancellation. A client that waited and got no answer is a finding of its own: each call of
a campaign is looked at from the client's side too."""


@dataclass
class OneNode:
    """See the module. `watch` says how long the event loop stood while calls were played."""

    folder: Path
    node: Node
    methods: dict[str, Method]
    bodies: list[bytes] = field(default_factory=list)
    watch: LoopWatch = field(default_factory=LoopWatch)

    @classmethod
    @asynccontextmanager
    async def running(cls, folder: Path) -> AsyncIterator["OneNode"]:
        node = await _started(folder)
        try:
            found = await asyncio.to_thread(methods_of, node.endpoints.listen)
            made = cls(folder, node, {method.path: method for method in found})
            await made._prepare()
            yield made
        finally:
            # the one that runs now: `restart` makes another
            await (made.node if "made" in locals() else node).stop()

    async def play(self, calls: Sequence[Call], *, expect: str = "") -> str:
        """Make the calls, all at once; what was wrong with the answers."""
        ticker = asyncio.create_task(self.watch.run())
        try:
            async with Caller({"master": self._endpoint, "slave": self._endpoint}, 1) as caller:
                work = [caller.call(each, self.methods.get(each.path)) for each in calls]
                outcomes = await asyncio.gather(*work)
            # a loop that stood has not let the ticker look at its clock yet
            await asyncio.sleep(2 * TICK_S)
        finally:
            ticker.cancel()
        wrong = [
            self._wrong(call, outcome, expect)
            for call, outcome in zip(calls, outcomes, strict=True)
        ]
        if self.watch.longest > PAUSE_S:
            wrong.append(f"the loop stood for {self.watch.longest:.1f} s")
        return "; ".join(each for each in wrong if each)

    async def check(self) -> None:
        """A put, a pull of all that was acknowledged, and a description of a bearable size."""
        self.bodies.append(b"again")
        async with aio.insecure_channel(self._endpoint) as channel, asyncio.timeout(ANSWER_S):
            broker = broker_pb2_grpc.BrokerStub(channel)
            await self._put(broker, [Put(TOPIC, 3, b"again")])
            for number, body in enumerate(self.bodies):
                position = broker_pb2.QueuePosition(topic=TOPIC, queue_id=3, queue_offset=number)
                pulled = await broker.Pull(
                    broker_pb2.PullRequest(positions=[position], max_messages=1, wait_ms=10_000)
                )
                assert not pulled.HasField("error"), pulled.error
                assert body in pulled.queues[0].records
            admin = admin_pb2_grpc.AdminStub(channel)
            described = await admin.DescribeCluster(admin_pb2.DescribeClusterRequest())
            assert described.ByteSize() <= MOST_DESCRIPTION_BYTES
            assert described.nodes[0].node_id == "n0"

    async def restart(self) -> None:
        await self.node.stop()
        self.node = await _started(self.folder)

    @property
    def _endpoint(self) -> str:
        return self.node.endpoints.listen

    def _wrong(self, call: Call, outcome: Outcome, expect: str) -> str:
        method = self.methods.get(call.path)
        wrong = finding(call, method, outcome)
        if not wrong and expect == "refused" and method is not None:
            return "" if refused(method, outcome) else f"{call.path} was not refused"
        return wrong

    async def _prepare(self) -> None:
        """A topic; a large record at offset 0 of the log, small ones behind it."""
        topic = admin_pb2.Topic(name=TOPIC, read_queues=4, write_queues=4, perm=6)
        keys = b"KEYS\x01" + KEY.encode() + b"\x02TAGS\x01TagA\x02"
        async with aio.insecure_channel(self._endpoint) as channel, asyncio.timeout(ANSWER_S):
            admin = admin_pb2_grpc.AdminStub(channel)
            await admin.CreateTopic(admin_pb2.CreateTopicRequest(topic=topic))
            broker = broker_pb2_grpc.BrokerStub(channel)
            await self._put(broker, [Put(TOPIC, 0, b"B" * BIG_BODY, keys)])
            await self._put(broker, [Put(TOPIC, number % 3, b"small", keys) for number in range(9)])
            self.bodies = [b"canary"]
            await self._put(broker, [Put(TOPIC, 3, b"canary")])

    async def _put(self, broker: Any, puts: list[Put]) -> None:
        call = broker.Append(iter([put_request(puts)]))
        answer = await call.read()
        assert isinstance(answer, broker_pb2.AppendResponse)
        assert answer.status == broker_pb2.PUT_OK, answer.error


async def _started(folder: Path) -> Node:
    (port,) = free_ports(1)
    node = Node(
        NodeConfig(
            cluster_id="test",
            node_id="n0",
            listen=f"127.0.0.1:{port}",
            http_listen="",
            store=StoreSection(
                directory=folder, commit_log_file_size=1 << 20, queue_file_size=20_000,
                index_slots=500, index_entries=2_000,
            ),
            replication=ReplicationSection(mode=Replication.SYNC, min_in_sync=1),
        )
    )  # fmt: skip
    await node.start()
    return node


def tracebacks(records: Sequence[logging.LogRecord]) -> list[str]:
    """What was logged with a traceback, apart from gRPC's word that a client has left."""
    return [
        record.getMessage()
        for record in records
        if record.exc_info and not record.getMessage().startswith(CLIENT_HAS_LEFT)
    ]
