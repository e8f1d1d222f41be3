"""What following and a takeover must survive: cuts under way, callers that go away, full disks,
brokers that come back as another process, or are another one."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_rocketmq import FakeRocketmq, log_bytes, lost_tail
from fakes.following_nodes import (
    FILE,
    QUICK,
    bodies,
    caught_up,
    config,
    filled,
    new_broker,
    put,
    started,
    taken_over,
)
from fakes.log_builder import LogBuilder
from fakes.replicas import eventually
from tandemlog.admin import AsyncAdmin
from tandemlog_server.ha.errors import StateFileError
from tandemlog_server.node.node import Node
from tandemlog_server.node.preflight import faults
from tandemlog_server.node.roles.following_roles import FollowingRoles
from tandemlog_server.rocketmq.wire.frames import encode_header
from tandemlog_server.storage.errors import DiskFullError


class SlowHa(FakeRocketmq):
    """Its log comes half a second late."""

    async def _send(self, asked: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        await super()._send(asked, writer)


@dataclass
class Beating(FakeRocketmq):
    """As a broker: for bytes that it does not have, it sends heartbeats. It pauses at `pause_at`
    until `go_on` is set."""

    pause_at: int = 1 << 60
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def _send(self, asked: int, writer: asyncio.StreamWriter) -> None:
        at, builder = asked, self.builder
        with contextlib.suppress(OSError):
            while True:
                if self.begin <= at < builder.end:
                    count = min(1_000, FILE - at % FILE, builder.end - at)
                    writer.write(encode_header(at, count) + log_bytes(builder, at, at + count))
                    at += count
                    if at > self.pause_at:
                        await self.go_on.wait()
                else:
                    await asyncio.sleep(1)
                    writer.write(encode_header(at, 0))
                await writer.drain()


@pytest.fixture(autouse=True)
def short_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemlog_server.rocketmq.follow.takeover.QUIET_S", 0.3)


@pytest.fixture
async def broker() -> AsyncIterator[FakeRocketmq]:
    made = filled(new_broker())
    await made.start()
    yield made
    await made.stop()


def following(node: Node) -> FollowingRoles:
    """What makes this node follow its broker."""
    roles = node.membership.roles
    assert isinstance(roles, FollowingRoles)
    return roles


def refusing(call: Callable[[Any], None], times: int = 1) -> Callable[[Any], None]:
    """`call`, on a disk that is full the first `times`."""
    refusals = [DiskFullError("the disk is full")] * times

    def made(argument: Any) -> None:
        if refusals:
            raise refusals.pop()
        call(argument)

    return made


async def test_a_cut_that_is_under_way_ends_before_a_takeover_begins_its_term(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    copying, go_on, cut = threading.Event(), threading.Event(), threading.Event()
    try:
        await caught_up(node, broker)
        copy_aside, truncate = node.store.copy_aside, node.store.truncate

        def slow(start: int, end: int) -> Path:
            copying.set()
            go_on.wait(20)
            return copy_aside(start, end)

        def noted(offset: int) -> None:
            truncate(offset)
            cut.set()

        monkeypatch.setattr(node.store, "copy_aside", slow)
        monkeypatch.setattr(node.store, "truncate", noted)
        await broker.stop()
        lost_tail(broker.builder, broker.builder.records[-5].physical_offset)
        broker.permission = 4
        await broker.start()
        await eventually(copying.is_set)
        asyncio.get_running_loop().call_later(2.0, go_on.set)
        assert await taken_over(node) == ""
        await put(node, b"acknowledged")
        await asyncio.sleep(0)
        await eventually(cut.is_set)
        assert b"acknowledged" in await bodies(node)
    finally:
        go_on.set()
        await node.stop()


async def test_a_node_that_stops_waits_for_a_cut_that_is_under_way(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    cutting, go_on = threading.Event(), threading.Event()
    done: list[str] = []
    await caught_up(node, broker)
    truncate = node.store.truncate

    def slow(offset: int) -> None:
        cutting.set()
        go_on.wait(20)
        closed = node.store._closed
        try:
            truncate(offset)
            done.append(f"cut, closed={closed}")
        except BaseException as error:
            done.append(f"{error!r}, closed={closed}")
            raise

    monkeypatch.setattr(node.store, "truncate", slow)
    await broker.stop()
    lost_tail(broker.builder, broker.builder.records[-5].physical_offset)
    await broker.start()
    await eventually(cutting.is_set)
    asyncio.get_running_loop().call_later(1.5, go_on.set)
    await node.stop()
    go_on.set()
    await eventually(lambda: bool(done))
    assert done == ["cut, closed=False"]


async def test_a_takeover_needs_a_log_that_was_compared_since_the_broker_came_back(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log may have been cut, and what it took since is as long as what is here."""
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)

        def full(start: int, end: int) -> Path:
            raise DiskFullError("the disk is full")

        monkeypatch.setattr(node.store, "copy_aside", full)
        await broker.stop()
        lost_tail(broker.builder, broker.builder.records[-5].physical_offset)
        for number in range(4):
            broker.builder.put("Orders", 0, b"taken since %d" % number)
        assert broker.builder.end <= node.store.log.wrote.value
        await broker.start()
        await eventually(lambda: "disk is full" in following(node).follower.state.fault)
        broker.permission = 4
        waits = await taken_over(node, within_s=4)
        assert waits or b"taken since 0" in await bodies(node)
    finally:
        await node.stop()


