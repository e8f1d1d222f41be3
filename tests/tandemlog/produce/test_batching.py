import threading

import pytest

from tandemlog.errors import BufferFullError, ClientClosedError
from tandemlog.format.record.producer_mark import ProducerMark, parse_producer_mark
from tandemlog.format.record.record import decode_record
from tandemlog.message import Message
from tandemlog.produce.accumulator import Accumulator
from tandemlog.produce.framing import Framer
from tandemlog.produce.futures import SendFuture, SyncGroup
from tandemlog.produce.put_batch import OpenBatch, PutBatch
from tandemlog.produce.sender import (
    CROWDED,
    CROWDED_LINGER_S,
    TIMER_STEP_S,
    due_after,
    linger_for,
)
from tandemlog.v1 import broker_pb2

RECORD = Framer(unique_ids=False).frame(Message("t", b"x" * 9), 0)
SIZE = len(RECORD)


class Box:
    """An accumulator, a clock and the wakes."""

    def __init__(self, batch_records: int = 3, max_records: int = 100) -> None:
        self.now = 10.0
        self.wakes = 0
        self.accumulator: Accumulator[SendFuture] = Accumulator(
            batch_bytes=batch_records * SIZE,
            max_bytes=max_records * SIZE,
            delivery_seconds=5.0,
            new_group=SyncGroup,
            wake=self.wake,
            clock=lambda: self.now,
        )

    def wake(self) -> None:
        self.wakes += 1

    def add(self, count: int = 1, queue: int = 0, durability: int = 0) -> list[SendFuture | None]:
        return [
            self.accumulator.add(RECORD, "t", queue, durability)  # type: ignore[arg-type]
            for _ in range(count)
        ]

    def taken(self) -> list[int]:
        batches = []
        while (batch := self.accumulator.pop()) is not None:
            batches.append(batch.count)
        return batches


def test_a_full_batch_is_sealed_and_the_next_one_opened() -> None:
    box = Box(batch_records=3)
    box.add(7)
    assert box.taken() == [3, 3]
    box.accumulator.seal()
    assert box.taken() == [1]
    assert box.accumulator.full(0).actual == 7 * SIZE


def test_one_wake_until_the_loop_has_looked() -> None:
    box = Box(batch_records=3)
    box.add(7)
    assert box.wakes == 1
    assert box.accumulator.seal_due(5.0) == 5.0
    box.now += 4.0
    assert box.accumulator.seal_due(5.0) == 1.0
    box.now += 1.0
    assert box.accumulator.seal_due(5.0) is None
    assert box.taken() == [3, 3, 1]
    box.add()
    assert box.wakes == 2


def test_another_durability_needs_another_request() -> None:
    box = Box()
    box.add(1, durability=0)
    box.add(1, durability=1)
    box.accumulator.seal()
    first, second = box.accumulator.pop(), box.accumulator.pop()
    assert first is not None
    assert second is not None
    assert (first.durability, second.durability) == (broker_pb2.CLUSTER, broker_pb2.NO_WAIT)


def test_no_room_above_the_limit_but_for_a_single_large_message() -> None:
    box = Box(max_records=2)
    assert None not in box.add(2)
    assert box.add() == [None]
    box.accumulator.release(2 * SIZE)
    large = b"x" * (10 * SIZE)
    assert box.accumulator.add(large, "t", 0, broker_pb2.CLUSTER) is not None


def test_waiting_for_room_ends_with_the_limit_in_the_error() -> None:
    box = Box(max_records=1)
    box.add()
    with pytest.raises(BufferFullError) as caught:
        box.accumulator.wait_for_room(SIZE, 0.001)
    assert caught.value.limit == SIZE


def test_a_thread_waits_for_room_until_bytes_are_released() -> None:
    box = Box(max_records=1)
    box.add()
    thread = threading.Thread(target=lambda: box.accumulator.wait_for_room(SIZE, 10))
    thread.start()
    box.accumulator.release(SIZE)
    thread.join(10)
    assert not thread.is_alive()


def test_a_ready_request_stands_behind_what_came_before() -> None:
    box = Box(max_records=4)
    box.add(2)
    ready = OpenBatch(broker_pb2.CLUSTER, SyncGroup(), 0.0)
    ready.add(RECORD, "t", 0)
    assert box.accumulator.submit(ready.seal(1.0))
    box.add(1)
    box.accumulator.seal()
    assert box.taken() == [2, 1, 1]
    ready = OpenBatch(broker_pb2.CLUSTER, SyncGroup(), 0.0)
    ready.add(RECORD, "t", 0)
    assert not box.accumulator.submit(ready.seal(1.0))


def test_every_batch_has_a_generation() -> None:
    box = Box(batch_records=1)
    seen = set()
    for _ in range(3):
        box.add()
        seen.add(box.accumulator.generation)
    assert len(seen) == 3


