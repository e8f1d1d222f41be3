"""format("tandemlog"): the topics of a live cluster as a source and a sink for Spark.

    spark.read.format("tandemlog")          a batch      batch.py
    spark.readStream.format("tandemlog")    a stream     stream.py
    df.write.format("tandemlog")            a batch      writer.py
    df.writeStream.format("tandemlog")      a stream     writer.py

Options and schema are checked here, in the driver, before any task starts.
"""
# Methods have the names that Spark calls.
# ruff: noqa: N802

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from ..arrow.schema import spark_schema
from ..cluster.option_reading import chosen_columns, read_options, write_options
from ..cluster.options import Guarantee, Use, WriteOptions
from ..errors import OptionError, PipelineError
from ..newer_spark import DataSourceStreamArrowWriter
from ..sink.writer import LiveStreamWriter, LiveWriter, check_topic
from ..spark_version import EXACTLY_ONCE, STREAM_READ, STREAM_WRITE, part_fault
from .batch import LiveBatchReader
from .refused import RefusedStreamReader
from .schema import check_sink_schema, columns_of, live_columns
from .stream import LiveStreamReader


class LiveDataSource(DataSource):
    """What Spark finds under the name; see the module."""

    @classmethod
    def name(cls) -> str:
        return "tandemlog"

    def schema(self) -> StructType:
        return spark_schema(live_columns(chosen_columns(self.options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        return LiveBatchReader(read_options(self.options, Use.BATCH), columns_of(schema))

    def streamReader(self, schema: StructType) -> LiveStreamReader | RefusedStreamReader:
        fault = part_fault("reading a stream", STREAM_READ)
        if fault is not None:
            return RefusedStreamReader(PipelineError(fault))
        try:
            return LiveStreamReader(read_options(self.options, Use.STREAM), columns_of(schema))
        except PipelineError as error:
            return RefusedStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError('a log cannot be overwritten: use mode("append")')
        options = write_options(self.options, stream=False)
        _check_guarantee(options)
        check_sink_schema(schema, options.topic)
        check_topic(options)
        return LiveWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise OptionError('a log cannot be overwritten: use outputMode("append")')
        fault = part_fault("writing a stream", STREAM_WRITE)
        if fault is not None:
            raise PipelineError(fault)
        options = write_options(self.options, stream=True)
        _check_guarantee(options)
        check_sink_schema(schema, options.topic)
        check_topic(options)
        return LiveStreamWriter(options)


def _check_guarantee(options: WriteOptions) -> None:
    """Raises OptionError if this PySpark's tasks could not tell where their input ends."""
    fault = part_fault("deliveryGuarantee=exactly_once", EXACTLY_ONCE)
    if fault is not None and options.guarantee is Guarantee.EXACTLY_ONCE:
        raise OptionError(f"{fault}; deliveryGuarantee=at_least_once writes without")
