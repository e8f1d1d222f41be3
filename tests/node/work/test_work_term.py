"""Groups whose tables change while consumers work: another order, deleted, created again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fakes.batches import Put, batch_of
from fakes.inner_node import config, running, stubs, until
from tandemlog.format.lease.handle import HANDLE, decode_handles, encode_handles, topic_hash
from tandemlog.format.lease.policy import AckResult, GroupPolicy, Ordering
from tandemlog.format.record.record import decode_record
from tandemlog.v1 import admin_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.sections import WorkSection
from tandemlog_server.node.work.work_requests import ReceiveRequest, ReceiveResult
from tandemlog_server.node.work.work_term import WorkTerm
from tandemlog_server.storage.errors import StoreBusyError, UnreadableError
from tandemlog_server.storage.leases.unacked import I64
from tandemlog_server.storage.metadata.topics import TopicConfig

GROUP = "billing"
ME = Caller("test:1")
RECEIVE = ReceiveRequest(GROUP, ("orders",), 10, 30_000)
SLOW = WorkSection(grace_ms=0, write_interval_ms=60_000)
"""Nothing is written unless a caller waits for it."""
IN_ORDER = GroupPolicy(ordering=Ordering.QUEUE)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(config(tmp_path / "store", work=SLOW)) as node:
        node.store.create_topic(TopicConfig("orders", 1, 1))
        yield node


def applied(node: Node) -> bool:
    return node.store.leases.next_offset >= node.store.log.wrote.value


def term_of(node: Node) -> WorkTerm:
    assert node.work.term is not None
    return node.work.term


async def put(node: Node, *bodies: bytes, topic: str = "orders") -> None:
    puts = [Put(topic, 0, body, store_host="127.0.0.1:0") for body in bodies]
    end = node.store.put(batch_of(puts)).end_offset
    await until(lambda: node.store.reputed.value >= end)
    await asyncio.sleep(0)


async def receive(node: Node, request: ReceiveRequest = RECEIVE) -> ReceiveResult:
    async with asyncio.timeout(10):
        return await node.work.receive(request, ME)


def bodies(result: ReceiveResult) -> list[bytes]:
    found = []
    for each in result.messages:
        at = 0
        for size in each.sizes.tolist():
            found.append(decode_record(bytes(each.records[at : at + size])).body)
            at += size
    return found


def handles(result: ReceiveResult) -> bytes:
    return b"".join(each.handles for each in result.messages)


async def acked(node: Node, result: ReceiveResult) -> Sequence[int]:
    answer: list[int] = (await node.work.ack(GROUP, handles(result))).tolist()
    return answer


async def test_another_order_forgets_no_acknowledgement(node: Node) -> None:
    """The group begins again from what the log says, and the log did not say it yet."""
    await put(node, b"0", b"1", b"2")
    first = await receive(node, replace(RECEIVE, max_messages=2))
    await acked(node, first)
    assert term_of(node).engine.has_news
    await node.work.set_policy(GROUP, IN_ORDER)
    assert bodies(await receive(node)) == [b"2"]


async def test_another_order_waits_for_a_record_that_is_being_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(node, b"0", b"1")
    first = await receive(node, replace(RECEIVE, max_messages=1))
    await acked(node, first)
    desk = term_of(node).desk
    written, may_write = asyncio.Event(), asyncio.Event()
    loop, put_progress = asyncio.get_running_loop(), desk.put_progress

    def held_up(entries: object) -> int:
        loop.call_soon_threadsafe(written.set)
        asyncio.run_coroutine_threadsafe(may_write.wait(), loop).result(10)
        return put_progress(entries)  # type: ignore[arg-type]

    monkeypatch.setattr(desk, "put_progress", held_up)
    term_of(node).writer.hurry()
    await asyncio.wait_for(written.wait(), 10)
    await node.work.set_policy(GROUP, IN_ORDER)
    receiving = asyncio.create_task(receive(node))
    await asyncio.sleep(0.05)
    may_write.set()
    assert bodies(await receiving) == [b"1"]


async def test_a_receive_that_waits_goes_on_in_the_other_order(node: Node) -> None:
    waiting = asyncio.create_task(receive(node, replace(RECEIVE, wait_ms=500)))
    await until(lambda: node.work.term is not None and node.work.term.waiting.count == 1)
    await node.work.set_policy(GROUP, IN_ORDER)
    term_of(node).look_at_tables()
    assert bodies(await waiting) == []
    await put(node, b"0")
    assert bodies(await receive(node)) == [b"0"]


async def test_a_receive_that_waits_creates_its_deleted_group_again(node: Node) -> None:
    waiting = asyncio.create_task(receive(node, replace(RECEIVE, wait_ms=500)))
    await until(lambda: node.work.term is not None and node.work.term.waiting.count == 1)
    node.store.groups.delete(GROUP, 1)
    term_of(node).look_at_tables()
    assert bodies(await waiting) == []
    assert GROUP in node.store.groups.table


async def test_a_group_that_was_away_for_a_moment_begins_again(node: Node) -> None:
    """No look at the table comes between: it is there before and after."""
    await put(node, b"0", b"1")
    await acked(node, await receive(node))
    await node.work.sync(GROUP)
    node.store.groups.delete(GROUP, 1)
    node.store.groups.ensure(GROUP, 2)
    assert bodies(await receive(node)) == [b"0", b"1"]


async def test_a_deleted_group_forgets_what_was_not_applied_yet(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first record lies in the log, and the fold has not come to it when the group goes."""
    await put(node, b"0", b"1")
    await acked(node, await receive(node))
    fold = node.store.leases
    await until(lambda: applied(node))
    with fold.lock:  # dispatch waits
        term_of(node).writer.hurry()
        before = node.store.log.wrote.value
        await until(lambda: node.store.log.wrote.value > before)
        node.store.groups.delete(GROUP, 1)
        term_of(node).writer.hurry()
        await asyncio.sleep(0.05)
    assert await term_of(node).forget_deleted(GROUP)
    await until(lambda: applied(node))
    assert fold.of_group(GROUP) == []
    assert bodies(await receive(node)) == [b"0", b"1"]


