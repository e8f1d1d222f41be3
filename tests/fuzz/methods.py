"""Every method that a node serves, asked of the node itself, and valid requests for each.

    reflection ──▶ services ──▶ descriptors ──▶ one request made of each message's fields
                                              + those made by hand, which get deeper

A method that is added to a service is found here without anybody's help.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from fakes.batches import Put
from tandemlog.v1 import admin_pb2, broker_pb2, replication_pb2

TOPIC = "Fuzz"
GONE = "FuzzGone"
KEY = "fuzz-key"
GROUP = "fuzz-group"
STRANGER = "stranger"
LONG_POLLS = ("/Pull", "/Receive", "/PollTransactionChecks")
"""How the paths of methods end that wait for news for as long as the caller likes."""
NAMES = (
    TOPIC.encode(), GONE.encode(), KEY.encode(), GROUP.encode(), STRANGER.encode(), b"test", b"n1",
    b"n0", b"127.0.0.1:1", b"tandemlog.v1.Broker", b"tandemlog/v1/broker.proto",
)  # fmt: skip

_BY_NAME: dict[str, Any] = {
    "topic": TOPIC, "topics": TOPIC, "names": TOPIC, "name": GONE, "key": KEY, "group": GROUP,
    "producer_id": "p", "service": "tandemlog.v1.Broker", "cluster_id": "test",
    "node_id": STRANGER, "incarnation": "i", "list_services": "",
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """`path` as gRPC calls it."""

    path: str
    request: Descriptor
    answer: type[Message]
    client_streaming: bool
    server_streaming: bool

    @property
    def streaming(self) -> bool:
        return self.client_streaming or self.server_streaming


def methods_of(endpoint: str) -> list[Method]:
    """What the node at `endpoint` serves, by reflection."""
    found: list[Method] = []
    with grpc.insecure_channel(endpoint) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        for name in sorted(database.get_services()):
            found += [
                Method(
                    path=f"/{name}/{method.name}",
                    request=method.input_type,
                    answer=GetMessageClass(method.output_type),
                    client_streaming=method.client_streaming,
                    server_streaming=method.server_streaming,
                )
                for method in pool.FindServiceByName(name).methods
            ]
    return found


def conversations(methods: Iterable[Method]) -> dict[str, list[list[bytes]]]:
    """Valid requests of each method, by path: each one the messages of a call."""
    by_hand = {path: list(calls) for path, calls in _by_hand()}
    return {
        method.path: [[from_fields(method.request)], *by_hand.get(method.path, [])]
        for method in methods
    }


def from_fields(descriptor: Descriptor) -> bytes:
    """A message with a plain value in every field; of a oneof in its first."""
    return _filled(descriptor).SerializeToString()


def _filled(descriptor: Descriptor) -> Message:
    message = GetMessageClass(descriptor)()
    chosen: set[str] = set()
    for field in descriptor.fields:
        if field.containing_oneof is not None:
            if field.containing_oneof.name in chosen:
                continue
            chosen.add(field.containing_oneof.name)
        held = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.message_type is not None:
            inner = held.add() if field.is_repeated else held
            inner.CopyFrom(_filled(field.message_type))
            inner.SetInParent()
        elif field.is_repeated:
            held.append(_plain(field))
        else:
            setattr(message, field.name, _plain(field))
    return message


def _plain(field: FieldDescriptor) -> Any:
    if field.name in _BY_NAME:
        return _BY_NAME[field.name]
    if field.type == FieldDescriptor.TYPE_STRING:
        return "text"
    return b"bytes" if field.type == FieldDescriptor.TYPE_BYTES else 0


def put_request(puts: Sequence[Put], **changes: Any) -> broker_pb2.AppendRequest:
    """The puts as the client frames them."""
    records = [put.record() for put in puts]
    topics = list(dict.fromkeys(put.topic for put in puts))
    table = list(dict.fromkeys((put.topic, put.queue_id) for put in puts))
    indexes = [table.index((put.topic, put.queue_id)) for put in puts]
    values = {
        "request_id": 7,
        "topics": topics,
        "queue_topics": [topics.index(topic) for topic, _ in table],
        "queue_ids": [queue_id for _, queue_id in table],
        "records": b"".join(records),
        "sizes": b"".join(len(record).to_bytes(4, "little") for record in records),
        "queue_indexes": b"".join(each.to_bytes(2, "little") for each in indexes),
        "timeout_ms": 2_000,
        **changes,
    }
    return broker_pb2.AppendRequest(**values)


def hello(**changes: Any) -> bytes:
    """A stranger's first frame: an empty disk."""
    values = {
        "cluster_id": "test",
        "node_id": STRANGER,
        "incarnation": "i1",
        "endpoint": "127.0.0.1:1",
        **changes,
    }
    return replication_pb2.SlaveFrame(
        hello=replication_pb2.SlaveHello(**values)
    ).SerializeToString()


