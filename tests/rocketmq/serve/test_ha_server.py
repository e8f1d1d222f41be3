"""Slave brokers over real sockets, well-behaved and not, on a real master and its store."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.followed_master import ANYONE, COUNTS, NODE, Followed
from fakes.replicas import SYNC, Replica, eventually
from helpers.running import free_ports
from tandemlog_server.ha.master.node_status import IN_SYNC
from tandemlog_server.rocketmq.serve import framing
from tandemlog_server.rocketmq.serve.ha_server import MAX_OF_ONE_ADDRESS, HaServer
from tandemlog_server.rocketmq.serve.peers import Peers
from tandemlog_server.rocketmq.serve.session import HEARTBEAT_S, SILENCE_S
from tandemlog_server.storage.metadata.topics import TopicConfig


@pytest.fixture
async def followed(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Followed]:
    made = Followed(tmp_path, getattr(request, "param", 8192))
    yield made
    await made.close()


async def test_a_slave_gets_the_whole_log_over_many_files_and_then_what_is_new(
    followed: Followed,
) -> None:
    await followed.lead()
    for _ in range(20):
        followed.replica.put(7, size=300)
    broker = await followed.broker()
    await followed.caught_up(broker)
    for _ in range(5):
        followed.replica.put(3)
        await followed.caught_up(broker)
    assert bytes(broker.log) == followed.replica.log()
    assert followed.end > 4 * followed.replica.store.log.file_size
    # the master knows what the broker holds once its report has arrived
    await eventually(lambda: (row := followed.row()) is not None and not row.lag_bytes)
    row = followed.row()
    assert row is not None
    assert (row.state, row.in_sync, row.endpoint, row.version) == (
        "following", False, "", "RocketMQ",
    )  # fmt: skip


async def test_it_continues_where_its_log_ends(followed: Followed) -> None:
    await followed.lead()
    followed.replica.put(5)
    first = await followed.broker()
    await followed.caught_up(first)
    await first.close()
    followed.replica.put(5)
    second = await followed.broker(bytes(first.log))
    await followed.caught_up(second)
    assert bytes(second.log) == followed.replica.log()


async def test_a_record_larger_than_a_frame_continues_after_a_reconnect(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framing, "FRAME_BYTES", 500)
    monkeypatch.setattr("tandemlog_server.rocketmq.serve.framing.cut.__defaults__", (500,))
    await followed.lead()
    followed.replica.put(1, size=2_000)
    followed.replica.put(1)
    whole = followed.replica.log()
    followed.server.sent_to["127.0.0.1"] = 1_000
    broker = await followed.broker(whole[:1_000])
    await followed.caught_up(broker)
    assert max(broker.frames) <= 500
    assert bytes(broker.log) == whole


async def test_without_a_count_only_what_is_confirmed_is_sent(followed: Followed) -> None:
    """Two are required and there is one: nothing is confirmed, so nothing may leave."""
    await followed.lead(**SYNC)
    followed.replica.put(5)
    broker = await followed.broker()
    await eventually(lambda: followed.row() is not None)
    await asyncio.sleep(0)
    assert (broker.frames, followed.replica.store.confirmed.value) == ([], 0)
    followed.tick(HEARTBEAT_S)
    await eventually(lambda: broker.frames == [0])


async def test_one_that_counts_confirms_and_stays_while_it_is_idle(followed: Followed) -> None:
    await followed.lead(COUNTS, **SYNC)
    followed.replica.put(5)
    broker = await followed.broker()
    await followed.replica.confirmed(followed.end)
    await eventually(lambda: (row := followed.row()) is not None and row.state == IN_SYNC)
    for _ in range(15):
        followed.clock.advance(1.0)
        followed.replica.master.group.tick(followed.clock.monotonic())
    row = followed.row()
    assert row is not None
    assert (row.state, row.in_sync) == (IN_SYNC, True)
    assert followed.replica.master.admission() is None
    followed.replica.put(5)
    await followed.replica.confirmed(followed.end)
    assert bytes(broker.log) == followed.replica.log()


async def test_a_broker_and_a_node_count_together_and_the_node_is_told_of_it(
    followed: Followed, tmp_path: Path
) -> None:
    await followed.lead(COUNTS, **{**SYNC, "min_in_sync": 3})
    node = Replica(tmp_path, "s")
    try:
        await node.follow(followed.replica)
        followed.replica.put(5)
        await eventually(lambda: node.store.log.flushed.value == followed.end)
        assert followed.replica.store.confirmed.value == 0
        broker = await followed.broker()
        await followed.replica.confirmed(followed.end)
        followed.clock.advance(0.1)  # the confirm offset travels alone only after a moment
        await node.caught_up(followed.replica)
        assert bytes(broker.log) == node.log()
        followed.clock.advance(0.1)
        await eventually(lambda: NODE in {row.node_id for row in node.slave.members()})
        # a table that the broker fetches when it likes does not wait for it
        followed.replica.store.topics.create(TopicConfig("U", 1, 1), 2)
        assert await followed.replica.master.table_replicated("topics", 10)
    finally:
        await node.stop()


async def test_one_that_counts_and_owes_an_acknowledgement_leaves_the_set(
    followed: Followed,
) -> None:
    settings = {**SYNC, "min_in_sync": 1}
    await followed.lead(COUNTS, **settings)
    broker = await followed.broker()
    for _ in range(3):
        followed.clock.advance(0.1)
        await asyncio.sleep(0.15)
    await eventually(lambda: (row := followed.row()) is not None and row.in_sync)
    broker.acknowledges = False
    followed.replica.put(5)
    await followed.caught_up(broker)
    followed.clock.advance(1.5)
    await eventually(lambda: (row := followed.row()) is not None and not row.in_sync)
    await followed.replica.confirmed(followed.end)


async def test_one_that_lies_is_closed_and_confirms_nothing(followed: Followed) -> None:
    await followed.lead(COUNTS, **SYNC)
    followed.replica.put(5)
    broker = await followed.broker(reads=False)
    await eventually(lambda: NODE in followed.replica.master.group.sessions)
    broker.say(followed.end + 1)
    await eventually(lambda: not followed.server.streams)
    assert followed.replica.store.confirmed.value == 0
    assert NODE not in followed.replica.master.group.sessions


@pytest.mark.parametrize("garbage", [b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 7])
async def test_garbage_ends_in_a_closed_connection(followed: Followed, garbage: bytes) -> None:
    await followed.lead()
    followed.replica.put(5)
    broker = await followed.broker(asks=False)
    broker.send(garbage)
    await asyncio.sleep(0)
    await eventually(lambda: bool(followed.server.streams) or broker.closed.is_set())
    followed.tick(SILENCE_S + 1)
    await broker.closed.wait()
    await eventually(lambda: not followed.server.streams)


@pytest.mark.parametrize("followed", [1 << 22], indirect=True)
async def test_one_that_reads_nothing_is_closed_while_the_log_waits_to_be_sent(
    followed: Followed,
) -> None:
    await followed.lead()
    for _ in range(12):
        followed.replica.put(10, size=100_000)
    good = await followed.broker()
    await followed.broker(reads=False)
    await eventually(lambda: len(followed.server.streams) == 2)
    await followed.caught_up(good)
    followed.clock.advance(SILENCE_S - 1)
    good.say(good.end)
    now = followed.clock.monotonic()
    heard = [stream.session for stream in followed.server.streams]
    await eventually(lambda: any(each.heard_at == now for each in heard))
    followed.tick(2)
    await eventually(lambda: len(followed.server.streams) == 1)


async def test_a_flood_from_one_address_leaves_the_others_alone(followed: Followed) -> None:
    await followed.lead()
    followed.replica.put(5)
    good = await followed.broker()
    flood = [await followed.broker(asks=False) for _ in range(MAX_OF_ONE_ADDRESS + 5)]
    await eventually(lambda: sum(each.closed.is_set() for each in flood) >= 6)
    assert len(followed.server.streams) == MAX_OF_ONE_ADDRESS
    followed.replica.put(5)
    await followed.caught_up(good)


async def test_an_address_that_is_not_listed_gets_nothing(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    await followed.lead(Peers.of(("10.0.0.0/24",), ()))
    for _ in range(3):
        broker = await followed.broker()
        await broker.closed.wait()
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len([line for line in lines if "rocketmq.slaves does not list" in line]) == 1


async def test_when_the_term_ends_no_further_byte_is_sent(followed: Followed) -> None:
    await followed.lead(COUNTS, **SYNC)
    followed.replica.put(5)
    broker = await followed.broker()
    await followed.replica.confirmed(followed.end)
    held = followed.replica.store.confirmed.value
    await followed.server.stop()
    await broker.closed.wait()
    followed.replica.put(5)
    assert broker.end == held
    assert not followed.server.streams
    assert followed.replica.store.confirmed.value == held


async def test_a_second_connection_of_one_that_counts_takes_its_place(followed: Followed) -> None:
    await followed.lead(COUNTS, **SYNC)
    followed.replica.put(5)
    first = await followed.broker()
    await followed.replica.confirmed(followed.end)
    mute = await followed.broker(asks=False)
    await eventually(lambda: len(followed.server.streams) == 2)
    followed.replica.put(5)
    await followed.replica.confirmed(followed.end)
    assert not first.closed.is_set(), "one that has not said where it stands replaces nothing"
    await mute.close()
    second = await followed.broker(bytes(first.log))
    sessions = followed.replica.master.group.sessions
    held = sessions[NODE]
    await eventually(lambda: sessions[NODE] is not held)
    followed.tick(0.0)
    await first.closed.wait()
    followed.replica.put(5)
    await followed.replica.confirmed(followed.end)
    assert bytes(second.log) == followed.replica.log()


async def test_two_that_do_not_count_may_come_from_one_address(followed: Followed) -> None:
    await followed.lead()
    followed.replica.put(5)
    brokers = [await followed.broker(), await followed.broker()]
    for broker in brokers:
        await followed.caught_up(broker)
    ids = [row.node_id for row in followed.server.rows()]
    assert ids[0] == NODE
    assert ids[1].startswith(f"{NODE}:")


async def test_the_log_is_read_in_a_thread_where_it_is_not_in_memory(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await followed.lead()
    followed.replica.put(5)
    reads = 0
    master = followed.replica.master
    short_read = master.short_read

    async def counted(call):  # type: ignore[no-untyped-def]
        nonlocal reads
        reads += 1
        return await short_read(call)

    monkeypatch.setattr(master, "short_read", counted)
    monkeypatch.setattr(followed.replica.store.log, "in_memory", lambda offset, size: False)
    broker = await followed.broker()
    await followed.caught_up(broker)
    assert reads >= 2, "once for the place, then for the log"
    assert bytes(broker.log) == followed.replica.log()


async def test_a_start_that_is_cancelled_leaves_no_port_behind(followed: Followed) -> None:
    await followed.replica.lead()
    for steps in range(25):
        (port,) = free_ports(1)
        server = HaServer(followed.replica.master, ANYONE)
        task = asyncio.create_task(server.start(("127.0.0.1", port)))
        for _ in range(steps):
            await asyncio.sleep(0)
        done = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.stop()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                probe.listen()
            except OSError as error:
                raise AssertionError(f"still listened on, cancelled after {steps} steps") from error
        if done:
            break
