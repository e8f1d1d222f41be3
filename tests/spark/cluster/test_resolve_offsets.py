from collections.abc import Sequence

import pytest

from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.spark.cluster.cluster_errors import DataLossError, OffsetsError
from tandemlog.spark.cluster.live_options import Strategy
from tandemlog.spark.cluster.queue_offsets import EARLIEST, LATEST, Offsets, Position, Queue
from tandemlog.spark.cluster.resolve_offsets import (
    Held,
    lost_messages,
    resolve_end,
    resolve_start,
    spans_of,
)

HELD = {("t", 0): Held(10, 20, 1_000), ("t", 1): Held(0, 5, 2_000), ("t", 2): Held()}


def at_time(queues: Sequence[Queue], time: int) -> Offsets:
    """Queue 0 has a message every 100 ms, the others none that is so late."""
    found = {}
    for queue in queues:
        held = HELD[queue]
        found[queue] = min(10 + time // 100, held.end) if queue[1] == 0 else held.end
    return found


def start(position: Position, **how: bool) -> Offsets:
    return resolve_start(position, HELD, at_time, **how)  # type: ignore[arg-type]


def test_the_ends_of_every_queue() -> None:
    assert start(Position(everywhere=EARLIEST)) == {("t", 0): 10, ("t", 1): 0, ("t", 2): 0}
    assert start(Position(everywhere=LATEST)) == {("t", 0): 20, ("t", 1): 5, ("t", 2): 0}


def test_offsets_and_the_ends_among_them() -> None:
    offsets = {("t", 0): 15, ("t", 1): LATEST, ("t", 2): EARLIEST}
    assert start(Position(offsets=offsets)) == {("t", 0): 15, ("t", 1): 5, ("t", 2): 0}


@pytest.mark.parametrize(
    ("offsets", "error", "words"),
    [
        ({("t", 0): 9, ("t", 1): 0, ("t", 2): 0}, DataLossError, "t/0 has no offset 9"),
        ({("t", 0): 21, ("t", 1): 0, ("t", 2): 0}, OffsetsError, "it holds 10..20"),
        ({("t", 0): 15, ("t", 1): 0}, OffsetsError, "has no offset for t/2"),
        ({("t", 0): 15, ("u", 1): 0}, OffsetsError, "names u/1"),
    ],
)
def test_places_that_are_not_there(offsets: Offsets, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        start(Position(offsets=offsets))


def test_the_nearest_place_where_loss_is_no_failure() -> None:
    offsets = {("t", 0): 3, ("t", 1): 9, ("t", 2): 0}
    found = start(Position(offsets=offsets), fail_on_data_loss=False)
    assert found == {("t", 0): 10, ("t", 1): 5, ("t", 2): 0}


def test_a_time_falls_between_messages() -> None:
    assert start(Position(time=300)) == {("t", 0): 13, ("t", 1): 5, ("t", 2): 0}


def test_a_time_after_the_newest_message() -> None:
    late = Position(time=1_500)
    with pytest.raises(OffsetsError, match="t/0: no message at or after 1500"):
        start(late)
    found = resolve_start(late, HELD, at_time, strategy=Strategy.LATEST)
    assert found == {("t", 0): 20, ("t", 1): 5, ("t", 2): 0}


def test_a_time_for_each_queue() -> None:
    times = {("t", 0): 200, ("t", 1): 0, ("t", 2): 7}
    assert start(Position(times=times)) == {("t", 0): 12, ("t", 1): 5, ("t", 2): 0}


def test_where_a_read_ends() -> None:
    ends = resolve_end(Position(everywhere=LATEST), HELD, at_time)
    assert ends == {("t", 0): 20, ("t", 1): 5, ("t", 2): 0}
    beyond = Position(offsets={("t", 0): 99, ("t", 1): 1, ("t", 2): 0})
    with pytest.raises(OffsetsError, match="endingOffsets: t/0 has no offset 99"):
        resolve_end(beyond, HELD, at_time)
    cut = resolve_end(beyond, HELD, at_time, fail_on_data_loss=False)
    assert cut == {("t", 0): 20, ("t", 1): 1, ("t", 2): 0}
    assert resolve_end(Position(time=100), HELD, at_time)["t", 0] == 11


def test_spans_leave_out_what_is_empty() -> None:
    spans = spans_of(
        {("t", 0): 3, ("t", 1): 5}, {("t", 1): 5, ("t", 0): 7, ("u", 0): 2}, strict=True
    )
    assert spans == [QueueSpan("t", 0, 3, 7), QueueSpan("u", 0, 0, 2)]


def test_an_end_before_its_start() -> None:
    assert spans_of({("t", 0): 8}, {("t", 0): 7}, strict=False) == []
    with pytest.raises(OffsetsError, match="t/0"):
        spans_of({("t", 0): 8}, {("t", 0): 7}, strict=True)


def test_what_is_lost_is_told() -> None:
    [text] = lost_messages(
        [QueueSpan("t", 0, 5, 12), QueueSpan("t", 1, 0, 5), QueueSpan("u", 0, 0, 1)], HELD
    )
    assert "t/0 has no offset 5, it holds 10..20" in text
