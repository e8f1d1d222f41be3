import logging
from dataclasses import replace

import numpy as np
import pytest

from tandemlog.consume.reading.positions import Queue
from tandemlog.consume.reading.span_progress import QueueSpan, SpanProgress
from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.errors import NodeUnavailableError
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import broker_pb2

ALL = frozenset({"m"})
"""Who must lack a message before it is lost."""
Part = tuple[int, ReceivedBatch]


class LostError(Exception):
    """What the reader makes of a loss."""


def part(
    status: int,
    offsets: list[int],
    next_offset: int,
    *,
    index: int = 0,
    low: int = 0,
    high: int = 99,
    damaged: int | None = None,
    begins: int = 0,
) -> Part:
    """`begins`: where the message of offset 0 lies in the log, each a byte behind the other."""
    records = [
        encode_record(
            topic="t", body=b"%d" % offset, queue_offset=offset, physical_offset=begins + offset
        )
        for offset in offsets
    ]
    if damaged is not None:
        number = offsets.index(damaged)
        records[number] = records[number].replace(b"%d\x01t" % damaged, b"%d\x01t" % (damaged ^ 1))
    return index, ReceivedBatch(
        topic="t",
        queue_id=index,
        status=broker_pb2.PullStatus.Name(status),  # type: ignore[arg-type]
        next_offset=next_offset,
        min_offset=low,
        max_offset=high,
        records=memoryview(b"".join(records)),
        sizes=np.array([len(each) for each in records], "<u4"),
    )


def progress(
    *spans: QueueSpan,
    filtered: bool = False,
    fail: bool = True,
    verify_crc: bool = True,
    hold_bytes: int = 1 << 20,
) -> SpanProgress:
    def lost(text: str, damaged: bool) -> None:
        if fail:
            raise LostError(f"{text} ({damaged=})")
        logging.getLogger(__name__).warning(text)

    return SpanProgress(
        spans, filtered=filtered, on_loss=lost, verify_crc=verify_crc, hold_bytes=hold_bytes
    )


def accept(
    reading: SpanProgress,
    *parts: Part,
    by: str = "m",
    all_nodes: frozenset[str] | None = ALL,
    ends: dict[Queue, int] | None = None,
) -> tuple[list[ReceivedBatch], bool]:
    reading.places()
    moved = reading.accept(parts, by, all_nodes, ends)
    return reading.pop_ready(), moved


def asked(reading: SpanProgress) -> list[tuple[int, int]]:
    return [(queue[1], offset) for queue, offset in reading.places()]


def test_rows_move_the_position_up_to_the_end() -> None:
    reading = progress(QueueSpan("t", 0, 5, 9))
    assert asked(reading) == [(0, 5)]
    [batch], moved = accept(reading, part(broker_pb2.FOUND, [5, 6], 7))
    assert (len(batch), moved, reading.done) == (2, True, False)
    assert asked(reading) == [(0, 7)]
    [batch], _ = accept(reading, part(broker_pb2.FOUND, [7, 8, 9, 10], 11))
    assert batch.headers.queue_offset.tolist() == [7, 8]
    assert reading.done


def test_several_queues_of_one_answer() -> None:
    reading = progress(QueueSpan("t", 0, 0, 2), QueueSpan("t", 1, 4, 6), QueueSpan("t", 2, 0, 1))
    asked(reading)
    assert reading.most_messages == 2
    found, _ = accept(
        reading, part(broker_pb2.FOUND, [0, 1], 2), part(broker_pb2.FOUND, [4], 5, index=1)
    )
    assert [(batch.queue_id, len(batch)) for batch in found] == [(0, 2), (1, 1)]
    assert asked(reading) == [(1, 5), (2, 0)]


def test_tags_leave_gaps_that_are_no_loss() -> None:
    reading = progress(QueueSpan("t", 0, 0, 10), filtered=True)
    [batch], _ = accept(reading, part(broker_pb2.FOUND, [2, 5], 6))
    assert len(batch) == 2
    found, moved = accept(reading, part(broker_pb2.NO_MATCHED_MESSAGE, [], 10))
    assert (found, moved, reading.done) == ([], True, True)


