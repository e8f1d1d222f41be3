"""format("tandemlog"): the topics of a live cluster as a source and a sink for Spark.

    spark.read.format("tandemlog")          a batch      live_batch.py
    spark.readStream.format("tandemlog")    a stream     live_stream.py
    df.write.format("tandemlog")            a batch      writer.py
    df.writeStream.format("tandemlog")      a stream     writer.py

Options and schema are checked here, in the driver, before a task starts. The options of a table
come with its schema (table_options.py).
"""
# Methods have the names that Spark calls.
# ruff: noqa: N802

from collections.abc import Collection
from typing import Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tandemlog.logs.job_errors import OptionError, PipelineError

from ..cluster.live_options import Guarantee, ReadOptions, Use, WriteOptions
from ..cluster.option_reading import (
    PLACES,
    SPARKS_OWN,
    check_table,
    chosen_columns,
    for_use,
    read_options,
    write_options,
)
from ..newer_spark import DataSourceStreamArrowWriter, ReadLimit, SupportsTriggerAvailableNow
from ..sink.writer import LiveStreamWriter, LiveWriter, check_topic
from ..spark_schema import spark_schema
from ..spark_version import EXACTLY_ONCE, STREAM_READ, STREAM_WRITE, part_fault
from ..table_options import (
    NOT_HANDED_OVER,
    given_to_table,
    is_new_table,
    options_of_read,
    options_of_write,
    table_schema,
    without_marks,
)
from .live_batch import LiveBatchReader
from .live_schema import check_sink_schema, columns_of, live_columns
from .live_stream import LiveStreamReader


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot start: raises `problem` whatever Spark asks first.

    In the end PySpark stops the reader even if it never got one: an error in streamReader itself is
    followed by an UnboundLocalError, which then is the last line that the user sees.
    """

    def __init__(self, problem: PipelineError) -> None:
        self._problem = problem

    def _refuse(self) -> NoReturn:
        raise self._problem from None

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # without arguments before 4.2
        self._refuse()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> NoReturn:
        self._refuse()


class LiveDataSource(DataSource):
    """What Spark finds under the name; see the module."""

    @classmethod
    def name(cls) -> str:
        return "tandemlog"

    def schema(self) -> StructType:
        if not is_new_table(self.options):
            return spark_schema(live_columns(chosen_columns(self.options)))
        given = given_to_table(self.options)
        check_table(given)
        return table_schema(spark_schema(live_columns(chosen_columns(given))), given)

    def reader(self, schema: StructType) -> DataSourceReader:
        return LiveBatchReader(
            self._read_options(schema, Use.BATCH), columns_of(without_marks(schema))
        )

    def _read_options(self, schema: StructType, use: Use) -> ReadOptions:
        given, of_table = options_of_read(self.options, schema, PLACES)
        _check_any(given)
        return read_options(for_use(given, use) if of_table else given, use)

    def streamReader(self, schema: StructType) -> LiveStreamReader | RefusedStreamReader:
        fault = part_fault("reading a stream", STREAM_READ)
        if fault is not None:
            return RefusedStreamReader(PipelineError(fault))
        try:
            return LiveStreamReader(
                self._read_options(schema, Use.STREAM), columns_of(without_marks(schema))
            )
        except PipelineError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError('a log cannot be overwritten: use mode("append")')
        given, of_table = options_of_write(self.options, schema, PLACES)
        _check_any(given)
        options = write_options(for_use(given, Use.WRITE) if of_table else given, stream=False)
        _check_write(options, schema)
        return LiveWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise OptionError('a log cannot be overwritten: use outputMode("append")')
        fault = part_fault("writing a stream", STREAM_WRITE)
        if fault is not None:
            raise PipelineError(fault)
        _check_any(set(self.options) - SPARKS_OWN)
        options = write_options(self.options, stream=True)  # never a table's: see table_options.py
        _check_write(options, schema)
        return LiveStreamWriter(options)


def _check_any(given: Collection[str]) -> None:
    if not given:
        raise OptionError(f"no options are given. {NOT_HANDED_OVER}")


def _check_write(options: WriteOptions, schema: StructType) -> None:
    """Check the schema and the topic, and that this PySpark's tasks know where their input ends.
    Raises PipelineError."""
    fault = part_fault("deliveryGuarantee=exactly_once", EXACTLY_ONCE)
    if fault is not None and options.guarantee is Guarantee.EXACTLY_ONCE:
        raise OptionError(f"{fault}; deliveryGuarantee=at_least_once writes without")
    check_sink_schema(schema, options.topic)
    check_topic(options)
