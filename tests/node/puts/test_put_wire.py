"""A request read by hand is the request that protobuf reads."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.constants import MAX_TABLE
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.puts.put_wire import (
    MAX_TOPIC_BYTES,
    MOST_FIELDS,
    QUICK_FIELDS,
    ManyFieldsError,
    PutRequest,
    batch_of,
    packed_numbers,
    parse_put,
)

requests = st.builds(
    broker_pb2.AppendRequest,
    request_id=st.integers(0, (1 << 64) - 1),
    topics=st.lists(st.text(max_size=200), max_size=4),
    queue_topics=st.lists(st.integers(0, (1 << 32) - 1)),
    queue_ids=st.lists(st.integers(0, (1 << 32) - 1)),
    records=st.binary(max_size=300),
    sizes=st.binary(max_size=300),
    queue_indexes=st.binary(max_size=300),
    durability=st.sampled_from([broker_pb2.CLUSTER, broker_pb2.NO_WAIT]),
    timeout_ms=st.integers(0, (1 << 31) - 1),
)


@given(requests)
def test_every_field_is_read(request: broker_pb2.AppendRequest) -> None:
    found = parse_put(request.SerializeToString())
    assert found.request_id == request.request_id
    assert [topic.decode() for topic in found.topics] == list(request.topics)
    assert packed_numbers(found.queue_topics, "x").tolist() == list(request.queue_topics)
    assert packed_numbers(found.queue_ids, "x").tolist() == list(request.queue_ids)
    assert bytes(found.records) == request.records
    assert (found.sizes, found.queue_indexes) == (request.sizes, request.queue_indexes)
    assert (found.durability, found.timeout_ms) == (request.durability, request.timeout_ms)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(RequestRefusedError):
        parse_put(data)


@given(requests, st.integers(1, 40))
def test_a_cut_request_is_refused_or_read_in_part(
    request: broker_pb2.AppendRequest, missing: int
) -> None:
    with contextlib.suppress(RequestRefusedError):
        parse_put(request.SerializeToString()[:-missing])


def test_fields_of_a_newer_client_are_passed_over() -> None:
    request = broker_pb2.AppendRequest(request_id=7, timeout_ms=5)
    newer = b"\xa2\x06\x03abc" + b"\xa8\x06\x7f" + b"\xb1\x06" + bytes(8) + b"\xbd\x06" + bytes(4)
    found = parse_put(newer + request.SerializeToString())
    assert (found.request_id, found.timeout_ms) == (7, 5)


def test_numbers_that_are_not_packed_are_read_too() -> None:
    found = parse_put(b"\x18\x01\x18\x80\x02\x20\x05")
    assert packed_numbers(found.queue_topics, "x").tolist() == [1, 256]
    assert packed_numbers(found.queue_ids, "x").tolist() == [5]


@pytest.mark.parametrize("data", [b"\x80", b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x1f"])
def test_numbers_that_are_none(data: bytes) -> None:
    with pytest.raises(RequestRefusedError, match="queue_ids must hold 32-bit numbers"):
        packed_numbers(data, "queue_ids")


def test_the_batch_has_the_columns() -> None:
    request = broker_pb2.AppendRequest(
        topics=["a", "b"],
        queue_topics=[0, 1, 1],
        queue_ids=[0, 0, 300],
        records=b"xyz",
        sizes=np.array([1, 2], "<u4").tobytes(),
        queue_indexes=np.array([2, 0], "<u2").tobytes(),
    )
    batch = batch_of(parse_put(request.SerializeToString()))
    assert (batch.topics, batch.count, batch.byte_size) == (("a", "b"), 2, 3)
    assert batch.queue_ids.tolist() == [0, 0, 300]
    assert batch.sizes.tolist() == [1, 2]
    assert batch.queue_indexes.tolist() == [2, 0]


def test_topics_that_are_no_text() -> None:
    request = PutRequest(
        topics=[b"\xff"],
        queue_topics=bytearray(1),
        queue_ids=bytearray(1),
        records=b"x",
        sizes=b"\1\0\0\0",
        queue_indexes=b"\0\0",
    )
    with pytest.raises(RequestRefusedError, match="topics must be UTF-8"):
        batch_of(request)


def test_more_fields_than_any_request_needs_are_refused() -> None:
    with pytest.raises(RequestRefusedError, match="fields") as refused:
        parse_put(b"\x12\x00" * (MOST_FIELDS + 1))
    assert refused.value.limit == MOST_FIELDS
    with pytest.raises(RequestRefusedError, match="fields"):
        parse_put(b"\x18\x01" * (MOST_FIELDS + 1))


def test_a_request_with_many_fields_is_left_to_a_thread() -> None:
    data = b"\x12\x00" * (QUICK_FIELDS + 1)
    with pytest.raises(ManyFieldsError):
        parse_put(data, QUICK_FIELDS)
    assert len(parse_put(data).topics) == QUICK_FIELDS + 1


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"\x12\x00" * (MAX_TABLE + 1), "topics"),
        (b"\x12\x80\x02" + b"t" * (MAX_TOPIC_BYTES + 1), "topics"),
        (b"\x1a\x80\x80\x40" + bytes(1 << 20), "queue_topics"),
        (b"\x22\x80\x80\x40" + bytes(1 << 20), "queue_ids"),
    ],
)
def test_what_a_request_may_not_have_is_told_with_its_number(data: bytes, field: str) -> None:
    found = parse_put(data + b"\x08\x07")
    assert found.request_id == 7
    with pytest.raises(RequestRefusedError) as refused:
        batch_of(found)
    assert refused.value.field == field
    assert refused.value.limit


def test_columns_that_are_not_packed_are_read_in_time_that_grows_as_they_do() -> None:
    found = parse_put(b"\x18\x01" * MAX_TABLE + b"\x20\x02" * MAX_TABLE)
    assert packed_numbers(found.queue_topics, "queue_topics").tolist() == [1] * MAX_TABLE
    assert packed_numbers(found.queue_ids, "queue_ids").tolist() == [2] * MAX_TABLE
