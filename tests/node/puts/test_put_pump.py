"""The put path over a store of plain numbers: order, statuses, epochs, bad input, stopping."""

import asyncio
import gc
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tandemlog.format.record.batch import AppendSegment, RecordBatch
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.puts.confirm_waiters import ConfirmWaiters
from tandemlog_server.node.puts.put_pump import PumpLimits, PutPump
from tandemlog_server.node.puts.put_stream import ANSWER_BYTES, PutStream
from tandemlog_server.node.puts.put_wire import QUICK_FIELDS
from tandemlog_server.storage.errors import BatchRefusedError, StoreBusyError
from tandemlog_server.storage.positions import Position
from tandemlog_server.storage.puts.put_path import PutResult


@dataclass
class FakeStore:
    """Appends count records and refuses what it is told to."""

    end: int = 0
    batches: list[RecordBatch] = field(default_factory=list)
    problems: dict[int, Exception] = field(default_factory=dict)
    hold: threading.Event | None = None

    def put(self, batch: RecordBatch, *, holder: str) -> PutResult:
        if self.hold is not None:
            assert self.hold.wait(10)
        number = len(self.batches)
        self.batches.append(batch)
        if number in self.problems:
            raise self.problems[number]
        start, self.end = self.end, self.end + batch.byte_size
        segment = AppendSegment(0, batch.count, start, np.zeros(len(batch.queue_ids), np.int64))
        return PutResult([segment], self.end, store_timestamp=77)


@dataclass
class FakeGate:
    master_of: int | None = 1
    refusal: RequestRefusedError | None = None
    lease: bool = True
    round: "asyncio.Future[int] | None" = None
    asked: int = 0

    @property
    def role(self) -> "FakeGate":
        return self

    def epoch(self) -> int | None:
        return self.master_of

    def leased_epoch(self) -> int | None:
        return self.master_of if self.lease else None

    async def leads(self) -> int:
        self.asked += 1
        assert self.round is not None
        return await self.round

    def admit(self, durability: int) -> None:
        if self.refusal is not None:
            raise self.refusal

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.FLUSH_SLAVE_TIMEOUT, "slaves are silent"


class Rig:
    def __init__(self, *, max_pending_bytes: int = 1 << 20, timeout_ms: int = 5_000) -> None:
        self.loop = asyncio.get_running_loop()
        self.store = FakeStore()
        self.gate = FakeGate()
        self.confirmed = Position("confirmed")
        self.waiters = ConfirmWaiters((self.confirmed,), self.gate.epoch, self.loop)
        store: Any = self.store
        gate: Any = self.gate
        self.pump = PutPump(
            store,
            gate,
            self.waiters,
            self.loop,
            store_host="127.0.0.1:1",
            limits=PumpLimits(max_pending_bytes, timeout_ms),
        )
        self.pump.start()

    def send(self, stream: PutStream, *numbers: int, size: int = 10) -> None:
        for number in numbers:
            self.pump.submit(stream, request(number, size=size))


def request(number: int, *, size: int = 10, **fields: object) -> bytes:
    values: dict[str, object] = {
        "request_id": number,
        "topics": ["t"],
        "queue_topics": [0],
        "queue_ids": [0],
        "records": bytes(size),
        "sizes": np.array([size], "<u4").tobytes(),
        "queue_indexes": np.array([0], "<u2").tobytes(),
        **fields,
    }
    return broker_pb2.AppendRequest(**values).SerializeToString()  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop and the writer thread run until `condition` holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the writer is a thread and knows no event
            await asyncio.sleep(0)


async def take(stream: PutStream, count: int) -> list[broker_pb2.AppendResponse]:
    responses: AsyncIterator[broker_pb2.AppendResponse] = stream.responses()
    async with asyncio.timeout(10):
        return [await anext(responses) for _ in range(count)]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    made.waiters.close()
    await made.pump.stop(1.0)


async def test_a_put_is_answered_when_it_is_confirmed(rig: Rig) -> None:
    stream = rig.pump.open_stream()
    rig.send(stream, 1, 2)
    answers = asyncio.create_task(take(stream, 2))
    await asyncio.sleep(0)
    rig.confirmed.advance(1_000)
    first, second = await answers
    assert [first.request_id, second.request_id] == [1, 2]
    assert first.status == second.status == broker_pb2.PUT_OK
    assert not first.HasField("error")
    assert (first.segments[0].physical_offset, second.segments[0].physical_offset) == (0, 10)
    assert first.store_timestamp == 77
    assert first.store_host == "127.0.0.1:1"