def test_a_filter_that_comes_to_the_end_of_the_queue() -> None:
    reading = progress(QueueSpan("t", 0, 5, 9), filtered=True)
    assert accept(reading, part(broker_pb2.OFFSET_OVERFLOW_ONE, [], 9)) == ([], True)
    assert reading.done


@pytest.mark.parametrize(
    "answer",
    [
        part(broker_pb2.OFFSET_TOO_SMALL, [], 7, low=7),
        part(broker_pb2.MESSAGE_WAS_REMOVING, [], 7),
        part(broker_pb2.OFFSET_FOUND_NULL, [], 7),
    ],
)
def test_messages_that_are_gone(answer: Part) -> None:
    with pytest.raises(LostError, match=r"t/0: the messages 5\.\.7 are gone"):
        accept(progress(QueueSpan("t", 0, 5, 9)), answer)
    reading = progress(QueueSpan("t", 0, 5, 9), fail=False)
    assert accept(reading, answer) == ([], True)
    assert asked(reading) == [(0, 7)]


def test_what_one_node_has_deleted_another_may_have() -> None:
    nodes = frozenset({"m", "s"})
    reading = progress(QueueSpan("t", 0, 5, 9))
    gone = part(broker_pb2.OFFSET_TOO_SMALL, [], 7, low=7)
    assert accept(reading, gone, by="s", all_nodes=nodes) == ([], False)
    assert accept(reading, gone, by="s", all_nodes=None) == ([], False)
    with pytest.raises(LostError, match=r"t/0: the messages 5\.\.6 are gone"):
        accept(reading, part(broker_pb2.OFFSET_TOO_SMALL, [], 6, low=6), by="m", all_nodes=nodes)
    [batch], moved = accept(reading, part(broker_pb2.FOUND, [5, 6], 7), all_nodes=nodes)
    assert (len(batch), moved) == (2, True)


def test_a_hole_among_the_rows_is_a_loss() -> None:
    reading = progress(QueueSpan("t", 0, 5, 9))
    [batch], _ = accept(reading, part(broker_pb2.FOUND, [5, 8], 9))
    assert batch.headers.queue_offset.tolist() == [5]
    with pytest.raises(LostError, match=r"t/0: the messages 6\.\.8 are gone"):
        accept(reading, part(broker_pb2.FOUND, [8], 9))
    lenient = progress(QueueSpan("t", 0, 5, 9), fail=False)
    accept(lenient, part(broker_pb2.FOUND, [5, 8], 9))
    assert accept(lenient, part(broker_pb2.FOUND, [8], 9)) == ([], True)
    assert asked(lenient) == [(0, 8)]


@pytest.mark.parametrize("filtered", [False, True])
def test_a_damaged_body_is_asked_of_the_other_nodes(filtered: bool) -> None:
    nodes = frozenset({"m", "s"})
    reading = progress(QueueSpan("t", 0, 5, 9), filtered=filtered)
    damaged = part(broker_pb2.FOUND, [5, 6, 7], 8, damaged=6)
    [batch], moved = accept(reading, damaged, by="s", all_nodes=nodes)
    assert (batch.headers.queue_offset.tolist(), moved) == ([5], True)
    assert asked(reading) == [(0, 6)]
    again = part(broker_pb2.FOUND, [6, 7], 8, damaged=6)
    assert accept(reading, again, by="s", all_nodes=nodes) == ([], False)
    [batch], moved = accept(reading, part(broker_pb2.FOUND, [6, 7, 8], 9), all_nodes=nodes)
    assert (batch.headers.queue_offset.tolist(), reading.done) == ([6, 7, 8], True)


