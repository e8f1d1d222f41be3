"""Append requests and answers between the wire and the store: the columns of broker.proto.

    AppendRequest   1 request_id  2 topics*  3 queue_topics  4 queue_ids  5 records  6 sizes
                    7 queue_indexes  8 durability  9 timeout_ms

A request is read from its encoded bytes without a protobuf object, which would copy the records
into itself and once more at each access; here they stay in the buffer that they came in. This
module checks that the counts agree; the store checks the columns against the bytes, and trusts
neither.

Each field costs a few Python statements, so their number is bounded, before any work that grows
with it: QUICK_FIELDS may be read in the event loop, MOST_FIELDS by a thread, more are no request.
tandemlog's client needs a field for each topic, and nine others.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import MAX_TABLE, Buffer
from tandemlog.format.protobuf_wire import BYTES, VARINT, WireError, fields
from tandemlog.format.record.batch import RecordBatch
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.puts.put_path import PutResult

from ..access.access_refusals import DeniedError
from ..error_status import RequestRefusedError

MAX_TOPIC_BYTES = 255
QUICK_FIELDS = 2_048
# unpacked columns of a whole table, its topics, and what a newer client may add
MOST_FIELDS = 3 * MAX_TABLE + 1_024
_MAX_PACKED = 10 * MAX_TABLE

_FIELDS = broker_pb2.AppendRequest.DESCRIPTOR.fields_by_name
_REQUEST_ID = _FIELDS["request_id"].number
_TOPICS = _FIELDS["topics"].number
_QUEUE_TOPICS = _FIELDS["queue_topics"].number
_QUEUE_IDS = _FIELDS["queue_ids"].number
_RECORDS = _FIELDS["records"].number
_SIZES = _FIELDS["sizes"].number
_QUEUE_INDEXES = _FIELDS["queue_indexes"].number
_DURABILITY = _FIELDS["durability"].number
_TIMEOUT_MS = _FIELDS["timeout_ms"].number


@dataclass(slots=True)
class PutRequest:
    """An AppendRequest as it came: columns still encoded, records still in the message."""

    request_id: int = 0
    topics: list[bytes] = field(default_factory=list)
    queue_topics: bytearray = field(default_factory=bytearray)
    queue_ids: bytearray = field(default_factory=bytearray)
    records: memoryview | bytes = b""
    sizes: memoryview | bytes = b""
    queue_indexes: memoryview | bytes = b""
    durability: int = 0
    timeout_ms: int = 0
    problem: RequestRefusedError | None = None  # why it cannot be appended, as far as that is known


class ManyFieldsError(Exception):
    """A request with more fields than were to be read."""


def parse_put(data: Buffer, most_fields: int = MOST_FIELDS) -> PutRequest:
    """The request encoded in `data`. Raises RequestRefusedError for bytes that are no message, or
    one with too many fields; ManyFieldsError if it may only be one for a thread."""
    request = PutRequest()
    try:
        _parse_into(request, data, most_fields)
    except ManyFieldsError:
        if most_fields < MOST_FIELDS:
            raise
        raise _unfit(
            "request", f"may have at most {MOST_FIELDS} fields", MOST_FIELDS + 1, MOST_FIELDS
        ) from None
    except WireError:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT, "the request is not a valid AppendRequest", field="request"
        ) from None
    return request


def _parse_into(request: PutRequest, data: Buffer, most_fields: int) -> None:
    view = memoryview(data)
    for count, (number, kind, value, start, end) in enumerate(fields(data), 1):
        if count > most_fields:
            raise ManyFieldsError
        if kind == BYTES:
            _read_bytes(request, number, view[start:end])
        elif kind == VARINT:
            _read_number(request, number, value, view[start:end])


def _read_bytes(request: PutRequest, number: int, value: memoryview) -> None:
    if number == _TOPICS:
        if len(value) > MAX_TOPIC_BYTES:
            request.problem = RequestRefusedError(
                common_pb2.INVALID_TOPIC_NAME,
                f"the name of a topic may have at most {MAX_TOPIC_BYTES} bytes, not {len(value)}",
                field="topics",
                limit=MAX_TOPIC_BYTES,
                actual=len(value),
            )
        elif len(request.topics) >= MAX_TABLE:
            request.problem = _unfit(
                "topics", f"may have at most {MAX_TABLE} entries", MAX_TABLE + 1, MAX_TABLE
            )
        else:
            request.topics.append(bytes(value))
    elif number == _RECORDS:
        request.records = value
    elif number == _SIZES:
        request.sizes = value
    elif number == _QUEUE_INDEXES:
        request.queue_indexes = value
    elif number == _QUEUE_TOPICS:
        _add_packed(request, request.queue_topics, value, "queue_topics")
    elif number == _QUEUE_IDS:
        _add_packed(request, request.queue_ids, value, "queue_ids")


def _add_packed(request: PutRequest, column: bytearray, value: memoryview, name: str) -> None:
    size = len(column) + len(value)
    if size > _MAX_PACKED:
        request.problem = _unfit(
            name, f"may have at most {MAX_TABLE} entries in {_MAX_PACKED} bytes", size, _MAX_PACKED
        )
    else:
        column += value


def _read_number(request: PutRequest, number: int, value: int, encoded: memoryview) -> None:
    if number == _REQUEST_ID:
        request.request_id = value
    elif number == _DURABILITY:
        request.durability = value
    elif number == _TIMEOUT_MS:
        request.timeout_ms = value & 0xFFFFFFFF  # a negative one is far too large
    elif number == _QUEUE_TOPICS:  # not packed, as an encoder may do
        request.queue_topics += encoded
    elif number == _QUEUE_IDS:
        request.queue_ids += encoded


def packed_numbers(data: bytes | bytearray, name: str) -> NDArray[np.uint32]:
    """u4[n]: the varints in `data`. Raises RequestRefusedError for one that is cut or too large."""
    values = np.frombuffer(data, np.uint8)
    more = values >= 128
    if not more.any():
        return values.astype(np.uint32)
    ends = np.flatnonzero(~more)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if more[-1] or lengths.max() > 5:
        raise _unfit(name, "must hold 32-bit numbers", len(data))
    shifts = (np.arange(len(values)) - np.repeat(starts, lengths)) * 7
    numbers = np.add.reduceat((values & 127).astype(np.uint64) << shifts.astype(np.uint64), starts)
    if numbers.max() > 0xFFFFFFFF:
        raise _unfit(name, "must hold 32-bit numbers", int(numbers.max()))
    return numbers.astype(np.uint32)


def batch_of(request: PutRequest) -> RecordBatch:
    """The batch of a request. Raises RequestRefusedError if its columns do not fit together."""
    if request.problem is not None:
        raise request.problem
    sizes = request.sizes
    indexes = request.queue_indexes
    if len(sizes) % 4 or not sizes:
        raise _unfit("sizes", "must hold at least one 4-byte integer", len(sizes), 4)
    count = len(sizes) // 4
    if len(indexes) != 2 * count:
        raise _unfit("queue_indexes", f"must be 2 bytes for each of {count} records", len(indexes))
    queue_topics = packed_numbers(request.queue_topics, "queue_topics")
    queue_ids = packed_numbers(request.queue_ids, "queue_ids")
    table = len(queue_ids)
    if len(queue_topics) != table or not 0 < table <= MAX_TABLE:
        raise _unfit(
            "queue_topics",
            f"and queue_ids must both have the 1..{MAX_TABLE} entries of the table",
            len(queue_topics),
            table,
        )
    if int(queue_topics.max()) >= len(request.topics):
        raise _unfit("queue_topics", "names a topic that is not in topics", len(request.topics))
    return RecordBatch(
        records=request.records,
        sizes=np.frombuffer(sizes, dtype="<u4"),
        queue_indexes=np.frombuffer(indexes, dtype="<u2"),
        topics=_texts(request.topics),
        queue_topics=queue_topics,
        queue_ids=queue_ids,
    )


def denied_record(request: PutRequest, denial: DeniedError) -> RequestRefusedError:
    """The refusal of a put for a topic that its caller may not write. It names the first record of
    that topic, so that a client can send the others without it."""
    index = denial.record
    try:
        batch = batch_of(request)
    except RequestRefusedError:
        pass  # the columns do not fit together; the right is lacking all the same
    else:
        entries = np.flatnonzero(batch.queue_topics == denial.index)
        records = np.flatnonzero(np.isin(batch.queue_indexes, entries))
        index = int(records[0]) if len(records) else index
    return RequestRefusedError(
        common_pb2.PERMISSION_DENIED, str(denial), field=denial.right.value, record_index=index
    )


def _texts(topics: list[bytes]) -> tuple[str, ...]:
    try:
        return tuple([topic.decode() for topic in topics])
    except UnicodeDecodeError:
        raise _unfit("topics", "must be UTF-8", len(topics)) from None


def answer_of(
    request_id: int,
    status: int,
    error: common_pb2.Error | None,
    result: PutResult | None,
    epoch: int = 0,
) -> broker_pb2.AppendResponse:
    """The answer to a request; `result` where something was stored, however safely; `epoch` of the
    term in which the store was asked, 0 if it was not."""
    response = broker_pb2.AppendResponse(
        request_id=request_id,
        status=broker_pb2.PutStatus.ValueType(status),
        error=error,
        master_epoch=epoch,
    )
    if result is not None:
        response.store_timestamp = result.store_timestamp
        response.duplicate = result.duplicate
        for segment in result.segments:
            response.segments.add(
                first_index=segment.first_index,
                count=segment.count,
                physical_offset=segment.physical_offset,
                queue_offsets=segment.queue_offsets.astype("<i8", copy=False).tobytes(),
                record_extra=segment.record_extra,
            )
    return response


def _unfit(field: str, reason: str, actual: int, limit: int = 0) -> RequestRefusedError:
    return RequestRefusedError(
        common_pb2.INVALID_ARGUMENT,
        f"{field} {reason}; got {actual}",
        field=field,
        limit=limit,
        actual=actual,
    )
