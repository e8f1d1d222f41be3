import numpy as np
import pytest

from pipeline.live_errors import DataLossError
from pipeline.live_progress import Progress
from pipeline.offsets import Span
from tandemlog.format.record import encode_record
from tandemlog.pull_answer import PullPart
from tandemlog.v1 import broker_pb2


def part(
    status: int,
    offsets: list[int],
    next_offset: int,
    *,
    index: int = 0,
    low: int = 0,
    high: int = 99,
) -> PullPart:
    records = [
        encode_record(topic="t", body=b"%d" % offset, queue_offset=offset) for offset in offsets
    ]
    head = broker_pb2.QueueRecords(
        position_index=index,
        status=status,  # type: ignore[arg-type]
        next_offset=next_offset,
        min_offset=low,
        max_offset=high,
        count=len(records),
        sizes=np.array([len(each) for each in records], "<u4").tobytes(),
    )
    return PullPart(head, memoryview(b"".join(records)))


def progress(*spans: Span, filtered: bool = False, fail: bool = True) -> Progress:
    return Progress(spans, filtered=filtered, fail_on_data_loss=fail)


def asked(reading: Progress) -> list[tuple[int, int]]:
    return [(each.queue_id, each.queue_offset) for each in reading.positions()]


def test_rows_move_the_position_up_to_the_end() -> None:
    reading = progress(Span("t", 0, 5, 9))
    assert asked(reading) == [(0, 5)]
    [batch], moved = reading.take([part(broker_pb2.FOUND, [5, 6], 7)])
    assert (len(batch), moved, reading.done) == (2, True, False)
    assert asked(reading) == [(0, 7)]
    [batch], _ = reading.take([part(broker_pb2.FOUND, [7, 8, 9, 10], 11)])
    assert batch.headers.queue_offset.tolist() == [7, 8]
    assert reading.done


def test_several_queues_of_one_answer() -> None:
    reading = progress(Span("t", 0, 0, 2), Span("t", 1, 4, 6), Span("t", 2, 0, 1))
    assert reading.most_rows == 2
    found, _ = reading.take(
        [part(broker_pb2.FOUND, [0, 1], 2), part(broker_pb2.FOUND, [4], 5, index=1)]
    )
    assert [(batch.queue_id, len(batch)) for batch in found] == [(0, 2), (1, 1)]
    assert asked(reading) == [(1, 5), (2, 0)]


def test_tags_leave_gaps_that_are_no_loss() -> None:
    reading = progress(Span("t", 0, 0, 10), filtered=True)
    [batch], _ = reading.take([part(broker_pb2.FOUND, [2, 5], 6)])
    assert len(batch) == 2
    found, moved = reading.take([part(broker_pb2.NO_MATCHED_MESSAGE, [], 10)])
    assert (found, moved, reading.done) == ([], True, True)


def test_a_filter_that_comes_to_the_end_of_the_queue() -> None:
    reading = progress(Span("t", 0, 5, 9), filtered=True)
    assert reading.take([part(broker_pb2.OFFSET_OVERFLOW_ONE, [], 9)]) == ([], True)
    assert reading.done


@pytest.mark.parametrize(
    "answer",
    [
        part(broker_pb2.OFFSET_TOO_SMALL, [], 7, low=7),
        part(broker_pb2.MESSAGE_WAS_REMOVING, [], 7),
        part(broker_pb2.OFFSET_FOUND_NULL, [], 7),
    ],
)
def test_messages_that_are_gone(answer: PullPart) -> None:
    with pytest.raises(DataLossError, match=r"t/0: the messages 5\.\.7 are gone"):
        progress(Span("t", 0, 5, 9)).take([answer])
    reading = progress(Span("t", 0, 5, 9), fail=False)
    assert reading.take([answer]) == ([], True)
    assert asked(reading) == [(0, 7)]


def test_a_hole_among_the_rows_is_a_loss() -> None:
    with pytest.raises(DataLossError, match="offset 6 is missing, 8 stands in its place"):
        progress(Span("t", 0, 5, 9)).take([part(broker_pb2.FOUND, [5, 8], 9)])
    reading = progress(Span("t", 0, 5, 9), fail=False)
    [batch], _ = reading.take([part(broker_pb2.FOUND, [5, 8], 9)])
    assert len(batch) == 2


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
    reading = progress(Span("t", 0, 5, 9))
    assert reading.take([part(status, [], 3)]) == ([], False)
    assert asked(reading) == [(0, 5)]
    assert "t/0 at 5 of 9" in reading.stuck()


def test_a_loss_never_goes_beyond_the_span() -> None:
    reading = progress(Span("t", 0, 5, 9), fail=False)
    reading.take([part(broker_pb2.OFFSET_TOO_SMALL, [], 50, low=50)])
    assert reading.done


def test_empty_spans_are_done() -> None:
    assert progress(Span("t", 0, 5, 5)).done
