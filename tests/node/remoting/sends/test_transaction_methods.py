"""Decisions of classic clients about their halves, on this master and on the next one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.classic_transactions import (
    COMMIT,
    ROLLBACK,
    STRANGER,
    UNKNOWN,
    ClassicTransactions,
    Outgoing,
    Place,
)
from fakes.forged_records import forged_half
from fakes.halves import half_put, put_halves
from fakes.inner_node import config, running, until
from tandemlog.format.constants import HALF_TOPIC
from tandemlog.format.record.properties import encode_properties
from tandemlog_server.node.access.access_refusals import DeniedError
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.remoting.door.remoting_call import RemotingRefusedError
from tandemlog_server.node.remoting.sends.transaction_methods import NamedHalves
from tandemlog_server.node.settings.rocketmq_clients_section import RocketmqClientsSection
from tandemlog_server.rocketmq.clients.half_messages import make_half
from tandemlog_server.rocketmq.wire.client import RemotingClient
from tandemlog_server.rocketmq.wire.errors import BrokerRefusedError
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.services.transaction_errors import (
    TransactionDecidedError,
    UnknownTransactionError,
)


@pytest.fixture
def world() -> Iterator[ClassicTransactions]:
    made = ClassicTransactions()
    yield made
    made.close()


async def test_a_commit_and_a_rollback(world: ClassicTransactions) -> None:
    first, second = world.send("a"), world.send("b")
    assert await world.bodies() == []
    answer = await world.decide(first)
    assert answer is not None
    assert answer.code == 0
    await world.decide(second, ROLLBACK)
    assert await world.bodies() == ["a"]
    assert world.open_keys() == []


async def test_an_outcome_that_is_not_known_yet(world: ClassicTransactions) -> None:
    place = world.send("a")
    assert await world.decide(place, UNKNOWN) is None
    await world.settle()
    assert world.open_keys() == ["a"]


async def test_a_decision_that_comes_again(world: ClassicTransactions) -> None:
    place = world.send("a")
    await world.decide(place)
    await world.decide(place)
    assert await world.bodies() == ["a"]
    assert (await world.decide(place)) is not None
    with pytest.raises(TransactionDecidedError):
        await world.decide(place, ROLLBACK)
    assert await world.bodies() == ["a"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"producerGroup": "other"}, "producer group 'billing', not 'other'"),
        ({"tranStateTableOffset": "9"}, "queue offset 0, not 9"),
        ({"msgId": "b", "transactionId": "c"}, "UNIQ_KEY is 'a', not 'b'"),
        ({"commitLogOffset": "1"}, "no half message at log offset 1"),
        ({"commitLogOffset": "99999"}, "no half message at log offset 99999"),
        ({"commitOrRollback": "3"}, "commitOrRollback is 3"),
    ],
)
@pytest.mark.parametrize("ended", [False, True])
async def test_a_decision_that_fits_no_half(
    world: ClassicTransactions, changes: dict[str, str], text: str, *, ended: bool
) -> None:
    place = world.send("a")
    if ended:
        await world.decide(place, ROLLBACK)
        await world.bodies()
    with pytest.raises(RemotingRefusedError, match=text):
        await world.decide(place, COMMIT, **changes)
    assert await world.bodies() == []
    assert world.open_keys() == ([] if ended else ["a"])


async def test_a_record_of_another_topic_is_no_half(world: ClassicTransactions) -> None:
    offset = world.bench.put().segments[0].physical_offset
    place = world.send("a")._replace(log_offset=offset)
    with pytest.raises(RemotingRefusedError, match="another record is there"):
        await world.decide(place)


async def test_one_message_of_several_cannot_be_decided_alone(world: ClassicTransactions) -> None:
    puts = [half_put(name, "tx", group="billing") for name in "ab"]
    offset = put_halves(world.bench, *puts).segments[0].physical_offset
    await world.settle()
    place = world.send("a")._replace(log_offset=offset, queue_offset=0)
    with pytest.raises(RemotingRefusedError, match="several in a transaction"):
        await world.decide(place)


async def test_who_decides_may_write_the_topic(world: ClassicTransactions) -> None:
    place = world.send("a")
    world.caller = STRANGER
    with pytest.raises(DeniedError, match="'T'"):
        await world.decide(place)
    assert await world.bodies() == []


async def test_a_body_that_looks_like_a_half_ends_no_transaction(
    world: ClassicTransactions,
) -> None:
    """Who may write one topic forges a half of it, with the id of somebody's transaction."""
    place = world.send("a")
    await world.settle()
    store = world.bench.store
    store.create_topic(TopicConfig("U", 1, 1))
    with store.transactions.lock:
        named = store.transactions.halves[place.log_offset].half.transaction_id
    forged = forged_half(0, topic="U", transaction_id=named, group="mine", key="b")
    probe = store.put(batch_of([Put("U", 0, b"~" * len(forged))])).segments[0].physical_offset
    await world.settle()
    body_at = store.reader.record_at(probe).index(b"~" * len(forged))
    position = store.log.wrote.value + body_at
    forged = forged_half(position, topic="U", transaction_id=named, group="mine", key="b")
    store.put(batch_of([Put("U", 0, forged)]))
    world.caller = STRANGER
    with pytest.raises(RemotingRefusedError, match="no half"):
        await world.decide(Place(position, 0, "b"), ROLLBACK, producerGroup="mine")
    world.caller = Caller()
    await world.decide(place)
    assert await world.bodies() == ["a"]


