"""Work queues of a whole node: messages come, are acknowledged, come again, are given up."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.batches import Put, batch_of
from fakes.inner_node import config, running, until
from tandemlog.format.lease.policy import AckResult, Backoff, GroupPolicy, Ordering, StartAt
from tandemlog.format.record.record import Record, decode_record
from tandemlog.v1 import common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.sections import WorkSection
from tandemlog_server.node.work.work_filter import selector
from tandemlog_server.node.work.work_requests import LeasedMessages, ReceiveRequest, ReceiveResult
from tandemlog_server.storage.metadata.topics import MetadataError, TopicConfig

GROUP = "billing"
ME = Caller("test:1")
RECEIVE = ReceiveRequest(GROUP, ("orders",), 10, 30_000)
QUICK = WorkSection(grace_ms=0, write_interval_ms=5)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with working(tmp_path) as node:
        yield node


@asynccontextmanager
async def working(directory: Path, **fields: Any) -> AsyncIterator[Node]:
    async with running(config(directory / "store", **{"work": QUICK, **fields})) as node:
        if node.store.topics.get("orders") is None:
            node.store.create_topic(TopicConfig("orders", 4, 4))
        yield node


async def put(node: Node, count: int, queue_id: int = 0, properties: bytes = b"") -> None:
    """Messages `0`, `1` .. of one batch, until they can be read."""
    puts = [
        Put("orders", queue_id, b"%d" % number, properties, store_host="127.0.0.1:0")
        for number in range(count)
    ]
    end = node.store.put(batch_of(puts)).end_offset
    await until(lambda: node.store.reputed.value >= end)
    await asyncio.sleep(0)


async def receive(node: Node, **changes: Any) -> ReceiveResult:
    async with asyncio.timeout(10):
        return await node.work.receive(replace(RECEIVE, **changes), ME)


def records(messages: LeasedMessages) -> list[Record]:
    found, at = [], 0
    for size in messages.sizes.tolist():
        found.append(decode_record(bytes(messages.records[at : at + size])))
        at += size
    return found


def bodies(result: ReceiveResult) -> list[bytes]:
    return [record.body for each in result.messages for record in records(each)]


def handles(result: ReceiveResult) -> bytes:
    return b"".join(each.handles for each in result.messages)


async def acknowledged(node: Node, result: ReceiveResult) -> Sequence[int]:
    answer: list[int] = (await node.work.ack(GROUP, handles(result), sync=True)).tolist()
    return answer


async def test_what_is_acknowledged_does_not_come_again_after_a_restart(tmp_path: Path) -> None:
    async with working(tmp_path) as node:
        await put(node, 5)
        first = await receive(node, max_messages=3)
        assert bodies(first) == [b"0", b"1", b"2"]
        assert [each.attempts.tolist() for each in first.messages] == [[1, 1, 1]]
        assert await acknowledged(node, first) == [AckResult.OK] * 3
        assert await acknowledged(node, first) == [AckResult.ALREADY_DONE] * 3
        second = await receive(node, max_messages=1)
        assert bodies(second) == [b"3"]
        await until(lambda: not node.work.term.engine.has_news)  # type: ignore[union-attr]
    async with working(tmp_path) as node:
        again = await receive(node, wait_ms=5_000)
        assert bodies(again) == [b"3"]  # what was tried comes first
        assert again.messages[0].attempts.tolist() == [2]
        assert bodies(await receive(node)) == [b"4"]
        # a handle of the last process is still good
        assert await acknowledged(node, second) == [AckResult.OK]
        assert bodies(await receive(node)) == []


async def test_a_failed_message_comes_again_with_its_error(node: Node) -> None:
    await put(node, 1)
    first = await receive(node)
    await node.work.nack(GROUP, handles(first), delay_ms=0, error="no such customer\n")
    again = await receive(node, wait_ms=5_000)
    assert again.messages[0].attempts.tolist() == [2]
    assert dict(again.messages[0].last_errors) == {0: "no such customer "}
    assert (await node.work.ack(GROUP, handles(first))).tolist() == [
        AckResult.INVALID_RECEIPT_HANDLE
    ]
    assert await acknowledged(node, again) == [AckResult.OK]


async def test_a_released_message_was_not_tried(node: Node) -> None:
    await put(node, 1)
    await node.work.release(GROUP, handles(await receive(node)))
    assert (await receive(node)).messages[0].attempts.tolist() == [1]


async def test_the_last_attempt_makes_a_dead_letter(node: Node) -> None:
    await node.work.set_policy(GROUP, GroupPolicy(2, Backoff((0,))))
    await put(node, 2, properties=b"KEYS\x01k\x02WAIT\x01true\x02")
    first = await receive(node, max_messages=1)
    await node.work.nack(GROUP, handles(first), error="one")
    second = await receive(node, max_messages=1, wait_ms=5_000)
    assert bodies(second) == [b"0"]
    await node.work.nack(GROUP, handles(second), error="two")
    rejected = await receive(node, max_messages=1)
    assert bodies(rejected) == [b"1"]
    await node.work.reject(GROUP, handles(rejected), error="poison")
    await until(lambda: node.store.topics.get("%DLQ%billing") is not None)
    await until(lambda: node.work.term.letters.end(GROUP) == 2)  # type: ignore[union-attr]
    await node.work.sync(GROUP)
    work = await node.work.describe(GROUP)
    assert (work.dead, work.dead_letters) == (0, 2)
    assert (work.leased, work.ready, work.waiting_retry) == (0, 0, 0)
    page = await node.dead_letters.list(GROUP, 0, 10)
    assert [row.letter.last_error for row in page.rows] == ["two", "poison"]
    assert [row.letter.attempts for row in page.rows] == [2, 1]
    assert [row.letter.queue_offset for row in page.rows] == [0, 1]
    assert {row.letter.topic for row in page.rows} == {"orders"}
    assert page.left == 2
    letter = decode_record(await node.dead_letters.read(GROUP, 0))
    assert (letter.topic, letter.body, letter.reconsume_times) == ("%DLQ%billing", b"0", 2)
    assert letter.properties["DLQ_ORIGIN_TOPIC"] == letter.properties["RETRY_TOPIC"] == "orders"
    assert letter.keys == "k"


async def dead_letters(node: Node, count: int) -> None:
    await put(node, count)
    await node.work.reject(GROUP, handles(await receive(node)), error="poison")
    await until(lambda: node.work.term.letters.end(GROUP) == count)  # type: ignore[union-attr]


async def test_dead_letters_are_sent_again_and_purged(tmp_path: Path) -> None:
    async with working(tmp_path) as node:
        await dead_letters(node, 3)
        assert await node.dead_letters.origins(GROUP, [1]) == {"orders"}
        dry = await node.dead_letters.resend(GROUP, [1, 9], "me", dry_run=True)
        assert (dry.sent, [offset for offset, _ in dry.refused]) == ((1,), [9])
        sent = await node.dead_letters.resend(GROUP, [1], "me")
        assert sent.sent == (1,)
        again = await receive(node, wait_ms=5_000)
        assert bodies(again) == [b"1"]
        assert "DLQ_ORIGIN_TOPIC" not in records(again.messages[0])[0].properties
        page = await node.dead_letters.list(GROUP, 0, 10)
        assert [row.queue_offset for row in page.rows] == [0, 2]
        assert (await node.dead_letters.resend(GROUP, [1], "me")).sent == ()
        assert await node.dead_letters.purge(GROUP, 2, dry_run=True) == 1
        assert await node.dead_letters.purge(GROUP, 2) == 1
        assert (await node.work.describe(GROUP)).dead_letters == 1
    async with working(tmp_path) as node:
        assert (await node.work.describe(GROUP)).dead_letters == 1
        page = await node.dead_letters.list(GROUP, 0, 10)
        assert [row.queue_offset for row in page.rows] == [2]
        with pytest.raises(RequestRefusedError, match="has no dead letter 7"):
            await node.dead_letters.read(GROUP, 7)
        with pytest.raises(RequestRefusedError, match="name the group itself"):
            await node.dead_letters.list("%DLQ%billing", 0, 1)
        with pytest.raises(RequestRefusedError, match="there is no group 'other'"):
            await node.dead_letters.list("other", 0, 10)
        await receive(node, group="other")
        assert (await node.dead_letters.list("other", 0, 10)).left == 0


async def test_two_operators_send_a_dead_letter_again_once(node: Node) -> None:
    await dead_letters(node, 1)
    both = await asyncio.gather(*(node.dead_letters.resend(GROUP, [0], "me") for _ in range(2)))
    assert sorted(each.sent for each in both) == [(), (0,)]
    assert bodies(await receive(node, wait_ms=5_000)) == [b"0"]
    assert bodies(await receive(node)) == []


async def test_a_dead_letter_whose_resend_is_cancelled_is_sent_again_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await dead_letters(node, 2)
    desk = node.work.term.letters  # type: ignore[union-attr]
    begun, goes_on, send_again = threading.Event(), threading.Event(), desk.send_again

    def slow(*about: Any) -> int:
        begun.set()
        goes_on.wait(10)
        return send_again(*about)

    monkeypatch.setattr(desk, "send_again", slow)
    resending = asyncio.create_task(node.dead_letters.resend(GROUP, [0, 1], "me"))
    await until(begun.is_set)
    resending.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await resending
    assert (await node.dead_letters.resend(GROUP, [0, 1], "me")).sent == (1,)
    found = bodies(await receive(node, wait_ms=5_000)) + bodies(await receive(node, wait_ms=1_000))
    assert sorted(found) == [b"0", b"1"]


async def test_a_receive_waits_for_a_message_of_any_queue(node: Node) -> None:
    waiting = [asyncio.create_task(receive(node, wait_ms=20_000)) for _ in range(3)]
    await until(lambda: node.work.term.waiting.count == 3)  # type: ignore[union-attr]
    await put(node, 1, queue_id=3)
    await put(node, 2, queue_id=1)
    await until(lambda: sum(each.done() for each in waiting) >= 2)
    got = [body for each in waiting if each.done() for body in bodies(each.result())]
    assert sorted(got) == [b"0", b"0", b"1"]
    await put(node, 1, queue_id=2)
    assert all(bodies(each) for each in await asyncio.gather(*waiting))


async def test_a_receive_of_other_queues_passes_its_wake_up_on(node: Node) -> None:
    other = asyncio.create_task(receive(node, wait_ms=3_000, queues=frozenset({2})))
    await until(lambda: node.work.term is not None and node.work.term.waiting.count == 1)
    mine = asyncio.create_task(receive(node, wait_ms=20_000))
    await until(lambda: node.work.term.waiting.count == 2)  # type: ignore[union-attr]
    await put(node, 1, queue_id=1)
    assert bodies(await mine) == [b"0"]
    assert bodies(await other) == []


async def test_a_lease_that_ends_wakes_a_waiting_receive(node: Node) -> None:
    await put(node, 1)
    await receive(node, lease_ms=1_000)
    assert bodies(await receive(node, wait_ms=10_000)) == [b"0"]
    assert node.work.term is not None
    assert node.work.term.engine.counters.expired == 1


async def test_an_extended_lease_does_not_end(node: Node) -> None:
    await put(node, 1)
    first = await receive(node, lease_ms=1_000)
    assert (await node.work.extend(GROUP, handles(first), 30_000)).tolist() == [AckResult.OK]
    assert bodies(await receive(node, wait_ms=1_500)) == []


async def test_what_a_filter_leaves_out_is_done(node: Node) -> None:
    await put(node, 2, properties=b"TAGS\x01a\x02amount\x015\x02")
    await put(node, 2, properties=b"TAGS\x01b\x02amount\x019\x02")
    got = await receive(node, filter=selector([], "amount > 6"))
    assert [record.tags for record in records(got.messages[0])] == ["b", "b"]
    await acknowledged(node, got)
    work = await node.work.describe(GROUP)
    assert (work.queues[0].floor, work.queues[0].max_offset) == (4, 4)
    await put(node, 1, properties=b"TAGS\x01a\x02")
    await put(node, 1, properties=b"TAGS\x01c\x02")
    assert len(bodies(await receive(node, filter=selector(["c"], "")))) == 1


async def test_an_ordered_group_gets_a_queue_in_order(node: Node) -> None:
    await node.work.set_policy(GROUP, GroupPolicy(3, Backoff((0,)), Ordering.QUEUE))
    await put(node, 4)
    first = await receive(node, max_messages=2)
    assert bodies(first) == [b"0", b"1"]
    assert bodies(await receive(node)) == []
    await node.work.nack(GROUP, handles(first)[:64], delay_ms=0)
    again = await receive(node, max_messages=9, wait_ms=5_000)
    assert bodies(again) == [b"0", b"1"]
    assert again.messages[0].attempts.tolist() == [2, 1]
    await acknowledged(node, again)
    assert bodies(await receive(node)) == [b"2", b"3"]


async def test_a_group_orders_by_sharding_key(node: Node) -> None:
    await node.work.set_policy(GROUP, GroupPolicy(3, Backoff((0,)), Ordering.KEY))
    for key in (b"a", b"b", b"a"):
        await put(node, 1, properties=b"__SHARDINGKEY\x01%s\x02" % key)
    first = await receive(node, max_messages=1)
    second = await receive(node)
    keys = [record.sharding_key for record in records(second.messages[0])]
    assert keys == ["b"]
    await acknowledged(node, first)
    third = await receive(node)
    assert [record.queue_offset for record in records(third.messages[0])] == [2]


async def test_a_group_that_starts_at_the_end_begins_there(tmp_path: Path) -> None:
    async with working(tmp_path) as node:
        await put(node, 3)
        await node.work.set_policy(GROUP, replace(GroupPolicy(), start_at=StartAt.LATEST))
        assert bodies(await receive(node)) == []
        await put(node, 1)
        assert bodies(await receive(node, wait_ms=5_000)) == [b"0"]
    async with working(tmp_path) as node:
        assert bodies(await receive(node, wait_ms=5_000)) == [b"0"]


async def test_two_groups_get_every_message(node: Node) -> None:
    await put(node, 2)
    assert bodies(await receive(node)) == bodies(await receive(node, group="other"))


async def test_a_handle_of_another_group_is_refused_by_itself(node: Node) -> None:
    await put(node, 1)
    got = await receive(node)
    await receive(node, group="other")
    results = await node.work.ack("other", handles(got))
    assert results.tolist() == [AckResult.OTHER_GROUP]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"topics": ()}, "names one topic or several"),
        ({"max_messages": 0}, "max_messages must be 1 .. 1000: 0"),
        ({"lease_ms": 10}, "lease_ms must be 1000 .. 43200000: 10"),
        ({"wait_ms": 70_000}, "wait_ms must be 0 .. 60000: 70000"),
        ({"group": "bad group"}, "group 'bad group': character"),
        ({"topics": ("nothing",)}, "there is no topic 'nothing'"),
    ],
)
async def test_what_cannot_be_asked_is_refused(
    node: Node, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestRefusedError, match=words):
        await receive(node, **changes)


async def test_a_policy_out_of_bounds_is_refused(node: Node) -> None:
    with pytest.raises(MetadataError, match="max_attempts must be 1"):
        await node.work.set_policy(GROUP, GroupPolicy(0))


async def test_a_caller_with_its_share_of_unacked_messages_is_throttled(tmp_path: Path) -> None:
    settings = WorkSection(node_unacked=8, grace_ms=0, write_interval_ms=5)
    async with working(tmp_path, work=settings) as node:
        await put(node, 20)
        first = await receive(node)
        assert len(bodies(first)) == 6  # three quarters of the bound
        full = await receive(node)
        assert full.throttled
        assert not full.messages
        waiting = asyncio.create_task(receive(node, wait_ms=20_000))
        await until(lambda: node.work.term.waiting.count == 1)  # type: ignore[union-attr]
        await acknowledged(node, first)
        assert len(bodies(await waiting)) == 6


async def test_an_end_of_the_term_ends_the_wait(node: Node) -> None:
    waiting = asyncio.create_task(receive(node, wait_ms=20_000))
    await until(lambda: node.work.term is not None and node.work.term.waiting.count == 1)
    await node.terms.wait("a test")
    with pytest.raises(RequestRefusedError) as refused:
        await waiting
    assert refused.value.code == common_pb2.NOT_MASTER
    with pytest.raises(RequestRefusedError) as refused:
        await receive(node)
    assert refused.value.code == common_pb2.NOT_MASTER


async def test_a_deleted_group_begins_again(node: Node) -> None:
    await put(node, 2)
    await acknowledged(node, await receive(node))
    node.store.groups.delete(GROUP, 1)
    assert bodies(await receive(node)) == [b"0", b"1"]


async def test_nothing_is_delivered_to_a_group_that_the_next_master_would_not_know(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the group for deleted, and forget what it has done."""
    await put(node, 1)

    async def not_replicated(table: str, version: int | None = None) -> None:
        raise RequestRefusedError(common_pb2.OUTCOME_UNKNOWN, f"{table} is not replicated")

    with monkeypatch.context() as patched:
        patched.setattr(node.role, "confirm_table", not_replicated)
        with pytest.raises(RequestRefusedError, match="groups is not replicated") as refused:
            await receive(node)
    assert refused.value.code == common_pb2.NOT_IN_SYNC, "a consumer waits, and asks again"
    assert bodies(await receive(node)) == [b"0"]