def test_a_body_that_no_node_has_whole_is_lost() -> None:
    nodes = frozenset({"m", "s"})
    damaged = part(broker_pb2.FOUND, [5, 6], 7, damaged=5)
    reading = progress(QueueSpan("t", 0, 5, 7))
    accept(reading, damaged, by="s", all_nodes=nodes)
    with pytest.raises(LostError, match=r"t/0 offset 5: the body is not .* CRC .* on m, s,"):
        accept(reading, damaged, by="m", all_nodes=nodes)
    lenient = progress(QueueSpan("t", 0, 5, 7), fail=False)
    accept(lenient, damaged, by="s", all_nodes=nodes)
    assert accept(lenient, damaged, by="m", all_nodes=nodes) == ([], True)
    assert asked(lenient) == [(0, 6)]


def test_with_a_filter_a_damaged_body_has_its_own_offset() -> None:
    lenient = progress(QueueSpan("t", 0, 0, 9), filtered=True, fail=False)
    assert accept(lenient, part(broker_pb2.FOUND, [5, 6], 7, damaged=5)) == ([], True)
    assert asked(lenient) == [(0, 6)]


def test_a_body_is_taken_as_it_is_if_that_is_asked_for() -> None:
    reading = progress(QueueSpan("t", 0, 5, 7), verify_crc=False)
    [batch], _ = accept(reading, part(broker_pb2.FOUND, [5, 6], 7, damaged=5))
    assert len(batch) == 2


@pytest.mark.parametrize("filtered", [False, True])
def test_bytes_that_are_no_record_are_asked_of_the_other_nodes(filtered: bool) -> None:
    nodes = frozenset({"m", "s"})
    whole = part(broker_pb2.FOUND, [5], 6)
    bad = bytearray(whole[1].records)
    bad[84] ^= 1
    damaged = replace(whole[1], records=bytes(bad))
    reading = progress(QueueSpan("t", 0, 5, 6), filtered=filtered, verify_crc=False)
    accept(reading, (0, damaged), by="s", all_nodes=nodes)
    [batch], _ = accept(reading, whole, all_nodes=nodes)
    assert len(batch) == 1


def offsets_of(batches: list[ReceivedBatch]) -> list[tuple[int, int]]:
    return [
        (batch.queue_id, offset)
        for batch in batches
        for offset in batch.headers.queue_offset.tolist()
    ]


def test_the_order_is_that_of_the_spans_whatever_came_first() -> None:
    reading = progress(QueueSpan("t", 0, 0, 3), QueueSpan("t", 1, 4, 6), QueueSpan("t", 2, 0, 1))
    found, moved = accept(
        reading,
        part(broker_pb2.OFFSET_OVERFLOW_ONE, [], 0, high=0),
        part(broker_pb2.FOUND, [4, 5], 6, index=1),
        part(broker_pb2.FOUND, [0], 1, index=2),
    )
    assert (found, moved) == ([], True)
    assert asked(reading) == [(0, 0)]
    found, _ = accept(reading, part(broker_pb2.FOUND, [0, 1], 2))
    assert offsets_of(found) == [(0, 0), (0, 1)]
    found, _ = accept(reading, part(broker_pb2.FOUND, [2], 3))
    assert offsets_of(found) == [(0, 2), (1, 4), (1, 5), (2, 0)]
    assert reading.done


def test_what_is_held_back_has_a_limit() -> None:
    reading = progress(QueueSpan("t", 0, 0, 2), QueueSpan("t", 1, 0, 9), hold_bytes=1)
    behind = part(broker_pb2.OFFSET_OVERFLOW_ONE, [], 0, high=0)
    accept(reading, behind, part(broker_pb2.FOUND, [0], 1, index=1))
    assert asked(reading) == [(0, 0)]
    found, _ = accept(reading, part(broker_pb2.FOUND, [0, 1], 2))
    assert offsets_of(found) == [(0, 0), (0, 1), (1, 0)]
    assert asked(reading) == [(1, 1)]


