"""One job for every kind of Spark: queues and index from a log, and a copy from topic to topic.

    python -m fakes.spark_job MASTER STORE OUT ENDPOINT FROM TO CHECKPOINT [NAME=VALUE ...]

MASTER is Spark's, also sc://HOST:PORT; NAME=VALUE are settings of Spark. It prints one JSON object.
"""

import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

from tandemlog.logs.executors import run_tasks
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.spark.lag import LagListener
from tandemlog.spark.session import spark_session

SIZES = RebuildOptions(index_slots=20, index_entries=100, queue_file_size=200, target_bytes=6_000)


class Lags(LagListener):
    """Keeps what is not read yet after each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.over = threading.Event()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        super().onQueryProgress(event)
        self.seen += [each.messages for each in self.lags()]

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        super().onQueryTerminated(event)
        self.over.set()


def run_job(spark: SparkSession, arguments: Sequence[str]) -> dict[str, Any]:
    """The job in a session that there is."""
    store, out, endpoint, source, target, checkpoint = arguments
    listener = Lags()
    spark.streams.addListener(listener)
    result = rebuild(spark, store, out, SIZES)
    rows = spark.readStream.format("tandemlog").options(
        endpoint=endpoint,
        topic=source,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=200,
        minPartitions=4,
    )
    query = (
        rows.load()
        .drop("topic")
        .writeStream.format("tandemlog")
        .options(endpoint=endpoint, topic=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    listener.over.wait(60)
    spark.streams.removeListener(listener)
    copied = spark.read.format("tandemlog").options(endpoint=endpoint, topic=target).load()
    bodies = copied.select(F.col("body").cast("string")).orderBy("body").collect()
    return {
        "records": result.summary["records"],
        "batches": [each.numInputRows for each in query.recentProgress if each.numInputRows],
        "lags": listener.seen,
        "copied": [row[0] for row in bodies],
    }


def main(arguments: list[str]) -> None:
    master, *job = arguments[:7]
    settings = dict(each.split("=", 1) for each in arguments[7:])
    spark = spark_session("job", master, extra=settings)
    answer = run_job(spark, job)
    if not master.startswith("sc:"):
        # Each executor has a folder of its own.
        folders = run_tasks(spark, os.path.abspath, ["."] * 8)
        answer["workers"] = sorted({Path(each).parent.parent.name for each in folders})
    print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
