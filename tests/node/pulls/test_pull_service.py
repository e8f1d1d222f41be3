"""Pulls over several queues of a store of plain lists: limits, filters, waiting, refusals."""

import asyncio
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tandemlog.format.filter.expression import Condition
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.pulls import pull_service, queue_reads, waiting_places
from tandemlog_server.node.pulls.long_polling import LongPolling
from tandemlog_server.node.pulls.pull_service import PullService
from tandemlog_server.node.pulls.queue_reads import QueueReads
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.pulls.reading import Position, PullLimits, Reading, Wanted
from tandemlog_server.storage.reads.results import GetResult, GetStatus

COST = 100
"""Of a message that a filter looks at."""


@dataclass
class FakeStore:
    """Queue id -> messages, each (tag hash, bytes)."""

    queues: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    gets: int = 0
    in_memory: bool = False

    def get_in_memory(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int, max_bytes: int
    ) -> GetResult | None:
        if not self.in_memory:
            return None
        found = self.get(topic, queue_id, queue_offset, max_messages, max_bytes)
        return found if found.status is GetStatus.FOUND else None

    def get_nothing(self, topic: str, queue_id: int, queue_offset: int) -> GetResult | None:
        found = self.get(topic, queue_id, queue_offset, 1, 1)
        at_end = found.status is not GetStatus.FOUND and found.next_offset == queue_offset
        return found if self.in_memory and at_end else None

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        max_bytes: int,
        tag_hashes: Collection[int] = (),
        condition: Condition | None = None,
    ) -> GetResult:
        self.gets += 1
        messages = self.queues.get(queue_id)
        if messages is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        end = len(messages)
        if queue_offset == end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, 0, end)
        if queue_offset > end:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end, 0, end)
        found: list[bytes] = []
        following = queue_offset
        for tag, body in messages[queue_offset : queue_offset + 2]:  # two units a look
            if found and sum(map(len, found)) + len(body) > max_bytes:
                break
            following += 1
            if condition is not None and body != b"wanted":
                continue
            if not tag_hashes or tag in tag_hashes:
                found.append(body)
        status = GetStatus.FOUND if found else GetStatus.NO_MATCHED_MESSAGE
        sizes = np.array([len(each) for each in found], np.uint32)
        cost = 0 if condition is None else COST * (following - queue_offset)
        return GetResult(status, following, 0, end, sizes, b"".join(found), 500, cost)


class Rig:
    def __init__(
        self, *, on_slave: bool = False, far_behind_bytes: int = 1 << 62, long_polls: int = 9
    ) -> None:
        self.store = FakeStore()
        self.log_term = (1, 1)
        # (queue, body) that reput has not reached
        self.confirmed: list[tuple[int, bytes]] = []
        self.polling = LongPolling(asyncio.get_running_loop(), lambda: len(self.store.queues))
        self.turns = ReadTurns(1, 1 << 20)
        reader: Any = self.store
        self.reads = QueueReads(
            reader,
            self.polling,
            self.turns,
            check=self.check,
            dense=lambda _, queue: queue if queue in self.store.queues else -1,
            ends=lambda numbers: [len(self.store.queues.get(each, ())) for each in numbers],
            dispatched=self.dispatch,
            on_slave=lambda: on_slave,
            limits=PullLimits(
                max_bytes=1000,
                max_wait_ms=60_000,
                long_polls=long_polls,
                far_behind_bytes=far_behind_bytes,
            ),
            log_term=lambda: self.log_term,
        )
        self.pulls = PullService(self.reads)

    async def dispatch(self) -> bool:
        for queue_id, body in self.confirmed:
            self.put(queue_id, body)
        self.confirmed.clear()
        return True

    def check(self, topic: str, queue_id: int) -> None:
        if topic != "t":
            raise RequestRefusedError(common_pb2.UNKNOWN_TOPIC, "unknown", field="topic")

    async def pull(self, *positions: tuple[int, int], **fields: object) -> broker_pb2.PullResponse:
        request = broker_pb2.PullRequest(**fields)  # type: ignore[arg-type]
        for queue_id, offset in positions:
            request.positions.add(topic="t", queue_id=queue_id, queue_offset=offset)
        async with asyncio.timeout(10):
            [answer] = await self.pulls.pull(request, Caller())
        return broker_pb2.PullResponse.FromString(bytes(answer))

    def put(self, queue_id: int, *bodies: bytes, tag: int = 0) -> None:
        self.store.queues.setdefault(queue_id, []).extend((tag, body) for body in bodies)
        self.polling.on_dispatch([queue_id])


