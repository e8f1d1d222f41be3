"""Spans that were planned in one log, and read while masters and nodes come and go.

Whatever happens, a message that is read is the one that had its number when the read was planned,
each comes once and in order, and one that the cluster still has is never given up. The nodes answer
by the rules of test_cut_watch.py: they may be behind, have another end of the log, have deleted
older messages, or be away.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

from tandemlog.cluster.connection import Connection
from tandemlog.cluster.histories import PositionCheck, is_behind
from tandemlog.cluster.pull_answer import PullAnswer, PullPart
from tandemlog.cluster.topology import NodeInfo, ReadFrom, Topology
from tandemlog.consume.reading import cut_watch, span_reader
from tandemlog.consume.reading.positions import Queue, QueueRange
from tandemlog.consume.reading.reader import Reader
from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.consume.reading.span_reader import SpanOptions, SpanReader
from tandemlog.errors import NodeUnavailableError, TandemlogError
from tandemlog.format.files.log_history import NO_CUT, LogHistory, LogTerm
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import broker_pb2, common_pb2

QUEUE = ("t", 0)
COUNT = 30
Message = tuple[int, int]
"""The term that wrote it, and which of its messages it is."""


@dataclass
class Log:
    """Of one queue, of messages that take a byte each."""

    history: LogHistory
    messages: list[Message] = field(default_factory=list)

    def continued(self, kept: int, term: LogTerm) -> "Log":
        before = (each for each in self.history.terms if each.start_offset < kept)
        return Log(LogHistory(1, (*before, term)), self.messages[:kept])


@dataclass
class FakeNode:
    world: "World"
    endpoint: str
    log: Log
    low: int = 0
    away: bool = False
    strange: bool = False
    pulls: int = 0

    async def pull(self, request: broker_pb2.PullRequest, timeout_ms: int) -> PullAnswer:
        self.pulls += 1
        await asyncio.sleep(0)
        if self.away:
            raise NodeUnavailableError(f"{self.endpoint} is away")
        parts = tuple(
            self._part(index, place.queue_offset, request)
            for index, place in enumerate(request.positions)
        )
        newest = self.log.history.newest
        answer = PullAnswer(parts, False, common_pb2.Error(), newest)
        self.world.happen()
        return answer

    def _part(self, index: int, offset: int, request: broker_pb2.PullRequest) -> PullPart:
        messages, end = self.log.messages, len(self.log.messages)
        low = min(self.low, end)
        count = self.world.random.randint(1, 4)
        head = broker_pb2.QueueRecords(
            position_index=index, next_offset=offset, min_offset=low, max_offset=end
        )
        if offset < low:
            head.status, head.next_offset = broker_pb2.OFFSET_TOO_SMALL, low
        elif offset == end:
            head.status = broker_pb2.OFFSET_OVERFLOW_ONE
        elif offset > end:
            head.status, head.next_offset = broker_pb2.OFFSET_OVERFLOW_BADLY, end
        else:
            head.status = broker_pb2.FOUND
        if head.status != broker_pb2.FOUND:
            return PullPart(head, b"")
        last = min(offset + min(count, request.max_messages), end)
        records = [
            encode_record(
                topic="t",
                body=b"%d %d" % messages[each],
                queue_id=1 if self.strange else 0,
                queue_offset=each,
                physical_offset=each,
            )
            for each in range(offset, last)
        ]
        head.next_offset, head.count = last, len(records)
        head.sizes = np.array([len(each) for each in records], "<u4").tobytes()
        return PullPart(head, b"".join(records))


class World:
    """Nodes under one master; also the connection and the positions of the reader."""

    timeout_ms = 1_000

    def __init__(self, random: Random, *, calm: bool = False) -> None:
        self.random = random
        self.calm = calm
        self.term = 1
        log = Log(LogHistory(1, (LogTerm(1, 0, 1),)))
        self.nodes = {f"n{number}:1": FakeNode(self, f"n{number}:1", log) for number in range(3)}
        self.nodes["n1:1"].log = self.nodes["n2:1"].log = Log(log.history)
        self.master = self.nodes["n0:1"]
        self.options = SimpleNamespace(request_timeout_ms=1_000, retry_timeout_ms=1_000)
        self.put(8)

    def put(self, count: int) -> None:
        log = self.master.log
        log.messages += [(self.term, len(log.messages) + each) for each in range(count)]

    def follow(self, node: FakeNode, size: int | None = None) -> None:
        """Takes what the master has, all or so much of it."""
        whole = self.master.log
        size = len(whole.messages) if size is None else size
        terms = tuple(each for each in whole.history.terms if each.start_offset < size)
        node.log = Log(LogHistory(1, terms or whole.history.terms[:1]), whole.messages[:size])

    def lead(self, node: FakeNode) -> None:
        """The next master, with what it has: messages that it lacks are lost."""
        self.term += 1
        epoch = max(each.log.history.newest[0] for each in self.nodes.values()) + 1
        kept = len(node.log.messages)
        node.log = node.log.continued(kept, LogTerm(epoch, kept, self.term))
        self.master = node

    def happen(self) -> None:
        if self.calm or self.random.random() < 0.6:
            return
        node = self.random.choice(list(self.nodes.values()))
        what = self.random.randrange(5)
        if what == 0:
            self.put(self.random.randint(1, 5))
        elif what == 1 and node is not self.master:
            self.follow(node, self.random.randint(0, len(self.master.log.messages)))
        elif what == 2:
            self.lead(node)
            self.put(self.random.randint(0, 20))
        elif what == 3:
            node.away = not node.away
        elif what == 4:
            node.low = self.random.randint(node.low, node.low + 1)

    def heal(self) -> None:
        self.calm = True
        for node in self.nodes.values():
            node.away = False
            if node is not self.master:
                self.follow(node)

    # as a Connection

    async def current_topology(self) -> Topology:
        return Topology(
            nodes=tuple(self._info(each) for each in self.nodes.values() if not each.away),
            master_id=self.master.endpoint,
            asked=tuple(self.nodes),
        )

    refresh = current_topology
    ask_nodes = Connection.ask_nodes

    def _info(self, node: FakeNode) -> NodeInfo:
        return NodeInfo(
            node_id=node.endpoint,
            role="master" if node is self.master else "slave",
            endpoint=node.endpoint,
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

    def node(self, endpoint: str) -> FakeNode:
        return self.nodes[endpoint]

    def retrying(self, timeout_ms: int | None = None) -> AsyncRetrying:
        def again(error: BaseException) -> bool:
            self.happen()
            return isinstance(error, TandemlogError) and error.retryable

        return AsyncRetrying(
            retry=retry_if_exception(again), stop=stop_after_attempt(50), reraise=True
        )

    # as Positions

    async def check(
        self, positions: Mapping[Queue, int], history: LogHistory | None, wait_ms: int = 0
    ) -> PositionCheck:
        await asyncio.sleep(0)
        now = self.master.log
        if self.master.away:
            raise NodeUnavailableError("no master now")
        if history is not None and is_behind(now.history, history):
            raise NodeUnavailableError("behind")
        cut = NO_CUT if history is None else history.cut_against(now.history)
        first = min(cut, len(now.messages))
        beyond = [queue for queue, offset in positions.items() if offset > first]
        found = dict.fromkeys(beyond, first) if cut < NO_CUT else {}
        return PositionCheck(now.history, found)

    async def ranges_at_master(self, topics: Sequence[str]) -> dict[Queue, QueueRange] | None:
        if self.master.away:
            return None
        return {QUEUE: QueueRange("t", 0, self.master.low, len(self.master.log.messages), 0, 0)}


@dataclass
class Read:
    """What a read of `spans`, planned in the master's log as it is now, came to."""

    world: World
    planned: list[Message]
    got: dict[int, Message] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    error: TandemlogError | None = None

    async def play(self, reader: SpanReader, step: Callable[[], Awaitable[None]]) -> None:
        before = -1
        try:
            while batches := await reader.next_batches():
                for batch in batches:
                    for message in batch:
                        term, number = map(int, message.body.split())
                        assert message.queue_offset > before, "out of order, or twice"
                        before = message.queue_offset
                        self.got[before] = term, number
                await step()
        except TandemlogError as error:
            self.error = error