async def test_streams_do_not_wait_for_each_other_but_a_stream_keeps_its_order(rig: Rig) -> None:
    slow, quick = rig.pump.open_stream(), rig.pump.open_stream()
    rig.send(slow, 1)
    rig.pump.submit(slow, request(2, durability=broker_pb2.NO_WAIT))
    rig.pump.submit(quick, request(3, durability=broker_pb2.NO_WAIT))
    (answer,) = await take(quick, 1)
    assert answer.request_id == 3
    # request 2 is ready, and waits for request 1
    answers = asyncio.create_task(take(slow, 2))
    await asyncio.sleep(0)
    assert not answers.done()
    rig.confirmed.advance(10)
    assert [each.request_id for each in await answers] == [1, 2]


async def test_a_refused_batch_is_told_and_the_writer_goes_on(rig: Rig) -> None:
    rig.confirmed.advance(1_000)
    rig.store.problems = {
        0: BatchRefusedError(
            "MESSAGE_TOO_LARGE", "body", "body too large", limit=4, actual=9, record_index=3
        ),
        1: StoreBusyError("the disk cannot keep up"),
        2: ZeroDivisionError("a bug"),
    }
    stream = rig.pump.open_stream()
    rig.send(stream, 1, 2, 3, 4)
    too_large, busy, bug, fine = await take(stream, 4)
    assert too_large.status == broker_pb2.MESSAGE_ILLEGAL
    assert too_large.error.code == common_pb2.MESSAGE_TOO_LARGE
    assert (too_large.error.field, too_large.error.limit, too_large.error.actual) == ("body", 4, 9)
    assert too_large.error.record_index == 3
    assert busy.status == broker_pb2.OS_PAGE_CACHE_BUSY
    assert bug.status == broker_pb2.UNKNOWN_ERROR
    assert bug.error.code == common_pb2.INTERNAL
    assert fine.status == broker_pb2.PUT_OK


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sizes": b""}, "sizes"),
        ({"sizes": b"\0\0\0"}, "sizes"),
        ({"queue_indexes": b"\0"}, "queue_indexes"),
        ({"queue_topics": []}, "queue_topics"),
        ({"queue_topics": [5]}, "queue_topics"),
        ({"queue_topics": [], "queue_ids": []}, "queue_topics"),
    ],
)
async def test_columns_that_do_not_fit_are_refused(
    rig: Rig, fields: dict[str, Any], field: str
) -> None:
    stream = rig.pump.open_stream()
    rig.pump.submit(stream, request(9, **fields))
    (answer,) = await take(stream, 1)
    assert answer.error.code == common_pb2.INVALID_ARGUMENT
    assert answer.error.field == field
    assert rig.store.batches == []


async def test_bytes_that_are_no_request_are_refused(rig: Rig) -> None:
    stream = rig.pump.open_stream()
    rig.pump.submit(stream, b"\xff" * 20)
    (answer,) = await take(stream, 1)
    assert answer.error.code == common_pb2.INVALID_ARGUMENT
    assert answer.error.field == "request"


async def test_a_slave_refuses_with_the_masters_endpoint(rig: Rig) -> None:
    rig.gate.refusal = RequestRefusedError(common_pb2.NOT_MASTER, "a slave", hint="10.0.0.1:1")
    stream = rig.pump.open_stream()
    rig.send(stream, 1)
    (answer,) = await take(stream, 1)
    assert answer.status == broker_pb2.SERVICE_NOT_AVAILABLE
    assert (answer.error.code, answer.error.hint) == (common_pb2.NOT_MASTER, "10.0.0.1:1")
    assert rig.store.batches == []


async def test_a_put_that_is_not_confirmed_in_time_says_so_and_where_it_is(rig: Rig) -> None:
    stream = rig.pump.open_stream()
    rig.pump.submit(stream, request(1, timeout_ms=1))
    (answer,) = await take(stream, 1)
    assert answer.status == broker_pb2.FLUSH_SLAVE_TIMEOUT
    assert answer.error.code == common_pb2.OUTCOME_UNKNOWN
    assert "slaves are silent" in answer.error.message
    assert answer.segments[0].count == 1


async def test_an_answer_is_not_given_in_another_epoch(rig: Rig) -> None:
    stream = rig.pump.open_stream()
    rig.send(stream, 1)
    answers = asyncio.create_task(take(stream, 1))
    await until(lambda: len(rig.waiters) == 1)
    rig.gate.master_of = None
    rig.confirmed.advance(1_000)
    (answer,) = await answers
    assert answer.status == broker_pb2.UNKNOWN_ERROR
    assert answer.error.code == common_pb2.OUTCOME_UNKNOWN


