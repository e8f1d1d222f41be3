"""The frames of the replication stream as values, and their bytes.

    slave                              master
      Hello        ───────────────────▶            who I am, what I hold
                   ◀───────────────────  Answer    continue / truncate / resync
                   ◀───────────────────  Chunk     log bytes; empty: a heartbeat
      Ack          ───────────────────▶            what I hold durably
                   ◀───────────────────  Metadata, MemberList, Refusal

A chunk is the only large frame: chunk_codec encodes and decodes it. Every other frame goes through
the generated classes. Decoding checks the limits of a frame (frame_checks.py), so a decoded frame
may be kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias, TypeVar

from google.protobuf.message import DecodeError

from tandemlog.format.files.epochs import EpochEntry
from tandemlog.v1 import common_pb2, replication_pb2

from ..errors import ProtocolError
from ..frame_limits import (
    MAX_ACK_BYTES,
    MAX_MASTER_FRAME_BYTES,
    MAX_SLAVE_FRAME_BYTES,
    MAX_SMALL_MASTER_FRAME_BYTES,
    check_size,
    sentence,
)
from .chunk_codec import Chunk, decode_chunk, encode_chunk
from .frame_checks import (
    check_ack,
    check_answer_fields,
    check_chunk,
    check_hello,
    check_members,
    check_piece,
    check_refusal,
)
from .table_pieces import Piece
from .versions import SILENT_PEER, Build

PREPARING = "preparing"
"""The state in an acknowledgement that is a sign of life only."""


class HelloAction(IntEnum):
    """What the master makes of a hello; the numbers are those of the protocol."""

    CONTINUE = 1
    TRUNCATE = 2
    RESYNC = 3


@dataclass(frozen=True, slots=True)
class Checksum:
    """CRC-32 of the log's bytes start..end."""

    start: int
    end: int
    crc: int


@dataclass(frozen=True, slots=True)
class Hello:
    """A slave's first frame. `file_size` is 0 if its disk is empty.

    What never travels the receiver fills in: `proven`, up to where `checksums` equal its own log;
    `damaged_until`, where that has no record at `doubted_offset` either.
    """

    cluster_id: str
    node_id: str
    incarnation: str
    endpoint: str = ""
    http_endpoint: str = ""
    epochs: tuple[EpochEntry, ...] = ()
    min_offset: int = 0
    max_offset: int = 0
    confirm_offset: int = 0
    file_size: int = 0
    store_host: str = ""
    rocketmq_endpoint: str = ""
    rocketmq_grpc_endpoint: str = ""
    checksums: tuple[Checksum, ...] = ()
    accepted_epoch: int = 0
    master_id: str = ""
    master_incarnation: str = ""
    needs_prologue: bool = False
    doubted_offset: int | None = None
    build: Build = SILENT_PEER
    proven: int | None = None
    damaged_until: int = 0


@dataclass(frozen=True, slots=True)
class Ack:
    """Counts only for `epoch` and `incarnation`; `state` is empty while the slave is well.
    `tables`: kind and version of every table that the slave has taken in this stream; `round`: the
    newest one that the master has asked."""

    epoch: int
    incarnation: str
    durable: int
    received: int = 0
    reput: int = 0
    state: str = ""
    tables: tuple[tuple[str, int], ...] = ()
    round: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the slave continues, and the proof that the logs are equal just below that.

    `known_nodes`: who is in the in-sync set or was; `damaged_until`: the master's own log has no
    record from the offset that the slave doubts up to there, 0 if it has one.
    """

    action: HelloAction
    offset: int
    reason: str = ""
    master_id: str = ""
    master_incarnation: str = ""
    master_endpoint: str = ""
    epoch: int = 0
    epochs: tuple[EpochEntry, ...] = ()
    file_size: int = 0
    confirm: int = 0
    max_offset: int = 0
    min_offset: int = 0
    proof_start: int = 0
    proof_crc: int = 0
    prologue: bool = False
    known_nodes: tuple[str, ...] = ()
    damaged_until: int = 0
    build: Build = SILENT_PEER


@dataclass(frozen=True, slots=True)
class Metadata:
    """One JSON table, whole, put together of its pieces. `kind`: topics, groups,
    consumer-offsets."""

    kind: str
    json: bytes
    version: int


@dataclass(frozen=True, slots=True)
class MemberList:
    """All nodes as the master sees them."""

    nodes: tuple[common_pb2.NodeStatus, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The stream ends after it. `retry` False: an operator has to act."""

    reason: str
    retry: bool
    epoch: int = 0


SlaveFrame: TypeAlias = Hello | Ack
MasterFrame: TypeAlias = Answer | Chunk | Piece | MemberList | Refusal