def states(response: broker_pb2.PullResponse) -> list[tuple[int, str, int]]:
    return [
        (each.position_index, broker_pb2.PullStatus.Name(each.status), each.next_offset)
        for each in response.queues
    ]


async def test_records_of_several_queues_come_in_one_answer() -> None:
    rig = Rig()
    rig.put(0, b"a", b"bb")
    rig.put(1, b"ccc")
    response = await rig.pull((0, 0), (1, 0))
    assert states(response) == [(0, "FOUND", 2), (1, "FOUND", 1)]
    first = response.queues[0]
    assert (first.count, first.records, first.max_offset) == (2, b"abb", 2)
    assert np.frombuffer(first.sizes, "<u4").tolist() == [1, 2]
    assert not response.suggest_slave


async def test_an_answer_is_bounded_over_all_its_queues() -> None:
    rig = Rig()
    for queue_id in range(4):
        rig.put(queue_id, bytes(600))
    response = await rig.pull((0, 0), (1, 0), (2, 0), (3, 0))
    assert [each.position_index for each in response.queues] == [0, 1]


async def test_the_ends_of_queues_are_told_at_once_without_a_wait() -> None:
    rig = Rig()
    rig.put(0, b"a")
    response = await rig.pull((0, 1), (0, 7), (5, 0))
    assert states(response) == [
        (0, "OFFSET_OVERFLOW_ONE", 1),
        (1, "OFFSET_OVERFLOW_BADLY", 1),
        (2, "NO_MATCHED_LOGIC_QUEUE", 0),
    ]


async def test_a_long_poll_is_woken_by_one_of_its_queues() -> None:
    rig = Rig()
    rig.put(0, b"a")
    rig.put(1, b"b")
    waiting = asyncio.create_task(rig.pull((0, 1), (1, 1), wait_ms=60_000))
    await until_waiting(rig)
    rig.put(1, b"cc")
    response = await waiting
    assert states(response) == [(0, "OFFSET_OVERFLOW_ONE", 1), (1, "FOUND", 2)]


async def test_a_long_poll_is_woken_by_the_first_message_of_a_queue() -> None:
    rig = Rig()
    waiting = asyncio.create_task(rig.pull((3, 0), wait_ms=60_000))
    await until_waiting(rig)
    rig.put(3, b"first")
    assert states(await waiting) == [(0, "FOUND", 1)]


async def test_a_long_poll_ends_with_its_time() -> None:
    rig = Rig()
    rig.put(0, b"a")
    assert states(await rig.pull((0, 1), wait_ms=1)) == [(0, "OFFSET_OVERFLOW_ONE", 1)]


async def test_a_long_poll_ends_when_the_node_stops() -> None:
    rig = Rig()
    rig.put(0, b"a")
    waiting = asyncio.create_task(rig.pull((0, 1), wait_ms=60_000))
    await until_waiting(rig)
    rig.pulls.close()
    assert states(await waiting) == [(0, "OFFSET_OVERFLOW_ONE", 1)]


async def test_a_wrong_offset_is_told_at_once_however_long_the_poll() -> None:
    rig = Rig()
    rig.put(0, b"a")
    assert states(await rig.pull((0, 9), wait_ms=60_000)) == [(0, "OFFSET_OVERFLOW_BADLY", 1)]


async def test_a_message_that_its_producer_knows_of_is_there_for_who_asks_beyond_it() -> None:
    rig = Rig()
    rig.put(0, b"a")
    rig.confirmed = [(0, b"b"), (0, b"c"), (4, b"new"), (4, b"queue")]
    response = await rig.pull((0, 2), (4, 1), wait_ms=60_000)
    assert states(response) == [(0, "FOUND", 3), (1, "FOUND", 2)]
    rig.confirmed = [(0, b"d"), (0, b"e")]
    response = await rig.pull((0, 4), (4, 2))
    assert states(response) == [(0, "FOUND", 5), (1, "OFFSET_OVERFLOW_ONE", 2)]