async def test_reading_stops_while_too_much_waits() -> None:
    rig = Rig(max_pending_bytes=100)
    rig.store.hold = threading.Event()
    rig.confirmed.advance(1_000)
    stream = rig.pump.open_stream()
    rig.send(stream, 1, size=50)
    await asyncio.wait_for(rig.pump.room(), 1)
    rig.send(stream, 2, size=50)
    room = asyncio.create_task(rig.pump.room())
    await asyncio.sleep(0)
    assert not room.done()
    rig.store.hold.set()
    await asyncio.wait_for(room, 10)
    assert await rig.pump.stop(10)


async def test_stopping_answers_what_came_in_and_refuses_what_comes_later() -> None:
    rig = Rig()
    stream = rig.pump.open_stream()
    rig.send(stream, 1, 2)
    rig.pump.refuse_new()
    rig.send(stream, 3)
    stopping = asyncio.create_task(rig.pump.stop(10))
    await until(lambda: len(rig.waiters) == 2)
    rig.confirmed.advance(20)
    assert await stopping
    first, second, third = await take(stream, 3)
    assert first.status == second.status == broker_pb2.PUT_OK
    assert third.error.code == common_pb2.SHUTTING_DOWN


async def test_a_stop_that_takes_too_long_says_so() -> None:
    rig = Rig()
    stream = rig.pump.open_stream()
    rig.send(stream, 1)
    assert not await rig.pump.stop(0.01)
    rig.waiters.close()
    (answer,) = await take(stream, 1)
    assert answer.error.code == common_pb2.OUTCOME_UNKNOWN


async def test_answers_are_counted(rig: Rig) -> None:
    rig.confirmed.advance(1_000)
    rig.store.problems = {1: StoreBusyError("busy")}
    stream = rig.pump.open_stream()
    rig.send(stream, 1, 2)
    await take(stream, 2)
    assert rig.pump.stats.results["ok"] == 1
    assert rig.pump.stats.results["refused"] == 1
    assert rig.pump.stats.seconds.count == 1
    assert rig.pump.stats.confirm_seconds.count == 1


async def test_a_stream_that_has_ended_gives_its_last_answers(rig: Rig) -> None:
    rig.confirmed.advance(1_000)
    stream = rig.pump.open_stream()
    rig.send(stream, 1, 2)
    stream.end()
    async with asyncio.timeout(10):
        answers = [each async for each in stream.responses()]
    assert [each.request_id for each in answers] == [1, 2]


async def test_what_comes_above_twice_the_room_is_refused_as_busy() -> None:
    rig = Rig(max_pending_bytes=500)
    rig.store.hold = threading.Event()
    streams = [rig.pump.open_stream() for _ in range(4)]
    for number, stream in enumerate(streams):
        rig.send(stream, number, size=300)
    (refused,) = await take(streams[3], 1)
    assert refused.error.code == common_pb2.BUSY
    assert refused.error.limit == 1_000
    assert refused.request_id == 3
    rig.store.hold.set()
    rig.confirmed.advance(10_000)
    assert [(await take(stream, 1))[0].status for stream in streams[:3]] == [broker_pb2.PUT_OK] * 3
    rig.waiters.close()
    await rig.pump.stop(1.0)


async def test_a_request_with_very_many_topics_is_read_by_a_thread(rig: Rig) -> None:
    stream = rig.pump.open_stream()
    topics = [f"t{number}" for number in range(QUICK_FIELDS + 1)]
    await rig.pump.receive(stream, request(5, topics=topics))
    rig.confirmed.advance(1_000)
    (answer,) = await take(stream, 1)
    assert (answer.request_id, answer.status) == (5, broker_pb2.PUT_OK)
    assert len(rig.store.batches[0].topics) == QUICK_FIELDS + 1


