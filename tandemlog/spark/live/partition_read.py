"""What a task does: reads the spans of its partition, and decodes them to Arrow by columns.

    loop's thread    read k+1  ........ read k+2 ........
    task's thread    decode k, pass on     decode k+1 ...

The next messages are read while the last ones are decoded (reading/span_reader.py). If a node
fails, is behind or has a damaged message, the task asks another one; it gives up after
pullTimeoutMs without a message. Each partition starts with another node.
"""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tandemlog.arrow.received_arrow import columns_of
from tandemlog.consume.reading.positions import Positions
from tandemlog.consume.reading.reader import Reader
from tandemlog.consume.reading.selector import Selector
from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.consume.reading.span_reader import SpanOptions, SpanReader
from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.errors import TandemlogError
from tandemlog.format.files.log_history import LogHistory
from tandemlog.logs.view_columns import Columns, arrow_schema

from ..cluster.cluster_errors import ClusterError, DataLossError
from ..cluster.live_options import ReadOptions
from ..cluster.process_connections import connection_of, start

logger = logging.getLogger(__name__)


@dataclass
class LivePartition(InputPartition):
    """What Spark sends to a task: partition `number` of a read from a log with this history (None:
    not known)."""

    number: int
    spans: tuple[QueueSpan, ...]
    history: LogHistory | None = None


def read_partition(
    options: ReadOptions, columns: Columns, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, one span after the other; no rows for the partition that Spark makes
    up for an empty plan. Raises DataLossError for lost messages, ClusterError if no node returns
    them."""
    if isinstance(partition, LivePartition):
        yield from read_spans(
            options, columns, partition.spans, partition.number, partition.history
        )


def read_spans(
    options: ReadOptions,
    columns: Columns,
    spans: Sequence[QueueSpan],
    number: int = 0,
    history: LogHistory | None = None,
) -> Iterator[pa.RecordBatch]:
    """See `read_partition`."""
    connection = connection_of(options.cluster)
    nodes = Reader(connection, options.read_from, number)
    reader = SpanReader(
        nodes,
        Positions(connection, nodes),
        spans,
        partial(_report_loss, fail=options.fail_on_data_loss),
        SpanOptions(
            selector=Selector.of(options.tags, options.where or None),
            max_bytes=options.pull_bytes,
            patience_ms=options.pull_timeout_ms,
            patience_name="pullTimeoutMs",
            verify_crc=options.verify_crc,
            group=options.group or "",
        ),
        history,
    )
    pending = start(reader.next_batches())
    try:
        while batches := _result(pending, reader):
            pending = start(reader.next_batches())
            for batch in batches:
                yield decode(batch, columns)
    finally:
        pending.cancel()


def decode(batch: ReceivedBatch, columns: Columns) -> pa.RecordBatch:
    """The records of a pull as these columns of MESSAGES, bodies as the producers sent them. Raises
    BadRecordError, with queue and offset, for a record that cannot be decoded or a body that cannot
    be decompressed. The CRCs were checked before (consume/reading/span_progress.py)."""
    return columns_of([batch], arrow_schema(columns), verify_crc=False)


def _result(pending: Future[list[ReceivedBatch]], reader: SpanReader) -> list[ReceivedBatch]:
    try:
        return pending.result()
    except TandemlogError as error:
        raise ClusterError(f"reading {reader}: {error}") from error


def _report_loss(text: str, damaged: bool, *, fail: bool) -> None:
    """Raise or log a loss, as failOnDataLoss says."""
    if damaged:
        text += "; verifyCrc=false takes a body as it is"
    if fail:
        raise DataLossError(f"{text}; failOnDataLoss=false reads what is left")
    logger.warning("data lost: %s", text)