_ACTIONS = {
    HelloAction.CONTINUE: replication_pb2.CONTINUE,
    HelloAction.TRUNCATE: replication_pb2.TRUNCATE,
    HelloAction.RESYNC: replication_pb2.RESYNC,
}
_Message = TypeVar("_Message", replication_pb2.SlaveFrame, replication_pb2.MasterFrame)


def encode_slave_frame(frame: SlaveFrame) -> bytes:
    """The bytes of a tandemlog.v1.SlaveFrame."""
    message = replication_pb2.SlaveFrame()
    if isinstance(frame, Ack):
        message.ack.epoch = frame.epoch
        message.ack.incarnation = frame.incarnation
        message.ack.durable_offset = frame.durable
        message.ack.received_offset = frame.received
        message.ack.reput_offset = frame.reput
        message.ack.state = sentence(frame.state)
        message.ack.round = frame.round
        for kind, version in frame.tables:
            message.ack.tables.add(kind=kind, version=version)
        return message.SerializeToString()
    hello = message.hello
    hello.cluster_id = frame.cluster_id
    hello.node_id = frame.node_id
    hello.incarnation = frame.incarnation
    hello.endpoint = frame.endpoint
    hello.http_endpoint = frame.http_endpoint
    hello.epochs.extend(_epochs_out(frame.epochs))
    hello.min_offset = frame.min_offset
    hello.max_offset = frame.max_offset
    hello.confirm_offset = frame.confirm_offset
    hello.commit_log_file_size = frame.file_size
    hello.store_host = frame.store_host
    hello.rocketmq_endpoint = frame.rocketmq_endpoint
    hello.rocketmq_grpc_endpoint = frame.rocketmq_grpc_endpoint
    hello.accepted_epoch = frame.accepted_epoch
    hello.master_id = frame.master_id
    hello.master_incarnation = frame.master_incarnation
    hello.needs_prologue = frame.needs_prologue
    hello.checksums.extend(
        replication_pb2.LogChecksum(start=each.start, end=each.end, crc=each.crc)
        for each in frame.checksums
    )
    if frame.doubted_offset is not None:
        hello.doubted_offset = frame.doubted_offset
    _fill_build(hello, frame.build)
    return message.SerializeToString()


def decode_slave_frame(data: bytes) -> SlaveFrame:
    """The frame in `data`; raises ProtocolError for a frame that is neither hello nor ack, and for
    one that is above a limit."""
    check_size("a slave's frame", len(data), MAX_SLAVE_FRAME_BYTES)
    message = _parsed(replication_pb2.SlaveFrame, data)
    kind = message.WhichOneof("frame")
    if kind == "ack":
        ack = message.ack
        check_size("an acknowledgement", len(data), MAX_ACK_BYTES)
        check_ack(ack)
        return Ack(
            epoch=ack.epoch,
            incarnation=ack.incarnation,
            durable=ack.durable_offset,
            received=ack.received_offset,
            reput=ack.reput_offset,
            state=ack.state,
            tables=tuple((each.kind, each.version) for each in ack.tables),
            round=ack.round,
        )
    if kind != "hello":
        raise ProtocolError(
            "a slave's frame is neither a hello nor an ack; do both nodes run the same version?"
        )
    hello = message.hello
    check_hello(hello)
    return Hello(
        cluster_id=hello.cluster_id,
        node_id=hello.node_id,
        incarnation=hello.incarnation,
        endpoint=hello.endpoint,
        http_endpoint=hello.http_endpoint,
        epochs=_epochs_in(hello.epochs),
        min_offset=hello.min_offset,
        max_offset=hello.max_offset,
        confirm_offset=hello.confirm_offset,
        file_size=hello.commit_log_file_size,
        store_host=hello.store_host,
        rocketmq_endpoint=hello.rocketmq_endpoint,
        rocketmq_grpc_endpoint=hello.rocketmq_grpc_endpoint,
        checksums=tuple(Checksum(each.start, each.end, each.crc) for each in hello.checksums),
        accepted_epoch=hello.accepted_epoch,
        master_id=hello.master_id,
        master_incarnation=hello.master_incarnation,
        needs_prologue=hello.needs_prologue,
        doubted_offset=hello.doubted_offset if hello.HasField("doubted_offset") else None,
        build=_build_in(hello),
    )


def encode_master_frame(frame: MasterFrame) -> bytes:
    """The bytes of a tandemlog.v1.MasterFrame; a chunk's data is copied once."""
    if isinstance(frame, Chunk):
        return encode_chunk(frame)
    message = replication_pb2.MasterFrame()
    if isinstance(frame, Answer):
        _fill_answer(message.answer, frame)
    elif isinstance(frame, Piece):
        message.metadata.kind = frame.kind
        message.metadata.json = frame.data
        message.metadata.version = frame.version
        message.metadata.index = frame.index
        message.metadata.last = frame.last
    elif isinstance(frame, MemberList):
        message.members.nodes.extend(frame.nodes)
        message.members.SetInParent()
    else:
        message.refusal.reason = sentence(frame.reason)
        message.refusal.retry = frame.retry
        message.refusal.epoch = frame.epoch
    return message.SerializeToString()


