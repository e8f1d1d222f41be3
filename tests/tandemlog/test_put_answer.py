from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.message import SendResult
from tandemlog.put_answer import PutAnswer
from tandemlog.put_answer_columns import rank_in_group
from tandemlog.v1 import broker_pb2


@given(st.lists(st.integers(0, 5), max_size=60))
def test_rank_in_group_counts_equal_values_before(groups: list[int]) -> None:
    ranks = rank_in_group(np.array(groups, np.uint16))
    assert ranks.tolist() == [groups[:index].count(group) for index, group in enumerate(groups)]


@pytest.mark.parametrize("few", [0, 48], ids=["by columns", "one by one"])
def test_places_over_two_segments(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr("tandemlog.put_answer.FEW", few)
    response = broker_pb2.AppendResponse(store_host="1.2.3.4:5", store_timestamp=9)
    offsets = np.array([10, 20], "<i8").tobytes()
    later = np.array([11, -1], "<i8").tobytes()
    response.segments.add(first_index=0, count=3, physical_offset=1000, queue_offsets=offsets)
    response.segments.add(first_index=3, count=1, physical_offset=5000, queue_offsets=later)
    answer = PutAnswer(
        topics=("a", "b"),
        queue_topics=(0, 1),
        queue_ids=(3, 4),
        queue_indexes=array("H", [0, 1, 1, 0]),
        sizes=array("I", [100, 200, 300, 400]),
        byte_size=1000,
        response=response,
    )
    assert list(answer.physical_offsets) == [1000, 1100, 1300, 5000]
    assert list(answer.queue_offsets) == [10, 20, 21, 11]
    assert list(answer.record_queue_ids) == [3, 4, 4, 3]
    result = SendResult(answer, 2)
    assert (result.topic, result.queue_id, result.queue_offset) == ("b", 4, 21)
    assert result.msg_id == "0102030400000005" + f"{1300:016X}"
    assert "queue_offset=21" in repr(result)


@pytest.mark.parametrize("few", [0, 48], ids=["by columns", "one by one"])
def test_a_node_that_adds_bytes_to_each_record_says_how_many(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("tandemlog.put_answer.FEW", few)
    response = broker_pb2.AppendResponse()
    response.segments.add(first_index=0, count=2, physical_offset=1000, record_extra=20)
    response.segments.add(first_index=2, count=1, physical_offset=5000)
    answer = PutAnswer(
        topics=("a",),
        queue_topics=(0,),
        queue_ids=(0,),
        queue_indexes=array("H", [0, 0, 0]),
        sizes=array("I", [100, 200, 300]),
        byte_size=600,
        response=response,
    )
    assert list(answer.physical_offsets) == [1000, 1120, 5000]


def test_a_duplicate_whose_place_is_forgotten() -> None:
    answer = PutAnswer(
        topics=("a",),
        queue_topics=(0,),
        queue_ids=(0,),
        queue_indexes=array("H", [0, 0]),
        sizes=array("I", [1, 1]),
        byte_size=2,
        response=broker_pb2.AppendResponse(duplicate=True),
    )
    result = SendResult(answer, 1)
    assert (result.queue_offset, result.physical_offset, result.msg_id) == (-1, -1, "")
    assert result.duplicate