async def test_a_group_is_deleted_when_the_log_has_forgotten_it(node: Node) -> None:
    await put(node, b"0")
    await acked(node, await receive(node))
    await node.work.sync(GROUP)
    await until(lambda: node.store.leases.groups() == [GROUP])
    async with stubs(node) as stub:
        answer = await stub.admin.DeleteGroup(admin_pb2.DeleteGroupRequest(group=GROUP))
    assert not answer.HasField("error")
    await until(lambda: applied(node))
    assert node.store.leases.groups() == []


async def test_a_group_that_is_back_before_a_term_has_begun_begins_again(tmp_path: Path) -> None:
    """The last master deleted it, and was lost before the log said so; a client has created it
    again before this one knows what the log says."""
    settings = config(tmp_path / "store", work=SLOW)
    async with running(settings) as node:
        node.store.create_topic(TopicConfig("orders", 1, 1))
        await put(node, b"0", b"1")
        await acked(node, await receive(node))
        await node.work.sync(GROUP)
        await until(lambda: applied(node))
        await node.terms.wait("a test")
        node.store.groups.delete(GROUP, 1)
    async with running(settings) as node:
        node.store.groups.ensure(GROUP, 2)
        assert bodies(await receive(node)) == [b"0", b"1"]


async def test_a_policy_is_answered_when_every_possible_master_has_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_replicated(table: str, version: int | None = None) -> None:
        raise RequestRefusedError(common_pb2.OUTCOME_UNKNOWN, f"{table} is not replicated")

    with monkeypatch.context() as patched:
        patched.setattr(node.role, "confirm_table", not_replicated)
        with pytest.raises(RequestRefusedError, match="groups is not replicated"):
            await node.work.set_policy(GROUP, GroupPolicy(5))
    await node.work.set_policy(GROUP, GroupPolicy(5))