def decode_master_frame(data: bytes) -> MasterFrame:
    """The frame in `data`; a chunk's data is a view of it. Raises ProtocolError."""
    check_size("a master's frame", len(data), MAX_MASTER_FRAME_BYTES)
    chunk = decode_chunk(data)
    if chunk is not None:
        check_chunk(chunk)
        return chunk
    message = _parsed(replication_pb2.MasterFrame, data)
    kind = message.WhichOneof("frame")
    if kind == "chunk":
        chunk = _chunk_in(message.chunk)
        check_chunk(chunk)
        return chunk
    check_size("a master's frame without log bytes", len(data), MAX_SMALL_MASTER_FRAME_BYTES)
    if kind == "answer":
        return _answer_in(message.answer)
    if kind == "metadata":
        update = message.metadata
        check_piece(update)
        return Piece(update.kind, update.version, update.index, update.last, update.json)
    if kind == "members":
        check_members(message.members)
        return MemberList(tuple(message.members.nodes))
    if kind == "refusal":
        refusal = message.refusal
        check_refusal(refusal)
        return Refusal(refusal.reason, refusal.retry, refusal.epoch)
    raise ProtocolError("a master's frame of an unknown kind; do both nodes run the same version?")


def _parsed(kind: type[_Message], data: bytes) -> _Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ProtocolError(
            f"{len(data)} bytes are not a valid {kind.__name__}: {error}"
        ) from error


def _fill_answer(message: replication_pb2.HelloAnswer, frame: Answer) -> None:
    message.action = _ACTIONS[frame.action]
    message.offset = frame.offset
    message.reason = sentence(frame.reason)
    message.master_id = frame.master_id
    message.master_incarnation = frame.master_incarnation
    message.master_endpoint = frame.master_endpoint
    message.epoch = frame.epoch
    message.epochs.extend(_epochs_out(frame.epochs))
    message.commit_log_file_size = frame.file_size
    message.confirm_offset = frame.confirm
    message.max_offset = frame.max_offset
    message.min_offset = frame.min_offset
    message.proof_start = frame.proof_start
    message.proof_crc = frame.proof_crc
    message.prologue = frame.prologue
    message.known_nodes.extend(frame.known_nodes)
    message.damaged_until = frame.damaged_until
    _fill_build(message, frame.build)


def _answer_in(message: replication_pb2.HelloAnswer) -> Answer:
    action = next((name for name, value in _ACTIONS.items() if value == message.action), None)
    if action is None:
        raise ProtocolError(f"the master sent the unknown action {message.action}")
    check_answer_fields(message)
    return Answer(
        action=action,
        offset=message.offset,
        reason=message.reason,
        master_id=message.master_id,
        master_incarnation=message.master_incarnation,
        master_endpoint=message.master_endpoint,
        epoch=message.epoch,
        epochs=_epochs_in(message.epochs),
        file_size=message.commit_log_file_size,
        confirm=message.confirm_offset,
        max_offset=message.max_offset,
        min_offset=message.min_offset,
        proof_start=message.proof_start,
        proof_crc=message.proof_crc,
        prologue=message.prologue,
        known_nodes=tuple(message.known_nodes),
        damaged_until=message.damaged_until,
        build=_build_in(message),
    )


def _fill_build(
    message: replication_pb2.SlaveHello | replication_pb2.HelloAnswer, build: Build
) -> None:
    if build != SILENT_PEER:
        message.build.version = build.version
        message.build.features.extend(sorted(build.features))
        message.build.needs.extend(sorted(build.needs))


def _build_in(message: replication_pb2.SlaveHello | replication_pb2.HelloAnswer) -> Build:
    if not message.HasField("build"):
        return SILENT_PEER
    build = message.build
    return Build(build.version, frozenset(build.features), frozenset(build.needs))


def _chunk_in(message: replication_pb2.LogChunk) -> Chunk:
    return Chunk(
        offset=message.offset,
        epoch=message.epoch,
        epoch_start=message.epoch_start_offset,
        confirm=message.confirm_offset,
        max_offset=message.max_offset,
        sent_at_ms=message.sent_at_ms,
        master_epoch=message.master_epoch,
        data=message.data,
        crc=message.crc,
        round=message.round,
    )


def _epochs_out(entries: tuple[EpochEntry, ...]) -> list[replication_pb2.EpochEntry]:
    return [
        replication_pb2.EpochEntry(epoch=entry.epoch, start_offset=entry.start_offset)
        for entry in entries
    ]


def _epochs_in(entries: Iterable[replication_pb2.EpochEntry]) -> tuple[EpochEntry, ...]:
    return tuple(EpochEntry(each.epoch, each.start_offset) for each in entries)
