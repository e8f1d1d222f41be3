"""format("tandemlog") as a batch: what the queues hold now, or between two offsets.

The source does not implement `pushFilters`: Spark 4.3 keeps the partitions and the reader that it
planned with a filter for the whole DataFrame, and uses them for later queries with other filters or
without, silently. Only the options limit a read.
"""
# Methods have the names that Spark calls.

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.logs.view_columns import Columns

from ..cluster.cluster_errors import DataLossError
from ..cluster.live_cluster import Cluster, in_one_term, judged
from ..cluster.live_options import ReadOptions
from ..cluster.queue_offsets import EARLIEST, LATEST, Position, Queue
from ..cluster.resolve_offsets import Held, lost_messages, resolve_end, resolve_start, spans_of
from .partition_plan import plan
from .partition_read import LivePartition, read_partition


class LiveBatchReader(DataSourceReader):
    """See the module."""

    def __init__(
        self, options: ReadOptions, columns: Columns, cluster: Cluster | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._cluster = cluster or Cluster(options.cluster, options.selection)

    def partitions(self) -> list[InputPartition]:
        queues = self._cluster.queues()
        held, history = in_one_term(self._cluster, lambda: self._cluster.held(queues))
        groups = plan(self._spans(held), self._options.partitioning)
        return [LivePartition(number, group, history) for number, group in enumerate(groups)]

    def _spans(self, held: Mapping[Queue, Held]) -> list[QueueSpan]:
        options = self._options
        start = options.start or Position(everywhere=EARLIEST)
        end = options.end or Position(everywhere=LATEST)
        sure = self._cluster.sure
        fail = options.fail_on_data_loss
        with judged(sure=sure):
            starts = resolve_start(
                start,
                held,
                self._cluster.at_time,
                strategy=options.time_strategy,
                fail_on_data_loss=fail or not sure,
            )
            ends = resolve_end(end, held, self._cluster.at_time, fail_on_data_loss=fail or not sure)
        explicit = start.offsets is not None and end.offsets is not None
        spans = spans_of(starts, ends, strict=explicit and fail)
        lost = lost_messages(spans, held)
        if lost and fail and sure:
            raise DataLossError(f"{'; '.join(lost)}; failOnDataLoss=false reads what is left")
        return spans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, self._columns, partition)