async def test_a_stream_whose_answers_are_not_taken_reads_no_further(rig: Rig) -> None:
    stream = rig.pump.open_stream()
    table = 60_000
    count = ANSWER_BYTES // (8 * table) + 1
    data = request(1, queue_topics=[0] * table, queue_ids=[0] * table)
    for _ in range(count):
        rig.pump.submit(stream, data)
    waiting = asyncio.create_task(stream.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    rig.confirmed.advance(1 << 20)
    await take(stream, 1)
    await waiting
    rig.pump.close_stream(stream)
    assert rig.pump._answer_bytes.count == 0


UNREADABLE = b"\xff" * 1_000
MISFIT = request(1, topics=["t" * 300])
BAD_RECORD = request(1)


@pytest.mark.parametrize("data", [UNREADABLE, MISFIT, BAD_RECORD])
async def test_the_bytes_of_a_refused_put_do_not_wait_for_the_collector(
    rig: Rig, data: bytes
) -> None:
    refusal = BatchRefusedError("BAD_RECORD", "magic", "bad")
    rig.store.put = _refusing(refusal)  # type: ignore[method-assign]
    held = sys.getrefcount(data)
    gc.collect()
    gc.disable()
    try:
        stream = rig.pump.open_stream()
        rig.pump.submit(stream, data)
        (answer,) = await take(stream, 1)
        assert answer.HasField("error")
        # the writer's thread lets go a moment later
        await until(lambda: sys.getrefcount(data) <= held)
    finally:
        gc.enable()


def _refusing(problem: Exception) -> Callable[..., PutResult]:
    def append(batch: RecordBatch, *, holder: str) -> PutResult:
        raise problem

    return append


GAP = BatchRefusedError("SEQUENCE_GAP", "sequence", "7 came, 5 was expected", limit=5, actual=7)


def doubted(rig: Rig, *numbers: int) -> PutStream:
    """The lease is over, and the store refuses these requests as gaps."""
    rig.gate.lease = False
    rig.gate.round = rig.loop.create_future()
    rig.store.problems.update(dict.fromkeys(range(len(numbers)), GAP))
    stream = rig.pump.open_stream()
    rig.send(stream, *numbers)
    return stream


async def test_a_gap_is_told_at_once_while_the_lease_holds(rig: Rig) -> None:
    rig.store.problems[0] = GAP
    stream = rig.pump.open_stream()
    rig.send(stream, 1)
    (answer,) = await take(stream, 1)
    assert answer.error.code == common_pb2.SEQUENCE_GAP
    assert (answer.master_epoch, answer.error.master_epoch) == (1, 1)
    assert rig.gate.asked == 0


@pytest.mark.parametrize("of_the_store", [True, False])
async def test_what_tables_say_waits_for_the_round_and_what_is_wrong_with_a_request_does_not(
    rig: Rig, of_the_store: bool
) -> None:
    """The topic may be writable on a later master."""
    rig.gate.lease = False
    rig.gate.round = rig.loop.create_future()
    rig.store.problems[0] = BatchRefusedError(
        "INVALID_ARGUMENT", "topic", "topic 't' is not writable", of_the_store=of_the_store
    )
    stream = rig.pump.open_stream()
    rig.send(stream, 1)
    if of_the_store:
        await until(lambda: rig.gate.asked > 0)
        rig.gate.round.set_exception(
            RequestRefusedError(common_pb2.NOT_IN_SYNC, "this master is not sure")
        )
    (answer,) = await take(stream, 1)
    assert answer.error.code == (
        common_pb2.NOT_IN_SYNC if of_the_store else common_pb2.INVALID_ARGUMENT
    )
    assert rig.gate.asked == int(of_the_store)


async def test_without_a_lease_one_round_tells_all_gaps_that_wait(rig: Rig) -> None:
    stream = doubted(rig, 1, 2, 3)
    await until(lambda: rig.gate.asked > 0 and not rig.pump.under_way)
    assert stream._pending[0].response is None, "nothing is said before the round"
    assert rig.gate.round is not None
    rig.gate.round.set_result(1)
    answers = await take(stream, 3)
    assert {each.error.code for each in answers} == {common_pb2.SEQUENCE_GAP}
    assert {each.error.master_epoch for each in answers} == {1}
    assert rig.gate.asked <= 3


@pytest.mark.parametrize("outcome", ["no answer", "another term"])
async def test_a_master_that_is_not_sure_refuses_nothing_for_ever(rig: Rig, outcome: str) -> None:
    stream = doubted(rig, 1)
    assert rig.gate.round is not None
    if outcome == "another term":
        rig.gate.round.set_result(3)
    else:
        rig.gate.round.set_exception(
            RequestRefusedError(common_pb2.NOT_IN_SYNC, "this master is not sure")
        )
    (answer,) = await take(stream, 1)
    assert answer.error.code == common_pb2.NOT_IN_SYNC
    assert answer.status == broker_pb2.IN_SYNC_REPLICAS_NOT_ENOUGH


async def test_a_stop_answers_refusals_that_wait_for_a_round(rig: Rig) -> None:
    stream = doubted(rig, 1)
    await until(lambda: rig.gate.asked == 1)
    await rig.pump.stop(1.0)
    (answer,) = await take(stream, 1)
    assert answer.error.code == common_pb2.NOT_IN_SYNC


async def test_a_put_that_is_stored_asks_for_no_round(rig: Rig) -> None:
    rig.gate.lease = False
    stream = rig.pump.open_stream()
    rig.send(stream, 1)
    await until(lambda: rig.store.end == 10)
    rig.confirmed.advance(10)
    (answer,) = await take(stream, 1)
    assert (answer.status, answer.master_epoch, rig.gate.asked) == (broker_pb2.PUT_OK, 1, 0)
