"""Spark over a live cluster of one node: reading, writing, and the time of a micro-batch.

It reads 400,000 messages with bodies of 1 KiB from 4 queues, all columns, into Spark's noop, and
writes rows of 128 bytes. The node runs on the same cores. A micro-batch reads what came since the
last one, 1,000 messages a second over 4 queues, into noop; the figure is the median of its whole
trigger.
"""

import shutil
import statistics
import threading
import time
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.harness.figures import Figure, median_of
from benchmarks.harness.nodes import cluster
from benchmarks.harness.workload import QUEUES, topics
from benchmarks.spark.timing import MB, RUNS, noop, seconds
from tandemlog import Producer
from tandemlog.spark.session import spark_session

MESSAGES = 400_000
BODY = 1024
ROWS = 400_000
ROW_BYTES = 128
PAUSE_S = 0.1
A_SECOND = 1_000
STREAM_S = 15


def fill(endpoint: str, topic: str) -> None:
    bodies = np.random.default_rng(1).integers(32, 126, (MESSAGES // 16, BODY), dtype=np.uint8)
    with Producer(endpoint) as producer:
        for part in range(16):
            producer.send_many(topic, bodies, queues=part % QUEUES, tags="bench")


def read(spark: SparkSession, endpoint: str, topic: str, **options: str) -> DataFrame:
    return spark.read.format("tandemlog").options(endpoint=endpoint, topic=topic, **options).load()


def read_rate(spark: SparkSession, endpoint: str, topic: str, **options: str) -> float:
    """MB/s of bodies."""
    noop(read(spark, endpoint, topic, **options))
    size = MESSAGES * BODY / MB
    return median_of(
        RUNS, lambda: size / seconds(lambda: noop(read(spark, endpoint, topic, **options)))
    )


def write_rate(spark: SparkSession, endpoint: str, topic: str) -> float:
    """Rows/s."""
    rows = spark.range(ROWS, numPartitions=4).select(
        F.rpad(F.col("id").cast("string"), ROW_BYTES, "x").alias("body")
    )

    def write() -> None:
        rows.write.format("tandemlog").mode("append").options(endpoint=endpoint, topic=topic).save()

    write()
    return median_of(RUNS, lambda: ROWS / seconds(write))


def trigger_ms(spark: SparkSession, endpoint: str, topic: str, checkpoint: Path) -> float:
    """Median of the micro-batches that had rows, without the first few."""
    stop = threading.Event()

    def produce() -> None:
        bodies = [b"x" * ROW_BYTES] * int(A_SECOND * PAUSE_S / QUEUES)
        with Producer(endpoint) as producer:
            while not stop.wait(PAUSE_S):
                for queue in range(QUEUES):
                    producer.send_many(topic, bodies, queues=queue)

    producing = threading.Thread(target=produce)
    producing.start()
    source = spark.readStream.format("tandemlog").options(endpoint=endpoint, topic=topic).load()
    stream = source.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = stream.start()
    seen: dict[int, float] = {}
    try:
        end = time.monotonic() + STREAM_S
        while time.monotonic() < end:
            for progress in query.recentProgress:
                if progress.numInputRows:
                    seen[progress.batchId] = progress.durationMs["triggerExecution"]
            time.sleep(0.5)
    finally:
        query.stop()
        stop.set()
        producing.join()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return statistics.median(time_ms for batch, time_ms in sorted(seen.items()) if batch > 5)


def run(folder: Path) -> list[Figure]:
    with cluster(folder / "cluster", 3) as nodes:
        endpoint = nodes.endpoints
        big, small, stream = topics(3)
        fill(endpoint, big)
        spark = spark_session("tandemlog benchmark", extra={"spark.driver.memory": "2g"})
        try:
            every = read_rate(spark, endpoint, big)
            few = read_rate(spark, endpoint, big, columns="queue_id,queue_offset,body")
            written = write_rate(spark, endpoint, small)
            trigger = trigger_ms(spark, endpoint, stream, folder / "checkpoint")
        finally:
            spark.stop()
    return [
        Figure("live: read, all columns", every, "MB/s", 250),
        Figure("live: read, three columns", few, "MB/s", 250),
        Figure("live: write rows of 128 bytes", written, "rows/s", 100_000),
        Figure("live: micro-batch over 4 queues", trigger, "ms", 150, at_most=True),
    ]
