"""A follower and a broker over real sockets: every way in which the two can be found."""

import asyncio
import contextlib
import gc
import itertools
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fakes import fake_rocketmq
from fakes.fake_rocketmq import FakeRocketmq, log_bytes, lost_tail
from fakes.log_builder import LogBuilder
from fakes.replicas import eventually
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog_server.ha.master.term import next_epoch
from tandemlog_server.ha.state import HaState
from tandemlog_server.rocketmq.follow import follower as follower_module
from tandemlog_server.rocketmq.follow.address import parse_address
from tandemlog_server.rocketmq.follow.broker_facts import BrokerFacts, ask_facts
from tandemlog_server.rocketmq.follow.broker_tables import BrokerTables
from tandemlog_server.rocketmq.follow.follower import (
    FAR_BYTES,
    LOG_FIRST_S,
    BrokerFollower,
    LogFirst,
)
from tandemlog_server.rocketmq.follow.following_file import FollowingFile
from tandemlog_server.rocketmq.follow.stream import FollowStream
from tandemlog_server.rocketmq.follow.takeover import Presence
from tandemlog_server.rocketmq.wire.client import RemotingClient, connected_socket
from tandemlog_server.rocketmq.wire.errors import BrokerError
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.rocketmq.wire.requests import (
    GET_ALL_SUBSCRIPTION_GROUP_CONFIG,
    GET_BROKER_RUNTIME_INFO,
)
from tandemlog_server.storage.errors import FlushFailedError

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


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    made = Pair()
    await made.broker.start()
    yield made
    await made.unfollow()
    await made.broker.stop()


async def test_an_empty_node_takes_the_whole_log_and_the_brokers_file_size(pair: Pair) -> None:
    pair.put(60)
    follower = pair.follow()
    await pair.equal()
    assert pair.bench.store.log.file_size == FILE
    await eventually(lambda: pair.broker.acks[-1][-1] == pair.builder.end)
    assert pair.broker.acks[-1][0] == 1
    pair.put(5)
    await pair.equal()
    assert follower.state.following
    assert FollowingFile(DIRECTORY, pair.bench.files).load() is not None
    await eventually(lambda: pair.bench.store.topics.names() == ["Orders"])


async def test_what_was_acknowledged_survives_a_power_cut_and_following_continues(
    pair: Pair,
) -> None:
    pair.put(60)
    pair.follow()
    await pair.equal()
    await eventually(lambda: pair.broker.acks[-1][-1] == pair.builder.end)
    acked = pair.broker.acks[-1][-1]
    await pair.restarted("crash")
    assert pair.bench.store.log.wrote.value >= acked
    pair.put(30)
    pair.follow()
    await pair.equal()
    assert pair.host.changes == 0


async def test_a_connection_that_breaks_anywhere_is_continued(pair: Pair) -> None:
    pair.put(60)
    pair.broker.most, pair.broker.frame_bytes = [3_333, 9_001], 77
    pair.follow()
    await pair.equal()
    assert len(pair.broker.acks) == 3


