"""Rules of following that a review found broken (each test fails at 497dd08)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fakes.fake_rocketmq import FakeRocketmq, lost_tail
from fakes.log_builder import LogBuilder
from fakes.replicas import eventually
from fakes.stores import CONFIG, Bench
from ha.master.term import next_epoch
from ha.rocketmq.follow.address import parse_address
from ha.rocketmq.follow.follower import BrokerFollower
from ha.rocketmq.wire.requests import GET_ALL_SUBSCRIPTION_GROUP_CONFIG
from ha.state import HaState

FILE = 4096


class Host:
    """As the node's roles have the relay's term."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.changes = 0
        self.begin()

    def begin(self) -> None:
        store = self.bench.store
        store.become_relay(next_epoch(store.epochs.table, HaState("c", "n", "i")))

    async def lead(self) -> None:
        return

    async def rebuild(self, change: Callable[[], None]) -> None:
        self.changes += 1
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


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    await made.broker.start()
    yield made
    await made.unfollow()
    await made.broker.stop()


async def test_no_number_goes_beyond_what_both_logs_have_in_common(pair: Pair) -> None:
    """The first number counts as an acknowledgement as well (GroupTransferService)."""
    pair.put(800)
    pair.follow()
    await pair.equal()
    await pair.unfollow()
    await pair.broker.stop()
    common = pair.builder.records[200].physical_offset
    lost_tail(pair.builder, common)
    pair.put(1_000, b"other")
    await pair.broker.start()
    before = len(pair.broker.acks)
    pair.follow()
    await eventually(lambda: len(pair.broker.acks) > before and bool(pair.broker.acks[before]))
    await asyncio.sleep(0)
    assert pair.broker.acks[before][0] <= common


async def test_a_table_that_cannot_be_taken_does_not_keep_the_offsets_away(pair: Pair) -> None:
    pair.put(20)
    pair.broker.tables[GET_ALL_SUBSCRIPTION_GROUP_CONFIG] = b"[]"
    pair.follow()
    await pair.equal()
    await eventually(
        lambda: pair.bench.store.consumer_offsets.of_pair("Orders", "theirs") == {0: 3, 1: 2}
    )
