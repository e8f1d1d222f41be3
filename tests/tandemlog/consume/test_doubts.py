import pytest

from tandemlog.consume.doubts import Doubts, Kind, Said, judge
from tandemlog.v1 import broker_pb2


def part(status: int, next_offset: int, high: int = 20) -> broker_pb2.QueueRecords:
    return broker_pb2.QueueRecords(
        status=status,  # type: ignore[arg-type]
        next_offset=next_offset,
        min_offset=5,
        max_offset=high,
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
    said = judge(part(status, next_offset, high), 10, filtered=True)
    assert (said.kind, said.following) == (kind, following)


def test_the_end_of_a_queue_is_behind_where_more_is_known_to_be_there() -> None:
    at_end = part(broker_pb2.OFFSET_OVERFLOW_ONE, 10, 10)
    assert judge(at_end, 10, wanted=12, filtered=False).kind is Kind.BEHIND
    assert judge(at_end, 10, wanted=10, filtered=False).kind is Kind.THERE


def test_a_hole_shows_without_a_filter_alone() -> None:
    found = part(broker_pb2.FOUND, 15)
    assert judge(found, 10, filtered=False, first_offset=13) == Said(Kind.GONE, 13, 5, 20)
    assert judge(found, 10, filtered=True, first_offset=13).kind is Kind.THERE


def test_lost_is_what_all_say_and_no_more_of_it_than_the_best_has_not() -> None:
    doubts: Doubts[str] = Doubts()
    doubts.note("q", "a", Said(Kind.GONE, 30, 30, 99), 1.0)
    assert doubts.gone("q", {"a", "b"}) is None
    doubts.note("q", "b", Said(Kind.GONE, 20, 20, 99), 2.0)
    lost = doubts.gone("q", {"a", "b"})
    assert lost is not None
    assert lost.following == 20
    assert doubts.gone("q", None) is None
    assert doubts.seconds("q", 5.0) == 4.0
    doubts.settle("q")
    assert doubts.gone("q", {"a", "b"}) is None


def test_nodes_that_are_behind_alone_lose_nothing() -> None:
    doubts: Doubts[str] = Doubts()
    doubts.note("q", "a", Said(Kind.BEHIND, 10, 0, 8), 1.0)
    assert doubts.is_behind("q")
    assert doubts.gone("q", {"a"}) is None
    doubts.note("q", "b", Said(Kind.GONE, 12, 12, 20), 1.0)
    assert not doubts.is_behind("q")
    assert doubts.gone("q", {"a", "b"}) is not None
