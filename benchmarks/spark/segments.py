"""Spark over the files: messages, rebuild, audit and export of 512 MB, warm, on all cores.

The log has 1 KiB bodies with three properties, 64 queues, files of 32 MiB. Each figure is the
median of warm runs; ratios are against Spark's own Parquet reader and writer, and against the same
rows through binaryFile and mapInArrow, in the same session.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.harness.figures import Figure, median_of
from benchmarks.harness.made_log import make_log
from benchmarks.spark.timing import MB, RUNS, noop, seconds
from tandemlog.arrow.arrow_columns import message_batch
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.columns.walk import walk
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.export import ExportOptions, export
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.logs.view_columns import MESSAGES
from tandemlog.spark.session import spark_session
from tandemlog.spark.spark_schema import spark_schema

ROWS_A_BATCH = 2048


def rate(size: int, work: Callable[[], object]) -> float:
    """MB/s, the median of warm runs."""
    work()
    return median_of(RUNS, lambda: size / MB / seconds(work))


def run(folder: Path) -> list[Figure]:
    """The figures; `folder` is for scratch."""
    store = folder / "store"
    size = make_log(store)
    spark = spark_session("tandemlog benchmark", extra={"spark.driver.memory": "4g"})
    try:
        return [*_reading(spark, store, folder, size), *_jobs(spark, store, folder, size)]
    finally:
        spark.stop()


def _reading(spark: SparkSession, store: Path, folder: Path, size: int) -> list[Figure]:
    def messages() -> DataFrame:
        return spark.read.format("tandemlog_segments").load(str(store))

    parquet = folder / "parquet"

    def write_parquet() -> None:
        messages().write.mode("overwrite").parquet(str(parquet))

    read = rate(size, lambda: noop(messages()))
    written = rate(size, write_parquet)
    from_parquet = rate(size, lambda: noop(spark.read.parquet(str(parquet))))
    files = spark.read.format("binaryFile").load(str(store / "commitlog")).select("content")
    rows = files.mapInArrow(_messages_of, spark_schema(MESSAGES))
    binary = rate(size, lambda: noop(rows))

    def export_messages() -> None:
        shutil.rmtree(folder / "export", ignore_errors=True)
        export(spark, store, folder / "export", ExportOptions(raw=False))

    exported = rate(size, export_messages)
    return [
        Figure("segments: messages", read, "MB/s", 500),
        Figure("segments: messages against Parquet", read, "MB/s", 0.4, from_parquet),
        Figure("segments: messages against binaryFile", read, "MB/s", 1.0, binary),
        Figure("segments: export against Spark's writer", exported, "MB/s", 0.8, written),
    ]


def _messages_of(files: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the view `messages`, of whole files that Spark has read; no CRC is checked."""
    for batch in files:
        for content in batch.column("content"):
            data = np.frombuffer(content.as_buffer(), np.uint8)
            walked = walk(data)
            for start in range(0, walked.count, ROWS_A_BATCH):
                part = slice(start, start + ROWS_A_BATCH)
                headers = gather_headers(data, walked.positions[part], walked.sizes[part])
                yield message_batch(data, headers, MESSAGES)


def _jobs(spark: SparkSession, store: Path, folder: Path, size: int) -> list[Figure]:
    out = folder / "out"

    def rebuilt(options: RebuildOptions) -> None:
        shutil.rmtree(out, ignore_errors=True)
        rebuild(spark, store, out, options)

    queues = rate(size, lambda: rebuilt(RebuildOptions(index=False)))
    both = rate(size, lambda: rebuilt(RebuildOptions()))
    audited = rate(size, lambda: audit(spark, store))
    return [
        Figure("segments: rebuild of queues", queues, "MB/s", 600),
        Figure("segments: rebuild of queues and index", both, "MB/s", 600),
        Figure("segments: audit", audited, "MB/s", 800),
    ]
