"""A pull's answer, its records left where they are.

    answer   | tag length | index status ... sizes | tag length | records | ...
                            '-- protobuf decodes --'               '-- a view into the answer

Decoded as a protobuf message the records would be copied twice, which costs more than receiving
them. The fields are those of PullResponse and QueueRecords in broker.proto; small parts are left
to protobuf, which is quicker with them.
"""

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from ..errors import BadRecordError
from ..format.constants import Buffer
from ..format.protobuf_wire import WireError, fields
from ..v1 import broker_pb2, common_pb2

PULL: Final = f"/{broker_pb2.DESCRIPTOR.services_by_name['Broker'].full_name}/Pull"

_QUEUES: Final = broker_pb2.PullResponse.DESCRIPTOR.fields_by_name["queues"].number
_RECORDS: Final = broker_pb2.QueueRecords.DESCRIPTOR.fields_by_name["records"].number
_SMALL: Final = 8 << 10
"""Bytes below which a copy costs less than looking for its place."""


@dataclass(frozen=True, slots=True)
class PullPart:
    """What an answer says of one queue: `head` all but the records."""

    head: broker_pb2.QueueRecords
    records: bytes | memoryview


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """`parts` in the answer's order; `error` has code 0 if there is none. `log_term`: epoch and id
    of the newest term of the node's log (LogHistory.newest), zeros if the node does not say.
    `filtered`: the node has applied the request's filter."""

    parts: tuple[PullPart, ...]
    suggest_slave: bool
    error: common_pb2.Error
    log_term: tuple[int, int] = (0, 0)
    filtered: bool = False


def parse_pull(raw: Buffer) -> PullAnswer:
    """An encoded PullResponse; raises BadRecordError for other bytes."""
    try:
        if len(raw) < _SMALL:
            answer = broker_pb2.PullResponse.FromString(bytes(raw))
            parts = tuple([PullPart(head, head.records) for head in answer.queues])
        else:
            queues, rest = _split(memoryview(raw), _QUEUES)
            parts = tuple(map(_part, queues))
            answer = broker_pb2.PullResponse.FromString(rest)
    except (WireError, DecodeError) as error:
        raise BadRecordError(f"the answer to a pull is not a PullResponse: {error}") from None
    log_term = answer.log_epoch, answer.term_id
    return PullAnswer(parts, answer.suggest_slave, answer.error, log_term, answer.filtered)


def _part(view: memoryview) -> PullPart:
    if len(view) < _SMALL:
        head = broker_pb2.QueueRecords.FromString(bytes(view))
        return PullPart(head, head.records)
    records, rest = _split(view, _RECORDS)
    return PullPart(broker_pb2.QueueRecords.FromString(rest), records[-1] if records else view[:0])


def _split(view: memoryview, wanted: int) -> tuple[list[memoryview], bytes]:
    """The values of the fields `wanted`, and all others as they are encoded."""
    values, others = [], []
    begin = 0
    for number, _, _, start, end in fields(view):
        if number == wanted:
            values.append(view[start:end])
        else:
            others.append(view[begin:end])
        begin = end
    return values, b"".join(others)