def test_a_node_that_never_answers_is_not_waited_for_for_ever() -> None:
    nodes = frozenset({"m", "s"})
    gone = part(broker_pb2.OFFSET_TOO_SMALL, [], 7, low=7)
    reading = progress(QueueSpan("t", 0, 5, 9), fail=False)
    assert accept(reading, gone, all_nodes=nodes) == ([], False)
    reading.give_up("nothing came", "m", None)
    assert reading.pop_ready() == []
    assert asked(reading) == [(0, 7)]
    strict = progress(QueueSpan("t", 0, 5, 9))
    accept(strict, gone, all_nodes=nodes)
    with pytest.raises(LostError, match=r"t/0: the messages 5\.\.7 are gone"):
        strict.give_up("nothing came", "m", None)


def test_only_the_master_says_that_a_log_was_cut() -> None:
    at_end = part(broker_pb2.OFFSET_OVERFLOW_ONE, [], 6, high=6)
    reading = progress(QueueSpan("t", 0, 5, 9), QueueSpan("t", 1, 0, 1), fail=False)
    accept(reading, part(broker_pb2.FOUND, [5], 6), part(broker_pb2.FOUND, [0], 1, index=1))
    accept(reading, at_end, by="s", all_nodes=None)
    with pytest.raises(NodeUnavailableError, match="t/0 at 6 of 9; the nodes that answer"):
        reading.give_up("nothing came", None, None)
    assert not reading.has_heard("m")
    accept(reading, at_end)
    assert reading.has_heard("m")
    reading.give_up("nothing came", "m", {("t", 0): 6})
    assert offsets_of(reading.pop_ready()) == [(1, 0)]
    assert reading.done
    strict = progress(QueueSpan("t", 0, 6, 9))
    accept(strict, at_end)
    with pytest.raises(LostError, match="the master's queue ends at 6: its log was cut"):
        strict.give_up("nothing came", "m", {("t", 0): 6})


@pytest.mark.parametrize("ends", [None, {("t", 0): 9}])
def test_a_new_master_that_does_not_send_what_its_log_has_has_lost_nothing(
    ends: dict[tuple[str, int], int] | None,
) -> None:
    """It waits until its slaves have it, and until then its queue seems to end before."""
    reading = progress(QueueSpan("t", 0, 6, 9), fail=False)
    accept(reading, part(broker_pb2.OFFSET_OVERFLOW_ONE, [], 6, high=6))
    with pytest.raises(NodeUnavailableError, match="t/0 at 6 of 9"):
        reading.give_up("nothing came", "m", ends)
    assert asked(reading) == [(0, 6)]


@pytest.mark.parametrize(
    "status",
    [
        broker_pb2.NO_MATCHED_LOGIC_QUEUE,
        broker_pb2.NO_MESSAGE_IN_QUEUE,
        broker_pb2.OFFSET_OVERFLOW_ONE,
        broker_pb2.OFFSET_OVERFLOW_BADLY,
    ],
)
def test_a_node_that_is_behind_moves_nothing(status: int) -> None:
    reading = progress(QueueSpan("t", 0, 5, 9))
    assert accept(reading, part(status, [], 3)) == ([], False)
    assert asked(reading) == [(0, 5)]
    assert "t/0 at 5 of 9" in str(reading)


def test_a_loss_never_goes_beyond_the_span() -> None:
    reading = progress(QueueSpan("t", 0, 5, 9), fail=False)
    accept(reading, part(broker_pb2.OFFSET_TOO_SMALL, [], 50, low=50))
    assert reading.done


def test_a_request_names_no_more_queues_than_a_node_takes() -> None:
    reading = progress(*(QueueSpan("t", number, 0, 1) for number in range(5_000)))
    assert asked(reading) == [(number, 0) for number in range(1_000)]
    found, _ = accept(reading, *(part(broker_pb2.FOUND, [0], 1, index=n) for n in range(1_000)))
    assert len(found) == 1_000
    assert asked(reading)[0] == (1_000, 0)


def test_empty_spans_are_done() -> None:
    assert progress(QueueSpan("t", 0, 5, 5)).done