async def test_a_slave_that_is_behind_does_not_send_the_client_back() -> None:
    rig = Rig(on_slave=True)
    rig.put(0, b"a")
    assert states(await rig.pull((0, 9), (7, 3))) == [
        (0, "OFFSET_OVERFLOW_BADLY", 9),
        (1, "NO_MATCHED_LOGIC_QUEUE", 3),
    ]
    assert states(await rig.pull((0, 9), wait_ms=60_000)) == [(0, "OFFSET_OVERFLOW_BADLY", 9)]
    assert states(await rig.pull((7, 3), wait_ms=60_000)) == [(0, "NO_MATCHED_LOGIC_QUEUE", 3)]


async def test_a_long_poll_with_a_filter_reads_on_until_it_finds_something() -> None:
    rig = Rig()
    rig.put(0, *[b"x"] * 20, tag=1)
    rig.put(0, b"wanted", tag=2)
    once = await rig.pull((0, 0), tag_hashes=[2])
    assert states(once) == [(0, "NO_MATCHED_MESSAGE", 2)]
    response = await rig.pull((0, 2), tag_hashes=[2], wait_ms=60_000)
    assert response.queues[0].records == b"wanted"
    assert rig.store.gets == 1 + 10


async def test_a_filter_that_finds_nothing_has_moved_on() -> None:
    rig = Rig()
    rig.put(0, *[b"x"] * 20, tag=1)
    response = await rig.pull((0, 0), tag_hashes=[2], wait_ms=1)
    assert states(response) == [(0, "OFFSET_OVERFLOW_ONE", 20)]


async def test_what_a_filter_skips_is_told_long_before_the_wait_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_reads, "PASSED_WAIT_S", 0.001)
    rig = Rig()
    rig.put(0, *[b"x"] * 20, tag=1)
    response = await rig.pull((0, 0), tag_hashes=[2], wait_ms=60_000)
    assert states(response) == [(0, "OFFSET_OVERFLOW_ONE", 20)]
    waiting = asyncio.create_task(rig.pull((0, 20), tag_hashes=[2], wait_ms=60_000))
    await until_waiting(rig)
    rig.put(0, b"x", tag=1)
    assert states(await waiting) == [(0, "OFFSET_OVERFLOW_ONE", 21)]


@pytest.mark.parametrize("quick", [0, 512])
async def test_what_a_filter_skips_at_once_is_told_soon_too(
    quick: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_reads, "PASSED_WAIT_S", 0.001)
    monkeypatch.setattr(queue_reads, "QUICK_POSITIONS", quick)
    rig = Rig()
    rig.put(0, *[b"x"] * 20)
    response = await rig.pull((0, 0), filter="a = 5", wait_ms=60_000)
    assert states(response) == [(0, "OFFSET_OVERFLOW_ONE", 20)]


async def test_what_a_filter_skipped_does_not_count_in_another_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_reads, "PASSED_WAIT_S", 60)
    rig = Rig()
    rig.put(0, *[b"x"] * 6)
    waiting = asyncio.create_task(rig.pull((0, 1), filter="a = 5", wait_ms=60_000))
    await until_waiting(rig)
    # cut to 3 messages, and continued by another master
    del rig.store.queues[0][3:]
    rig.log_term = (2, 2)
    rig.put(0, b"wanted", b"x", b"x", b"x")
    response = await waiting
    assert response.log_epoch == 2
    assert [(each.records, each.next_offset) for each in response.queues] == [(b"wanted", 5)]


async def test_a_filter_gives_an_account_after_a_while() -> None:
    rig = Rig()
    rig.put(0, *[b"x"] * 1000, tag=1)
    response = await rig.pull((0, 0), tag_hashes=[2], wait_ms=60_000)
    assert states(response) == [(0, "NO_MATCHED_MESSAGE", 128)]


async def test_a_slave_is_suggested_for_what_is_far_behind() -> None:
    rig = Rig(far_behind_bytes=400)
    rig.put(0, b"a")
    assert (await rig.pull((0, 0))).suggest_slave


async def test_what_cannot_be_asked() -> None:
    rig = Rig()
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "positions"),
        ({"positions": [{"topic": "t"}], "max_messages": -1}, "max_messages"),
        ({"positions": [{"topic": "t"}], "max_bytes": -1}, "max_bytes"),
        ({"positions": [{"topic": "unknown"}]}, "topic"),
    )
    for fields, field_name in refused:
        with pytest.raises(RequestRefusedError) as raised:
            await rig.pull(**fields)
        assert raised.value.field == field_name


