"""The data source `tandemlog_segments`: the commit log of any store, or of an archive, as rows.

    spark.read.format("tandemlog_segments").option("view", "messages").load("/data/store")

    driver   options ──▶ log files or objects, where the log ends ──▶ spans ──▶ partitions
    task     spans ──▶ windows of whole records ──▶ Arrow batches           (views.py)

The driver checks options and files before a task starts.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tandemlog.format.files.queue_unit import DEFAULT_DELAY_LEVELS
from tandemlog.logs.job_errors import OnCorruption, OptionError
from tandemlog.logs.reading.archived_spans import planned, wanted_parts
from tandemlog.logs.reading.log_source import open_log
from tandemlog.logs.reading.log_spans import Span, spans_for_tasks
from tandemlog.logs.tasks.store_settings import stored_delay_levels
from tandemlog.logs.view_columns import chosen_columns

from ..spark_schema import columns_of, spark_schema
from ..table_options import (
    NOT_HANDED_OVER,
    given_to_table,
    is_new_table,
    options_of_read,
    table_schema,
    without_marks,
)
from .segment_options import OF_RECORDS, PLACES, SegmentOptions, View, parse_segment_options
from .views import ReadTask, batches

NAME = "tandemlog_segments"


class SegmentDataSource(DataSource):
    """See the module; options are the fields of SegmentOptions, in camel case."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        if not is_new_table(self.options):
            return spark_schema(_columns(parse_segment_options(self.options)))
        given = given_to_table(self.options)
        return table_schema(spark_schema(_columns(parse_segment_options(given))), given)

    def reader(self, schema: StructType) -> "SegmentReader":
        given, _ = options_of_read(self.options, schema, PLACES)
        if not given:
            raise OptionError(f"no options are given. {NOT_HANDED_OVER}")
        options = parse_segment_options(given)
        if options.columns is None:
            report = options.on_corruption is OnCorruption.REPORT
            chosen = columns_of(options.view.value, without_marks(schema), report)
            options = replace(options, columns=tuple(chosen))
        return SegmentReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise OptionError(
            "tandemlog_segments only reads: a running node writes its log, and format tandemlog "
            "sends rows to it"
        )


def _columns(options: SegmentOptions) -> dict[str, str]:
    names = list(options.columns) if options.columns is not None else None
    report = options.on_corruption is OnCorruption.REPORT and options.view is View.MESSAGES
    return chosen_columns(options.view.value, names, report)


@dataclass
class SpanPartition(InputPartition):
    """What one task reads."""

    spans: tuple[Span, ...]

    def __init__(self, spans: tuple[Span, ...]) -> None:
        super().__init__(None)
        self.spans = spans


class SegmentReader(DataSourceReader):
    """Plans in the driver, reads in the tasks; pickled in between."""

    def __init__(self, options: SegmentOptions) -> None:
        self._options = options
        self._columns = _columns(options)
        self._log = open_log(
            options.path,
            options.endpoint,
            options.fetch_timeout_ms,
            dict(options.connecting),
            dict(options.storage),
        )
        self._delay_levels = DEFAULT_DELAY_LEVELS
        if "deliver_at" in self._columns:
            self._delay_levels = stored_delay_levels(self._log)

    def partitions(self) -> list[SpanPartition]:
        """One for about targetBytes of the log; none for an empty one."""
        options, log = self._options, self._log
        of_records = options.view in OF_RECORDS
        if of_records and options.on_corruption is OnCorruption.FAIL:
            log.check_complete(options.from_offset, options.to_offset or None)
        start, end = max(log.start(), options.from_offset), log.end().offset
        if options.to_offset:
            end = min(end, options.to_offset)
        if start >= end:
            if options.from_offset > end:
                raise OptionError(
                    f"option fromOffset: {options.from_offset} is behind the log's end {end}"
                )
            return []
        # Spark does not tell a source in Python how many cores the executors have.
        cores = options.min_partitions or os.cpu_count() or 1
        where = start, end, options.target_bytes, cores
        if of_records:
            groups = planned(log, *where, options.selection)
        else:
            groups = spans_for_tasks(log.files, *where)
        return [SpanPartition(tuple(spans)) for spans in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The view's rows of one partition."""
        if not isinstance(partition, SpanPartition):
            return  # Spark's stand-in for an empty list of partitions
        options = self._options
        task = ReadTask(
            view=options.view,
            columns=self._columns,
            on_corruption=options.on_corruption,
            verify_crc=options.verify_crc,
            index_tags=options.index_tags,
            block_bytes=options.block_bytes,
            delay_levels=self._delay_levels,
            selection=options.selection,
        )
        with closing(self._log.connect()) as log:
            for span in partition.spans:
                for part in wanted_parts(log, span, options.selection):
                    yield from batches(log, self._log.files, part, task)
