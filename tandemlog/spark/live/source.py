"""format("tandemlog"): the topics of a live cluster as a source and a sink for Spark.

    spark.read.format("tandemlog")          a batch      batch.py
    spark.readStream.format("tandemlog")    a stream     stream.py
    df.write.format("tandemlog")            a batch      writer.py
    df.writeStream.format("tandemlog")      a stream     writer.py

Options and schema are checked here, in the driver, before any task starts.
"""
# Methods have the names that Spark calls.
# ruff: noqa: N802

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ..arrow.schema import spark_schema
from ..cluster.options import Use, chosen_columns, read_options, write_options
from ..errors import OptionError, PipelineError
from ..sink.writer import LiveStreamWriter, LiveWriter, check_topic
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
        try:
            return LiveStreamReader(read_options(self.options, Use.STREAM), columns_of(schema))
        except PipelineError as problem:
            return RefusedStreamReader(problem)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError('a log cannot be overwritten: use mode("append")')
        options = write_options(self.options, stream=False)
        check_sink_schema(schema, options.topic)
        check_topic(options)
        return LiveWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if overwrite:
            raise OptionError('a log cannot be overwritten: use outputMode("append")')
        options = write_options(self.options, stream=True)
        check_sink_schema(schema, options.topic)
        check_topic(options)
        return LiveStreamWriter(options)