def test_a_log_that_was_cut_ends_its_spans() -> None:
    """Behind the cut other messages have these numbers: none of them is read."""
    spans = QueueSpan("t", 0, 0, 4), QueueSpan("t", 0, 4, 9), QueueSpan("t", 1, 0, 5)
    reading = progress(*spans, fail=False)
    assert reading.positions == {("t", 0): (1, 9), ("t", 1): (1, 5)}
    assert asked(reading) == [(0, 0), (0, 4), (1, 0)]
    reading.cut(("t", 0), 6)
    parts = part(broker_pb2.FOUND, [0, 1, 2, 3], 4), part(broker_pb2.FOUND, [4, 5, 6], 7, index=1)
    assert reading.accept(parts, "m", ALL)
    assert offsets_of(reading.pop_ready()) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 4), (1, 5)]
    assert reading.positions == {("t", 1): (1, 5)}
    with pytest.raises(LostError, match=r"t/0: the messages 6\.\.9 are not in the log any more"):
        progress(*spans).cut(("t", 0), 6)


def test_a_cut_that_ends_a_span_while_its_answer_is_on_the_way() -> None:
    reading = progress(QueueSpan("t", 0, 5, 9), QueueSpan("t", 1, 0, 1), fail=False)
    assert asked(reading) == [(0, 5), (1, 0)]
    reading.cut(("t", 0), 2)
    parts = part(broker_pb2.FOUND, [5, 6], 7), part(broker_pb2.FOUND, [0], 1, index=1)
    assert reading.accept(parts, "m", ALL)
    assert offsets_of(reading.pop_ready()) == [(1, 0)]
    assert reading.done


@pytest.mark.parametrize(("offsets", "following"), [([50, 60], 60), ([50], 71)])
def test_with_a_filter_a_torn_record_is_one_loss(offsets: list[int], following: int) -> None:
    reading = progress(QueueSpan("t", 0, 5, 99), filtered=True, fail=False)
    index, whole = part(broker_pb2.FOUND, offsets, 71)
    torn = bytearray(whole.records)
    torn[int(whole.sizes[0]) - 1] ^= 1  # the length of the properties
    damaged = index, replace(whole, records=memoryview(bytes(torn)))
    assert accept(reading, damaged) == ([], True)
    assert asked(reading) == [(0, following)]


def test_with_a_filter_a_torn_record_that_another_node_has_is_read_there() -> None:
    reading = progress(QueueSpan("t", 0, 5, 99), filtered=True)
    nodes = frozenset({"m", "s"})
    index, whole = part(broker_pb2.FOUND, [50, 60], 71)
    torn = bytearray(whole.records)
    torn[int(whole.sizes[0]) - 1] ^= 1
    damaged = index, replace(whole, records=memoryview(bytes(torn)))
    assert accept(reading, damaged, by="s", all_nodes=nodes) == ([], False)
    [batch], _ = accept(reading, (index, whole), by="m", all_nodes=nodes)
    assert list(batch.queue_offsets) == [50, 60]


@pytest.mark.parametrize("damaged", [None, 8])
def test_a_node_with_another_end_of_the_log_counts_up_to_it(damaged: int | None) -> None:
    """It says nothing of what is behind: neither that it is there nor that it is lost."""
    reading = progress(QueueSpan("t", 0, 5, 9))
    answer = part(broker_pb2.FOUND, [5, 6, 7, 8], 9, damaged=damaged)
    [batch], moved = accept(reading, answer, ends={("t", 0): 7})
    assert (batch.headers.queue_offset.tolist(), moved) == ([5, 6], True)
    again = part(broker_pb2.FOUND, [7, 8], 9, damaged=damaged)
    assert accept(reading, again, ends={("t", 0): 7}) == ([], False)
    gone = part(broker_pb2.OFFSET_TOO_SMALL, [], 9, low=9)
    assert accept(reading, gone, ends={("t", 0): 7}) == ([], False)
    assert asked(reading) == [(0, 7)]
