"""Tasks that fail in the middle of writing, and succeed when Spark runs them again."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from helpers.running import Running
from tandemlog import Consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 3_000
PARTITIONS = 3
PADDING = 2_000
"""Bytes of a row: enough for what Spark holds back between its processes to be little of it all."""


def fragile(endpoint: str, topic: str) -> Callable[[int], str]:
    """A body. The first attempt of a task fails behind most of its rows, once something of the job
    is stored."""

    # Within, so that it travels to Spark's workers, which do not know this file.
    def body(number: int) -> str:
        from pyspark import TaskContext

        from tandemlog import Admin

        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and number % 1000 == 900:
            deadline = time.monotonic() + 60
            with Admin(endpoint) as admin:
                while not sum(each.max_offset for each in admin.ranges(topic)):
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"nothing is stored in {topic}")
                    time.sleep(0.02)
            raise RuntimeError("the first attempt fails on purpose")
        return f"row {number}".ljust(PADDING)

    return body


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_tasks_that_fail_half_way(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str], guarantee: str
) -> None:
    topic = topics[0]
    body = F.udf(fragile(cluster.master.endpoint, topic), "string", useArrow=False)
    frame = spark.range(ROWS, numPartitions=PARTITIONS).select(body("id").alias("body"))
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    assert before is not None
    spark.conf.set(name, "50")
    try:
        frame.write.format("tandemlog").mode("append").options(
            endpoint=cluster.master.endpoint,
            topic=topic,
            deliveryGuarantee=guarantee,
            batchMessages=40,
        ).save()
    finally:
        spark.conf.set(name, before)
    with (
        Consumer(cluster.endpoints, read_from="master") as consumer,
        consumer.follow(topic, until_end=True) as stream,
    ):
        stored = [message.body.decode().rstrip() for message in stream]
    assert set(stored) == {f"row {number}" for number in range(ROWS)}
    if guarantee == "exactly_once":
        assert len(stored) == ROWS
    else:
        assert len(stored) > ROWS
