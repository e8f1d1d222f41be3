"""Open transactions of classic clients, which the master asks about."""

import asyncio
from collections.abc import Iterator

import pytest

from fakes.classic_transactions import (
    COMMIT,
    GROUP,
    ROLLBACK,
    STRANGER,
    UNKNOWN,
    ClassicTransactions,
    Limits,
    ProducerAt,
    asked_places,
)
from fakes.halves import half_put, put_halves
from fakes.pushed_to import PushedTo
from tandemlog.format.record.record import decode_record
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.process.tasks import cancelled
from tandemlog_server.node.remoting.sends import transaction_checks
from tandemlog_server.rocketmq.clients.codes import RequestCode


@pytest.fixture
def world() -> Iterator[ClassicTransactions]:
    made = ClassicTransactions()
    yield made
    made.close()


async def test_a_half_that_is_not_decided_is_asked_about(world: ClassicTransactions) -> None:
    place = world.send("a", body="what was sent")
    await world.look()
    assert world.connection.pushed == []
    world.bench.clock.advance(6)
    await world.look()
    [(code, fields, body)] = world.connection.pushed
    assert (code, fields["topic"]) == (RequestCode.CHECK_TRANSACTION_STATE, "T")
    record = decode_record(body)
    assert (record.topic, record.body) == ("T", b"what was sent")
    assert asked_places(world.connection) == [place]
    await world.decide(place, COMMIT, fromTransactionCheck="true")
    assert await world.bodies() == ["what was sent"]


async def test_it_is_asked_again_until_it_is_given_up(world: ClassicTransactions) -> None:
    place = world.send("a")
    limits = Limits(max_checks=2)
    exhausted = []
    for _ in range(4):
        world.bench.clock.advance(30)
        exhausted += await world.look(limits)
        await world.decide(place, UNKNOWN, fromTransactionCheck="true")
    assert asked_places(world.connection) == [place, place]
    assert len(set(exhausted)) == 1


async def test_the_next_master_asks(world: ClassicTransactions) -> None:
    place = world.send("a")
    await world.settle()
    world.fail_over()
    world.bench.clock.advance(6)
    await world.look()
    assert asked_places(world.connection) == [place]
    await world.decide(place, ROLLBACK, fromTransactionCheck="true")
    assert await world.bodies() == []
    assert world.open_keys() == []


async def test_a_slave_asks_nobody(world: ClassicTransactions) -> None:
    world.send("a")
    world.bench.clock.advance(6)
    world.leads = False
    await world.look()
    assert world.connection.pushed == []


async def test_producers_are_asked_in_turns(world: ClassicTransactions) -> None:
    other, gone = PushedTo(), PushedTo(closed=True)
    world.producers += [ProducerAt(gone), ProducerAt(other)]
    for number in range(6):
        world.send(f"m{number}")
        world.bench.clock.advance(6)
        await world.look(Limits(check_interval_ms=600_000))
    assert gone.pushed == []
    assert len(world.connection.pushed) + len(other.pushed) == 6
    assert other.pushed


async def test_who_may_not_write_the_topic_is_not_asked(world: ClassicTransactions) -> None:
    world.send("a")
    world.bench.clock.advance(6)
    world.caller = STRANGER
    await world.look()
    assert world.connection.pushed == []
    assert world.board.waits(GROUP)
    world.caller = Caller()
    await world.look()
    assert len(world.connection.pushed) == 1


async def test_a_transaction_of_several_messages_is_left_to_others(
    world: ClassicTransactions,
) -> None:
    put_halves(world.bench, *(half_put(name, "tx", group=GROUP) for name in "ab"))
    world.bench.clock.advance(6)
    await world.look()
    assert world.connection.pushed == []
    assert world.board.take(GROUP, 10) == ["tx"]


async def test_a_broker_s_half_that_was_sent_twice_is_committed_once(
    world: ClassicTransactions,
) -> None:
    put_halves(world.bench, *(half_put("a", "a", group=GROUP, TAGS=tag) for tag in "xy"))
    world.bench.clock.advance(6)
    await world.look()
    [place] = asked_places(world.connection)
    await world.decide(place, COMMIT, fromTransactionCheck="true")
    await world.bodies()
    assert [each.decode() for each in world.bench.bodies("T", 0)] == ["a"]
    assert world.open_keys() == []


async def test_many_checks_go_out_in_pieces(world: ClassicTransactions) -> None:
    for number in range(70):
        world.send(f"m{number}")
    world.bench.clock.advance(6)
    await world.look()
    assert len(world.connection.pushed) == 64
    await world.look()
    assert len(set(asked_places(world.connection))) == 70


async def test_a_look_that_fails_is_not_the_last_one(
    world: ClassicTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_checks, "LOOK_S", 0.001)
    world.send("a")
    world.bench.clock.advance(6)
    producers, world.producers = world.producers, []
    await world.look()
    assert world.board.waits(GROUP)
    world.producers = producers
    failed, asked, look = asyncio.Event(), asyncio.Event(), world.checks.look

    async def failing_once() -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("dictionary changed size during iteration")
        await look()
        asked.set()

    monkeypatch.setattr(world.checks, "look", failing_once)
    running = asyncio.create_task(world.checks.run())
    async with asyncio.timeout(10):
        await asked.wait()
    await cancelled(running)
    assert len(world.connection.pushed) == 1
