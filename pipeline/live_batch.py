"""format("tandemlog") as a batch: what the queues hold now, or between two places.

With the option pushdown=true a filter of the query narrows what is asked of the cluster; the reader
that says so is a class of its own, because Spark refuses it where its setting for that is off.
"""
# Methods have the names that Spark calls.
# ruff: noqa: N802

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from .live_cluster import Cluster
from .live_errors import DataLossError
from .live_filters import Narrowing, narrow
from .live_options import ReadOptions
from .live_partition import LivePartition, pulling_of, read_partition
from .offsets import EARLIEST, LATEST, Position, Span
from .offsets_plan import plan
from .offsets_resolve import lost_messages, resolve_end, resolve_start, spans_of
from .schema import Columns

logger = logging.getLogger(__name__)


class LiveBatchReader(DataSourceReader):
    """See the module."""

    def __init__(
        self, options: ReadOptions, columns: Columns, cluster: Cluster | None = None
    ) -> None:
        self._options = options
        self._columns = columns
        self._cluster = cluster or Cluster(options.cluster, options.selection)
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        spans = self._narrowing.of(self._spans())
        return [
            LivePartition(number, group)
            for number, group in enumerate(plan(spans, self._options.partitioning))
        ]

    def _spans(self) -> list[Span]:
        options = self._options
        held = self._cluster.held(self._cluster.queues())
        start = options.start or Position(everywhere=EARLIEST)
        end = options.end or Position(everywhere=LATEST)
        fail = options.fail_on_data_loss
        starts = resolve_start(
            start,
            held,
            self._cluster.at_time,
            strategy=options.time_strategy,
            fail_on_data_loss=fail,
        )
        ends = resolve_end(end, held, self._cluster.at_time, fail_on_data_loss=fail)
        explicit = start.offsets is not None and end.offsets is not None
        spans = spans_of(starts, ends, strict=explicit and fail)
        lost = lost_messages(spans, held)
        if lost and fail:
            raise DataLossError(f"{'; '.join(lost)}; failOnDataLoss=false reads what is left")
        return spans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        pulling = pulling_of(self._options, self._columns)
        if self._narrowing.tags is not None:
            pulling = replace(pulling, tags=self._narrowing.tags)
        return read_partition(pulling, partition)


class FilteringBatchReader(LiveBatchReader):
    """The same, told the query's filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrowing, rest = narrow(filters, self._options.tags)
        return rest
