"""The HA stream of RocketMQ, in any pieces that a network makes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.rocketmq.wire.frames import (
    BUFFER_BYTES,
    MAX_FRAME_BYTES,
    FrameReader,
    OffsetReader,
    encode_header,
    encode_offset,
)


def stream(start: int, payloads: list[bytes]) -> bytes:
    sent = b""
    for payload in payloads:
        sent += encode_header(start, len(payload)) + payload
        start += len(payload)
    return sent


def test_the_bytes_are_those_that_brokers_send() -> None:
    assert encode_offset(1) == bytes.fromhex("0000000000000001")
    assert encode_header(0x0102030405, 7) == bytes.fromhex("000000010203040500000007")


@given(
    start=st.integers(0, 1 << 40),
    payloads=st.lists(st.binary(max_size=60), max_size=12),
    cuts=st.lists(st.integers(1, 40), min_size=1),
)
def test_any_cutting_of_the_stream_gives_the_same_log(
    start: int, payloads: list[bytes], cuts: list[int]
) -> None:
    sent, reader, log, at, turn = stream(start, payloads), FrameReader(start), b"", 0, 0
    while at < len(sent):
        size = cuts[turn % len(cuts)]
        for run in reader.feed(sent[at : at + size]):
            assert run.offset == start + len(log)
            log += run.data
        at, turn = at + size, turn + 1
    assert log == b"".join(payloads)
    assert reader.expected == start + len(log)


def test_a_heartbeat_is_a_run_without_bytes() -> None:
    (run,) = FrameReader(500).feed(encode_header(500, 0))
    assert (run.offset, run.data) == (500, b"")


def test_a_frame_larger_than_the_buffer_is_received() -> None:
    payloads = [b"a" * (3 * BUFFER_BYTES), b"tail"]
    runs = FrameReader(0).feed(stream(0, payloads))
    assert b"".join(run.data for run in runs) == b"".join(payloads)


@pytest.mark.parametrize("size", [-1, MAX_FRAME_BYTES + 1])
def test_a_size_that_no_broker_sends_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="HA port"):
        FrameReader(0).feed(encode_header(0, size))


def test_bytes_from_elsewhere_are_refused() -> None:
    with pytest.raises(ProtocolError, match="log bytes at 8 came, but 7 was asked for"):
        FrameReader(7).feed(encode_header(8, 0))


@given(offsets=st.lists(st.integers(0, (1 << 63) - 1)), size=st.integers(1, 20))
def test_a_slaves_offsets_come_in_any_pieces(offsets: list[int], size: int) -> None:
    sent, reader = b"".join(map(encode_offset, offsets)), OffsetReader()
    found = [each for at in range(0, len(sent), size) for each in reader.feed(sent[at : at + size])]
    assert found == offsets


def test_an_offset_below_zero_is_refused() -> None:
    with pytest.raises(ProtocolError, match="offset -1"):
        OffsetReader().feed(encode_offset(-1))
