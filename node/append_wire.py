"""Append requests and answers between the wire and the store: the columns of broker.proto.

The counts are held against each other here; what the columns say of the bytes is checked by the
store, which trusts neither.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tandemlog.format.batch import AppendSegment, RecordBatch
from tandemlog.v1 import broker_pb2, common_pb2

from .error_status import RequestRefusedError

MAX_TABLE = 65_535


class Appended(Protocol):
    @property
    def segments(self) -> Sequence[AppendSegment]: ...
    @property
    def store_timestamp(self) -> int: ...
    @property
    def duplicate(self) -> bool: ...


def batch_of(request: broker_pb2.AppendRequest) -> RecordBatch:
    """The batch of a request. Raises RequestRefusedError where its columns do not fit together."""
    sizes = request.sizes
    indexes = request.queue_indexes
    if len(sizes) % 4 or not sizes:
        raise _unfit("sizes", "must hold at least one 4-byte integer", len(sizes), 4)
    count = len(sizes) // 4
    if len(indexes) != 2 * count:
        raise _unfit("queue_indexes", f"must be 2 bytes for each of {count} records", len(indexes))
    table = len(request.queue_ids)
    if len(request.queue_topics) != table or not 0 < table <= MAX_TABLE:
        raise _unfit(
            "queue_topics",
            f"and queue_ids must both have the 1..{MAX_TABLE} entries of the table",
            len(request.queue_topics),
            table,
        )
    topics = tuple(request.topics)
    queue_topics = np.array(request.queue_topics, dtype=np.uint32)
    if int(queue_topics.max()) >= len(topics):
        raise _unfit("queue_topics", "names a topic that is not in topics", len(topics))
    return RecordBatch(
        records=request.records,
        sizes=np.frombuffer(sizes, dtype="<u4"),
        queue_indexes=np.frombuffer(indexes, dtype="<u2"),
        topics=topics,
        queue_topics=queue_topics,
        queue_ids=np.array(request.queue_ids, dtype=np.uint32),
    )


def answer_of(
    request_id: int, status: int, error: common_pb2.Error | None, result: Appended | None
) -> broker_pb2.AppendResponse:
    """The answer to a request; `result` where something was stored, however safely."""
    response = broker_pb2.AppendResponse(
        request_id=request_id,
        status=broker_pb2.PutStatus.ValueType(status),
        error=error,
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
