"""Frames are found in whatever parts they come, and what is none is refused before it is held."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.transport.data_frames import (
    FROM_CLIENT,
    FROM_NODE,
    HEAD,
    DataFrameError,
    Frame,
    FrameReader,
    Kind,
    frame,
    head,
    read_head,
    read_status,
    status_frame,
)

numbers = st.integers(0, (1 << 32) - 1)
frames = st.builds(
    Frame, numbers, st.sampled_from(sorted(FROM_CLIENT - {Kind.CANCEL})), st.binary(max_size=200)
) | st.builds(Frame, numbers, st.just(Kind.CANCEL), st.just(b""))


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_frames_come_in_any_parts(given: list[Frame], lengths: list[int]) -> None:
    data = b"".join(frame(each.call, each.kind, bytes(each.payload)) for each in given)
    reader = FrameReader(FROM_CLIENT, 200)
    found: list[Frame] = []
    turn = 0
    while data:
        length = lengths[turn % len(lengths)]
        turn += 1
        found += reader.feed(data[:length])
        data = data[length:]
    assert found == given
    assert not reader.within


@pytest.mark.parametrize("seed", range(30))
def test_a_large_frame_may_be_received_into_its_room(seed: int) -> None:
    """Or be fed, or both."""
    made = random.Random(seed)
    given = [
        Frame(call, Kind.APPEND, made.randbytes(made.choice([0, 100, 65_535, 65_536, 200_000])))
        for call in range(6)
    ]
    sent = b"".join(frame(each.call, each.kind, bytes(each.payload)) for each in given)
    reader = FrameReader(FROM_CLIENT, 1 << 20)
    found: list[Frame] = []
    while sent:
        size = min(made.choice([1, 11, 3_000, 90_000]), len(sent))
        room = reader.room
        if room is None or made.random() < 0.3:
            found += reader.feed(sent[:size])
        else:
            assert reader.within
            size = min(size, len(room))
            room[:size] = sent[:size]
            found += reader.received(size)
        sent = sent[size:]
    assert found == given
    assert not reader.within


@given(st.binary(max_size=100))
def test_whatever_comes_is_a_frame_or_refused(data: bytes) -> None:
    reader = FrameReader(FROM_NODE, 1_000)
    try:
        for each in reader.feed(data):
            assert each.kind in FROM_NODE
    except DataFrameError:
        pass


def test_a_frame_that_is_too_large_is_refused_by_its_head() -> None:
    reader = FrameReader(FROM_CLIENT, 100)
    assert list(reader.feed(head(1, Kind.APPEND, 100))) == []
    assert reader.within
    with pytest.raises(DataFrameError, match=r"a frame APPEND of 101 bytes, the limit is 100"):
        list(FrameReader(FROM_CLIENT, 100).feed(head(1, Kind.APPEND, 101)))


@pytest.mark.parametrize(
    ("kind", "limit"), [(Kind.CANCEL, 0), (Kind.TOKEN, 16 << 10), (Kind.PULL, 256 << 10)]
)
def test_a_kind_has_a_limit_of_its_own(kind: Kind, limit: int) -> None:
    assert list(FrameReader(FROM_CLIENT, 1 << 30).feed(head(1, kind, limit)[:11])) == []
    with pytest.raises(DataFrameError, match=f"of {limit + 1} bytes, the limit is {limit}"):
        list(FrameReader(FROM_CLIENT, 1 << 30).feed(head(1, kind, limit + 1)))


@pytest.mark.parametrize("kind", [0, 7, 255, Kind.ANSWER])
def test_a_frame_of_another_kind_is_refused(kind: int) -> None:
    with pytest.raises(DataFrameError, match=f"a frame of kind {kind}"):
        list(FrameReader(FROM_CLIENT, 100).feed(HEAD.pack(0, 1, kind)))


def test_the_limit_of_the_next_frame_may_change() -> None:
    reader = FrameReader(FROM_CLIENT, 3)
    assert [each.payload for each in reader.feed(frame(0, Kind.TOKEN, b"abc"))] == [b"abc"]
    reader.most = 4
    assert [each.payload for each in reader.feed(frame(1, Kind.PULL, b"abcd"))] == [b"abcd"]


def test_a_status_has_a_code_and_a_text() -> None:
    said = status_frame(9, 16, "who calls? ü")
    size, call, kind = read_head(said, FROM_NODE, 100)
    assert (size, call, kind) == (len(said) - HEAD.size, 9, Kind.STATUS)
    assert read_status(said[HEAD.size :]) == (16, "who calls? ü")
    with pytest.raises(DataFrameError, match="a status of 3 bytes has no code"):
        read_status(b"abc")
