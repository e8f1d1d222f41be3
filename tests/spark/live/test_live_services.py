"""Messages that come later, through Spark: written with a time, and read with it."""

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from helpers.running import Running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def came(spark: "SparkSession", cluster: Running, topic: str, count: int) -> "DataFrame":
    """The topic, once it has so many messages."""
    while True:
        frame = (
            spark.read.format("tandemlog")
            .option("endpoint", cluster.master.endpoint)
            .option("topic", topic)
            .option("columns", "body,deliver_at,transaction,attempts,origin_topic,last_error")
            .load()
        )
        if frame.count() >= count:
            return frame
        time.sleep(0.05)


def test_rows_come_when_they_are_to(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str]
) -> None:
    due = datetime.now(UTC).replace(microsecond=250_000) - timedelta(seconds=5)
    rows = spark.createDataFrame(
        [("now", None, None), ("at", due, None), ("after", None, timedelta(milliseconds=300))],
        "body STRING, deliver_at TIMESTAMP, delay INTERVAL DAY TO SECOND",
    )
    for _ in range(2):  # the second time as a repetition
        (
            rows.coalesce(1)
            .write.format("tandemlog")
            .mode("append")
            .option("endpoint", cluster.master.endpoint)
            .option("topic", topics[0])
            .option("idempotencyId", topics[0])
            .save()
        )
    stored = came(spark, cluster, topics[0], 3).collect()
    assert sorted(bytes(row.body) for row in stored) == [b"after", b"at", b"now"]
    found = {bytes(row.body).decode(): row for row in stored}
    assert found["now"].deliver_at is None
    assert found["at"].deliver_at.astimezone(UTC) == due
    assert found["after"].deliver_at.astimezone(UTC) > due
    assert {(row.transaction, row.attempts, row.last_error) for row in found.values()} == {
        (None, None, None)
    }


def test_a_time_beyond_the_horizon(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str]
) -> None:
    rows = spark.sql("SELECT 'x' AS body, INTERVAL 40 DAYS AS delay")
    writer = rows.write.format("tandemlog").mode("append")
    with pytest.raises(Exception, match=r"the longest delay is .* \(store\.max_delay_ms\)"):
        writer.option("endpoint", cluster.master.endpoint).option("topic", topics[0]).save()
