"""format("tandemlog") as a sink: the driver's and the task's side of a write.

    driver   schema, options and topic are checked, a job gets its id
    task     rows ──▶ chunks (sink_chunks) ──▶ columns (sink_columns)
                 ──▶ requests (sink_sender)
    driver   commit: notes what was written; abort: what was written stays

There is no transaction: rows are in the log once their task has sent them. Exactly once means that
a task that runs again stores no row twice, so that a job or a batch that succeeds in the end has
stored every row once.

A task has to tell the real end of its rows from an input that breaks off:

    JVM ──▶ batch ─ batch ─ batch ─ END_OF_STREAM        these were all
    JVM ──▶ batch ─ batch ─ end of file                  the query failed upstream, or its JVM died

Arrow reads both as the end of the rows. The last chunk of a cut input would be shorter than the one
that the next attempt makes of the same number, and no attempt could ever continue from there. So
the last rows are passed on only after Spark's own end mark has arrived. No public API shows the
mark: it is in the stream from which PySpark's worker feeds this task, found among its frames.
"""
# An argument has the name that Spark gives it.
# ruff: noqa: N803

import io
import logging
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..cluster.cluster_errors import RowError, SinkError
from ..cluster.live_cluster import check_reachable, check_writable
from ..cluster.live_options import ClusterOptions, Guarantee, WriteOptions
from ..newer_spark import DataSourceStreamArrowWriter
from .repeated_writes import check_chunks, check_newest
from .sink_chunks import chunks
from .sink_columns import rows_of, wall_clock_ms
from .sink_sender import SinkSender
from .writer_name import (
    WriterName,
    batch_writer_name,
    local_property_of_task,
    partition_of_task,
    stream_writer_name,
)

if TYPE_CHECKING:
    from types import FrameType

logger = logging.getLogger(__name__)

RowsT = TypeVar("RowsT")

_CHECKED_FOR_S: Final = 60.0
_checked: Final[dict[tuple[ClusterOptions, str | None], float]] = {}
_lock: Final = threading.Lock()
_WORKER: Final = "invoke_udf"
_STREAM: Final = "input_data_stream"


@dataclass
class Written(WriterCommitMessage):
    """What a task has written; `duplicates` are requests that an earlier attempt had stored."""

    rows: int
    requests: int
    duplicates: int
    bytes: int


def check_topic(options: WriteOptions) -> None:
    """In the driver: check that the cluster can be reached, and its topic be written. Raises
    ClusterError. Spark makes a writer twice for every micro-batch, so a result holds for a
    minute."""
    key = (options.cluster, options.topic)
    now = time.monotonic()
    with _lock:
        if now - _checked.get(key, float("-inf")) < _CHECKED_FOR_S:
            return
    if options.topic is None:
        check_reachable(options.cluster)
    else:
        check_writable(options.cluster, options.topic)
    with _lock:
        _checked[key] = now


def write_partition(
    options: WriteOptions,
    name: WriterName,
    batches: Iterator[pa.RecordBatch],
    now_ms: Callable[[], int] = wall_clock_ms,
) -> Written:
    """Send the rows of one task; returns once all are acknowledged."""
    sender: SinkSender | None = None
    rows_before = 0
    try:
        for chunk in chunks(
            batches, max_rows=options.batch_messages, max_bytes=options.batch_bytes
        ):
            if sender is None:
                if name.producer_id is not None and name.partition:
                    check_newest(options.cluster, name)
                sender = SinkSender(options, name)
            try:
                rows = rows_of(chunk, options.topic, sender.queues_of, sender.turn, now_ms)
                sender.send(rows)
            except RowError as error:
                raise SinkError(
                    f"partition {name.partition}, row {rows_before + error.row}: {error.reason}"
                ) from None
            rows_before += chunk.num_rows
        if sender is None:
            if name.producer_id is not None:
                check_chunks(options.cluster, name, 0)
            return Written(0, 0, 0, 0)
        sender.finish()
        outcomes = sender.outcomes
        if outcomes.duplicates and name.producer_id is not None:
            check_chunks(options.cluster, name, sender.chunk)
        return Written(outcomes.rows, sender.chunk, outcomes.duplicates, outcomes.bytes)
    finally:
        if sender is not None:
            sender.close()


def complete(
    batches: Iterator[RowsT], stream_of: Callable[[], io.BufferedReader | None]
) -> Iterator[RowsT]:
    """The same batches. Raises SinkError where they end without Spark's mark."""
    yield from batches
    stream = stream_of()
    if stream is None:
        raise SinkError(
            "Spark's worker does not show where its input ends, so the end could not be told from "
            "a failure: deliveryGuarantee=at_least_once writes without"
        )
    # Waits for the mark, or for the end of file.
    if not stream.peek(1):
        raise SinkError("the rows stopped coming before their end: what makes them has failed")


def input_of_task() -> io.BufferedReader | None:
    """What Spark's worker reads the rows of the running task from."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == _WORKER:
            stream = frame.f_locals.get(_STREAM)
            return stream if isinstance(stream, io.BufferedReader) else None
        frame = frame.f_back
    return None


def _write(
    options: WriteOptions,
    name_of: Callable[[int], WriterName],
    rows: Iterator[pa.RecordBatch],
) -> Written:
    """What a task of either writer does; `name_of` names the writer of a partition."""
    partition = partition_of_task()
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return write_partition(options, WriterName(None, 0, partition), rows)
    return write_partition(options, name_of(partition), complete(rows, input_of_task))


class LiveWriter(DataSourceArrowWriter):
    """A batch write. All tasks of the job have the same `job_id`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._job_id = options.idempotency_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        epoch = self._options.idempotency_epoch
        return _write(self._options, partial(batch_writer_name, self._job_id, epoch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log(f"job {self._job_id}", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _log(f"job {self._job_id} failed; what stays in the log", messages)


class LiveStreamWriter(DataSourceStreamArrowWriter):
    """A stream's write; Spark makes a new one for every batch."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        local_property = local_property_of_task()
        return _write(self._options, partial(stream_writer_name, local_property), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log(f"batch {batchId} failed; what stays in the log", messages)


def _log(what: str, messages: Sequence[WriterCommitMessage | None]) -> None:
    written = [each for each in messages if isinstance(each, Written)]
    logger.info(
        "%s: tasks=%d rows=%d bytes=%d requests=%d duplicates=%d",
        what,
        len(written),
        sum(each.rows for each in written),
        sum(each.bytes for each in written),
        sum(each.requests for each in written),
        sum(each.duplicates for each in written),
    )
