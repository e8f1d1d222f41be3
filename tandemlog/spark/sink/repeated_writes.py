"""Checks whether a partition that was written before had the same rows.

    chunk      0    1    2 ...              sequences of the writer's epoch
    checksum   c0   c1   c2                 of all rows, from the first chunk to this one

A master refuses a chunk with a known number if its count of rows or its checksum differs. It
remembers only the last chunks of a writer, but the checksum of a chunk covers all before it. Two
things the master cannot see: that there are fewer chunks now than were stored, and that a batch is
written after a later one, by a partition without rows in that later batch. So a task asks for them.
"""

from typing import Final

from tandemlog.v1 import broker_pb2

from ..cluster.cluster_errors import RepeatMismatchError, SinkError
from ..cluster.live_options import ClusterOptions
from ..cluster.process_connections import connection_of, run
from .writer_name import WriterName

MISMATCH: Final = (
    "the partition was written before with other rows, to another topic, or with other "
    "batchMessages or batchBytes; none of these rows was stored now. A repeated write must have "
    "its rows in the same order: sort within the partitions after a shuffle. Another write needs "
    "its own idempotencyId or idempotencyEpoch. deliveryGuarantee=at_least_once accepts a batch "
    "that never comes the same again, and may store rows twice"
)


def check_chunks(options: ClusterOptions, name: WriterName, chunks: int) -> None:
    """Raises RepeatMismatchError if more chunks are stored than the `chunks` there are now."""
    stored = stored_chunks(options, name)
    if stored > chunks:
        raise RepeatMismatchError(
            f"partition {name.partition}, writer {name.producer_id}: {stored} chunks are stored "
            f"and {chunks} were to be written; {MISMATCH}"
        )


def stored_chunks(options: ClusterOptions, name: WriterName) -> int:
    """How many chunks of this batch the master knows."""
    assert name.producer_id is not None
    writer = _writer_on_master(options, name.producer_id)
    return writer.last_sequence + 1 if writer.known and writer.epoch == name.epoch else 0


def check_newest(options: ClusterOptions, name: WriterName) -> None:
    """Raises SinkError for a batch that is older than one that was written already. The first
    partition's writer tells, if it has written: a batch may have rows in other partitions only."""
    assert name.producer_id is not None
    first = _writer_on_master(options, name.of_partition(0))
    if first.known and first.epoch > name.epoch:
        raise SinkError(
            f"partition {name.partition}, writer {name.producer_id}: batch {name.epoch} is to be "
            f"written, and batch {first.epoch} was written already: the checkpoint, or "
            "idempotencyEpoch, is older than the target topic. Nothing was stored now. If the "
            "checkpoint was restored from a backup, start with a new one, and with startingOffsets "
            "after what the target has"
        )


def _writer_on_master(
    options: ClusterOptions, producer_id: str
) -> broker_pb2.DescribeProducerResponse:
    connection = connection_of(options)
    request = broker_pb2.DescribeProducerRequest(producer_id=producer_id)
    return run(
        connection.on_master(
            lambda node: node.ask(node.broker.DescribeProducer, request, options.request_timeout_ms)
        ),
        "looking at what was stored before",
    )
