"""Pops at a node's port: what is leased, what comes again, orders, waits, and what is refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.inner_node import until
from fakes.popping_node import (
    ACK,
    BROKER,
    CHANGE,
    GROUP,
    LEASE_MS,
    NOTIFICATION,
    PEEK,
    POLLING,
    TOPIC,
    Popper,
    connected,
    popping_node,
    receipt_of,
)
from fakes.remoting_calls import records_in
from tandemlog.format.lease.policy import AckResult, GroupPolicy, Ordering
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.remoting.pop.pop_methods import PopMethods
from tandemlog_server.node.work.work_requests import ReceiveRequest
from tandemlog_server.storage.metadata.topics import TopicConfig

NONE_FOUND, REFUSED_FILTER, ILLEGAL, NO_TOPIC = 210, 23, 29, 17


@pytest.fixture
async def popper(tmp_path: Path) -> AsyncIterator[Popper]:
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        yield popper


async def test_a_popped_message_has_a_receipt_and_is_gone_once_it_is_acknowledged(
    popper: Popper,
) -> None:
    await popper.put(b"a", b"b", b"c")
    answer = await popper.pop(2)
    found = records_in(answer.body)
    assert (answer.code, [each.body for each in found]) == (0, [b"a", b"b"])
    assert answer.fields["startOffsetInfo"] == "0 0 0"
    assert answer.fields["msgOffsetInfo"] == "0 0 0,1"
    assert (answer.fields["invisibleTime"], answer.fields["restNum"]) == (str(LEASE_MS), "1")
    assert "orderCountInfo" not in answer.fields
    parts = receipt_of(found[1]).split(" ")
    assert parts[:8] == [
        "0", answer.fields["popTime"], str(LEASE_MS), answer.fields["reviveQid"],
        "0", BROKER, "0", "1",
    ]  # fmt: skip
    for each in found:
        assert (await popper.say(ACK, receipt_of(each))).code == 0
    assert [each.body for each in await popper.popped()] == [b"c"]
    none = await popper.pop()
    assert (none.code, none.body) == (NONE_FOUND, b"")
    assert {"popTime", "invisibleTime", "reviveQid", "restNum"} <= none.fields.keys()


async def test_what_failed_comes_again_and_says_how_often_it_came(popper: Popper) -> None:
    await popper.put(b"a")
    [first] = await popper.popped()
    assert (await popper.say(CHANGE, receipt_of(first), invisibleTime=0)).code == 0
    [again] = await popper.popped()
    assert (first.reconsume_times, again.reconsume_times) == (0, 1)
    popped_ms = int(receipt_of(first).split(" ")[1])
    assert 0 <= popped_ms - int(again.properties["1ST_POP_TIME"]) < 1_000
    assert again.properties["ORIGIN_GROUP"] == GROUP
    assert "1ST_POP_TIME" not in first.properties


async def test_one_queue_is_popped_or_all_of_them(popper: Popper) -> None:
    for queue_id in range(3):
        await popper.put(b"%d" % queue_id, queue_id=queue_id)
    assert [each.body for each in await popper.popped(queueId=1)] == [b"1"]
    answer = await popper.pop()
    assert sorted(each.body for each in records_in(answer.body)) == [b"0", b"2"]
    assert answer.fields["startOffsetInfo"] == "0 0 0;0 2 0"


async def test_a_pop_waits_for_a_message(popper: Popper) -> None:
    async with connected(popper.node) as other:
        waiting = asyncio.create_task(popper.popped())
        await until(lambda: popper.node.work.numbers().waiting == 1)
        about = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1}
        assert (await other.ask(POLLING, **about)).fields["pollingNum"] == "1"
        await other.put(b"a")
        assert [each.body for each in await waiting] == [b"a"]
        assert (await other.ask(POLLING, **about)).fields["pollingNum"] == "0"


async def test_a_filter_leaves_messages_out(popper: Popper) -> None:
    await popper.put(b"a", properties=b"TAGS\x01x\x02n\x015\x02")
    await popper.put(b"b", properties=b"TAGS\x01y\x02n\x017\x02")
    assert [each.body for each in await popper.popped(exp="y || z")] == [b"b"]
    found = await popper.popped(exp="n > 4", expType="SQL92", consumerGroup="sql")
    assert [each.body for each in found] == [b"a", b"b"]
    assert (await popper.pop(exp="n >", expType="SQL92")).code == REFUSED_FILTER
    assert (await popper.pop(exp="x", expType="CLASS")).code == REFUSED_FILTER


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "none"}, NO_TOPIC),
        ({"queueId": 4}, ILLEGAL),
        ({"maxMsgNums": 33}, ILLEGAL),
        ({"maxMsgNums": 0}, ILLEGAL),
        ({"consumerGroup": "no group!"}, 13),
    ],
)
async def test_what_cannot_be_popped_is_refused(
    popper: Popper, change: dict[str, object], code: int
) -> None:
    assert (await popper.pop(**change)).code == code  # type: ignore[arg-type]


async def test_a_new_group_begins_where_the_pop_says_in_an_old_topic(
    popper: Popper, monkeypatch: pytest.MonkeyPatch
) -> None:
    await popper.put(b"old")
    assert [each.body for each in await popper.popped(consumerGroup="young", initMode=1)] == [
        b"old"
    ]
    monkeypatch.setattr(PopMethods, "_look_young", lambda _self, _topic: False)
    assert (await popper.pop(consumerGroup="late", initMode=1)).code == NONE_FOUND
    await popper.put(b"new")
    for group, bodies in (("late", [b"new"]), ("early", [b"old", b"new"])):
        found = await popper.popped(consumerGroup=group, initMode=int(group == "late"))
        assert [each.body for each in found] == bodies


async def test_messages_of_an_order_come_one_delivery_after_the_other(popper: Popper) -> None:
    await popper.put(b"a", b"b", b"c")
    in_order: dict[str, Any] = {"order": "true", "queueId": 0}
    answer = await popper.pop(2, **in_order)
    first = records_in(answer.body)
    assert answer.fields["orderCountInfo"] == "0 qo0%0 0;0 qo0%1 0"
    policy = popper.node.store.groups.policy(GROUP)
    assert policy.ordering is Ordering.QUEUE
    assert (await popper.pop(2, **in_order)).code == NONE_FOUND
    await popper.say(ACK, receipt_of(first[0]))
    assert (await popper.pop(2, **in_order)).code == NONE_FOUND
    await popper.say(CHANGE, receipt_of(first[1]), invisibleTime=0)
    [again] = await popper.popped(1, **in_order)
    assert (again.body, again.reconsume_times) == (b"b", 1)
    await popper.say(ACK, receipt_of(again))
    assert [each.body for each in await popper.popped(**in_order)] == [b"c"]


async def test_all_messages_of_a_delivery_that_comes_again_were_delivered(popper: Popper) -> None:
    """As RocketMQ counts them; the engine tries them one after the other."""
    await popper.put(b"a", b"b", b"c")
    in_order: dict[str, Any] = {"order": "true", "queueId": 0}
    await popper.popped(2, invisibleTime=1_000, **in_order)
    answer = await popper.pop(3, pollTime=5_000, invisibleTime=1_000, **in_order)
    assert answer.fields["orderCountInfo"] == "0 qo0%0 1;0 qo0%1 1"
    found = records_in(answer.body)
    assert [each.reconsume_times for each in found] == [1, 1]
    assert (await popper.say(ACK, receipt_of(found[0]))).code == 0
    answer = await popper.pop(3, pollTime=5_000, **in_order)
    assert answer.fields["orderCountInfo"] == "0 qo0%1 2"


async def test_the_same_attempt_gets_the_same_messages_and_does_not_count(popper: Popper) -> None:
    await popper.put(b"a", b"b")
    asked = {"order": "true", "attemptId": "one"}
    first = await popper.popped(2, **asked)
    again = await popper.popped(2, **asked)
    assert [each.body for each in again] == [b"a", b"b"]
    assert {each.reconsume_times for each in again} == {0}
    assert (await popper.pop(2, order="true", attemptId="two")).code == NONE_FOUND
    assert (await popper.say(ACK, receipt_of(first[0]))).code != 0


async def test_a_group_that_pops_without_an_order_gets_none_by_a_request(popper: Popper) -> None:
    await popper.put(b"a")
    await popper.popped()
    refused = await popper.pop(order="true")
    assert refused.code == ILLEGAL
    assert "mqadmin updateSubGroup -o true" in refused.remark


async def test_who_asked_whether_there_are_messages_may_still_want_an_order(popper: Popper) -> None:
    await popper.put(b"a", b"b")
    place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "pollTime": 0, "bornTime": 0}
    assert (await popper.ask(NOTIFICATION, **place)).fields["hasMsg"] == "true"
    assert (await popper.ask(PEEK, **place, maxMsgNums=1)).code == 0
    # the log says where the group begins
    await popper.node.work.sync(GROUP)
    assert [each.body for each in await popper.popped(1, order="true")] == [b"a"]
    assert popper.node.store.groups.policy(GROUP).ordering is Ordering.QUEUE
    assert (await popper.ask(NOTIFICATION, **place)).fields["hasMsg"] == "false"


async def test_a_consumer_that_is_gone_has_no_messages(popper: Popper) -> None:
    async with connected(popper.node) as other:
        waiting = asyncio.create_task(other.pop(pollTime=20_000))
        await until(lambda: popper.node.work.numbers().waiting == 1)
        waiting.cancel()
    await until(lambda: popper.node.work.numbers().waiting == 0)
    await popper.put(b"a")
    [found] = await popper.popped()
    assert found.reconsume_times == 0


async def test_a_peek_leases_nothing(popper: Popper) -> None:
    await popper.put(b"a", b"b", b"c")
    about = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "maxMsgNums": 2}
    answer = await popper.ask(PEEK, **about)
    assert [each.body for each in records_in(answer.body)] == [b"a", b"b"]
    assert (answer.code, answer.fields["restNum"]) == (0, "1")
    assert len(await popper.popped()) == 3
    assert (await popper.ask(PEEK, **about)).code == 19
    assert (await popper.ask(PEEK, **{**about, "topic": "none"})).code == NO_TOPIC


async def test_a_notification_waits_for_a_message_and_takes_none(popper: Popper) -> None:
    about = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 2}
    answer = await popper.ask(NOTIFICATION, **about, pollTime=0)
    assert answer.fields["hasMsg"] == "false"
    waiting = asyncio.create_task(popper.ask(NOTIFICATION, **about, pollTime=10_000))
    await until(lambda: popper.node.work.numbers().waiting == 1)
    await popper.put(b"other queue", queue_id=1)
    await popper.put(b"a", queue_id=2)
    assert (await waiting).fields["hasMsg"] == "true"
    assert [each.body for each in await popper.popped(queueId=2)] == [b"a"]


async def test_a_pop_and_a_receive_of_our_own_share_a_group(popper: Popper) -> None:
    await popper.put(b"a", b"b")
    [first] = await popper.popped(1)
    request = ReceiveRequest(GROUP, (TOPIC,), 10, 30_000)
    ours = await popper.node.work.receive(request, Caller("test:1"))
    assert sum(len(each.sizes) for each in ours.messages) == 1
    handle = receipt_of(first).split(" ")[8].encode()
    assert (await popper.node.work.ack(GROUP, handle)).tolist() == [AckResult.OK]
    assert (await popper.say(ACK, receipt_of(first))).code == 0


async def test_a_group_goes_on_where_its_committed_offset_is(popper: Popper) -> None:
    await popper.put(b"a", b"b", b"c")
    popper.node.store.consumer_offsets.commit(GROUP, TOPIC, 0, 2)
    assert [each.body for each in await popper.popped()] == [b"c"]


async def test_the_last_attempt_makes_a_dead_letter(popper: Popper) -> None:
    await popper.node.work.set_policy(GROUP, GroupPolicy(1))
    await popper.put(b"a")
    [found] = await popper.popped()
    await popper.say(CHANGE, receipt_of(found), invisibleTime=0)
    await until(lambda: popper.node.store.topics.get(f"%DLQ%{GROUP}") is not None)
    assert (await popper.pop()).code == NONE_FOUND


async def test_a_topic_with_more_queues_is_popped_from_all(popper: Popper) -> None:
    await popper.put(b"a")
    assert len(await popper.popped()) == 1
    popper.node.store.create_topic(TopicConfig(TOPIC, 8, 8), update=True)
    await popper.put(b"b", queue_id=7)
    assert [each.body for each in await popper.popped()] == [b"b"]
