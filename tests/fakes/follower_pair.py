"""A node that follows a broker: the two, over real sockets, in the hand of a test."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from fakes.fake_rocketmq import FakeRocketmq
from fakes.log_builder import LogBuilder
from fakes.replicas import eventually
from fakes.stores import CONFIG, Bench
from tandemlog_server.ha.master.term import next_epoch
from tandemlog_server.ha.state import HaState
from tandemlog_server.rocketmq.follow.address import parse_address
from tandemlog_server.rocketmq.follow.follower import (
    BrokerFollower,
)

FILE = 4096


class Host:
    """As the node's roles have the relay's term. `on_lead` is called before each connection,
    `on_rebuild` before each change."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.changes = 0
        self.on_lead: Callable[[], None] = lambda: None
        self.on_rebuild: Callable[[], None] = lambda: None
        self.begin()

    def begin(self) -> None:
        store = self.bench.store
        store.become_relay(next_epoch(store.epochs.table, HaState("c", "n", "i")))

    async def lead(self) -> None:
        self.on_lead()

    async def rebuild(self, change: Callable[[], None]) -> None:
        self.changes += 1
        self.on_rebuild()
        self.bench.store.become_slave()
        try:
            await asyncio.to_thread(change)
        finally:
            self.begin()


class Pair:
    """A broker with a little log, and a node that may follow it."""

    def __init__(self) -> None:
        self.builder = LogBuilder(Path("/unused"), FILE)
        self.broker = FakeRocketmq(self.builder)
        self.bench = Bench(CONFIG, topics=())
        self.host = Host(self.bench)
        self.follower: BrokerFollower | None = None
        self.task: asyncio.Task[None] | None = None

    def put(self, count: int, body: bytes = b"body") -> None:
        for number in range(count):
            self.builder.put("Orders", number % 3, body * (1 + number % 20))

    def follow(self, address: str = "") -> BrokerFollower:
        self.follower = BrokerFollower(
            parse_address(address or self.broker.address),
            self.bench.store,
            self.bench.files,
            self.bench.clock,
            self.host,
            offsets_interval_s=0.01,
            tables_interval_s=0.01,
        )
        self.task = asyncio.create_task(self.follower.run())
        return self.follower

    async def unfollow(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task = None

    def here(self) -> bytes:
        log = self.bench.store.log
        found, at = b"", log.min_offset
        while at < log.wrote.value:
            piece = bytes(log.read(at, FILE))
            found, at = found + piece, at + len(piece)
        return found

    async def equal(self) -> None:
        await eventually(lambda: self.bench.store.log.flushed.value == self.builder.end)
        assert self.here() == self.broker.log()

    async def restarted(self, how: str = "kill") -> None:
        """The node's process ends, or its machine loses power, and comes back."""
        await self.unfollow()
        getattr(self.bench, how)()
        self.host = Host(self.bench)

    async def fault(self, words: str) -> None:
        follower = self.follower
        assert follower is not None
        await eventually(lambda: words in follower.state.fault)
        assert not follower.state.following
