"""Readers and masters in one world: a reader that follows any of several logs skips nothing.

Each master continues some earlier log from some place, as after an unclean failover; nodes that
have not followed yet show older ends. The reader is the fetcher's rule alone: which answers count,
when positions are compared, and where it continues.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tandemlog.cluster.histories import PositionCheck, is_behind
from tandemlog.consume.reading import cut_watch
from tandemlog.consume.reading.cut_watch import CutWatch
from tandemlog.consume.reading.positions import Queue
from tandemlog.errors import NodeUnavailableError
from tandemlog.format.files.log_history import NO_CUT, LogHistory, LogTerm

QUEUE = ("t", 0)
Message = tuple[int, int]
"""The term that wrote it, and which of its messages it is."""


@dataclass
class Log:
    """A node's log of one queue, of messages of one byte."""

    history: LogHistory = field(default_factory=LogHistory)
    messages: list[Message] = field(default_factory=list)

    def continued(self, kept: int, term: LogTerm) -> "Log":
        before = (each for each in self.history.terms if each.start_offset < kept)
        return Log(LogHistory(1, (*before, term)), self.messages[:kept])


class World:
    """Masters in turn; also the `Positions` of the reader."""

    timeout_ms = 1_000

    def __init__(self, random: Random) -> None:
        self.random = random
        self.term = 1
        self.master = Log().continued(0, LogTerm(1, 0, 1))
        self.nodes = [self.master]
        self.acknowledged: set[Message] = set()

    def put(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            message = (self.term, len(self.master.messages))
            self.master.messages.append(message)
            self.acknowledged.add(message)

    def follow(self) -> None:
        """Some node takes a part of what the master has: its table first has what its log has."""
        size = self.random.randint(0, len(self.master.messages))
        terms = tuple(each for each in self.master.history.terms if each.start_offset < size)
        copy = Log(LogHistory(1, terms or self.master.history.terms[:1]))
        copy.messages = self.master.messages[:size]
        self.nodes.append(copy)

    def fail_over(self) -> None:
        """To a node that lacks some; what it lacks was acknowledged and is lost."""
        base = self.random.choice(self.nodes)
        if base.history.newest[0] < self.master.history.newest[0] and self.random.random() < 0.3:
            base = self.master
        self.term += 1
        epoch = max(node.history.newest[0] for node in self.nodes) + 1
        if self.random.random() < 0.2:
            # a copy that was restored counts for itself
            epoch = base.history.newest[0] + 1
        kept = len(base.messages)
        self.master = base.continued(kept, LogTerm(epoch, kept, self.term))
        self.nodes = [*self.nodes[-3:], self.master]
        self.acknowledged &= set(self.master.messages)

    async def check(
        self, positions: Mapping[Queue, int], history: LogHistory | None, wait_ms: int = 0
    ) -> PositionCheck:
        await asyncio.sleep(0)
        now = self.master
        if self.random.random() < 0.2:
            raise NodeUnavailableError("no master now")
        if history is not None and is_behind(now.history, history):
            raise NodeUnavailableError("behind")
        cut = NO_CUT if history is None else history.cut_against(now.history)
        first = min(cut, len(now.messages))
        beyond = [queue for queue, offset in positions.items() if offset > first]
        found = dict.fromkeys(beyond, first) if cut < NO_CUT else {}
        return PositionCheck(now.history, found)


class Reader:
    """What a fetcher does with one queue."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.offset = 0
        self.turn = 1
        self.lost = 0
        self.got: list[Message] = []
        self.view: list[Message] = []  # what it believes the log to be
        self.log = CutWatch(world, lambda: {QUEUE: (self.turn, self.offset)}, self.cut)  # type: ignore[arg-type]

    def cut(self, queue: Queue, first: int) -> None:
        master = self.world.master.messages
        assert self.view[:first] == master[:first], "it would skip some"
        assert self.view[first : first + 1] != master[first : first + 1], "it goes too far back"
        self.lost += self.offset - first
        self.view = self.view[:first]
        self.offset, self.turn = first, self.turn + 1

    async def read(self, node: Log, *, believe: bool = False) -> None:
        """One pull of `node`; `believe`: without the rule, as a number alone."""
        asked, turn = self.offset, self.turn
        term = node.history.newest
        part = node.messages[asked : asked + self.world.random.randint(1, 5)]
        if not believe:
            try:
                below = await self.log.counts_below(term, Any)  # type: ignore[arg-type]
            except NodeUnavailableError:
                return
            if below is None or self.turn != turn:
                return
            part = part[: max(0, below - asked)]
        self.got += part
        self.view += part
        self.offset += len(part)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_watch, "AGAIN_S", 0.0)


async def play(seed: int, *, believe: bool = False) -> tuple[World, Reader]:
    random = Random(seed)
    world = World(random)
    reader = Reader(world)
    while reader.log.history is None:
        try:
            await reader.log.catch_up()
        except NodeUnavailableError:
            continue
    for _ in range(40):
        step = random.choice(("put", "put", "follow", "fail_over", "read", "read", "read", "read"))
        if step == "read":
            await reader.read(random.choice([world.master, *world.nodes]), believe=believe)
        else:
            getattr(world, step)()
    world.put()
    for _ in range(200):
        await reader.read(world.master, believe=believe)
    return world, reader


@pytest.mark.parametrize("seed", range(150))
async def test_a_reader_gets_all_that_is_in_the_log(seed: int) -> None:
    world, reader = await play(seed)
    assert set(world.master.messages) <= set(reader.got)
    assert world.acknowledged <= set(reader.got)
    assert reader.view == world.master.messages
    assert len(reader.got) == len(reader.view) + reader.lost


async def test_without_the_rule_messages_are_skipped() -> None:
    skipped = 0
    for seed in range(150):
        world, reader = await play(seed, believe=True)
        skipped += not set(world.master.messages) <= set(reader.got)
    assert skipped > 20
