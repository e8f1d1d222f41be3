from collections.abc import Sequence

import numpy as np
import pytest

from tandemlog.consume.reading.lost_messages import Kind, Verdict, Verdicts, accept, judge
from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import broker_pb2


def part(
    status: int, next_offset: int, high: int = 20, offsets: Sequence[int] = ()
) -> ReceivedBatch:
    records = [encode_record(topic="t", body=b"b", queue_offset=offset) for offset in offsets]
    return ReceivedBatch(
        topic="t",
        queue_id=0,
        status=broker_pb2.PullStatus.Name(status),  # type: ignore[arg-type]
        next_offset=next_offset,
        min_offset=5,
        max_offset=high,
        records=b"".join(records),
        sizes=np.array([len(each) for each in records], np.uint32),
    )


@pytest.mark.parametrize(
    ("status", "next_offset", "high", "kind", "following"),
    [
        (broker_pb2.FOUND, 12, 20, Kind.THERE, 12),
        (broker_pb2.NO_MATCHED_MESSAGE, 12, 20, Kind.THERE, 12),
        (broker_pb2.OFFSET_OVERFLOW_ONE, 10, 10, Kind.THERE, 10),
        (broker_pb2.OFFSET_OVERFLOW_BADLY, 8, 8, Kind.BEHIND, 10),
        (broker_pb2.NO_MESSAGE_IN_QUEUE, 0, 0, Kind.BEHIND, 10),
        (broker_pb2.NO_MATCHED_LOGIC_QUEUE, 0, 0, Kind.BEHIND, 10),
        (broker_pb2.OFFSET_TOO_SMALL, 15, 20, Kind.GONE, 15),
        (broker_pb2.OFFSET_FOUND_NULL, 10, 20, Kind.GONE, 11),
        (broker_pb2.MESSAGE_WAS_REMOVING, 13, 20, Kind.GONE, 13),
    ],
)
def test_what_an_answer_says(
    status: int, next_offset: int, high: int, kind: Kind, following: int
) -> None:
    verdict = judge(part(status, next_offset, high), 10, filtered=True)
    assert (verdict.kind, verdict.next_offset) == (kind, following)


def test_the_end_of_a_queue_is_behind_where_more_is_known_to_be_there() -> None:
    at_end = part(broker_pb2.OFFSET_OVERFLOW_ONE, 10, 10)
    assert judge(at_end, 10, wanted=12, filtered=False).kind is Kind.BEHIND
    assert judge(at_end, 10, wanted=10, filtered=False).kind is Kind.THERE


def test_a_hole_shows_without_a_filter_alone() -> None:
    found = part(broker_pb2.FOUND, 15, offsets=[13, 14])
    assert judge(found, 10, filtered=False) == Verdict(Kind.GONE, 13, 5, 20)
    assert judge(found, 10, filtered=True).kind is Kind.THERE


@pytest.mark.parametrize(
    ("offsets", "next_offset", "end", "filtered", "taken", "following"),
    [
        ([10, 11, 12], 13, None, False, [10, 11, 12], 13),
        ([10, 11, 13], 14, None, False, [10, 11], 12),  # up to the hole
        ([10, 12, 13], 14, 11, False, [10], 11),
        ([10, 11, 12], 13, 12, False, [10, 11], 12),
        ([10, 13], 17, None, True, [10, 13], 17),
        ([10, 13], 17, 12, True, [10], 12),
        ([], 17, 12, True, [], 12),  # nothing matched, up to behind the end
    ],
)
def test_what_counts_ends_at_the_end_and_at_a_hole(
    offsets: list[int],
    next_offset: int,
    end: int | None,
    filtered: bool,
    taken: list[int],
    following: int,
) -> None:
    status = broker_pb2.FOUND if offsets else broker_pb2.NO_MATCHED_MESSAGE
    accepted, verdict = accept(
        part(status, next_offset, offsets=offsets), 10, end=end, filtered=filtered
    )
    assert accepted is not None
    assert (accepted.headers.queue_offset.tolist(), accepted.next_offset) == (taken, following)
    assert verdict.kind is Kind.THERE


def test_what_moves_nothing_counts_for_nothing() -> None:
    hole = part(broker_pb2.FOUND, 15, offsets=[13, 14])
    assert accept(hole, 10, filtered=False) == (None, Verdict(Kind.GONE, 13, 5, 20))
    at_end = part(broker_pb2.OFFSET_OVERFLOW_ONE, 10, 10)
    assert accept(at_end, 10, end=12, filtered=False)[0] is None


def test_lost_is_what_all_say_and_no_more_of_it_than_the_best_has_not() -> None:
    verdicts: Verdicts[str] = Verdicts()
    verdicts.note("q", "a", Verdict(Kind.GONE, 30, 30, 99), 1.0)
    assert verdicts.lost("q", {"a", "b"}) is None
    verdicts.note("q", "b", Verdict(Kind.GONE, 20, 20, 99), 2.0)
    lost = verdicts.lost("q", {"a", "b"})
    assert lost is not None
    assert lost.next_offset == 20
    assert verdicts.lost("q", None) is None
    assert verdicts.seconds("q", 5.0) == 4.0
    verdicts.clear("q")
    assert verdicts.lost("q", {"a", "b"}) is None


def test_nodes_that_are_behind_alone_lose_nothing() -> None:
    verdicts: Verdicts[str] = Verdicts()
    verdicts.note("q", "a", Verdict(Kind.BEHIND, 10, 0, 8), 1.0)
    assert verdicts.is_behind("q")
    assert verdicts.lost("q", {"a"}) is None
    verdicts.note("q", "b", Verdict(Kind.GONE, 12, 12, 20), 1.0)
    assert not verdicts.is_behind("q")
    assert verdicts.lost("q", {"a", "b"}) is not None
