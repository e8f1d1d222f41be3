"""A partition that was written before: whether it was with the same rows.

A master recognises a repeated chunk by its number and its count of rows. That is not enough where a
query gives other rows when it runs again, or chunks of another size: the first attempt's rows would
stay and the new ones be taken for stored. So a task that had chunks recognised looks at what is
stored: the body of each one's first record, and how many chunks there are of this batch.
"""

from collections.abc import Sequence
from typing import Any

from tandemlog.connection import Connection, Node
from tandemlog.errors import OffsetOutOfRangeError
from tandemlog.paging import MAX_ROWS
from tandemlog.received import messages_of
from tandemlog.v1 import broker_pb2

from .idempotence import WriterName
from .live_connections import connection_of, run
from .live_errors import RepeatMismatchError
from .live_options import ClusterOptions
from .sink_sender import MISMATCH, Repeated


def check_repeats(
    options: ClusterOptions, name: WriterName, chunks: int, repeated: Sequence[Repeated]
) -> None:
    """Raises RepeatMismatchError where the rows of the first attempt were others; `chunks` is how
    many there are now."""
    stored, crcs = run(_stored(options, name, repeated), "looking at what was stored before")
    if stored > chunks:
        raise RepeatMismatchError(
            f"partition {name.partition}, writer {name.producer_id}: {stored} chunks are stored "
            f"and {chunks} were to be written; {MISMATCH}"
        )
    for each, crc in zip(repeated, crcs, strict=True):
        if crc is not None and crc != each.body_crc:
            raise RepeatMismatchError(
                f"partition {name.partition}, writer {name.producer_id}: chunk {each.chunk} is "
                f"stored with another first row, at offset {each.physical_offset}; {MISMATCH}"
            )


async def _stored(
    options: ClusterOptions, name: WriterName, repeated: Sequence[Repeated]
) -> tuple[int, list[int | None]]:
    """How many chunks of this batch the master knows, and the CRCs of their first bodies; None for
    a record that is there no more."""
    connection = connection_of(options)
    timeout_ms = options.request_timeout_ms
    asked = broker_pb2.DescribeProducerRequest(producer_id=name.producer_id or "")
    known = await connection.on_master(
        lambda node: node.ask(node.broker.DescribeProducer, asked, timeout_ms)
    )
    stored = known.last_sequence + 1 if known.known and known.epoch == name.epoch else 0
    offsets = [each.physical_offset for each in repeated]
    return stored, await _crcs(connection, offsets, timeout_ms)


async def _crcs(
    connection: Connection, offsets: Sequence[int], timeout_ms: int
) -> list[int | None]:
    if not offsets:
        return []
    found: list[int | None] = []
    try:
        while len(found) < len(offsets):  # an answer has as many as fit into it
            rest = offsets[len(found) : len(found) + MAX_ROWS]
            request = broker_pb2.GetByOffsetRequest(physical_offsets=rest)

            async def ask(node: Node, request: Any = request) -> broker_pb2.RecordsResponse:
                return await node.ask(node.broker.GetByOffset, request, timeout_ms)

            answer = await connection.on_master(ask)
            found += [each.record.body_crc for each in messages_of(answer.records, answer.sizes)]
    except OffsetOutOfRangeError:
        return [None] * len(offsets)  # deleted by age since
    return found
