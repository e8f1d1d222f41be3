"""Answers about queues that begin in the archive: where, and which message a time is."""

from collections.abc import Iterable, Sequence
from functools import partial

from tandemlog.v1 import broker_pb2
from tandemlog_server.storage.queues.queue_search import Boundary

from ..access.caller import Caller
from ..archive.cold_reader import ColdReader
from ..archive.cold_reads import ColdReads


async def with_archived_begins(
    cold: ColdReads | None, response: broker_pb2.QueueRangesResponse, caller: Caller
) -> broker_pb2.QueueRangesResponse:
    """The same, its queues with the first message that the archive has."""
    rows = [each for each in response.ranges if each.min_offset > 0]
    if cold is not None and rows:
        await cold.run(caller, partial(_move_begins, cold.reader, rows))
    return response


def _move_begins(reader: ColdReader, rows: Iterable[broker_pb2.QueueRange]) -> None:
    begins = reader.begins((each.topic, each.queue_id) for each in rows)
    for row in rows:
        begin = begins.get((row.topic, row.queue_id))
        if begin is not None and begin.number < row.min_offset:
            row.min_offset, row.min_timestamp = begin.number, begin.time_ms
            # of a queue whose files have no message any more: known from here on
            row.max_timestamp = max(row.max_timestamp, begin.time_ms)


async def with_archived_times(
    cold: ColdReads | None,
    queues: Sequence[broker_pb2.QueuePosition],
    offsets: Sequence[int],
    timestamp: int,
    boundary: Boundary,
    caller: Caller,
) -> Sequence[int]:
    """The same offsets of a time; where the files begin with newer messages, of the archive."""
    if cold is None:
        return offsets
    pairs = list(zip(queues, offsets, strict=True))
    if not any(cold.reader.may_be_older(each.topic, each.queue_id, at) for each, at in pairs):
        return offsets
    search = cold.reader.search_offset
    return await cold.run(
        caller, lambda: [search(each.topic, each.queue_id, timestamp, boundary) for each in queues]
    )
