"""Slave brokers whose log is another one: refused, kept in mind, and an alarm if they count."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fakes.followed_master import ANYONE, COUNTS, NODE, Followed
from fakes.replicas import SYNC, eventually
from fakes.slave_broker import SlaveBroker
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.rocketmq.serve.peers import Peers
from tandemlog_server.rocketmq.serve.refused_brokers import MAX_REFUSED, RefusedBrokers


@pytest.fixture
async def followed(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Followed]:
    made = Followed(tmp_path, getattr(request, "param", 8192))
    yield made
    await made.close()


async def gone_with_five(followed: Followed) -> SlaveBroker:
    """A slave broker that got five messages, which are confirmed, and went away."""
    followed.replica.put(5)
    broker = await followed.broker()
    await followed.replica.confirmed(followed.end)
    await followed.caught_up(broker)
    await broker.close()
    return broker


async def judged(followed: Followed, broker: SlaveBroker) -> None:
    """Wait until the master refuses it or sends to it."""
    await eventually(
        lambda: (
            broker.closed.is_set()
            or any(each.session.streaming for each in followed.server.streams)
        )
    )


@pytest.mark.parametrize(
    ("offset", "words"), [(1 << 40, "its log is another one"), (17, "inside of a record")]
)
async def test_a_slave_with_another_log_is_refused_in_one_line(
    followed: Followed, caplog: pytest.LogCaptureFixture, offset: int, words: str
) -> None:
    await followed.lead()
    followed.replica.put(5)
    followed.server.sent_to["127.0.0.1"] = 100
    for _ in range(2):
        broker = await followed.broker(asks=False)
        broker.say(offset)
        await broker.closed.wait()
    assert not broker.frames
    await eventually(lambda: not followed.server.streams)
    (line,) = [each.getMessage() for each in caplog.records if words in each.getMessage()]
    assert line.startswith("RocketMQ slave refused: 127.0.0.1: the slave's log ends at")


async def test_one_that_counts_and_is_ahead_stops_puts(followed: Followed) -> None:
    await followed.lead(COUNTS, **SYNC)
    followed.replica.put(5)
    broker = await followed.broker()
    await followed.replica.confirmed(followed.end)
    await broker.close()
    ahead = await followed.broker(asks=False)
    ahead.say(followed.end + 1)
    await ahead.closed.wait()
    assert "this node has lost the end of its own" in (followed.replica.master.admission() or "")
    empty = await followed.broker()
    await followed.caught_up(empty)
    await eventually(lambda: not followed.replica.master.group.alarms)


@pytest.mark.parametrize("peers", [ANYONE, COUNTS])
async def test_one_that_holds_more_than_this_term_began_with_and_was_sent_nothing_is_refused(
    followed: Followed, peers: Peers
) -> None:
    """The master lost the end of its log, and messages of the same size came in its place: where
    the slave stands is a boundary, but of other bytes."""
    settings = SYNC if peers is COUNTS else {}
    await followed.lead(peers, **settings)
    broker = await gone_with_five(followed)
    began = followed.end
    await followed.server.stop()
    await followed.replica.stop()
    await followed.lead(peers, **settings)
    followed.replica.put(1)
    lost = bytes(followed.end - began)  # as long as what was put now, acknowledged in the last term
    back = await followed.broker(bytes(broker.log) + lost)
    await judged(followed, back)
    await asyncio.sleep(0.2)
    if peers is COUNTS:
        assert followed.replica.store.confirmed.value <= began, "confirmed by other bytes"
        assert NODE in followed.replica.master.group.alarms
    assert back.closed.is_set(), "it follows on behind a piece that is not this log"


async def test_the_alarm_of_one_that_is_ahead_does_not_end_when_this_log_has_grown(
    followed: Followed,
) -> None:
    """Puts that wait for nobody are taken all the while."""
    await followed.lead(COUNTS, **SYNC)
    broker = await gone_with_five(followed)
    size = followed.end // 5
    ahead = await followed.broker(bytes(broker.log) + bytes(size))
    await ahead.closed.wait()
    assert followed.replica.master.admission()
    followed.replica.put(1)
    assert followed.end == ahead.end
    confirmed = followed.replica.store.confirmed.value
    again = await followed.broker(bytes(ahead.log))
    await judged(followed, again)
    await asyncio.sleep(0.1)
    assert followed.replica.store.confirmed.value == confirmed, "confirmed by other bytes"
    assert NODE in followed.replica.master.group.alarms


async def test_one_that_was_refused_stays_so_until_it_comes_empty(followed: Followed) -> None:
    """At the next start of this node its end may lie on a boundary of a longer log."""
    await followed.lead()
    followed.replica.put(5)
    size = followed.end // 5
    other = bytes(followed.end + size)
    ahead = await followed.broker(other)
    await ahead.closed.wait()
    await followed.server.stop()
    await followed.replica.stop()
    await followed.lead()
    followed.replica.put(3)
    followed.server.sent_to["127.0.0.1"] = followed.end
    again = await followed.broker(other)
    await again.closed.wait()
    empty = await followed.broker()
    await followed.caught_up(empty)
    await empty.close()
    back = await followed.broker(bytes(empty.log))
    followed.replica.put(1)
    await followed.caught_up(back)


async def test_a_refusal_is_kept_though_the_log_grows_at_that_moment(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender sees the refusal before the disk has it, and ends the connection."""
    await followed.lead()
    followed.replica.put(5)
    master = followed.replica.master
    write = master.short_read
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(call: Callable[[], object]) -> object:
        begun.set()
        await may_end.wait()
        return await write(call)

    monkeypatch.setattr(master, "short_read", slow)
    end = followed.end + 404
    ahead = await followed.broker(bytes(end))
    await begun.wait()
    followed.replica.put(1)
    await asyncio.sleep(0.1)
    assert not ahead.closed.is_set(), "it may come again before its refusal is kept"
    may_end.set()
    await ahead.closed.wait()
    kept = RefusedBrokers(followed.replica.store.config.directory, master.files)
    kept.load()
    assert kept.end_of("127.0.0.1") == end


def test_what_is_kept_of_refused_brokers_is_bounded_and_may_be_damaged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, directory = MemoryFiles(), Path("/store")
    refused = RefusedBrokers(directory, files)
    refused.load()
    for number in range(MAX_REFUSED + 5):
        refused.note(f"10.0.{number // 256}.{number % 256}", number)
    refused.forget("10.0.0.7")
    files.crash()
    again = RefusedBrokers(directory, files)
    again.load()
    assert again.end_of("10.0.0.8") == 8
    assert again.end_of("10.0.0.7") is None
    assert again.end_of("10.0.1.4") is None, "more than are kept"
    files.atomic_replace(again.path, b"x")
    damaged = RefusedBrokers(directory, files)
    damaged.load()
    assert damaged.end_of("10.0.0.8") is None
    assert "cannot be read" in caplog.text


async def test_one_that_may_only_have_changed_its_address_is_not_refused_for_ever(
    followed: Followed,
) -> None:
    await followed.lead()
    followed.replica.put(5)
    followed.server.sent_to["10.0.0.9"] = followed.end
    moved = await followed.broker(followed.replica.log())
    await moved.closed.wait()
    assert followed.server.refused.end_of("127.0.0.1") is None
    await followed.server.stop()
    await followed.replica.stop()
    await followed.lead()
    back = await followed.broker(bytes(moved.log))
    followed.replica.put(1)
    await followed.caught_up(back)