def reader_of(
    world: World, read: Read, *spans: QueueSpan, history: LogHistory | None, **options: Any
) -> SpanReader:
    given: dict[str, Any] = {"patience_ms": 60_000, "max_bytes": 500} | options
    connection: Any = world
    return SpanReader(
        Reader(connection, ReadFrom.SLAVE, 0),
        connection,
        spans,
        lambda text, _: read.losses.append(text),
        SpanOptions(**given),
        history,
    )


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_watch, "AGAIN_S", 0.0)
    monkeypatch.setattr(span_reader, "_PAUSE_S", 0.0)


async def played(seed: int, *, believe: bool = False) -> Read:
    """`believe`: the history of the plan is not carried, nor that of any answer looked at."""
    random = Random(seed)
    world = World(random)
    world.put(COUNT - len(world.master.log.messages))
    for node in list(world.nodes.values())[1:]:
        world.follow(node, random.choice([None, random.randint(0, COUNT)]))
    read = Read(world, list(world.master.log.messages))
    spans = QueueSpan("t", 0, 0, 13), QueueSpan("t", 0, 13, COUNT)
    history = None if believe else world.master.log.history
    reader = reader_of(world, read, *spans, history=history)
    if believe:
        reader._log._counts_below = lambda log_term: NO_CUT  # type: ignore[method-assign]
    turns = iter(range(random.randint(1, 12)))

    async def step() -> None:
        if next(turns, None) is None:
            world.heal()

    work = asyncio.ensure_future(read.play(reader, step))
    for turn in range(4_000):
        if turn == 2_000:
            world.heal()
        await asyncio.sleep(0)
        if work.done():
            break
    work.cancel()
    await asyncio.gather(work, return_exceptions=not work.done())
    return read


