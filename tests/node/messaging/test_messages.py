"""Messages of the 5.x API on a node in this process: sent, received, acknowledged, given up."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fakes.batches import Put, batch_of
from fakes.inner_node import dispatched, until
from fakes.messaging_client import MessagingClient, a_client, a_node, message
from tandemlog.format.lease.policy import Backoff, GroupPolicy, Ordering
from tandemlog.format.record.sys_flag import COMPRESSED
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.node.node import Node
from tandemlog_server.rocketmq.messaging.fifo_queue import queue_of_group

LATE_MS = 253_402_300_799_000
"""In the year 9999."""


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with a_node(tmp_path) as node:
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[MessagingClient]:
    async with a_client(node.endpoints.rocketmq_grpc) as client:
        yield client


def bodies(messages: list[v2.Message]) -> list[bytes]:
    return sorted(each.body for each in messages)


async def test_a_message_is_leased_once_and_done_when_acknowledged(client: MessagingClient) -> None:
    sent = await client.send("T", b"1")
    assert sent.status.code == v2.OK
    assert [each.message_id for each in sent.entries] == ["ID1"]
    (got,) = await client.receive("T")
    assert (got.body, got.system_properties.delivery_attempt) == (b"1", 1)
    assert await client.receive("T", poll_s=0) == []
    assert (await client.ack(got)).status.code == v2.OK
    assert (await client.ack(got)).status.code == v2.OK  # once more says the same
    assert await client.receive("T", poll_s=0) == []


async def test_a_send_that_is_tried_again_is_stored_once(client: MessagingClient) -> None:
    first = await client.send("T", b"1")
    again = await client.send("T", b"1")
    assert first.entries[0] == again.entries[0]
    both = await asyncio.gather(client.send("T", b"2"), client.send("T", b"2"))
    assert both[0].entries[0] == both[1].entries[0]
    assert bodies(await client.receive("T")) == [b"1", b"2"]


async def test_another_message_with_the_id_of_a_stored_one_is_stored(
    client: MessagingClient,
) -> None:
    for body in (b"1", b"2"):
        assert (await client.send("T", body, message_id="SAME")).status.code == v2.OK
    assert bodies(await client.receive("T")) == [b"1", b"2"]


async def test_several_messages_of_a_request_are_refused_one_by_one(
    client: MessagingClient,
) -> None:
    answer = await client.send_all(
        [message("T", b"1"), message("T", b"2", tag="a|b"), message("T", b"3")]
    )
    assert answer.status.code == v2.MULTIPLE_RESULTS
    codes = [each.status.code for each in answer.entries]
    assert codes == [v2.OK, v2.ILLEGAL_MESSAGE_TAG, v2.OK]
    assert bodies(await client.receive("T")) == [b"1", b"3"]


async def test_a_topic_that_cannot_be_made_is_refused_in_each_message(
    client: MessagingClient,
) -> None:
    """Its name is one that RocketMQ may have, and no new topic."""
    topic = "x" * 200
    answer = await client.send_all([message("T"), message(topic), message(topic)])
    assert [each.status.code for each in answer.entries] == [
        v2.OK,
        v2.ILLEGAL_TOPIC,
        v2.ILLEGAL_TOPIC,
    ]
    assert topic[:50] in answer.entries[1].status.message


async def test_a_message_group_has_one_queue(node: Node, client: MessagingClient) -> None:
    for number in range(4):
        await client.send("T", b"%d" % number, message_type=v2.FIFO, message_group="g")
    got = await client.receive("T")
    queues = node.store.topics.table["T"].write_queues
    assert {each.system_properties.queue_id for each in got} == {queue_of_group("g", queues)}
    assert [each.body for each in got] == [b"0", b"1", b"2", b"3"]


async def test_a_changed_time_is_the_next_attempt_when_it_is_over(client: MessagingClient) -> None:
    await client.send("T", b"1")
    (got,) = await client.receive("T")
    changed = await client.change(got, 0)
    assert changed.status.code == v2.OK
    assert changed.receipt_handle == got.system_properties.receipt_handle
    (again,) = await client.receive("T")
    assert again.system_properties.delivery_attempt == 2
    changed = await client.change(got, 5_000)  # the first handle is of a lease that is over
    assert changed.status.code == v2.INVALID_RECEIPT_HANDLE
    assert changed.receipt_handle  # an empty one would be kept by the client


async def test_a_text_that_is_no_handle_is_given_up(client: MessagingClient) -> None:
    await client.send("T", b"1")
    (got,) = await client.receive("T")
    bad = v2.Message()
    bad.system_properties.receipt_handle = "x" * 64
    answer = await client.ack(bad, got)
    assert answer.status.code == v2.MULTIPLE_RESULTS
    codes = [each.status.code for each in answer.entries]
    assert codes == [v2.INVALID_RECEIPT_HANDLE, v2.OK]


async def test_what_was_tried_too_often_is_a_dead_letter(
    node: Node, client: MessagingClient
) -> None:
    await node.work.set_policy("G", GroupPolicy(2, Backoff((0,))))
    await client.send("T", b"1")
    for attempt in (1, 2):
        (got,) = await client.receive("T")
        assert got.system_properties.delivery_attempt == attempt
        await client.change(got, 0)
    await until(lambda: "%DLQ%G" in node.store.topics.table)
    dead = await client.receive("%DLQ%G", "Inspectors", poll_s=5, within_s=10)
    assert dead[0].body == b"1"
    assert dead[0].system_properties.dead_letter_queue.topic == "T"


async def test_an_ordered_group_gets_a_queue_one_by_one_and_may_give_up(
    node: Node, client: MessagingClient
) -> None:
    await node.work.set_policy("G", GroupPolicy(3, Backoff((0,)), Ordering.QUEUE))
    for number in range(2):
        await client.send("T", b"%d" % number, message_type=v2.FIFO, message_group="g")
    first, second = await client.receive("T")
    assert await client.receive("T", poll_s=0) == []
    request = v2.DeadLetterRequest(
        group=v2.Resource(name="G"), receipt_handle=first.system_properties.receipt_handle
    )
    for _ in range(2):  # a client asks until it hears OK
        answer = await client.ask("ForwardMessageToDeadLetterQueue", request, v2.DeadLetterResponse)
        assert answer.status.code == v2.OK
    assert (await client.ack(second)).status.code == v2.OK


@pytest.mark.parametrize("sql", [False, True])
async def test_a_filter_leaves_messages_out(client: MessagingClient, sql: bool) -> None:
    await client.send("T", b"1", tag="a")
    await client.send("T", b"2", tag="b")
    wanted = v2.FilterExpression(type=v2.TAG, expression="b || c")
    if sql:
        wanted = v2.FilterExpression(type=v2.SQL, expression="TAGS = 'b'")
    got = await client.receive("T", filter_expression=wanted)
    assert bodies(got) == [b"2"]


async def test_a_receive_waits_and_is_woken(client: MessagingClient) -> None:
    await client.send("T", b"1")
    await client.ack(*(await client.receive("T")))
    waiting = asyncio.create_task(client.receive("T", poll_s=10, within_s=15))
    await asyncio.sleep(0)
    await client.send("T", b"2")
    assert bodies(await waiting) == [b"2"]


async def test_a_receive_ends_before_its_client_gives_up(client: MessagingClient) -> None:
    await client.send("T", b"1")
    await client.ack(*(await client.receive("T")))
    assert await client.receive("T", poll_s=30, within_s=1.5) == []


async def test_a_lost_answer_is_given_again_under_its_attempt(client: MessagingClient) -> None:
    await client.send("T", b"1")
    (lost,) = await client.receive("T", auto_renew=True, attempt_id="a")
    (got,) = await client.receive("T", auto_renew=True, attempt_id="a")
    assert got.body == lost.body
    assert got.system_properties.delivery_attempt == 1
    assert await client.receive("T", poll_s=0, auto_renew=True, attempt_id="b") == []


async def test_messages_that_unpack_to_more_than_an_answer_are_given_one_by_one(
    node: Node, client: MessagingClient
) -> None:
    """A few kilobytes of zeros would be gigabytes in one answer."""
    sizes = (20 << 20, 33 << 20, 20 << 20, 1)
    await client.send("T", b"0")
    puts = [Put("T", body=zlib.compress(bytes(each)), sys_flag=COMPRESSED) for each in sizes]
    await asyncio.to_thread(node.store.put, batch_of(puts))
    await dispatched(node)
    got = [await client.receive("T") for _ in range(3)]
    assert [[len(each.body) for each in some] for some in got] == [[1, 20 << 20], [20 << 20, 1], []]


async def test_a_delayed_message_comes_later_and_may_be_called_back(
    node: Node, client: MessagingClient
) -> None:
    now_ms = node.store.clock.now_ms()
    due = await client.send("T", b"1", message_type=v2.DELAY, delivery_ms=now_ms + 1_200)
    kept = await client.send("T", b"2", message_type=v2.DELAY, delivery_ms=now_ms + 1_500)
    assert due.entries[0].recall_handle
    answer = await client.ask(
        "RecallMessage",
        v2.RecallMessageRequest(
            topic=v2.Resource(name="T"), recall_handle=kept.entries[0].recall_handle
        ),
        v2.RecallMessageResponse,
    )
    assert (answer.status.code, answer.message_id) == (v2.OK, "ID2")
    async with asyncio.timeout(10):
        while not (got := await client.receive("T")):
            pass
    assert bodies(got) == [b"1"]
    assert node.store.clock.now_ms() >= now_ms + 1_200
    assert await client.receive("T") == []


@pytest.mark.parametrize(
    ("system", "code"),
    [
        ({"message_type": v2.DELAY, "delivery_ms": LATE_MS}, v2.ILLEGAL_DELIVERY_TIME),
        ({"message_type": v2.PRIORITY}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
async def test_sends_that_cannot_be_are_refused(
    client: MessagingClient, system: dict[str, Any], code: int
) -> None:
    answer = await client.send("T", b"1", **system)
    assert (answer.status.code, len(answer.entries)) == (code, 0)


async def test_bodies_and_requests_have_limits(client: MessagingClient) -> None:
    answer = await client.send("T", b"9" * 100_001, message_id="A")
    assert answer.status.code == v2.MESSAGE_BODY_TOO_LARGE
    answer = await client.ask("AckMessage", bytes(1_100_000), v2.AckMessageResponse)
    assert answer.status.code == v2.PAYLOAD_TOO_LARGE
    answer = await client.ask("SendMessage", b"\xff\xff\xff", v2.SendMessageResponse)
    assert answer.status.code == v2.BAD_REQUEST
    answer = await client.ask("Heartbeat", b"\x0a\x05", v2.HeartbeatResponse)
    assert answer.status.code == v2.BAD_REQUEST


async def test_times_that_are_no_dates_are_refused(client: MessagingClient) -> None:
    for seconds in (1 << 62, -(1 << 62)):
        sent = message("T", b"1", message_type=v2.DELAY)
        sent.system_properties.delivery_timestamp.seconds = seconds
        sent.system_properties.born_timestamp.seconds = seconds
        answer = await client.send_all([sent])
        assert answer.status.code == v2.ILLEGAL_DELIVERY_TIME


async def test_a_topic_has_a_route_before_a_send_makes_it(
    node: Node, client: MessagingClient
) -> None:
    request = v2.QueryRouteRequest(topic=v2.Resource(name="New"))
    answer = await client.ask("QueryRoute", request, v2.QueryRouteResponse)
    (queue,) = answer.message_queues
    (address,) = queue.broker.endpoints.addresses
    assert f"{address.host}:{address.port}" == node.endpoints.rocketmq_grpc
    (found,) = await client.answers("New", poll_s=0)
    assert found.status.code == v2.TOPIC_NOT_FOUND
    request = v2.QueryRouteRequest(topic=v2.Resource(name="no spaces"))
    answer = await client.ask("QueryRoute", request, v2.QueryRouteResponse)
    assert answer.status.code == v2.ILLEGAL_TOPIC


async def test_a_push_consumer_polls_each_entry(client: MessagingClient) -> None:
    request = v2.QueryAssignmentRequest(topic=v2.Resource(name="T"), group=v2.Resource(name="G"))
    answer = await client.ask("QueryAssignment", request, v2.QueryAssignmentResponse)
    assert [each.message_queue.id for each in answer.assignments] == [0]
