"""What records of SERVICE_TOPIC say of transactions comes back as it was, and nothing else does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.constants import SERVICE_TOPIC
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import decode_record, encode_record
from tandemlog.format.transaction.decision import (
    NO_OFFSET,
    Commit,
    GroupOffset,
    OffsetsSet,
    Said,
    TakenOver,
    decode_said,
    encode_said,
    said_by,
    said_record,
)

NUMBERS = st.integers(0, (1 << 62) - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
OFFSETS = st.lists(
    st.builds(GroupOffset, NAMES, NAMES, st.integers(0, 1 << 20), st.integers(-1, (1 << 62) - 1)),
    max_size=8,
    unique_by=lambda each: each[:3],
).map(tuple)
COMMITS = st.builds(
    Commit, NAMES, st.lists(NUMBERS, unique=True, max_size=20).map(lambda n: tuple(sorted(n))),
    OFFSETS,
)  # fmt: skip
SAID = st.one_of(COMMITS, st.builds(OffsetsSet, OFFSETS), st.builds(TakenOver, NUMBERS))


def in_order(said: Said) -> Said:
    """Offsets are stored by group and topic."""
    if isinstance(said, Commit):
        return Commit(said.transaction_id, said.halves, tuple(sorted(said.offsets)))
    return OffsetsSet(tuple(sorted(said.offsets))) if isinstance(said, OffsetsSet) else said


@given(SAID)
def test_it_comes_back(said: Said) -> None:
    assert in_order(decode_said(encode_said(said))) == in_order(said)


@given(SAID, st.data())
def test_a_cut_body_is_refused(said: Said, data: st.DataObject) -> None:
    body = encode_said(said)
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(FormatError):
        decode_said(body[:end])
    with pytest.raises(FormatError):
        decode_said(body + b"\0")


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for data in (body, b"\1\1" + body, b"\1\2" + body):
        try:
            said = decode_said(data)
        except FormatError:
            continue
        assert decode_said(encode_said(said)) == in_order(said) or isinstance(said, Commit)


def test_the_form_on_the_disk() -> None:
    """What stands in logs; a change of it needs another version."""
    offsets = (GroupOffset("g", "t", 3, 200), GroupOffset("g", "t", 4, NO_OFFSET))
    said = Commit("id", (10, 12), offsets)
    assert encode_said(said) == bytes((1, 1, 2)) + b"id" + bytes(
        (2, 10, 1, 1, 1, 0x67, 1, 1, 0x74, 2, 3, 0xC9, 1, 4, 0)
    )


def test_what_has_no_form_is_refused() -> None:
    for said in (Commit("x", (5, 5)), Commit("x", (7, 3)), TakenOver(-1), Commit("\ud800")):
        with pytest.raises(FormatError):
            encode_said(said)
    with pytest.raises(FormatError, match="version"):
        decode_said(b"\2\1\0")


def test_the_record() -> None:
    said = TakenOver(7)
    record = decode_record(said_record(said, now_ms=5, host="127.0.0.1:1"))
    assert (record.topic, record.queue_id) == (SERVICE_TOPIC, 0)
    assert said_by(record) == said
    other = decode_record(encode_record(topic=SERVICE_TOPIC, body=b"x", properties={"TAGS": "y"}))
    assert said_by(other) is None
