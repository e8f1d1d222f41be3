"""Random lives of a broker and its follower, on the real code: what was acknowledged stays.

The broker appends, crashes and loses its tail, drops old files. The follower's connection breaks
anywhere, its process is killed, its machine loses power, its disk is full for a while. The checks:

  each number that the follower sends is durable here, and equal to the broker's log below it
  after a power cut everything is there that was acknowledged and that the broker still has
  in the end both logs are equal, and every message is served
"""

from collections import deque
from collections.abc import Sequence
from random import Random

import pytest

from fakes.fake_rocketmq import log_bytes, lost_tail
from fakes.log_builder import LogBuilder
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.ha.master.term import next_epoch
from tandemlog_server.ha.state import HaState
from tandemlog_server.rocketmq.follow import comparison, session
from tandemlog_server.rocketmq.follow.broker_facts import BrokerFacts
from tandemlog_server.rocketmq.follow.comparison import (
    Ask,
    BeginAt,
    CutAt,
    SetAside,
    after_difference,
    first_step,
)
from tandemlog_server.rocketmq.follow.following_file import Following, FollowingFile
from tandemlog_server.rocketmq.follow.session import (
    Action,
    Compare,
    Compared,
    Disconnect,
    FollowSession,
    Send,
    Work,
)
from tandemlog_server.rocketmq.follow.store import FollowStore
from tandemlog_server.rocketmq.wire.errors import LogsDifferError
from tandemlog_server.rocketmq.wire.frames import FrameReader, encode_header
from tandemlog_server.storage.errors import StoreError

FILE = 4096
STATE = HaState("c", "n", "i")