async def test_the_tail_that_a_broker_lost_is_cut_and_kept(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.put(60)
    pair.follow()
    await pair.equal()
    await pair.broker.stop()
    end, cut = pair.builder.end, pair.builder.records[-4].physical_offset
    gone = log_bytes(pair.builder, cut, end)
    lost_tail(pair.builder, cut)
    await pair.broker.start()
    await eventually(lambda: pair.bench.store.log.wrote.value == cut)
    assert pair.here() == pair.broker.log()
    folder = DIRECTORY / "tandemlog"
    (kept,) = [each for each in pair.bench.files.listdir(folder) if each.startswith("cut-")]
    assert pair.bench.files.read_file(folder / kept) == gone
    assert f"{cut}..{end}; they are kept in {folder / kept}" in caplog.text
    pair.put(9)
    await pair.equal()


async def test_other_messages_in_place_of_the_lost_ones_are_found(pair: Pair) -> None:
    pair.put(60)
    pair.follow()
    await pair.equal()
    await pair.broker.stop()
    cut = pair.builder.records[-4].physical_offset
    lost_tail(pair.builder, cut)
    pair.put(40, b"other")
    await pair.broker.start()
    await pair.equal()
    last = pair.bench.store.epochs.table.last
    assert last is not None
    assert last.start_offset == cut


async def test_a_difference_far_back_is_found(pair: Pair) -> None:
    pair.put(400, b"some more of a body ")
    assert pair.builder.end > 80_000
    pair.follow()
    await pair.equal()
    await pair.broker.stop()
    cut = pair.builder.records[20].physical_offset
    lost_tail(pair.builder, cut)
    pair.put(420, b"some more of a body ")
    await pair.broker.start()
    await pair.equal()
    assert pair.host.changes == 2  # the file size at first, and the cut


async def test_a_broker_that_began_again_makes_the_log_go_aside(pair: Pair) -> None:
    pair.put(60)
    pair.follow()
    await pair.equal()
    before = pair.here()
    await pair.broker.stop()
    lost_tail(pair.builder, 0)
    pair.put(50, b"new")
    await pair.broker.start()
    await pair.equal()
    (aside,) = [each for each in pair.bench.files.listdir(DIRECTORY) if each.startswith("resync-")]
    files = pair.bench.files
    moved = DIRECTORY / aside / "commitlog"
    kept = b"".join(files.read_file(moved / name) for name in sorted(files.listdir(moved)))
    assert kept.startswith(before)


async def test_a_broker_whose_retention_has_gone_past_us(pair: Pair) -> None:
    pair.put(20)
    pair.follow()
    await pair.equal()
    await pair.unfollow()
    pair.put(90)
    pair.broker.begin = 2 * FILE
    pair.follow()
    await pair.equal()
    assert pair.bench.store.log.min_offset == 2 * FILE


async def test_a_copy_of_the_brokers_store_is_continued(pair: Pair) -> None:
    pair.put(30)
    copy = pair.broker.log()
    store = pair.bench.store
    store.adopt_commit_log_file_size(FILE)
    for at in range(0, len(copy), FILE):
        store.append_raw(at, copy[at : at + FILE])
    store.flush()
    pair.put(30)
    pair.follow()
    await pair.equal()
    assert pair.broker.acks[0][0] > 0
    note = FollowingFile(DIRECTORY, pair.bench.files).load()
    assert note is not None
    assert note.broker == "broker-a"


@pytest.mark.parametrize("same_begin", [False, True])
async def test_data_of_another_origin_is_not_touched(pair: Pair, same_begin: bool) -> None:
    pair.put(20)
    other = LogBuilder(Path("/unused"), FILE)
    other._time += 0 if same_begin else 5_000
    for number in range(30):
        other.put("Orders", number % 3, b"body" * (1 + number % 20 if number < 5 else 2))
    store = pair.bench.store
    store.adopt_commit_log_file_size(FILE)
    for at in range(0, other.end, FILE):
        store.append_raw(at, log_bytes(other, at, min(at + FILE, other.end)))
    before = pair.here()
    pair.follow()
    await pair.fault("holds data that did not come from broker broker-a")
    assert pair.here() == before
    assert not [each for each in pair.bench.files.listdir(DIRECTORY) if "resync" in each]


async def test_another_brokers_store_is_not_touched(pair: Pair) -> None:
    pair.put(20)
    pair.follow()
    await pair.equal()
    await pair.unfollow()
    before = pair.here()
    pair.broker.cluster = "bank"
    pair.follow()
    await pair.fault("holds the log of broker broker-a of cluster shop, but broker broker-a of")
    assert pair.here() == before


async def test_other_file_sizes_are_refused(pair: Pair) -> None:
    pair.put(20)
    pair.follow()
    await pair.equal()
    await pair.unfollow()
    pair.builder.file_size = 2 * FILE
    pair.follow()
    await pair.fault("the log files here have 4096 bytes, those of")


async def test_a_name_server_tells_where_the_broker_is(pair: Pair) -> None:
    pair.put(20)
    pair.follow(f"rocketmq://127.0.0.1:{pair.broker.port}/broker-a")
    await pair.equal()


async def test_a_name_server_that_does_not_know_the_broker_says_which_it_knows(pair: Pair) -> None:
    pair.follow(f"rocketmq://127.0.0.1:{pair.broker.port}/broker-b")
    await pair.fault("knows no broker 'broker-b'; it knows: broker-a")


async def test_no_process_at_the_address(pair: Pair) -> None:
    await pair.broker.stop()
    follower = pair.follow()
    await pair.fault("no process listens on 127.0.0.1:")
    look = await follower.observe()
    assert look.presence is Presence.NO_PROCESS
    assert not look.known


async def test_a_port_of_another_protocol(pair: Pair) -> None:
    async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)

    server = await asyncio.start_server(speak_http, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pair.put(20)
    pair.follow(f"rocketmq://127.0.0.1:{port}")
    await pair.fault("is it the port of a RocketMQ broker")
    await pair.unfollow()
    pair.broker.settings["haListenPort"] = str(port)
    pair.follow()
    await pair.fault("is it the HA port")
    assert pair.bench.store.log.wrote.value == 0
    server.close()


async def test_an_ha_port_where_no_process_listens(pair: Pair) -> None:
    pair.broker.settings["haListenPort"] = "1"
    pair.follow()
    await pair.fault("which broker broker-a of cluster shop")


async def test_a_full_disk_is_waited_for(pair: Pair) -> None:
    pair.put(60)
    pair.bench.files.capacity = pair.bench.files.used_bytes + 2 * FILE
    pair.follow()
    await pair.fault("disk is full")
    acked = max((number for numbers in pair.broker.acks for number in numbers), default=0)
    assert acked <= max(1, pair.bench.store.log.flushed.value)
    pair.bench.files.capacity = 1 << 40
    await pair.equal()


async def test_after_a_failed_fsync_nothing_is_acknowledged(pair: Pair) -> None:
    pair.put(20)
    pair.follow()
    await pair.equal()
    await eventually(lambda: pair.broker.acks[-1][-1] == pair.builder.end)
    acked = pair.builder.end
    pair.bench.files.fail("fdatasync", name="commitlog")
    pair.put(20)
    await eventually(lambda: isinstance(pair.bench.store.log.failure, FlushFailedError))
    await pair.fault("fdatasync of the log failed")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await eventually(lambda: pair.broker.acks[-1][-1] > acked)
    assert max(number for numbers in pair.broker.acks for number in numbers) == acked


async def test_tables_that_cannot_be_read_do_not_stop_the_log(pair: Pair) -> None:
    pair.broker.tables = {21: b"{"}
    pair.put(20)
    pair.follow()
    await pair.equal()


async def test_a_table_that_cannot_be_taken_does_not_keep_the_others_away(pair: Pair) -> None:
    pair.put(20)
    pair.broker.tables[GET_ALL_SUBSCRIPTION_GROUP_CONFIG] = b"[]"
    pair.follow()
    await pair.equal()
    offsets = pair.bench.store.consumer_offsets
    await eventually(lambda: offsets.of_pair("Orders", "theirs") == {0: 3, 1: 2})


async def test_a_sync_masters_new_process_hears_no_number_before_its_puts_have_ended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first number counts as an acknowledgement, and puts may wait for one below it."""
    monkeypatch.setattr("tandemlog_server.rocketmq.follow.follower.PUT_TIMEOUT_S", 0.5)
    pair.put(800)
    pair.follow()
    await pair.equal()
    await pair.unfollow()
    pair.broker.role = "SYNC_MASTER"
    await pair.broker.stop()
    lost_tail(pair.builder, pair.builder.records[200].physical_offset)
    pair.put(300, b"other")
    await pair.broker.start()
    seen, before = pair.builder.end, len(pair.broker.acks)
    began = asyncio.get_running_loop().time()
    pair.bench.clock.advance(10)
    follower = pair.follow()
    await eventually(lambda: follower.state.facts is not None)
    pair.put(800, b"other")
    await asyncio.sleep(0.1)
    assert len(pair.broker.acks) == before
    pair.bench.clock.advance(0.5)
    await eventually(lambda: len(pair.broker.acks) > before and bool(pair.broker.acks[before]))
    assert asyncio.get_running_loop().time() - began >= 0.5
    assert pair.broker.acks[before][0] <= seen
    await pair.equal()
    # the same process is asked at once
    await pair.unfollow()
    connections = len(pair.broker.acks)
    pair.follow()
    await eventually(lambda: len(pair.broker.acks) > connections)


async def test_a_look_tells_what_a_takeover_needs(pair: Pair) -> None:
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    look = await follower.observe()
    assert (look.presence, look.takes_writes) == (Presence.ANSWERS, True)
    assert (look.broker_end, look.durable, look.compared) == (pair.builder.end,) * 2 + (True,)
    pair.broker.permission = 4
    pair.broker.tables[43] = b'{"offsetTable":{"Orders@theirs":{0:19}}}'
    assert not (await follower.observe()).takes_writes
    assert pair.bench.store.consumer_offsets.offset("theirs", "Orders", 0) == 19
    await pair.broker.stop()
    look = await follower.observe()
    assert (look.presence, look.broker_end) == (Presence.NO_PROCESS, pair.builder.end)


def rounds() -> list[str]:
    """The rounds of requests that run."""
    return [name for task in asyncio.all_tasks() if (name := task.get_name()) == "broker-tables"]


async def test_no_round_of_requests_runs_while_the_log_is_cut(pair: Pair) -> None:
    pair.put(60)
    pair.follow()
    await pair.equal()
    await pair.broker.stop()
    lost_tail(pair.builder, pair.builder.records[-4].physical_offset)
    assert rounds()
    during: list[list[str]] = []
    pair.host.on_rebuild = lambda: during.append(rounds())
    await pair.broker.start()
    await pair.equal()
    assert during == [[]]


async def test_the_tables_of_one_connection_are_stored_before_the_next_one(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a log that was set aside meanwhile they would count as taken, and not be in the
    store."""
    monkeypatch.setattr(follower_module, "FIRST_PAUSE_S", 0.0)
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    replace, storing, opened = follower.tables.replace, threading.Event(), threading.Event()
    order: list[str] = []

    def slow(tables: BrokerTables, now_ms: int) -> None:
        storing.set()
        assert opened.wait(30)
        replace(tables, now_ms)
        order.append("tables")

    follower.tables.replace = slow  # type: ignore[method-assign]
    assert await asyncio.to_thread(storing.wait, 30)
    pair.host.on_lead = lambda: order.append("connection")
    await pair.broker.stop()
    await eventually(lambda: not rounds())
    for _ in range(100):
        await asyncio.sleep(0)
    opened.set()
    await eventually(lambda: "connection" in order)
    assert order[0] == "tables"


class HeldFacts:
    """What the broker answers to the next question for its facts is heard when `gate` opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.gate = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(follower_module, "ask_facts", self._ask)

    async def _ask(self, client: RemotingClient, host: str, port: int) -> BrokerFacts:
        facts = await ask_facts(client, host, port)
        if not self.asked.is_set():
            self.asked.set()
            await self.gate.wait()
        return facts


async def test_an_older_answer_does_not_take_the_brokers_end_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A takeover asks while the rounds do: its answer may be heard after a newer one."""
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    held = HeldFacts(monkeypatch)
    observing = asyncio.create_task(follower.observe())
    await asyncio.wait_for(held.asked.wait(), 30)
    pair.put(20)
    await eventually(lambda: follower.state.broker_end == pair.builder.end)
    held.gate.set()
    assert (await observing).broker_end == pair.builder.end


async def test_an_answer_of_a_process_that_has_ended_is_dropped(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    held = HeldFacts(monkeypatch)
    observing = asyncio.create_task(follower.observe())
    await asyncio.wait_for(held.asked.wait(), 30)
    pair.bench.clock.advance(1)
    await pair.broker.stop()
    await pair.broker.start()
    pair.put(5)
    await eventually(
        lambda: (
            follower.state.compared
            and follower.state.broker_end is not None
            and follower.state.broker_end == pair.builder.end
        )
    )
    held.gate.set()
    await observing
    facts = follower.state.facts
    assert facts is not None
    assert facts.boot_ms == pair.broker.boot_ms
    assert follower.state.broker_end == pair.builder.end


async def test_a_process_that_was_seen_by_a_round_alone_was_not_compared(pair: Pair) -> None:
    """It is gone again before the follower connects to it, with messages that it took."""
    pair.put(20)
    follower = pair.follow()
    await pair.equal()
    await eventually(lambda: follower.state.broker_end == pair.builder.end)
    assert (await follower.observe()).compared
    broker, answer = pair.broker, pair.broker._answer

    def last_answer(command: Command) -> Command:
        if command.code == GET_BROKER_RUNTIME_INFO:
            broker.boot_ms += 1
            for server in (broker._server, broker._ha_server):
                server.close()
            for link in broker._links:
                asyncio.get_running_loop().call_soon(link.close)
        return answer(command)

    broker._answer = last_answer  # type: ignore[method-assign]
    await pair.fault("no process listens")
    look = await follower.observe()
    assert look.presence is Presence.NO_PROCESS
    assert not look.compared


async def test_a_log_that_ends_where_the_brokers_begins_now_is_not_continued(pair: Pair) -> None:
    """The broker may have lost its tail, written other messages, and dropped them since."""
    while pair.builder.end < FILE:
        pair.put(1)
    end = pair.builder.records[-1].physical_offset
    lost_tail(pair.builder, end)
    pair.follow()
    await pair.equal()
    await pair.unfollow()
    pair.put(60)
    pair.bench.store.append_raw(end, log_bytes(pair.builder, end, FILE))
    pair.broker.begin = FILE
    pair.follow()
    await pair.equal()
    assert pair.bench.store.log.min_offset == FILE


async def test_what_a_failed_connection_had_written_is_durable_before_the_next_one_asks(
    pair: Pair,
) -> None:
    """The number that asks counts as an acknowledgement, and 64 KiB may be too little to lie below
    what is durable."""
    pair.broker.frame_bytes = 32 << 10
    pair.put(30, b"body" * 8)
    pair.follow()
    await pair.equal()
    await pair.unfollow()
    pair.put(900, b"body" * 8)
    damaged = pair.builder.records[-20].physical_offset
    base = damaged - damaged % pair.builder.file_size
    pair.builder._files[base][damaged - base + 4 : damaged - base + 8] = b"\xde\xad\xbe\xef"
    pair.broker.acks.clear()
    pair.follow()
    await eventually(lambda: len(pair.broker.acks) > 1 and bool(pair.broker.acks[1]))
    told = max(itertools.chain.from_iterable(pair.broker.acks))
    await pair.restarted("crash")
    assert pair.bench.store.log.wrote.value >= told


@pytest.mark.parametrize("size", ["0", "--5", "9" * 5_000, str(1 << 70)])
async def test_a_broker_that_says_nonsense_is_asked_again(pair: Pair, size: str) -> None:
    pair.put(20)
    pair.broker.settings["mappedFileSizeCommitLog"] = size
    pair.follow()
    await pair.fault("as its mappedFileSizeCommitLog, which must be 4096 .. 2147483647")
    del pair.broker.settings["mappedFileSizeCommitLog"]
    await pair.equal()


async def test_settings_without_end_are_refused_by_their_length(pair: Pair) -> None:
    pair.broker.settings["filler"] = "x" * (2 << 20)
    pair.follow()
    await pair.fault("request 26: a command of 20")
    await pair.fault("the most here is 1048576")


async def test_an_ha_port_that_cannot_be_is_named(pair: Pair) -> None:
    pair.broker.settings["haListenPort"] = "70000"
    pair.follow()
    await pair.fault("'70000' as its haListenPort, which must be 1 .. 65535")


async def test_a_connection_that_is_over_holds_no_memory(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 MiB frames of zeros came to 700 MB: each connection was a ring of tasks, errors and
    frames, that only a full collection freed."""
    pair.put(20)
    monkeypatch.setattr(fake_rocketmq, "log_bytes", lambda _, start, end: bytes(end - start))
    streams = weakref.WeakSet[FollowStream]()
    begin = FollowStream.run

    async def run(self: FollowStream, host: str, port: int) -> str:
        streams.add(self)
        return await begin(self, host, port)

    monkeypatch.setattr(FollowStream, "run", run)
    gc.collect()
    gc.disable()
    try:
        pair.follow()
        await eventually(lambda: len(pair.broker.acks) == 4)
        assert len(streams) <= 2
    finally:
        gc.enable()
    await pair.fault("bytes that are no record")


async def test_a_host_that_no_resolver_takes_is_an_error_of_the_broker() -> None:
    with pytest.raises(BrokerError, match="is no host and port"):
        await connected_socket("a" * 70 + ".example", 1)


BROKER_END = 10 * FAR_BYTES


def test_far_behind_the_position_stands_still_but_not_for_long() -> None:
    first = LogFirst()
    assert first.position(1_000, BROKER_END, 0.0) == 0
    assert first.position(5_000, BROKER_END, LOG_FIRST_S - 0.1) == 0
    assert first.position(9_000, BROKER_END, LOG_FIRST_S) == 9_000
    assert first.position(12_000, BROKER_END, LOG_FIRST_S + 1) == 9_000
    assert first.position(20_000, BROKER_END, 2 * LOG_FIRST_S + 1) == 20_000


def test_near_the_end_it_follows_at_once() -> None:
    first = LogFirst()
    assert first.position(1_000, BROKER_END, 0.0) == 0
    assert first.position(BROKER_END - FAR_BYTES, BROKER_END, 1.0) == BROKER_END - FAR_BYTES
    assert first.position(BROKER_END, BROKER_END, 1.1) == BROKER_END
    assert first.position(BROKER_END + 500, BROKER_END, 1.2) == BROKER_END + 500


def test_a_log_that_was_cut_is_never_confirmed_beyond_its_end() -> None:
    first = LogFirst()
    assert first.position(BROKER_END, BROKER_END, 0.0) == BROKER_END
    assert first.position(700, BROKER_END, 1.0) == 700
