"""A master of ours with slave brokers of RocketMQ that a test holds in its hand."""

from pathlib import Path

from fakes.clock import FakeClock
from fakes.replicas import Replica, eventually
from fakes.slave_broker import SlaveBroker
from tandemlog.v1 import common_pb2
from tandemlog_server.rocketmq.serve.ha_server import HaServer
from tandemlog_server.rocketmq.serve.peers import Peers

HERE = ("127.0.0.1", 0)
NODE = "rocketmq:127.0.0.1"
ANYONE = Peers()
COUNTS = Peers.of((), ("127.0.0.1",))


class Followed:
    """A master with slave brokers; `clock` stands still."""

    def __init__(self, folder: Path, file_size: int = 8192) -> None:
        self.clock = FakeClock()
        self.replica = Replica(folder, "m", clock=self.clock, file_size=file_size)
        self.server: HaServer
        self.brokers: list[SlaveBroker] = []

    async def lead(self, peers: Peers = ANYONE, **settings: object) -> "Followed":
        await self.replica.lead(**settings)
        await self.open(peers)
        return self

    async def open(self, peers: Peers = ANYONE) -> None:
        self.server = HaServer(self.replica.master, peers)
        await self.server.start(HERE)
        self.replica.master.foreign_rows = self.server.rows

    async def broker(
        self, log: bytes = b"", start: int = 0, *, reads: bool = True, asks: bool = True
    ) -> SlaveBroker:
        self.brokers.append(SlaveBroker(log, start))
        return await self.brokers[-1].connect(self.server.port, reads=reads, asks=asks)

    async def caught_up(self, broker: SlaveBroker) -> None:
        await eventually(lambda: broker.end == self.end)

    @property
    def end(self) -> int:
        return self.replica.store.log.committed.value

    def row(self) -> common_pb2.NodeStatus | None:
        rows = {row.node_id: row for row in self.replica.master.members()}
        return rows.get(NODE)

    def tick(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.server.tick()

    async def close(self) -> None:
        for broker in self.brokers:
            await broker.close()
        if hasattr(self, "server"):
            await self.server.stop()
        await self.replica.stop()
