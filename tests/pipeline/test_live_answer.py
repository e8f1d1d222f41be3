import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.live_answer import PULL, parse_pull
from tandemlog.errors import BadRecordError
from tandemlog.v1 import broker_pb2, common_pb2

QUEUES = st.builds(
    broker_pb2.QueueRecords,
    position_index=st.integers(0, 300),
    status=st.sampled_from([1, 3, 6]),
    next_offset=st.integers(0, 1 << 62),
    min_offset=st.integers(-1, 10),
    sizes=st.binary(max_size=40),
    records=st.binary(max_size=300),
)


@given(st.lists(QUEUES, max_size=4), st.booleans(), st.sampled_from(["", "gone"]))
def test_what_protobuf_encodes_is_read_the_same(
    queues: list[broker_pb2.QueueRecords], hint: bool, error: str
) -> None:
    answer = broker_pb2.PullResponse(queues=queues, suggest_slave=hint)
    if error:
        answer.error.CopyFrom(common_pb2.Error(code=common_pb2.BUSY, message=error))
    parsed = parse_pull(answer.SerializeToString())
    assert parsed.error == answer.error
    for part, queue in zip(parsed.parts, queues, strict=True):
        assert bytes(part.records) == queue.records
        queue.ClearField("records")
        assert part.head == queue


def test_records_are_a_view_into_the_answer() -> None:
    raw = broker_pb2.PullResponse(
        queues=[broker_pb2.QueueRecords(records=b"x" * 1000)]
    ).SerializeToString()
    assert parse_pull(raw).parts[0].records.obj is raw


@pytest.mark.parametrize("raw", [b"\x0a\x05abc", b"\x0a", b"\xff" * 11, b"\x0b"])
def test_what_is_no_answer(raw: bytes) -> None:
    with pytest.raises(BadRecordError):
        parse_pull(raw)


def test_the_method_has_the_name_of_the_service() -> None:
    assert PULL == "/tandemlog.v1.Broker/Pull"