async def until_waiting(rig: Rig) -> None:
    """Let the pull come to its wait: it has looked in memory then, registered."""
    async with asyncio.timeout(10):
        while not rig.polling.watching:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)


async def test_long_polls_above_the_limit_are_refused_by_name() -> None:
    rig = Rig(long_polls=3)  # of which one host has two
    rig.put(0, b"a")
    waiting = [asyncio.create_task(rig.pull((0, 1), wait_ms=60_000)) for _ in range(2)]
    async with asyncio.timeout(10):
        while rig.polling.waiters < 2:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
    with pytest.raises(
        RequestRefusedError, match=r"limits\.long_polls is 3 for all, 2 of it for one"
    ) as refused:
        await rig.pull((0, 1), wait_ms=60_000)
    assert (refused.value.code, refused.value.limit) == (common_pb2.BUSY, 3)
    assert (await rig.pull((0, 0), wait_ms=60_000)).queues[0].count  # what need not wait may come
    rig.put(0, b"b")
    assert [answer.queues[0].count for answer in await asyncio.gather(*waiting)] == [1, 1]


async def test_all_long_polls_together_wait_for_so_many_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_places, "MAX_WATCHES", 3)
    rig = Rig()
    for queue_id in range(4):
        rig.put(queue_id, b"a")
    with pytest.raises(RequestRefusedError, match="the limit is 3"):
        await rig.pull((0, 1), (1, 1), (2, 1), (3, 1), wait_ms=60_000)


async def test_a_filter_over_many_queues_looks_at_so_many_entries_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_reads, "SCAN_UNITS", 3 * queue_reads._LEAST_SCANNED)
    rig = Rig()
    rig.put(0, *[b"x"] * 1000, tag=1)
    response = await rig.pull(*[(0, 0)] * 100, tag_hashes=[2], wait_ms=60_000)
    assert rig.store.gets == 3
    assert states(response) == [(0, "NO_MATCHED_MESSAGE", 6)]


@pytest.mark.parametrize(
    ("positions", "tags", "field"),
    [
        (pull_service.MAX_POSITIONS + 1, 0, "positions"),
        (1, pull_service.MAX_TAGS + 1, "tag_hashes"),
    ],
)
async def test_what_one_pull_names_is_bounded(positions: int, tags: int, field: str) -> None:
    with pytest.raises(RequestRefusedError) as refused:
        await Rig().pull(*[(0, 0)] * positions, tag_hashes=range(tags))
    assert refused.value.field == field
    assert refused.value.actual == refused.value.limit + 1


async def test_a_pull_whose_caller_is_gone_reads_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    for queue_id in range(50):
        rig.put(queue_id, b"a")
    started, go = threading.Event(), threading.Event()
    get = rig.store.get

    def slow_get(*args: Any) -> GetResult:
        started.set()
        assert go.wait(10)
        return get(*args)

    monkeypatch.setattr(rig.store, "get", slow_get)
    pulling = asyncio.create_task(rig.pull(*[(queue_id, 1) for queue_id in range(50)]))
    await asyncio.to_thread(started.wait, 10)
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    go.set()
    rig.turns.close()
    assert rig.store.gets == 1


async def test_a_wait_at_the_end_of_all_queues_reads_nothing() -> None:
    rig = Rig()
    rig.put(0, b"a")
    waiting = asyncio.create_task(rig.pull((0, 1), (5, 0), wait_ms=60_000))
    await until_waiting(rig)
    assert rig.store.gets == 0
    rig.put(5, b"first")
    assert states(await waiting) == [(0, "OFFSET_OVERFLOW_ONE", 1), (1, "FOUND", 1)]
    assert rig.store.gets == 2


