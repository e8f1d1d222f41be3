"""A pull's answer, its records left where they are.

    answer   | tag length | index status ... sizes | tag length | records | ...
                            '-- protobuf decodes --'               '-- a view into the answer

Decoded as a protobuf message the records would be copied twice, which costs more than receiving
them. The fields are those of PullResponse and QueueRecords in broker.proto; small parts are left
to protobuf, which is quicker with them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..errors import BadRecordError
from ..v1 import broker_pb2, common_pb2

PULL: Final = f"/{broker_pb2.DESCRIPTOR.services_by_name['Broker'].full_name}/Pull"

_QUEUES: Final = broker_pb2.PullResponse.DESCRIPTOR.fields_by_name["queues"].number
_RECORDS: Final = broker_pb2.QueueRecords.DESCRIPTOR.fields_by_name["records"].number
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_SMALL: Final = 8 << 10
"""Bytes below which a copy costs less than looking for its place."""


@dataclass(frozen=True, slots=True)
class PullPart:
    """What an answer says of one queue: `head` all but the records."""

    head: broker_pb2.QueueRecords
    records: bytes | memoryview


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """`parts` in the answer's order; `error` has code 0 where there is none."""

    parts: tuple[PullPart, ...]
    suggest_slave: bool
    error: common_pb2.Error


def parse_pull(raw: bytes) -> PullAnswer:
    """An encoded PullResponse; raises BadRecordError for bytes that are none."""
    view = memoryview(raw)
    parts, rest = [], []
    for field, begin, start, end in _fields(view):
        if field == _QUEUES:
            parts.append(_part(view[start:end]))
        else:
            rest.append(view[begin:end])
    answer = broker_pb2.PullResponse.FromString(b"".join(rest))
    return PullAnswer(tuple(parts), answer.suggest_slave, answer.error)


def _part(view: memoryview) -> PullPart:
    if len(view) < _SMALL:
        head = broker_pb2.QueueRecords.FromString(bytes(view))
        return PullPart(head, head.records)
    records, rest = view[:0], []
    for field, begin, start, end in _fields(view):
        if field == _RECORDS:
            records = view[start:end]
        else:
            rest.append(view[begin:end])
    return PullPart(broker_pb2.QueueRecords.FromString(b"".join(rest)), records)


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Number, begin, begin of the value, and end of each field."""
    at = 0
    while at < len(view):
        begin = at
        tag, at = _varint(view, at)
        kind = tag & 7
        start = at
        if kind == _BYTES:
            length, start = _varint(view, at)
            at = start + length
        elif kind == _VARINT:
            _, at = _varint(view, at)
        elif kind in (_FIXED_32, _FIXED_64):
            at += 4 if kind == _FIXED_32 else 8
        else:
            raise BadRecordError(f"a pull's answer has a field of kind {kind} at byte {begin}")
        if at > len(view):
            raise BadRecordError(f"a pull's answer ends within the field at byte {begin}")
        yield tag >> 3, begin, start, at


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 64:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise BadRecordError(f"a pull's answer ends within a number at byte {at}")
