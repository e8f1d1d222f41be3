import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.answer import PutAnswer, rank_in_group
from tandemlog.message import SendResult
from tandemlog.v1 import broker_pb2


@given(st.lists(st.integers(0, 5), max_size=60))
def test_rank_in_group_counts_equal_values_before(groups: list[int]) -> None:
    ranks = rank_in_group(np.array(groups, np.uint16))
    assert ranks.tolist() == [groups[:index].count(group) for index, group in enumerate(groups)]


def test_places_over_two_segments() -> None:
    response = broker_pb2.AppendResponse(store_host="1.2.3.4:5", store_timestamp=9)
    offsets = np.array([10, 20], "<i8").tobytes()
    later = np.array([11, -1], "<i8").tobytes()
    response.segments.add(first_index=0, count=3, physical_offset=1000, queue_offsets=offsets)
    response.segments.add(first_index=3, count=1, physical_offset=5000, queue_offsets=later)
    answer = PutAnswer(
        topics=("a", "b"),
        queue_topics=(0, 1),
        queue_ids=(3, 4),
        queue_indexes=np.array([0, 1, 1, 0], np.uint16),
        sizes=np.array([100, 200, 300, 400], np.uint32),
        response=response,
    )
    assert answer.physical_offsets.tolist() == [1000, 1100, 1300, 5000]
    assert answer.queue_offsets.tolist() == [10, 20, 21, 11]
    assert answer.record_queue_ids.tolist() == [3, 4, 4, 3]
    result = SendResult(answer, 2)
    assert (result.topic, result.queue_id, result.queue_offset) == ("b", 4, 21)
    assert result.msg_id == "0102030400000005" + f"{1300:016X}"
    assert "queue_offset=21" in repr(result)


def test_a_node_that_adds_bytes_to_each_record_says_how_many() -> None:
    response = broker_pb2.AppendResponse()
    response.segments.add(first_index=0, count=2, physical_offset=1000, record_extra=20)
    response.segments.add(first_index=2, count=1, physical_offset=5000)
    answer = PutAnswer(
        topics=("a",),
        queue_topics=(0,),
        queue_ids=(0,),
        queue_indexes=np.zeros(3, np.uint16),
        sizes=np.array([100, 200, 300], np.uint32),
        response=response,
    )
    assert answer.physical_offsets.tolist() == [1000, 1120, 5000]


def test_a_duplicate_whose_place_is_forgotten() -> None:
    answer = PutAnswer(
        topics=("a",),
        queue_topics=(0,),
        queue_ids=(0,),
        queue_indexes=np.zeros(2, np.uint16),
        sizes=np.array([1, 1], np.uint32),
        response=broker_pb2.AppendResponse(duplicate=True),
    )
    result = SendResult(answer, 1)
    assert (result.queue_offset, result.physical_offset, result.msg_id) == (-1, -1, "")
    assert result.duplicate