async def test_a_message_between_the_look_and_the_wait_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is dispatched just before the pull is entered as a waiter, so no notice comes."""
    rig = Rig()
    rig.put(0, b"a")
    real = rig.reads._places.take

    def put_meanwhile(holder: str, queues: int) -> None:
        real(holder, queues)
        rig.put(0, b"b")

    monkeypatch.setattr(rig.reads._places, "take", put_meanwhile)
    assert states(await rig.pull((0, 1), wait_ms=60_000)) == [(0, "FOUND", 2)]


async def test_a_filter_that_skips_what_came_waits_on_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_reads, "PASSED_WAIT_S", 60)
    rig = Rig()
    rig.put(0, b"a", tag=1)
    waiting = asyncio.create_task(rig.pull((0, 1), wait_ms=60_000, tag_hashes=[2]))
    await until_waiting(rig)
    rig.put(0, b"b", tag=1)
    async with asyncio.timeout(10):
        while rig.store.gets < 2 or not rig.polling.watching:  # noqa: ASYNC110
            await asyncio.sleep(0)
    rig.put(0, b"wanted", tag=2)
    assert states(await waiting) == [(0, "FOUND", 3)]


@pytest.mark.parametrize("quick", [0, 512])
async def test_many_positions_are_read_first(quick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_reads, "QUICK_POSITIONS", quick)
    rig = Rig()
    rig.put(0, b"a")
    waiting = asyncio.create_task(rig.pull((0, 1), wait_ms=60_000))
    await until_waiting(rig)
    assert rig.store.gets == (0 if quick else 1)
    rig.put(0, b"b")
    assert states(await waiting) == [(0, "FOUND", 2)]


async def test_a_filter_is_applied_and_says_so() -> None:
    rig = Rig()
    rig.put(0, b"other", b"other", b"other", b"wanted", b"other")
    response = await rig.pull((0, 0), filter="a = 5", wait_ms=1000)
    assert response.filtered
    assert [(each.count, each.records, each.next_offset) for each in response.queues] == [
        (1, b"wanted", 4)
    ]
    assert not (await rig.pull((0, 0))).filtered


async def test_a_filter_that_cannot_be_parsed_is_refused_by_name() -> None:
    rig = Rig()
    rig.put(0, b"a")
    with pytest.raises(RequestRefusedError) as raised:
        await rig.pull((0, 0), filter="a = ")
    assert raised.value.field == "filter"
    assert "at character 5" in str(raised.value)


async def test_a_filter_looks_at_fewer_messages_in_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_reads, "SCAN_UNITS", 4 * COST)
    rig = Rig()
    rig.put(0, *[b"other"] * 20)
    response = await rig.pull((0, 0), filter="a = 5", wait_ms=1)
    assert states(response) == [(0, "NO_MATCHED_MESSAGE", 4)]


async def test_a_few_messages_in_memory_are_read_in_the_loop() -> None:
    rig = Rig(far_behind_bytes=400)
    rig.put(0, b"a", b"bb")
    by_thread = await rig.pull((0, 0), max_messages=2, group="g")
    rig.store.in_memory = True
    rig.turns.close()  # no thread reads from here on
    answer = await rig.pull((0, 0), max_messages=2, group="g", wait_ms=1000)
    assert answer == by_thread
    assert answer.suggest_slave
    assert rig.reads.latency.count == 2
    for more in ({"tag_hashes": [1]}, {"max_messages": 0}, {"filter": "a = 1"}):
        with pytest.raises(RequestRefusedError, match="stopping"):
            await rig.pull((0, 0), **{"max_messages": 2, **more})
    with pytest.raises(RequestRefusedError, match="stopping"):
        await rig.pull((0, 2), max_messages=2)


async def test_a_read_in_the_loop_keeps_to_its_callers_share() -> None:
    rig = Rig()
    rig.store.in_memory = True
    rig.put(0, bytes(600), bytes(300))
    place = Position(0, "t", 0, 0)
    wanted = Wanted((place,), max_messages=2)
    caller = Caller("p")

    def large(reading: Reading) -> tuple[Reading, int]:
        return reading, 3_000

    assert rig.reads.read_now(wanted, caller, large) is not None
    assert caller.held_bytes == rig.turns.held_bytes == 6_000
    assert rig.reads.read_now(wanted, caller, large) is not None
    assert caller.held_bytes == 6_000
    with pytest.raises(RequestRefusedError, match="unknown"):
        rig.reads.read_now(Wanted((Position(0, "u", 0, 0),), max_messages=2), Caller("q"), large)
    rig.turns.hold(caller, 1 << 20)
    assert rig.reads.read_now(wanted, caller, large) is None
