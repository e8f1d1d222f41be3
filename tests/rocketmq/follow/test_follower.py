"""A follower and a broker over real sockets: every way in which the two logs can be found."""

import asyncio
import contextlib
import gc
import itertools
import weakref
from pathlib import Path

import pytest

from fakes import fake_rocketmq
from fakes.fake_rocketmq import log_bytes, lost_tail
from fakes.follower_pair import FILE, Pair
from fakes.log_builder import LogBuilder
from fakes.replicas import eventually
from fakes.stores import DIRECTORY
from tandemlog_server.rocketmq.follow.follower import (
    FAR_BYTES,
    LOG_FIRST_S,
    LogFirst,
)
from tandemlog_server.rocketmq.follow.following_file import FollowingFile
from tandemlog_server.rocketmq.follow.stream import FollowStream
from tandemlog_server.storage.errors import FlushFailedError


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
