"""Frames and their bytes: both codecs say the same, and garbage is an error."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.files.epochs import EpochEntry
from tandemlog.v1 import common_pb2, replication_pb2
from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.ha.frame_limits import MAX_EPOCH, MAX_OFFSET
from tandemlog_server.ha.protocol.chunk_codec import Chunk, decode_chunk, encode_chunk
from tandemlog_server.ha.protocol.frames import (
    Ack,
    Answer,
    Checksum,
    Hello,
    HelloAction,
    MasterFrame,
    MemberList,
    Refusal,
    SlaveFrame,
    decode_master_frame,
    decode_slave_frame,
    encode_master_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.table_pieces import Piece
from tandemlog_server.ha.protocol.versions import MAX_NAMES, SILENT_PEER, Build

OFFSETS = st.integers(0, MAX_OFFSET)
EPOCHS = st.integers(0, MAX_EPOCH)
CHUNKS = st.builds(
    Chunk,
    OFFSETS,
    EPOCHS,
    OFFSETS,
    OFFSETS,
    OFFSETS,
    OFFSETS,
    EPOCHS,
    st.binary(max_size=300),
    st.integers(0, (1 << 32) - 1),
)
HELLO = Hello(
    cluster_id="c",
    node_id="n",
    incarnation="i",
    endpoint="h:1",
    http_endpoint="h:2",
    epochs=(EpochEntry(1, 0), EpochEntry(4, 1 << 40)),
    min_offset=1 << 30,
    max_offset=1 << 41,
    confirm_offset=5,
    file_size=1 << 30,
    store_host="127.0.0.1:1",
    checksums=(Checksum(0, 10, 0xFFFFFFFF),),
    accepted_epoch=4,
    master_id="m",
    master_incarnation="mi",
    build=Build("1.2.3", frozenset({"b", "a"}), frozenset({"a"})),
)
ANSWER = Answer(
    action=HelloAction.TRUNCATE,
    offset=77,
    reason="because",
    master_id="m",
    master_incarnation="mi",
    master_endpoint="h:3",
    epoch=9,
    epochs=(EpochEntry(9, 7),),
    file_size=4096,
    confirm=70,
    max_offset=99,
    min_offset=3,
    proof_start=13,
    proof_crc=0xDEADBEEF,
    build=Build("1.2.4", frozenset({"a"})),
)


@pytest.mark.parametrize(
    "frame", [HELLO, Ack(3, "i", 10, 20, 5, "read-only"), Hello("c", "n", "i")]
)
def test_slave_frames_come_back(frame: SlaveFrame) -> None:
    assert decode_slave_frame(encode_slave_frame(frame)) == frame


@pytest.mark.parametrize(
    "frame",
    [
        ANSWER,
        Piece("topics", 3, 0, True, b"{}"),
        MemberList((common_pb2.NodeStatus(node_id="a", lag_bytes=5),)),
        MemberList(()),
        Refusal("no", retry=True, epoch=2),
    ],
)
def test_master_frames_come_back(frame: MasterFrame) -> None:
    assert decode_master_frame(encode_master_frame(frame)) == frame


@given(CHUNKS)
def test_a_chunk_made_by_hand_is_what_protobuf_reads(chunk: Chunk) -> None:
    message = replication_pb2.MasterFrame.FromString(encode_chunk(chunk))
    assert message.WhichOneof("frame") == "chunk"
    read = message.chunk
    assert (read.offset, read.epoch, read.epoch_start_offset) == (
        chunk.offset,
        chunk.epoch,
        chunk.epoch_start,
    )
    assert (read.confirm_offset, read.max_offset) == (chunk.confirm, chunk.max_offset)
    assert (read.sent_at_ms, read.master_epoch) == (chunk.sent_at_ms, chunk.master_epoch)
    assert (read.data, read.crc) == (chunk.data, chunk.crc)


@given(CHUNKS)
def test_a_chunk_comes_back(chunk: Chunk) -> None:
    assert decode_master_frame(encode_chunk(chunk)) == chunk


@given(CHUNKS)
def test_a_chunk_of_protobuf_itself_is_read(chunk: Chunk) -> None:
    message = replication_pb2.MasterFrame()
    message.chunk.offset = chunk.offset
    message.chunk.epoch = chunk.epoch
    message.chunk.epoch_start_offset = chunk.epoch_start
    message.chunk.confirm_offset = chunk.confirm
    message.chunk.max_offset = chunk.max_offset
    message.chunk.sent_at_ms = chunk.sent_at_ms
    message.chunk.master_epoch = chunk.master_epoch
    message.chunk.data = bytes(chunk.data)
    message.chunk.crc = chunk.crc
    assert decode_master_frame(message.SerializeToString()) == chunk


def test_the_data_of_a_chunk_is_a_view() -> None:
    data = encode_chunk(Chunk(0, 1, 0, 0, 0, 0, 1, b"x" * 1000))
    chunk = decode_chunk(data)
    assert chunk is not None
    assert isinstance(chunk.data, memoryview)
    assert chunk.data.obj is data


def test_a_negative_offset_is_not_written() -> None:
    with pytest.raises(ValueError, match="below zero"):
        encode_chunk(Chunk(-1, 1, 0, 0, 0, 0, 1))


@given(st.binary(max_size=60))
def test_garbage_is_a_protocol_error_or_a_frame(data: bytes) -> None:
    for decode in (decode_master_frame, decode_slave_frame):
        with contextlib.suppress(ProtocolError):
            decode(data)


def test_an_unknown_action_is_refused() -> None:
    message = replication_pb2.MasterFrame()
    message.answer.offset = 1
    with pytest.raises(ProtocolError, match="unknown action 0"):
        decode_master_frame(message.SerializeToString())


def test_an_empty_frame_is_refused() -> None:
    with pytest.raises(ProtocolError, match="neither a hello nor an ack"):
        decode_slave_frame(b"")
    with pytest.raises(ProtocolError, match="unknown kind"):
        decode_master_frame(b"")


def test_a_peer_that_says_nothing_of_itself_can_do_what_the_first_version_could() -> None:
    message = replication_pb2.SlaveFrame()
    message.hello.cluster_id = "c"
    got = decode_slave_frame(message.SerializeToString())
    assert isinstance(got, Hello)
    assert got.build == SILENT_PEER
    assert encode_slave_frame(got) == message.SerializeToString()


def test_a_peers_list_of_features_has_a_bound() -> None:
    message = replication_pb2.SlaveFrame()
    message.hello.build.features.extend(f"f{number}" for number in range(MAX_NAMES + 1))
    with pytest.raises(ProtocolError, match="257 features, the most is 256"):
        decode_slave_frame(message.SerializeToString())
