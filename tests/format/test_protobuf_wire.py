"""Fields and numbers of encoded messages against protobuf itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.protobuf_wire import (
    BYTES,
    VARINT,
    WireError,
    fields,
    put_varint,
    read_varint,
    tag,
    varint,
)
from tandemlog.v1 import broker_pb2

NUMBERS = st.integers(0, (1 << 64) - 1)


def test_numbers_are_in_base_128() -> None:
    assert varint(0) == b"\0"
    assert varint(127) == b"\x7f"
    assert varint(300) == b"\xac\x02"
    assert tag(5) == b"\x2a"
    with pytest.raises(ValueError, match="below zero"):
        varint(-1)


@given(NUMBERS, st.binary(max_size=3))
def test_a_number_is_read_back(value: int, behind: bytes) -> None:
    out = bytearray(b"xy")
    put_varint(out, value)
    assert read_varint(bytes(out) + behind, 2) == (value, len(out))


@given(st.lists(st.text(max_size=200), max_size=5), NUMBERS, st.binary(max_size=300))
def test_fields_are_protobufs(topics: list[str], request_id: int, records: bytes) -> None:
    message = broker_pb2.AppendRequest(topics=topics, request_id=request_id, records=records)
    data = message.SerializeToString()
    found = list(fields(memoryview(data)))
    bodies = [(number, data[start:end]) for number, kind, _, start, end in found if kind == BYTES]
    numbers = [(number, value) for number, kind, value, _, _ in found if kind == VARINT]
    assert [body for number, body in bodies if number == 2] == [each.encode() for each in topics]
    assert [body for number, body in bodies if number == 5] == [records] * bool(records)
    assert numbers == [(1, request_id)] * bool(request_id)
    assert sum(map(len, (data[start:end] for *_, start, end in found))) <= len(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x2a\x05abc", "within the field at byte 0"),
        (b"\x08\x01\x2a", "within a number of the field at byte 2"),
        (b"\x08\x80", "within a number"),
        (b"\x0b", "kind 3 at byte 0"),
        (b"\x09\x00", "within the field"),
        (b"\x08" + b"\xff" * 11, "more than 10 bytes"),
    ],
)
def test_what_is_no_field_is_an_error(data: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        list(fields(data))


def test_a_number_that_is_cut_off_is_told_from_one_without_an_end() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\xff" * 4, 0)
    with pytest.raises(WireError):
        read_varint(b"\xff" * 20, 0)
