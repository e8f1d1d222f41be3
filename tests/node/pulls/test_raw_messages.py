"""What is joined by hand is what protobuf would have encoded."""

from hypothesis import given
from hypothesis import strategies as st

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.pulls.raw_messages import pull_response, segment_chunk

smalls = st.builds(
    broker_pb2.QueueRecords,
    position_index=st.integers(0, 1 << 20),
    status=st.sampled_from([broker_pb2.FOUND, broker_pb2.OFFSET_OVERFLOW_ONE]),
    next_offset=st.integers(0, (1 << 63) - 1),
    count=st.integers(0, 1 << 20),
    sizes=st.binary(max_size=40),
)


@given(st.lists(st.tuples(smalls, st.binary(max_size=300))), st.booleans())
def test_pull_responses(
    queues: list[tuple[broker_pb2.QueueRecords, bytes]], suggest_slave: bool
) -> None:
    error = common_pb2.Error(message="m") if suggest_slave else None
    head = broker_pb2.PullResponse(suggest_slave=suggest_slave, error=error)
    found = broker_pb2.PullResponse.FromString(b"".join(pull_response(head, queues)))
    expected = broker_pb2.PullResponse(suggest_slave=suggest_slave, error=error)
    for small, records in queues:
        queue = expected.queues.add()
        queue.CopyFrom(small)
        queue.records = records
    assert found == expected


@given(st.lists(st.binary(max_size=300)), st.integers(0, (1 << 63) - 1))
def test_segment_chunks(pieces: list[bytes], offset: int) -> None:
    small = broker_pb2.SegmentChunk(physical_offset=offset, commit_log_file_size=7)
    found = broker_pb2.SegmentChunk.FromString(
        segment_chunk(small, [memoryview(piece) for piece in pieces])
    )
    assert found == broker_pb2.SegmentChunk(
        physical_offset=offset, commit_log_file_size=7, data=b"".join(pieces)
    )