@pytest.mark.parametrize("role", [{}, {"role": "slave", "master": "127.0.0.1:1"}])
async def test_a_store_that_follows_takes_no_other_role(
    tmp_path: Path, broker: FakeRocketmq, role: dict[str, Any]
) -> None:
    """What it took meanwhile would be cut when it follows again."""
    node = await started(config(tmp_path, follow=broker.address))
    await caught_up(node, broker)
    await node.stop()
    other = config(tmp_path, **role)
    with pytest.raises(StateFileError, match="follows broker broker-a of cluster shop, but follow"):
        await started(other)
    assert "follows broker broker-a" in str([*faults(other)])
    node = await started(config(tmp_path, follow=broker.address))
    await node.stop()


async def test_topics_of_a_store_of_its_own_are_not_touched(
    tmp_path: Path, broker: FakeRocketmq
) -> None:
    node = await started(config(tmp_path))
    async with AsyncAdmin(node.endpoints.listen, connection=QUICK) as admin:
        await admin.create_topic("mine")
    for number in range(10):
        await put(node, b"m%d" % number * 40, "mine")
    size = node.store.log.file_size
    await node.stop()
    other = SlowHa(LogBuilder(Path("/unused"), FILE))
    other.settings["mappedFileSizeCommitLog"] = str(size)
    await filled(other).start()
    node = await started(config(tmp_path, follow=other.address))
    try:
        await eventually(lambda: "did not come from" in following(node).follower.state.fault)
        assert node.store.topics.names() == ["mine"]
        assert node.store.groups.names() == []
    finally:
        await node.stop()
        await other.stop()