async def test_a_queue_that_is_being_rebuilt_hides_no_messages_of_others(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also its own are seen afterwards."""
    node.store.create_topic(TopicConfig("bills", 1, 1))
    both = replace(RECEIVE, topics=("orders", "bills"))
    assert bodies(await receive(node, both)) == []
    desk, busy = term_of(node).desk, True
    ranges = desk.range

    def rebuilt(topic: str, queue_id: int) -> tuple[int, int]:
        if topic == "orders" and busy:
            raise StoreBusyError("consume queue orders/0 is being rebuilt")
        return ranges(topic, queue_id)

    monkeypatch.setattr(desk, "range", rebuilt)
    table = node.store.queue_table
    puts = [Put(topic, 0, topic.encode(), store_host="127.0.0.1:0") for topic in both.topics]
    node.store.put(batch_of(puts))
    await until(lambda: table.get("bills", 0) >= 0 and node.store.queues.max_offset(1))
    assert bodies(await receive(node, replace(both, wait_ms=5_000))) == [b"bills"]
    busy = False
    term_of(node).writer.hurry()
    assert bodies(await receive(node, replace(both, wait_ms=5_000))) == [b"orders"]


async def test_a_deleted_topic_fails_no_acknowledgement_of_another(node: Node) -> None:
    """The topic was known to this master when another group's handle named it."""
    node.store.create_topic(TopicConfig("bills", 1, 1))
    await put(node, b"0")
    await put(node, b"b", topic="bills")
    other = await receive(node, replace(RECEIVE, group="other", topics=("bills",)))
    await node.work.ack("other", handles(other))
    got = await receive(node)
    node.store.topics.delete("bills", 1)
    forged = decode_handles(handles(got)).copy()
    forged["topic"] = topic_hash("bills")
    results = await node.work.ack(GROUP, encode_handles(forged) + handles(got))
    assert results.tolist() == [AckResult.UNKNOWN_QUEUE, AckResult.OK]


async def test_topics_that_are_not_there_are_looked_for_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller could have all names hashed for each of its requests."""
    await put(node, b"0")
    await acked(node, await receive(node))
    looked = 0

    async def counted(*_: object) -> dict[int, str]:
        nonlocal looked
        looked += 1
        return {}

    monkeypatch.setattr(asyncio, "to_thread", counted)
    strange = np.zeros(1, HANDLE)
    for number in range(3):
        strange["topic"] = number
        await node.work.ack(GROUP, encode_handles(strange))
    assert looked == 0


async def test_a_receive_names_a_bounded_number_of_queues(node: Node) -> None:
    with pytest.raises(RequestRefusedError, match="queue_ids"):
        await receive(node, replace(RECEIVE, queues=frozenset(range(10_001))))


async def test_a_message_that_the_disk_cannot_read_stops_no_other(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad_sectors(node, monkeypatch, 1)
    await put(node, b"0", b"bad", b"2", b"3")
    got = [*bodies(await receive(node)), *bodies(await receive(node))]
    while len(got) < 3:
        got += bodies(await receive(node))
    assert got == [b"0", b"2", b"3"]
    assert "message 1 of orders/0 cannot be delivered to group billing" in caplog.text
    assert term_of(node).engine.counters.set_aside == 1
    work = await node.work.describe(GROUP)
    assert (work.queues[0].floor, work.queues[0].waiting_retry) == (0, 1)


async def test_it_keeps_an_order_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.work.set_policy(GROUP, IN_ORDER)
    bad_sectors(node, monkeypatch, 1)
    await put(node, b"0", b"bad", b"2")
    first = await receive(node)
    assert bodies(first) == [b"0"]
    await acked(node, first)
    assert bodies(await receive(node)) == []
    assert bodies(await receive(node)) == []


async def test_it_is_delivered_once_the_disk_reads_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        bad_sectors(node, patched, 0)
        await put(node, b"bad", b"1")
        assert bodies(await receive(node)) == [b"1"]
    [queue] = term_of(node).engine.groups.queues(GROUP)
    queue.rows.visible[:1] = 0
    queue.armed_ms = 1 << 62
    term_of(node).engine._arm(queue, term_of(node).now())
    again = await receive(node)
    assert bodies(again) == [b"bad"]
    assert again.messages[0].attempts.tolist() == [1]


async def test_an_acknowledgement_of_it_fails_no_other(tmp_path: Path) -> None:
    settings = config(tmp_path / "store", work=SLOW)
    async with running(settings) as node:
        node.store.create_topic(TopicConfig("orders", 1, 1))
        await put(node, b"bad", b"1")
        got = await receive(node)
    async with running(settings) as node:
        with pytest.MonkeyPatch.context() as patched:
            bad_sectors(node, patched, 0)
            assert await acked(node, got) == [AckResult.INVALID_RECEIPT_HANDLE, AckResult.OK]
        assert await acked(node, got) == [AckResult.OK, AckResult.ALREADY_DONE]


def bad_sectors(node: Node, monkeypatch: pytest.MonkeyPatch, queue_offset: int) -> None:
    """The disk cannot read the body of this message of `orders`."""
    store = node.store
    parts, view = store.log.parts, store.log.view

    def place() -> tuple[int, int]:
        dense = store.queue_table.get("orders", 0)
        unit = store.queues.read(dense, queue_offset, 1)
        if not len(unit):
            return -1, -1
        return int(unit["physical_offset"][0]), int(unit["size"][0])

    def bad_parts(base: int, begins: I64, lengths: I64) -> memoryview:
        at, size = place()
        if ((base + begins < at + size) & (base + begins + lengths > at)).any():
            raise UnreadableError("commitlog/0", at, size, "Input/output error")
        return parts(base, begins, lengths)

    def bad_view(offset: int, size: int) -> memoryview:
        at, length = place()
        if offset < at + length and offset + size > at:
            raise UnreadableError("commitlog/0", at, length, "Input/output error")
        return view(offset, size)

    monkeypatch.setattr(store.log, "parts", bad_parts)
    monkeypatch.setattr(store.log, "view", bad_view)