async def test_what_one_receive_leaves_wakes_the_next(node: Node) -> None:
    await receive(node, wait_ms=0)
    waiting = [asyncio.create_task(receive(node, wait_ms=5_000, max_messages=1)) for _ in range(3)]
    await until(lambda: node.work.numbers().waiting == 3)
    puts = [Put("orders", each, b"x", store_host="127.0.0.1:0") for each in range(3)]
    node.store.put(batch_of(puts))
    results = await asyncio.wait_for(asyncio.gather(*waiting), 3)
    assert [len(bodies(each)) for each in results] == [1, 1, 1]


async def test_one_caller_does_not_take_the_queues_of_all(tmp_path: Path) -> None:
    """Of 16 queues one host gets three quarters; the next one still gets its own."""
    stranger = Caller("ipv4:10.0.0.2:1")
    async with working(tmp_path, work=QUICK.model_copy(update={"queues": 16})) as node:

        async def open_as(caller: Caller, group: str) -> None:
            await node.work.receive(replace(RECEIVE, group=group), caller)

        for number in range(3):
            await open_as(ME, f"group-{number}")
        with pytest.raises(RequestRefusedError, match=r"12 of them opened by this .*has 4 more"):
            await open_as(ME, "group-3")
        await open_as(stranger, "other")
        for group in ("other", "group-0"):
            node.store.groups.delete(group, 1)
        await open_as(ME, "group-3")
