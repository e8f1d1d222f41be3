"""What Spark carries to a task: the spans of its partition."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tandemlog.logs.view_columns import Columns

from ..cluster.offsets import QueueSpan
from ..cluster.options import ReadOptions
from .pull import Pulling, read_spans


@dataclass
class LivePartition(InputPartition):
    """Partition `number` of a read."""

    number: int
    spans: tuple[QueueSpan, ...]


def pulling_of(options: ReadOptions, columns: Columns) -> Pulling:
    return Pulling(
        cluster=options.cluster,
        columns=columns,
        read_from=options.read_from,
        tags=options.tags,
        fail_on_data_loss=options.fail_on_data_loss,
        pull_bytes=options.pull_bytes,
        pull_timeout_ms=options.pull_timeout_ms,
        verify_crc=options.verify_crc,
        group=options.group or "",
    )


def read_partition(pulling: Pulling, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; none of the one that Spark makes up where a plan is empty."""
    if isinstance(partition, LivePartition):
        yield from read_spans(pulling, partition.spans, partition.number)