@pytest.mark.parametrize("ended", [False, True])
async def test_a_wrong_decision_says_nothing_of_a_half_of_others(
    world: ClassicTransactions, *, ended: bool
) -> None:
    place = world.send("a")
    if ended:
        await world.decide(place, ROLLBACK)
        await world.bodies()
    world.caller = STRANGER
    for changes in ({"producerGroup": "x"}, {"msgId": "b", "transactionId": "b"}):
        with pytest.raises(RemotingRefusedError, match="another record is there") as refused:
            await world.decide(place, COMMIT, **changes)
        assert "billing" not in str(refused.value)


# ---- a message that was sent again


async def test_a_send_without_an_answer_is_decided_with_the_next_one(
    world: ClassicTransactions,
) -> None:
    world.send("a")
    place = world.send("a")
    await world.decide(place)
    assert await world.bodies() == ["a"]
    assert world.open_keys() == []


async def test_a_rollback_of_a_message_that_was_sent_again(world: ClassicTransactions) -> None:
    world.send("a")
    await world.decide(world.send("a"), ROLLBACK)
    assert await world.bodies() == []
    assert world.open_keys() == []


@pytest.mark.parametrize("outcome", [COMMIT, UNKNOWN])
async def test_one_message_object_in_two_transactions(
    world: ClassicTransactions, outcome: int
) -> None:
    first = world.send("a")
    await world.decide(first, outcome)
    await world.decide(world.send("a"))
    await world.decide(first)
    assert await world.bodies() == ["a", "a"]


async def test_a_message_object_that_is_sent_again_later(world: ClassicTransactions) -> None:
    first = world.send("a")
    world.bench.clock.advance(11)
    await world.decide(world.send("a"))
    await world.settle()
    assert world.open_keys() == ["a"]
    await world.decide(first)
    assert await world.bodies() == ["a", "a"]


async def test_another_group_s_message_with_the_same_key(world: ClassicTransactions) -> None:
    world.send("a", group="other")
    await world.decide(world.send("a"))
    await world.settle()
    assert world.open_keys() == ["a"]


def test_what_was_named_is_forgotten_behind_others() -> None:
    named = NamedHalves(kept=2)
    for offset in (1, 2, 1, 3):
        named.add(offset)
    assert list(named._offsets) == [1, 3]


# ---- another master


@pytest.mark.parametrize("how", ["kill", "crash", "reopen"])
async def test_a_decision_behind_a_change_of_master(world: ClassicTransactions, how: str) -> None:
    place, lost = world.send("a"), world.send("b")
    await world.settle()
    unconfirmed = world.send("c")
    world.fail_over(how=how)
    await world.decide(place)
    await world.decide(lost, ROLLBACK)
    with pytest.raises(RemotingRefusedError, match="no half message"):
        await world.decide(unconfirmed)
    assert await world.bodies() == ["a"]


async def test_a_decision_before_a_change_of_master_comes_once(world: ClassicTransactions) -> None:
    place = world.send("a")
    await world.decide(place)
    world.confirm()
    world.fail_over()
    await world.decide(place)
    assert await world.bodies() == ["a"]
    with pytest.raises(TransactionDecidedError):
        await world.decide(place, ROLLBACK)


async def test_a_decision_that_the_next_master_lacks_is_made_again(
    world: ClassicTransactions,
) -> None:
    place = world.send("a")
    await world.decide(place)
    world.fail_over()
    assert await world.bodies() == []
    await world.decide(place)
    assert await world.bodies() == ["a"]


async def test_another_half_at_the_same_place_is_not_decided(world: ClassicTransactions) -> None:
    place = world.send("a")
    world.fail_over(keep=world.bench.store.confirmed.value)
    again = world.send("b")
    assert again[:2] == place[:2]
    with pytest.raises(RemotingRefusedError, match="UNIQ_KEY is 'b', not 'a'"):
        await world.decide(place)
    await world.decide(again)
    assert await world.bodies() == ["b"]


async def test_a_send_that_was_answered_by_nobody_and_its_second_try(
    world: ClassicTransactions,
) -> None:
    world.send("a")
    await world.settle()
    world.fail_over()
    await world.decide(world.send("a"))
    assert await world.bodies() == ["a"]
    assert world.open_keys() == []


async def test_an_outcome_that_is_not_known_any_more(world: ClassicTransactions) -> None:
    place = world.send("a")
    await world.decide(place)
    await world.bodies()
    world.bench.store.transactions.outcomes.clear()
    with pytest.raises(UnknownTransactionError, match="ended too long ago"):
        await world.decide(place)
    assert await world.bodies() == ["a"]
    assert world.bench.store.queue_table.get(HALF_TOPIC, 0) is not None


async def test_over_the_wire(tmp_path: Path) -> None:
    door = RocketmqClientsSection(listen="127.0.0.1:0")
    async with running(config(tmp_path, rocketmq_clients=door)) as node:
        node.store.create_topic(TopicConfig("T", 4, 4))
        sent = Outgoing({"UNIQ_KEY": "a", "TRAN_MSG": "true", "PGROUP": "billing"})
        make_half(sent, producer_group="billing", serial=1)
        text = encode_properties(sent.properties)
        place = node.store.put(batch_of([Put(sent.topic, 0, b"a", text)])).segments[0]
        host, port = node.endpoints.rocketmq_advertise.split(":")
        async with RemotingClient(host, int(port)) as client:
            fields = {
                "producerGroup": "billing",
                "tranStateTableOffset": "0",
                "commitLogOffset": str(place.physical_offset),
                "commitOrRollback": "8",
                "msgId": "a",
            }
            with pytest.raises(BrokerRefusedError, match="UNIQ_KEY is 'a', not 'b'"):
                await client.call(37, fields | {"msgId": "b"})
            await client.call(37, fields)
        await until(lambda: node.store.reader.get("T", 1, 0, 0, 1 << 20).count == 1)