@pytest.mark.parametrize("seed", range(150))
async def test_a_read_gives_what_was_planned(seed: int) -> None:
    read = await played(seed)
    if read.error is not None:
        assert isinstance(read.error, NodeUnavailableError), read.error
        return
    assert all(read.planned[offset] == message for offset, message in read.got.items())
    missing = [offset for offset in range(COUNT) if offset not in read.got]
    assert bool(missing) == bool(read.losses)


async def test_without_the_history_other_messages_come() -> None:
    wrong = 0
    for seed in range(100):
        read = await played(seed, believe=True)
        wrong += any(read.planned[offset] != message for offset, message in read.got.items())
    assert wrong > 3


async def calm(**options: Any) -> tuple[World, Read, SpanReader]:
    world = World(Random(1), calm=True)
    for node in list(world.nodes.values())[1:]:
        world.follow(node)
    read = Read(world, list(world.master.log.messages))
    history = world.master.log.history
    reader = reader_of(world, read, QueueSpan("t", 0, 0, 8), history=history, **options)
    return world, read, reader


async def nothing() -> None:
    """No step between two batches."""


async def test_of_two_nodes_the_one_that_is_behind_is_left() -> None:
    world, read, reader = await calm()
    world.follow(world.nodes["n1:1"], 2)
    await read.play(reader, nothing)
    assert ([*read.got], read.losses) == ([*range(8)], [])
    assert world.nodes["n2:1"].pulls > 0


async def test_a_node_that_dies_within_a_span() -> None:
    world, read, reader = await calm()

    async def dies() -> None:
        world.nodes["n1:1"].away = True

    await read.play(reader, dies)
    assert ([*read.got], read.losses) == ([*range(8)], [])


async def test_a_node_that_answers_for_another_queue_gives_nothing() -> None:
    world, read, reader = await calm()
    world.nodes["n1:1"].strange = True
    await read.play(reader, nothing)
    assert ([*read.got.values()], read.losses) == (read.planned, [])
    assert world.nodes["n1:1"].pulls > 0
    for node in world.nodes.values():
        node.strange = True
    world, read, reader = await calm()
    for node in world.nodes.values():
        node.strange = True
    await read.play(reader, nothing)
    assert not read.got
    assert not read.losses
    assert "its answer does not fit" in str(read.error)


async def test_a_span_that_is_partly_expired_is_lost_where_all_have_deleted_it() -> None:
    world, read, reader = await calm()
    for low, node in zip((5, 6, 2), world.nodes.values(), strict=True):
        node.low = low
    await read.play(reader, nothing)
    assert [*read.got] == [*range(2, 8)]
    assert len(read.losses) == 1
    assert "t/0: the messages 0..2 are gone" in read.losses[0]


async def test_a_node_of_an_older_epoch_gives_nothing_of_its_own() -> None:
    """It led for a moment and has other messages behind the fifth; it has not heard of the next."""
    world, read, reader = await calm()
    deposed = world.nodes["n1:1"]
    world.follow(deposed, 5)
    world.lead(deposed)
    world.put(6)
    world.lead(world.nodes["n0:1"])
    world.nodes["n2:1"].away = True
    await read.play(reader, nothing)
    assert ([*read.got.values()], read.losses) == (read.planned, [])
    assert deposed.pulls > 0


async def test_where_the_log_was_cut_the_rest_is_lost() -> None:
    world, read, reader = await calm()
    world.follow(world.nodes["n1:1"], 5)
    world.lead(world.nodes["n1:1"])
    world.put(6)
    world.follow(world.nodes["n2:1"])
    world.nodes["n0:1"].away = True
    await read.play(reader, nothing)
    assert [*read.got.values()] == read.planned[:5]
    [loss] = read.losses
    assert "t/0: the messages 5..8 are not in the log any more, which was cut" in loss


async def test_a_switch_that_loses_nothing_is_no_cut() -> None:
    world, read, reader = await calm()
    world.lead(world.nodes["n2:1"])
    world.put(6)
    await read.play(reader, nothing)
    assert ([*read.got.values()], read.losses) == (read.planned, [])


async def test_a_log_that_was_cut_while_no_master_is_there_waits_for_one() -> None:
    world, read, reader = await calm(patience_ms=0)
    world.lead(world.nodes["n1:1"])
    world.master.away = True
    world.nodes["n2:1"].log = world.master.log
    world.nodes["n0:1"].away = True
    await read.play(reader, nothing)
    assert isinstance(read.error, NodeUnavailableError)
    assert not read.losses