def ack(**changes: Any) -> bytes:
    values = {"epoch": 1, "incarnation": "i1", **changes}
    return replication_pb2.SlaveFrame(ack=replication_pb2.SlaveAck(**values)).SerializeToString()


def _by_hand() -> Iterator[tuple[str, list[list[bytes]]]]:
    for path, messages in (
        ("Broker/Append", _puts()),
        ("Broker/Pull", _pulls()),
        ("Broker/QueueRanges", [broker_pb2.QueueRangesRequest()]),
        ("Broker/QueryByKey", _queries()),
        ("Broker/GetByOffset", [broker_pb2.GetByOffsetRequest(physical_offsets=[0, 0, 0])]),
        ("Broker/FetchOffsets", [broker_pb2.FetchOffsetsRequest(group=GROUP)]),
        ("Broker/FetchSegmentRange", [broker_pb2.FetchSegmentRangeRequest(length=2_000)]),
        ("Broker/FetchLogState", [broker_pb2.FetchLogStateRequest(prologue_offset=1)]),
        ("Admin/CreateTopic", _topics()),
        ("Admin/ListTopics", [admin_pb2.ListTopicsRequest()]),
    ):
        yield f"/tandemlog.v1.{path}", [[message.SerializeToString()] for message in messages]
    yield "/tandemlog.v1.Replication/Replicate", _hellos()
    service = "tandemlog.v1.Broker"
    check = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    yield "/grpc.health.v1.Health/Check", [[check]]
    asked = reflection_pb2.ServerReflectionRequest
    yield (
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        [
            [asked(list_services="").SerializeToString()],
            [asked(file_containing_symbol=service).SerializeToString()],
            [asked(file_by_filename="tandemlog/v1/broker.proto").SerializeToString()],
        ],
    )


def _puts() -> list[Message]:
    mark = b"__TL_SEQ\x01fuzz-p,0,0,0,1\x02"
    keys = b"KEYS\x01" + KEY.encode() + b"\x02TAGS\x01TagA\x02"
    return [
        put_request([Put(TOPIC, 0, b"one")]),
        put_request([Put(TOPIC, queue, b"%d" % queue * 50, keys) for queue in range(4)]),
        put_request([Put(TOPIC, 1, b"marked", mark)]),
        put_request([Put(TOPIC, 2, b"soon")], durability=broker_pb2.NO_WAIT),
        put_request([Put("Nowhere", 0), Put(TOPIC, 0)]),
    ]


def _pulls() -> list[Message]:
    positions = [broker_pb2.QueuePosition(topic=TOPIC, queue_id=queue) for queue in range(4)]
    end = broker_pb2.QueuePosition(topic=TOPIC, queue_id=0, queue_offset=1 << 40)
    return [
        broker_pb2.PullRequest(positions=positions, max_bytes=20_000),
        broker_pb2.PullRequest(positions=positions[:1], max_messages=3, tag_hashes=[2598919]),
        broker_pb2.PullRequest(positions=[end], wait_ms=5),
    ]


def _queries() -> list[Message]:
    return [
        broker_pb2.QueryByKeyRequest(topic=TOPIC, key=KEY, max_messages=3),
        broker_pb2.QueryByKeyRequest(topic=TOPIC, key="TagA", tags=True, max_messages=2),
    ]


def _topics() -> list[Message]:
    topic = admin_pb2.Topic(name=TOPIC, read_queues=4, write_queues=4, perm=6)
    gone = admin_pb2.Topic(name=GONE, attributes={"a": "b"})
    return [
        admin_pb2.CreateTopicRequest(topic=topic, update=True),
        admin_pb2.CreateTopicRequest(topic=gone),
    ]


def _hellos() -> list[list[bytes]]:
    entry = replication_pb2.EpochEntry(epoch=1, start_offset=0)
    crc = replication_pb2.LogChecksum(start=0, end=100, crc=1)
    size = {"commit_log_file_size": 1 << 20, "max_offset": 100}
    return [
        [hello(), ack()],
        [hello(epochs=[entry], accepted_epoch=1, **size), ack(durable_offset=100)],
        [hello(checksums=[crc], **size)],
        [hello(node_id="n1"), ack()],
        [ack()],
    ]