class World:
    """One broker, one follower, no threads."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.broker = LogBuilder(DIRECTORY / "unused", FILE)
        self.begin = 0
        self.files = MemoryFiles()
        self.bench = Bench(CONFIG, self.files, topics=())
        self.now = 0.0
        self.acked = 0
        self.window = 0
        self.link: Link | None = None
        self.cuts = self.resyncs = self.acks = 0
        self.relay()

    # ---- the node

    def relay(self) -> None:
        store = self.bench.store
        store.become_relay(next_epoch(store.epochs.table, STATE))

    def note(self) -> FollowingFile:
        return FollowingFile(DIRECTORY, self.files)

    def facts(self) -> BrokerFacts:
        return BrokerFacts(
            "h", 1, 2, "shop", "a", "ASYNC_MASTER", "5.5.0", FILE, self.begin, self.broker.end, True
        )

    def connect(self) -> None:
        """As BrokerFollower does it, step by step."""
        self.link = None
        stored = FollowStore(self.bench.store, self.compared)
        facts, own, note = self.facts(), stored.own_log(), self.note().load()
        log = self.bench.store.log
        step = first_step(own, facts, note, self.window, log.next_record)
        if own.empty and note is None:
            self.compared()
        if isinstance(step, Ask):
            session = FollowSession(step, own.end, own.file_size, self.now)
            stored.begin(step.start)
            self.link = Link(self, stored, session)
            return
        self.change(stored, step)

    def compared(self) -> None:
        if self.note().load() is None:
            self.note().save(Following("shop", "a"))

    def change(self, stored: FollowStore, step: BeginAt | CutAt | SetAside) -> None:
        self.window = 0
        self.cuts += isinstance(step, CutAt)
        self.resyncs += isinstance(step, SetAside)
        before = self.log_here()
        own = stored.own_log()
        self.bench.store.become_slave()
        try:
            stored.change(step)
        finally:
            self.relay()
        if isinstance(step, CutAt):
            gone = before[step.offset - own.begin :]
            folder = DIRECTORY / "tandemlog"
            assert gone in [
                self.files.read_file(folder / name)
                for name in self.files.listdir(folder)
                if name.startswith(f"cut-{step.offset}-")
            ]

    def differs(self, stored: FollowStore, found: LogsDifferError) -> None:
        step = after_difference(
            stored.own_log(), self.facts(), self.note().load(), found, stored.read
        )
        self.link = None
        if step is None:
            self.window += 1
        else:
            self.change(stored, step)

    def log_here(self) -> bytes:
        log = self.bench.store.log
        found, at = b"", log.min_offset
        while at < log.wrote.value:
            piece = bytes(log.read(at, FILE))
            found, at = found + piece, at + len(piece)
        return found

    def restart(self, how: str) -> None:
        self.link = None
        try:
            if how == "power":
                self.bench.crash(self.random)
            elif how == "kill":
                self.bench.kill()
            else:
                self.bench.reopen()
        except StoreError:  # a full disk, which gets room
            self.files.capacity = 1 << 40
            self.bench.open()
        # what its retention has dropped may be gone here too
        kept = self.acked if self.acked > self.begin else 0
        log = self.bench.store.log
        assert log.wrote.value >= kept, f"{how}: {log.wrote.value} left of {kept} acknowledged"
        self.relay()

    # ---- what happens

    def step(self) -> None:
        self.now += self.random.choice((0.01, 1.0, 6.0))
        kind = self.random.choices(
            ("put", "crash", "retention", "connect", "deliver", "run", "settle", "break", "kill",
             "power", "reopen", "full"),
            (12, 1.5, 0.6, 6, 22, 16, 14, 1, 1, 1, 0.5, 0.7),
        )[0]  # fmt: skip
        try:
            self.act(kind)
        except StoreError:
            self.link = None  # a full disk: tried again later
            self.files.capacity = 1 << 40
            if self.bench.store.log.failure is not None:  # it asks for a restart
                self.restart("kill")

    def act(self, kind: str) -> None:
        try:
            getattr(self, f"do_{kind}")()
        except LogsDifferError as found:
            assert self.link is not None
            self.differs(self.link.stored, found)

    def do_put(self) -> None:
        for _ in range(self.random.randrange(1, 9)):
            body = self.random.choice((b"same" * 30, b"%d" % self.random.randrange(1 << 40)))
            self.broker.put("Orders", self.random.randrange(3), body)

    def do_crash(self) -> None:
        """Its tail is gone; what comes later may be as long as what was there."""
        starts = [
            each.physical_offset for each in self.broker.records
            if each.physical_offset >= self.begin
        ]  # fmt: skip
        if starts:
            lost = self.random.randrange(1, min(len(starts), self.random.choice((4, 40))) + 1)
            lost_tail(self.broker, starts[-lost])
            self.acked = min(self.acked, self.broker.end)
        self.link = None

    def do_retention(self) -> None:
        if self.broker.end - self.begin > 3 * FILE:
            self.begin += FILE

    def do_connect(self) -> None:
        if self.link is None:
            self.connect()

    def do_deliver(self) -> None:
        if self.link is not None:
            self.link.deliver(self.random.randrange(1, 3_000))

    def do_run(self) -> None:
        if self.link is not None:
            self.link.run(self.random.randrange(1, 6))

    def do_settle(self) -> None:
        if self.link is not None:
            self.link.settle()

    def do_break(self) -> None:
        self.link = None

    def do_kill(self) -> None:
        self.restart("kill")

    def do_power(self) -> None:
        self.restart("power")

    def do_reopen(self) -> None:
        self.restart("reopen")

    def do_full(self) -> None:
        self.files.capacity = self.files.used_bytes + self.random.randrange(3 * FILE)

    def finish(self) -> None:
        """Everything works again: how it must end."""
        self.files.capacity = 1 << 40
        self.do_put()
        for _ in range(400):
            try:
                if self.link is None:
                    self.connect()
                    continue
                self.link.deliver(1 << 20)
                self.link.run(1 << 20)
                self.link.settle()
            except LogsDifferError as found:
                assert self.link is not None
                self.differs(self.link.stored, found)
            if self.link is not None and self.bench.store.log.flushed.value == self.broker.end:
                break
        log = self.bench.store.log
        assert log.wrote.value == self.broker.end
        low = max(log.min_offset, self.begin)
        assert self.log_here()[low - log.min_offset :] == log_bytes(
            self.broker, low, self.broker.end
        )
        self.bench.store.advance_confirmed(log.flushed.value)
        self.bench.store.reput.run_to()
        for queue_id in range(3):
            here = self.bench.bodies("Orders", queue_id)
            there = [
                each.body for each in self.broker.records
                if each.queue_id == queue_id and each.physical_offset >= low
            ]  # fmt: skip
            assert here[len(here) - len(there) :] == there


class Link:
    """One connection: bytes on their way, work that waits, what the broker has heard."""

    def __init__(self, world: World, stored: FollowStore, session: FollowSession) -> None:
        self.world, self.stored, self.session = world, stored, session
        self.frames = FrameReader(session.asked)
        self.at = session.asked
        self.work: deque[Work] = deque()
        self.first = True
        self.unsettled = False
        self.obey(session.start(world.now))

    def deliver(self, most: int) -> None:
        broker = self.world.broker
        while most > 0 and self.at < broker.end:
            size = min(most, 700, FILE - self.at % FILE, broker.end - self.at)
            data = encode_header(self.at, size) + log_bytes(broker, self.at, self.at + size)
            self.at, most = self.at + size, most - size
            cut = self.world.random.randrange(len(data))
            for piece in (data[:cut], data[cut:]):
                for run in self.frames.feed(piece):
                    self.obey(self.session.receive(run, self.world.now))
        self.obey(self.session.tick(self.world.now))

    def run(self, most: int) -> None:
        batch = [self.work.popleft() for _ in range(min(most, len(self.work)))]
        if batch and self.stored.run(batch):
            self.unsettled = True
            if any(isinstance(each, Compared) for each in batch):
                self.world.window = 0

    def settle(self) -> None:
        if self.unsettled:
            durable = self.stored.flush()
            self.world.bench.store.advance_confirmed(durable)
            self.obey(self.session.stored(durable, self.world.now))

    def obey(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Send):
                self.check(action.offset)
            elif isinstance(action, Disconnect):
                self.world.link = None
            else:
                self.work.append(action)

    def check(self, offset: int) -> None:
        """The first number asks, and so do those before the comparison is over."""
        asked = offset == self.session.asked and self.session.durable < offset
        self.world.acks += not asked
        if asked:
            return
        world, log = self.world, self.world.bench.store.log
        assert offset <= log.flushed.value
        low = max(log.min_offset, world.begin)
        here = world.log_here()[low - log.min_offset : offset - log.min_offset]
        assert here == log_bytes(world.broker, low, offset)
        world.acked = max(world.acked, offset)


def play(seed: int, steps: int = 160) -> World:
    world = World(seed)
    try:
        for _ in range(steps):
            world.step()
        world.finish()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    return world


@pytest.mark.parametrize("hundred", range(6))
def test_what_was_acknowledged_stays(hundred: int) -> None:
    worlds = [play(seed) for seed in range(hundred * 50, hundred * 50 + 50)]
    assert sum(world.cuts for world in worlds) > 5
    assert sum(world.resyncs for world in worlds)
    assert sum(world.acks for world in worlds) > 150


def _compares_nothing(_: FollowStore, __: Compare) -> None:
    return


def _flushes_nothing(self: FollowStore) -> int:
    return self.store.log.wrote.value


@pytest.mark.parametrize(
    ("place", "name", "broken"),
    [
        (FollowStore, "_compare", _compares_nothing),
        (FollowStore, "flush", _flushes_nothing),
        (comparison, "record_start", lambda read, start, position: position),
        (session, "first_byte", lambda rest: b"\x01"),
    ],
)
def test_a_broken_rule_is_noticed(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, broken: object
) -> None:
    monkeypatch.setattr(place, name, broken)
    with pytest.raises(AssertionError, match="seed"):
        _play_all(150)


def _play_all(count: int) -> None:
    for seed in range(count):
        play(seed)
