import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.cluster.pull_answer import parse_pull
from tandemlog.errors import BadRecordError
from tandemlog.v1 import broker_pb2, common_pb2

PARTS = st.builds(
    broker_pb2.QueueRecords,
    position_index=st.integers(0, 2**31 - 1),
    status=st.sampled_from([0, 1, 9]),
    next_offset=st.integers(-1, 2**63 - 1),
    max_offset=st.integers(0, 2**63 - 1),
    count=st.integers(0, 100),
    sizes=st.binary(max_size=20),
    records=st.one_of(st.binary(max_size=50), st.integers(8_000, 20_000).map(bytes)),
)


@given(st.lists(PARTS, max_size=4), st.booleans(), st.sampled_from([0, 2]))
def test_it_says_what_protobuf_says(
    parts: list[broker_pb2.QueueRecords], suggest_slave: bool, code: int
) -> None:
    response = broker_pb2.PullResponse(queues=parts, suggest_slave=suggest_slave)
    if code:
        response.error.CopyFrom(common_pb2.Error(code=code, message="m"))  # type: ignore[arg-type]
    answer = parse_pull(response.SerializeToString())
    assert (answer.suggest_slave, answer.error) == (suggest_slave, response.error)
    assert [bytes(part.records) for part in answer.parts] == [part.records for part in parts]
    for found, expected in zip(answer.parts, parts, strict=True):
        found.head.records = expected.records
        assert found.head == expected


def test_large_records_are_not_copied() -> None:
    part = broker_pb2.QueueRecords(records=b"x" * 10_000)
    raw = broker_pb2.PullResponse(queues=[part]).SerializeToString()
    records = parse_pull(raw).parts[0].records
    assert isinstance(records, memoryview)
    assert records.obj is raw


@pytest.mark.parametrize("cut", [1, 5, 1_000, 3_000, 9_999])
def test_an_answer_that_ends_early_is_refused(cut: int) -> None:
    part = broker_pb2.QueueRecords(records=b"x" * 10_000)
    raw = broker_pb2.PullResponse(queues=[part]).SerializeToString()
    large = len(raw) - cut >= 8 << 10
    with pytest.raises(BadRecordError, match="ends within" if large else "not a PullResponse"):
        parse_pull(raw[:-cut])


@pytest.mark.parametrize("size", [0, 10_000])
def test_fields_of_a_kind_that_is_gone_are_refused(size: int) -> None:
    part = broker_pb2.QueueRecords(records=bytes(size))
    raw = broker_pb2.PullResponse(queues=[part]).SerializeToString()
    with pytest.raises(BadRecordError, match="kind 3" if size else "not a PullResponse"):
        parse_pull(raw + b"\x0b")
