"""Answers to something else than what was asked."""

from collections.abc import Mapping

import numpy as np
import pytest

from tandemlog.cluster.pull_answer import PullAnswer, PullPart
from tandemlog.consume.reading.pulls import checked_parts
from tandemlog.errors import UnreadableError
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import broker_pb2, common_pb2

ASKED = [(("t", 0), 5), (("t", 1), 0)]


def part(
    *offsets: int,
    index: int = 0,
    topics: str = "",
    queue_id: int = 0,
    next_offset: int | None = None,
    status: int = broker_pb2.FOUND,
    properties: Mapping[str, str] = {},
    **head: object,
) -> PullPart:
    """`topics`: a letter for each record."""
    records = [
        encode_record(
            topic=topic, body=b"b", queue_id=queue_id, queue_offset=offset, properties=properties
        )
        for offset, topic in zip(offsets, topics or "t" * len(offsets), strict=True)
    ]
    fields = {
        "position_index": index,
        "status": status,
        "next_offset": (offsets[-1] + 1 if offsets else 5) if next_offset is None else next_offset,
        "count": len(records),
        "sizes": np.array([len(each) for each in records], "<u4").tobytes(),
    }
    return PullPart(
        broker_pb2.QueueRecords(**(fields | head)),  # type: ignore[arg-type]
        b"".join(records),
    )


def checked(*parts: PullPart) -> list[int]:
    answer = PullAnswer(parts, False, common_pb2.Error(), (3, 7))
    found = checked_parts(answer, ASKED, "n0:1")
    assert all(batch.log_term == (3, 7) for _, batch in found)
    return [index for index, _ in found]


@pytest.mark.parametrize(
    "fits",
    [
        part(5, 6),
        part(7, 9, next_offset=12),  # holes, or a filter
        part(status=broker_pb2.OFFSET_TOO_SMALL, next_offset=9),
        part(5, topics="u"),  # one wrong topic may be a flipped bit
        part(5, 6, 7, topics="utt"),
    ],
)
def test_an_answer_to_what_was_asked(fits: PullPart) -> None:
    assert checked(fits) == [0]
    assert checked(part(0, 1, index=1, queue_id=1), fits) == [1, 0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (part(5, 6, queue_id=1), r"t/1 at 5\.\.7, not of t/0 at 5"),
        (part(5, 6, topics="uu"), r"u/0 at 5\.\.7, not of t/0 at 5"),
        (part(4, 5), r"t/0 at 4\.\.6, not of t/0 at 5"),
        (part(6, 5, next_offset=7), r"t/0 at 6\.\.7"),
        (part(5, 6, next_offset=6), r"t/0 at 5\.\.6"),
        (part(0, index=2), "place 2 of 2"),
        (part(0, index=-1), "place -1 of 2"),
        (part(5, count=2), "2 records"),
        (part(5, sizes=b"1234"), "t/0 at 5"),
        (part(status=17), "status 17"),
    ],
)
def test_an_answer_to_something_else_counts_for_nothing(wrong: PullPart, words: str) -> None:
    with pytest.raises(UnreadableError, match=f"n0:1: its answer does not fit.*{words}") as caught:
        checked(wrong)
    assert caught.value.elsewhere
    assert caught.value.retryable


def test_a_place_that_is_answered_twice() -> None:
    with pytest.raises(UnreadableError, match="place 0"):
        checked(part(5), part(5))


def test_a_record_that_is_in_further_queues_has_its_own_place() -> None:
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "5"}
    assert checked(part(90, 94, queue_id=3, next_offset=7, properties=names)) == [0]


def test_a_damaged_record_is_for_its_reader_to_find() -> None:
    whole = part(5, 6)
    for record in (0, len(whole.records) // 2):
        bad = bytearray(whole.records)
        bad[record + 84] ^= 1
        bad[record + 15] ^= 1
        assert checked(PullPart(whole.head, bytes(bad))) == [0]