async def test_a_takeover_that_fails_at_its_note_leaves_a_node_that_follows(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        file = following(node)._file
        monkeypatch.setattr(file, "save", refusing(file.save))
        broker.permission = 4
        with pytest.raises(DiskFullError):
            await taken_over(node)
        broker.permission = 6
        broker.builder.put("Orders", 0, b"one more")
        await eventually(lambda: node.store.reputed.value == broker.builder.end)
        assert node.role.epoch() is not None
    finally:
        await node.stop()


async def test_a_takeover_that_failed_at_its_note_can_be_repeated(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        file = following(node)._file
        monkeypatch.setattr(file, "save", refusing(file.save))
        broker.permission = 4
        with pytest.raises(DiskFullError):
            await taken_over(node)
        assert await taken_over(node) == ""
    finally:
        await node.stop()


async def test_a_takeover_whose_term_could_not_begin_does_not_say_that_it_is_done(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        append, refusals = node.store.epochs.append, [DiskFullError("full")]

        def refuse(entry: Any) -> None:
            if refusals and following(node).taken_over:
                raise refusals.pop()
            append(entry)

        monkeypatch.setattr(node.store.epochs, "append", refuse)
        broker.permission = 4
        with pytest.raises(DiskFullError):
            await taken_over(node)
        assert await taken_over(node) == ""
        assert node.role.epoch() is not None
        await put(node, b"acknowledged")
    finally:
        await node.stop()


async def test_what_its_broker_has_deleted_before_it_came_is_no_reason_to_wait_forever(
    tmp_path: Path,
) -> None:
    """A broker has no answer for bytes that its retention has deleted: heartbeats, forever."""
    gone = Beating(LogBuilder(Path("/unused"), FILE), pause_at=3_000)
    for number in range(300):
        gone.builder.put("Orders", number % 4, b"body %d" % number)
    await gone.start()
    node = await started(config(tmp_path, follow=gone.address))
    try:
        await eventually(lambda: node.store.log.wrote.value > 0)
        gone.begin = 2 * FILE  # while the first file is being read
        gone.go_on.set()
        await eventually(lambda: node.store.log.wrote.value == gone.builder.end)
    finally:
        await node.stop()
        await gone.stop()


async def test_a_broker_that_lost_its_tail_after_it_was_asked_is_no_reason_to_wait_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end was that of the log before; the comparison waits for bytes that are gone."""
    broker = Beating(LogBuilder(Path("/unused"), FILE))
    for number in range(60):
        broker.builder.put("Orders", number % 4, b"body %d" % number)
    await broker.start()
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        follower = following(node).follower
        step = follower._step
        fresh: list[int] = []

        def stale(facts: Any) -> Any:
            found = step(facts)
            if not fresh:
                fresh.append(1)
                lost_tail(broker.builder, broker.builder.records[-5].physical_offset)
            return found

        monkeypatch.setattr(follower, "_step", stale)
        await broker.stop()
        await broker.start()
        await eventually(lambda: bool(fresh))
        await asyncio.sleep(0.5)
        await eventually(lambda: following(node).follower.state.following)
    finally:
        await node.stop()
        await broker.stop()


async def test_a_node_that_was_restarted_after_its_broker_died_can_be_forced_to_take_over(
    tmp_path: Path, broker: FakeRocketmq
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    await caught_up(node, broker)
    await node.stop()
    await broker.stop()
    node = await started(config(tmp_path, follow=broker.address))
    try:
        assert await taken_over(node, force=True, within_s=3) == ""
    finally:
        await node.stop()


async def test_a_takeover_can_be_forced_while_log_comes_first(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tandemlog_server.rocketmq.follow.follower.FAR_BYTES", 1_000)
    monkeypatch.setattr("tandemlog_server.rocketmq.follow.follower.LOG_FIRST_S", 3.0)
    broker.most = [4_000, *[0] * 500]
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await eventually(lambda: node.store.log.wrote.value > 3_000)
        await broker.stop()
        await asyncio.to_thread(node.store.flush)
        await eventually(lambda: not following(node).follower.state.following)
        await asyncio.sleep(3)  # the log stands still, and longer than it may be held
        assert await taken_over(node, force=True, within_s=5) == ""
    finally:
        await node.stop()


async def test_another_broker_at_the_same_place_is_not_looked_at(
    tmp_path: Path, broker: FakeRocketmq
) -> None:
    """Its own end and permission say nothing of the broker that was followed."""
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await caught_up(node, broker)
        await broker.stop()
        broker.builder.put("Orders", 0, b"acknowledged by the first, not here yet")
        other = FakeRocketmq(LogBuilder(Path("/unused"), FILE), name="broker-b", permission=4)
        other.port, other.ha_port = broker.port, broker.ha_port
        await other.start()
        try:
            assert await taken_over(node, within_s=3)
        finally:
            await other.stop()
    finally:
        await node.stop()


async def test_what_was_received_is_flushed_when_the_connection_ends(
    tmp_path: Path, broker: FakeRocketmq
) -> None:
    broker.most = [4_000, *[0] * 500]
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await eventually(lambda: node.store.log.wrote.value > 3_000)
        await eventually(lambda: not following(node).follower.state.following)
        await asyncio.sleep(1)
        assert node.store.log.flushed.value == node.store.log.wrote.value
    finally:
        await node.stop()


async def test_a_takeover_whose_caller_goes_away_is_carried_out_or_undone(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's deadline cancels the call, wherever it is."""
    node = await started(config(tmp_path, follow=broker.address))
    beginning = threading.Event()
    try:
        await caught_up(node, broker)
        append = node.store.epochs.append

        def slow(entry: Any) -> None:
            beginning.set()
            threading.Event().wait(0.5)
            append(entry)

        monkeypatch.setattr(node.store.epochs, "append", slow)
        broker.permission = 4
        call = asyncio.create_task(taken_over(node))
        await eventually(beginning.is_set)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(1)
        found = await node.take_over(force=False, dry_run=False)
        assert not found.waits_for
        assert node.role.epoch() is not None, f"it says that it is the master in {found.epoch}"
    finally:
        await node.stop()


async def test_the_log_of_another_broker_behind_the_ha_port_is_noticed(
    tmp_path: Path, broker: FakeRocketmq
) -> None:
    """Mapped ports: the settings of one broker give the HA port of another one's machine."""
    other = FakeRocketmq(LogBuilder(Path("/unused"), FILE), name="broker-b")
    for number in range(10):
        other.builder.put("Orders", number % 4, b"of b %d" % number)
    await other.start()
    other.settings["haListenPort"] = str(broker.ha_port)
    node = await started(config(tmp_path, follow=other.address))
    try:
        said = "is that the port of another broker?"
        await eventually(lambda: said in following(node).follower.state.fault)
        assert not following(node).follower.state.following
    finally:
        await node.stop()
        await other.stop()


async def test_a_node_that_stops_waits_for_a_takeover_that_is_under_way(
    tmp_path: Path, broker: FakeRocketmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(config(tmp_path, follow=broker.address))
    beginning, closed = threading.Event(), []
    await caught_up(node, broker)
    append = node.store.epochs.append

    def slow(entry: Any) -> None:
        beginning.set()
        threading.Event().wait(0.5)
        closed.append(node.store._closed)
        append(entry)

    monkeypatch.setattr(node.store.epochs, "append", slow)
    broker.permission = 4
    call = asyncio.create_task(taken_over(node))
    await eventually(beginning.is_set)
    await node.stop()
    await asyncio.gather(call, return_exceptions=True)
    assert closed == [False]
    node = await started(config(tmp_path, follow=broker.address))
    try:
        await put(node, b"the master")
    finally:
        await node.stop()
