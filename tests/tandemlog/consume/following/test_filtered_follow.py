"""A stream with a filter over a real store and its pull service, whatever happens meanwhile.

    puts, dispatches, cuts of the log and new terms, retention ──▶ store ──▶ pull service
                                                                                 │ filter
    what a plain evaluator selects of what is left  ══ each once, in order ══ stream

Everything runs in one loop in the world's time. A node of an older version, which knows no filters,
answers for the same store.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from fakes.batches import Put, batch_of
from fakes.plain_filter import a_filter, a_like, selects, some_properties
from fakes.stores import CONFIG, Bench
from sim.served_node import AllKnown, Turns
from sim.world_loop import WorldLoop, world_time
from tandemlog.cluster.connection import Connection
from tandemlog.cluster.histories import PositionCheck
from tandemlog.cluster.pull_answer import PullAnswer, parse_pull
from tandemlog.cluster.topology import NodeInfo, ReadFrom, Topology
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.following.fetcher import FetchedBatch, Fetcher
from tandemlog.consume.following.follower import Follower
from tandemlog.consume.reading.positions import Queue, QueueRange
from tandemlog.consume.reading.reader import Reader
from tandemlog.consume.reading.selector import Selector
from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.consume.reading.span_reader import SpanOptions, SpanReader
from tandemlog.format.files.log_history import LogHistory
from tandemlog.format.filter.expression import Condition, FilterError
from tandemlog.format.filter.parser import parse
from tandemlog.format.record.properties import encode_properties
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.pulls import queue_reads
from tandemlog_server.node.pulls.long_polling import LongPolling
from tandemlog_server.node.pulls.pull_service import PullService
from tandemlog_server.node.pulls.queue_reads import QueueReads
from tandemlog_server.node.pulls.reading import PullLimits
from tandemlog_server.storage.reads import filtering

if TYPE_CHECKING:
    from tandemlog.consume.reading.positions import Positions
    from tandemlog.consume.reading.queue_lag import Lags

QUEUES = 2
TAGS = ("x", "y")


@dataclass(frozen=True)
class Stored:
    """A message in the log, in its queue at `queue_offset`."""

    physical: int
    queue_offset: int
    properties: dict[str, str]


@dataclass
class ServedNode:
    """`knows_filters`: an older node returns everything."""

    endpoint: str
    pulls: PullService
    knows_filters: bool = True

    async def pull(self, request: broker_pb2.PullRequest, _: int) -> PullAnswer:
        await asyncio.sleep(0.001)  # or a client that never waits would ask without end
        if not self.knows_filters:
            older = broker_pb2.PullRequest()
            older.CopyFrom(request)
            older.filter = ""
            request = older
        [answer] = await self.pulls.pull(request, Caller())
        return parse_pull(bytes(answer))


class World:
    """A store and its nodes; also the connection and the positions of the reader."""

    timeout_ms = 1_000
    master_epoch = 1

    def __init__(self, random: Random, *, older: bool) -> None:
        self.random = random
        size = random.choice([80, 400, 4_000])
        self.bench = Bench(replace(CONFIG, queue_file_size=size))
        self.loop = WorldLoop(self.bench.clock)
        store = self.store = self.bench.store
        self.epoch = 1
        store.become_master(self.epoch)
        self.ledger: dict[Queue, list[Stored]] = {("T", number): [] for number in range(QUEUES)}
        self.number = 0
        polling = LongPolling(self.loop, lambda: store.queue_table.count)
        store.on_dispatch(lambda queues: polling.on_dispatch(queues.tolist()))
        turns: Any = Turns()
        known: Any = AllKnown()
        reads = QueueReads(
            store.reader,
            polling,
            turns,
            check=known.check_queue,
            dense=store.queue_table.get,
            ends=store.queues.ends_of,
            dispatched=self._dispatched,
            on_slave=lambda: False,
            limits=PullLimits(random.choice([300, 2_000, 1 << 20]), 60_000, 100),
            log_term=lambda: store.log_identity.newest,
        )
        pulls = PullService(reads)
        self.nodes = {"m:1": ServedNode("m:1", pulls)}
        if older:
            self.nodes["o:1"] = ServedNode("o:1", pulls, knows_filters=False)
        self.options = SimpleNamespace(request_timeout_ms=1_000, retry_timeout_ms=1_000)

    async def _dispatched(self) -> bool:
        self.bench.settle()
        return True

    # what happens

    def put(self) -> None:
        random, messages = self.random, []
        for _ in range(random.choice([1, 2, 40])):
            properties = some_properties(random)
            tag = random.choice((*TAGS, *properties.values()))
            messages.append((random.randrange(QUEUES), properties | {"TAGS": tag}))
        self.put_these(messages)

    def put_these(self, messages: Sequence[tuple[int, dict[str, str]]]) -> None:
        """Each into the queue with that id; `n` is its number among all."""
        random, puts, told = self.random, [], []
        for queue_id, each in messages:
            properties = each | {"n": str(self.number)}
            self.number += 1
            body = b"." * random.choice([0, 10, 300])
            puts.append(Put("T", queue_id, body, encode_properties(properties)))
            told.append((("T", queue_id), properties))
        for segment in self.store.put(batch_of(puts)).segments:
            at = segment.physical_offset
            table = dict.fromkeys(queue for queue, _ in told)
            following = dict(zip(table, segment.queue_offsets.tolist(), strict=True))
            for row in range(segment.first_index, segment.first_index + segment.count):
                queue, properties = told[row]
                self.ledger[queue].append(Stored(at, following[queue], properties))
                following[queue] += 1
                at += len(puts[row].record()) + segment.record_extra

    def cut(self) -> None:
        """As a slave that has been master before: its end is cut, and another one leads on."""
        places = sorted(each.physical for held in self.ledger.values() for each in held)
        places = [each for each in places if each >= self.store.log.min_offset]
        if not places:
            return
        self.cut_at(self.random.choice(places[-30:]))
        for _ in range(self.random.randrange(4)):
            self.put()

    def cut_at(self, offset: int) -> None:
        self.store.truncate(offset)
        for queue, held in self.ledger.items():
            self.ledger[queue] = [each for each in held if each.physical < offset]
        self.epoch += 1
        self.store.become_master(self.epoch)

    def expire(self) -> None:
        self.bench.settle()
        self.store.persist()
        files = self.store.log.files
        if len(files) > 1:
            self.store._cleaner.drop_before(files[1].base)

    def happen(self) -> None:
        what = self.random.randrange(12)
        if what < 5:
            self.put()
        elif what < 8:
            self.bench.settle()
        elif what == 8:
            self.cut()
        elif what == 9:
            self.expire()
        else:
            self.bench.clock.advance(self.random.choice([0.01, 0.3, 1.5]))

    # as a Connection

    async def current_topology(self) -> Topology:
        return Topology(
            nodes=tuple(map(self._info, self.nodes)), master_id="m:1", asked=tuple(self.nodes)
        )

    refresh = current_topology
    ask_nodes = Connection.ask_nodes
    retrying = Connection.retrying
    _hopeless = Connection._hopeless
    _was_answered = True

    def node(self, endpoint: str) -> ServedNode:
        return self.nodes[endpoint]

    def check_loop(self) -> None: ...

    def _info(self, endpoint: str) -> NodeInfo:
        role = "master" if endpoint == "m:1" else "slave"
        return NodeInfo(
            node_id=endpoint,
            role=role,
            endpoint=endpoint,
            http_endpoint="",
            state="running",
            epoch=1,
            in_sync=True,
            min_offset=0,
            wrote_offset=0,
            flushed_offset=0,
            confirm_offset=0,
            reput_offset=0,
            lag_bytes=0,
            lag_seconds=0.0,
            detail="",
            store_host="",
            reachable=True,
        )

    # as Positions

    async def check(
        self, positions: Mapping[Queue, int], history: LogHistory | None, wait_ms: int = 0
    ) -> PositionCheck:
        current = self.store.log_identity.history
        if history is None:
            return PositionCheck(current, {})
        rows = [(*queue, offset) for queue, offset in positions.items()]
        found = self.store.cut_positions(rows, history.cut_against(current))
        return PositionCheck(current, {rows[index][:2]: at for index, at in found.items()})

    async def ranges_at_master(self, topics: Sequence[str]) -> dict[Queue, QueueRange]:
        return {
            queue: QueueRange(*queue, held[0].queue_offset if held else 0, len(held), 0, 0)
            for queue, held in self.ledger.items()
        }


@dataclass
class Stream:
    """What a follower with a filter has delivered."""

    world: World
    selector: Selector
    options: FollowOptions
    delivered: list[tuple[Queue, int, str]] = field(default_factory=list)

    async def run(self) -> None:
        world: Any = self.world
        fetcher = Fetcher(
            Reader(world, ReadFrom.ANY),
            cast("Positions", world),
            self.options,
            selector=self.selector,
        )
        follower = Follower(
            fetcher, cast("Positions", world), cast("Lags", None), self.options, start="earliest"
        )
        await follower.log.try_catch_up()
        follower.read_from(dict.fromkeys(self.world.ledger, 0))
        taken: deque[FetchedBatch] = deque()
        while True:
            if not taken:
                if follower.must_stop:
                    follower.resume_delivery()
                await follower.next_fetched(taken)
            while taken:
                batch, turn = taken.popleft()
                if not follower.progress.may_deliver(batch.queue, turn):
                    continue
                follower.mark_skipped(batch, turn)
                for message in batch:
                    name = message.properties["n"]
                    self.delivered.append((batch.queue, message.queue_offset, name))


def some_options(random: Random) -> FollowOptions:
    return FollowOptions(
        max_bytes=random.choice([200, 1_000, 1 << 20]),
        max_messages=random.choice([0, 0, 1, 7]),
        prefetch_bytes=random.choice([1, 5_000, 1 << 20]),
        wait_ms=random.choice([0, 100, 15_000]),
        patience_ms=100,
    )


def some_selector(random: Random) -> tuple[Selector, Condition]:
    while True:
        text = random.choice([a_filter, a_filter, a_like])(random)
        try:
            condition = parse(text)
        except FilterError:
            continue
        tags = random.choice([None, None, "x", "x || y"])
        return Selector.of(tags, text), condition


def expected(world: World, selector: Selector, condition: Condition) -> dict[Queue, list[Stored]]:
    return {
        queue: [
            each
            for each in held
            if selects(condition, each.properties)
            and (selector.tags is None or each.properties.get("TAGS") in selector.tags)
        ]
        for queue, held in world.ledger.items()
    }


@pytest.fixture
def small_rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = request.node.callspec.params["seed"]
    random = Random(f"rounds of {seed}")
    monkeypatch.setattr(filtering, "FILTERED_BYTES", random.choice([200, 2_000, 1 << 20]))
    monkeypatch.setattr(filtering, "LEAST_MESSAGES", random.choice([1, 3, 64]))
    monkeypatch.setattr(filtering, "MOST_MESSAGES", random.choice([1, 1 << 17]))
    monkeypatch.setattr(queue_reads, "SCAN_UNITS", random.choice([100, 5_000, 1 << 19]))


@pytest.mark.usefixtures("small_rounds")
@pytest.mark.parametrize("seed", range(25))
def test_each_selected_message_comes_once_and_in_order(seed: int) -> None:
    random = Random(seed)
    world = World(random, older=seed % 3 == 0)
    selector, condition = some_selector(random)
    with world_time(world.bench.clock, seed):
        stream = Stream(world, selector, some_options(random))
        work = world.loop.begin(stream.run())
        for _ in range(random.choice([20, 80])):
            world.happen()
            for _ in range(random.randrange(4)):
                world.bench.clock.advance(0.001)
                world.loop.run_ready()
        world.bench.settle()
        for turn in range(1_500):
            world.bench.clock.advance(0.001 if (turn + 1) % 100 else 20)
            world.loop.run_ready()
        assert not work.done()
        check(world, stream, expected(world, selector, condition))
        if not selector.tags:
            spans = read_spans(world, selector)
            assert spans == {
                queue: [each.properties["n"] for each in held if is_there(world, each)]
                for queue, held in expected(world, selector, condition).items()
            }
        world.loop.abandon()


def test_what_was_skipped_in_a_log_that_is_cut_is_looked_at_again() -> None:
    world = World(Random(1), older=False)
    with world_time(world.bench.clock, 1):
        options = FollowOptions(wait_ms=15_000, parallel_pulls=1)
        stream = Stream(world, Selector(where="a = 5"), options)
        world.loop.begin(stream.run())
        world.put_these([(0, {"a": "1"})] * 10)
        world.bench.settle()
        for _ in range(20):  # passed, and still waiting for a message
            world.bench.clock.advance(0.001)
            world.loop.run_ready()
        world.cut_at(world.ledger["T", 0][3].physical)
        world.put_these([(0, {"a": str(5 - number // 7)}) for number in range(14)])
        world.bench.settle()
        for turn in range(500):
            world.bench.clock.advance(0.001 if (turn + 1) % 100 else 20)
            world.loop.run_ready()
        assert [offset for _, offset, _ in stream.delivered] == list(range(3, 10))
        world.loop.abandon()


def is_there(world: World, message: Stored) -> bool:
    return message.physical >= world.store.log.min_offset


def check(world: World, stream: Stream, wanted: dict[Queue, list[Stored]]) -> None:
    names = [name for _, _, name in stream.delivered]
    assert len(set(names)) == len(names), "twice"
    for queue, messages in wanted.items():
        mine = {name: offset for at, offset, name in stream.delivered if at == queue}
        left = {each.properties["n"]: each.queue_offset for each in world.ledger[queue]}
        selected = {each.properties["n"]: each.queue_offset for each in messages}
        for name, offset in mine.items():
            if name in left:
                assert selected.get(name) == offset, "not selected"
        missing = [each for each in messages if each.properties["n"] not in mine]
        assert not [each for each in missing if is_there(world, each)], "lost"
        order = [offset for name, offset in mine.items() if name in left]
        assert order == sorted(order), "out of order"


def read_spans(world: World, selector: Selector) -> dict[Queue, list[str]]:
    """As a Spark job reads what there is now, in two parts for each queue."""
    connection: Any = world
    spans = []
    for (topic, queue_id), held in world.ledger.items():
        there = [each.queue_offset for each in held if is_there(world, each)]
        if there:
            middle = world.random.randint(there[0], there[-1] + 1)
            spans.append(QueueSpan(topic, queue_id, there[0], middle))
            spans.append(QueueSpan(topic, queue_id, middle, there[-1] + 1))
    losses: list[str] = []
    reader = SpanReader(
        Reader(connection, ReadFrom.SLAVE, 0),
        connection,
        spans,
        lambda text, _: losses.append(text),
        SpanOptions(selector=selector, max_bytes=world.random.choice([300, 1 << 20])),
        world.store.log_identity.history,
    )
    found: dict[Queue, list[str]] = {queue: [] for queue in world.ledger}

    async def read() -> None:
        while batches := await reader.next_batches():
            for batch in batches:
                found[batch.queue] += [message.properties["n"] for message in batch]

    work = world.loop.begin(read())
    for _ in range(2_000):
        world.loop.run_ready()
        if work.done():
            break
        world.bench.clock.advance(0.05)
    assert work.done()
    assert not losses
    return found
