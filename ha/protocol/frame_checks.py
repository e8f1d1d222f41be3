"""Checks every frame against its limits (frame_limits.py) before it is used.

Each function takes the message as protobuf has read it and raises ProtocolError, which names frame,
field, value and limit.
"""

from collections.abc import Iterable

from tandemlog.v1 import common_pb2, replication_pb2

from ..errors import ProtocolError
from ..frame_limits import (
    MAX_CHECKSUMS,
    MAX_EPOCHS,
    MAX_MEMBERS,
    MAX_TABLES,
    check_count,
    check_endpoints,
    check_epochs,
    check_identifiers,
    check_offsets,
    check_rising,
    check_sentences,
)
from .chunk_codec import Chunk
from .versions import MAX_NAMES


def check_hello(hello: replication_pb2.SlaveHello) -> None:
    check_identifiers(
        "hello",
        cluster_id=hello.cluster_id,
        node_id=hello.node_id,
        incarnation=hello.incarnation,
        master_id=hello.master_id,
        master_incarnation=hello.master_incarnation,
    )
    check_endpoints(
        "hello",
        endpoint=hello.endpoint,
        http_endpoint=hello.http_endpoint,
        store_host=hello.store_host,
        rocketmq_endpoint=hello.rocketmq_endpoint,
        rocketmq_grpc_endpoint=hello.rocketmq_grpc_endpoint,
    )
    check_offsets(
        "hello",
        min_offset=hello.min_offset,
        max_offset=hello.max_offset,
        confirm_offset=hello.confirm_offset,
        commit_log_file_size=hello.commit_log_file_size,
        doubted_offset=hello.doubted_offset,
    )
    if not max(hello.min_offset, hello.confirm_offset) <= hello.max_offset:
        raise ProtocolError(
            f"hello: a log {hello.min_offset}..{hello.max_offset} cannot be confirmed up to "
            f"{hello.confirm_offset}"
        )
    check_epochs("hello", accepted_epoch=hello.accepted_epoch)
    _check_table("hello", hello.epochs)
    _check_build("hello", hello.build)
    check_count("hello", "checksums", hello.checksums, MAX_CHECKSUMS)
    for each in hello.checksums:
        check_offsets("hello", checksum_start=each.start, checksum_end=each.end)


def check_ack(ack: replication_pb2.SlaveAck) -> None:
    name = "acknowledgement"
    check_identifiers(name, incarnation=ack.incarnation)
    check_sentences(name, state=ack.state)
    check_epochs(name, epoch=ack.epoch)
    check_offsets(
        name,
        durable_offset=ack.durable_offset,
        received_offset=ack.received_offset,
        reput_offset=ack.reput_offset,
        round=ack.round,
    )
    check_count(name, "tables", ack.tables, MAX_TABLES)
    for each in ack.tables:
        check_identifiers(name, table=each.kind)
        check_offsets(name, table_version=each.version)


def check_answer_fields(answer: replication_pb2.HelloAnswer) -> None:
    check_identifiers(
        "answer", master_id=answer.master_id, master_incarnation=answer.master_incarnation
    )
    check_endpoints("answer", master_endpoint=answer.master_endpoint)
    check_sentences("answer", reason=answer.reason)
    check_epochs("answer", epoch=answer.epoch)
    check_offsets(
        "answer",
        offset=answer.offset,
        commit_log_file_size=answer.commit_log_file_size,
        confirm_offset=answer.confirm_offset,
        max_offset=answer.max_offset,
        min_offset=answer.min_offset,
        proof_start=answer.proof_start,
        damaged_until=answer.damaged_until,
    )
    _check_table("answer", answer.epochs)
    _check_build("answer", answer.build)
    check_count("answer", "known nodes", answer.known_nodes, MAX_MEMBERS)
    for node_id in answer.known_nodes:
        check_identifiers("answer", known_node=node_id)


def check_chunk(chunk: Chunk) -> None:
    check_offsets(
        "chunk",
        offset=chunk.offset,
        epoch_start=chunk.epoch_start,
        confirm=chunk.confirm,
        max_offset=chunk.max_offset,
        sent_at_ms=chunk.sent_at_ms,
        round=chunk.round,
    )
    check_epochs("chunk", epoch=chunk.epoch, master_epoch=chunk.master_epoch)


def check_piece(update: replication_pb2.MetadataUpdate) -> None:
    check_identifiers("metadata", kind=update.kind)
    check_offsets("metadata", version=update.version, index=update.index)


def check_members(members: replication_pb2.Members) -> None:
    check_count("members", "nodes", members.nodes, MAX_MEMBERS)
    for node in members.nodes:
        _check_node(node)


def check_refusal(refusal: replication_pb2.Refusal) -> None:
    check_sentences("refusal", reason=refusal.reason)


def _check_node(node: common_pb2.NodeStatus) -> None:
    check_identifiers(
        "members", node_id=node.node_id, incarnation=node.incarnation, version=node.version
    )
    check_endpoints(
        "members",
        endpoint=node.endpoint,
        http_endpoint=node.http_endpoint,
        store_host=node.store_host,
        rocketmq_endpoint=node.rocketmq_endpoint,
        rocketmq_grpc_endpoint=node.rocketmq_grpc_endpoint,
    )
    check_sentences("members", state=node.state, detail=node.detail)


def _check_build(frame: str, build: common_pb2.Build) -> None:
    check_identifiers(frame, version=build.version)
    for name, values in (("features", build.features), ("needs", build.needs)):
        check_count(frame, name, values, MAX_NAMES)
        for value in values:
            check_identifiers(frame, **{name: value})


def _check_table(frame: str, epochs: Iterable[replication_pb2.EpochEntry]) -> None:
    entries = list(epochs)
    check_count(frame, "epochs", entries, MAX_EPOCHS)
    check_rising(frame, ((each.epoch, each.start_offset) for each in entries))