def test_closing_gives_back_what_nobody_took_and_refuses_more() -> None:
    box = Box(batch_records=2)
    box.add(3)
    assert [batch.count for batch in box.accumulator.close()] == [2, 1]
    with pytest.raises(ClientClosedError):
        box.add()
    box.accumulator.wait_for_room(SIZE, 0)


def test_refusing_keeps_what_is_there() -> None:
    box = Box()
    box.add()
    box.accumulator.refuse(ClientClosedError("over"))
    with pytest.raises(ClientClosedError, match="over"):
        box.add()
    box.accumulator.seal()
    assert box.taken() == [1]


def test_a_sealed_batch_has_the_columns_of_its_records() -> None:
    framer = Framer(unique_ids=False)
    batch = OpenBatch(broker_pb2.CLUSTER, SyncGroup(), 100.0)
    places = [("a", 1), ("b", 0), ("a", 1), ("a", 2), ("b", 0)]
    for number, (topic, queue) in enumerate(places):
        batch.add(framer.frame(Message(topic, b"%d" % number), queue), topic, queue)
    sealed = batch.seal(5.0)
    sealed.request_id = 7
    sealed.sequence, sealed.epoch = 3, 2
    encoded = b"".join(sealed.encoded("me", 0))
    request = broker_pb2.AppendRequest.FromString(encoded)
    assert (request.request_id, sealed.deadline) == (7, 105.0)
    assert list(request.topics) == ["a", "b"]
    assert list(zip(request.queue_topics, request.queue_ids, strict=True)) == [
        (0, 1),
        (1, 0),
        (0, 2),
    ]
    position = 0
    bodies = []
    for index in range(5):
        size = int.from_bytes(request.sizes[4 * index : 4 * index + 4], "little")
        record = decode_record(request.records, position, limit=position + size)
        bodies.append((record.topic, record.queue_id, record.body))
        assert ("__TL_SEQ" in record.properties) == (index == 0)
        position += size
    assert bodies == [(topic, queue, b"%d" % n) for n, (topic, queue) in enumerate(places)]
    assert position == len(request.records)
    first = decode_record(request.records, 0)
    mark = parse_producer_mark(first.properties["__TL_SEQ"])
    assert mark == ProducerMark("me", 2, 3, 0, 5, sealed.checksum)
    assert b"".join(sealed.encoded("me", 0)) == encoded


def test_the_same_messages_of_another_process_are_the_same_request_where_it_says_so() -> None:
    def sealed(now: int, body: bytes = b"x") -> PutBatch:
        batch = OpenBatch(broker_pb2.CLUSTER, SyncGroup(), 100.0)
        batch.add(Framer(now_ms=lambda: now).frame(Message("t", body), 0), "t", 0)
        return batch.seal(5.0)

    assert sealed(1).checksum != sealed(2).checksum
    one, two, other = sealed(1), sealed(2), sealed(2, b"y")
    for each in (one, two, other):
        each.may_be_framed_anew()
    assert one.checksum == two.checksum != other.checksum
    behind, elsewhere = sealed(3), sealed(4)
    assert behind.may_be_framed_anew(one.checksum) == behind.checksum
    assert elsewhere.may_be_framed_anew(other.checksum) != behind.checksum


def test_messages_are_taken_out_of_a_request() -> None:
    framer = Framer(unique_ids=False)
    group = SyncGroup()
    batch = OpenBatch(broker_pb2.CLUSTER, group, 0.0)
    futures = []
    for number, topic in enumerate("abab"):
        batch.add(framer.frame(Message(topic, b"%d" % number), 0), topic, 0)
        futures.append(group.add(number))
    sealed = batch.seal(5.0)
    guilty = sealed.messages_of_topic("a")
    rest = sealed.without(guilty, ClientClosedError("x"))
    assert guilty == [0, 2]
    assert (list(rest.topics), rest.count) == (["b"], 2)
    request = broker_pb2.AppendRequest.FromString(b"".join(rest.encoded(None, 0)))
    assert decode_record(request.records, 0).body == b"1"
    assert [future.done() for future in futures] == [True, False, True, False]


def test_batches_wait_for_an_answer_where_many_requests_are_on_their_way() -> None:
    assert linger_for(0.005, 0) == 0.005
    assert linger_for(0.005, 1) == 0.01
    assert linger_for(0.005, CROWDED) == CROWDED_LINGER_S
    for in_flight in range(4):
        assert linger_for(1.0, in_flight) == 1.0, "what was asked for, where that is long enough"
    assert linger_for(0.0, 30) == 0.0


@pytest.mark.parametrize("linger", [0.005, 0.01, 0.1, 10.0])
def test_a_batch_is_not_sent_behind_the_end_of_its_linger_by_the_step_of_a_timer(
    linger: float,
) -> None:
    assert due_after(linger) + TIMER_STEP_S == pytest.approx(linger)


def test_a_short_linger_still_gathers() -> None:
    assert due_after(0.001) == pytest.approx(0.0008)
    assert due_after(0.0) == 0.0
