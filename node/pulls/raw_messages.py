"""Responses that are mostly record bytes, encoded without a protobuf object for them.

    PullResponse = suggest_slave, error, { QueueRecords = small fields | records }*
    RecordsResponse = small fields | records
    SegmentChunk = small fields | data

A protobuf message would copy the bytes into itself, again while it is encoded, and once more into
the result; here they are joined once, or not at all for a data connection. The small fields are
encoded by protobuf, and fields may stand in any order, so what comes out is what the messages of
broker.proto would be.
"""

from collections.abc import Iterable, Sequence

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from tandemlog.format.protobuf_wire import tag, varint
from tandemlog.v1 import broker_pb2


def _tag(message: Descriptor, field: str) -> bytes:
    return tag(message.fields_by_name[field].number)


_QUEUES = _tag(broker_pb2.PullResponse.DESCRIPTOR, "queues")
_RECORDS = _tag(broker_pb2.QueueRecords.DESCRIPTOR, "records")
_FOUND = _tag(broker_pb2.RecordsResponse.DESCRIPTOR, "records")
_DATA = _tag(broker_pb2.SegmentChunk.DESCRIPTOR, "data")


def pull_response(
    head: broker_pb2.PullResponse,
    queues: Iterable[tuple[broker_pb2.QueueRecords, bytes | memoryview]],
) -> list[bytes | memoryview]:
    """The encoded `head`, with a QueueRecords for each pair of its small fields and its records:
    parts that belong end to end."""
    parts: list[bytes | memoryview] = [head.SerializeToString()]
    for small, records in queues:
        fields = small.SerializeToString()
        if records:
            fields += _RECORDS + varint(len(records))
        parts += (_QUEUES + varint(len(fields) + len(records)) + fields, records)
    return parts


def records_response(
    small: broker_pb2.RecordsResponse, records: Sequence[bytes | memoryview]
) -> bytes:
    """The encoded `small`, with `records` end to end as its records."""
    return _with_bytes(small, _FOUND, records)


def segment_chunk(small: broker_pb2.SegmentChunk, data: Sequence[bytes | memoryview]) -> bytes:
    """The encoded `small`, with the pieces of `data` as its data."""
    return _with_bytes(small, _DATA, data)


def _with_bytes(small: Message, head: bytes, pieces: Sequence[bytes | memoryview]) -> bytes:
    length = sum(map(len, pieces))
    if not length:
        return small.SerializeToString()
    return b"".join((small.SerializeToString(), head, varint(length), *pieces))
