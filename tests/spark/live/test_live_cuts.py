"""Checkpoints and logs that went on in another way: real nodes, a real failover, a real stream."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from helpers.elected import Elected
from helpers.running import Running
from tandemlog import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

TOPIC = "cuts"
COUNT = 40


def put(endpoints: list[str], name: str, count: int) -> set[str]:
    """Acknowledged messages of this name, all in one queue."""
    bodies = [f"{name} {number}" for number in range(count)]
    with Producer(endpoints) as producer:
        producer.send_many(TOPIC, [each.encode() for each in bodies], queues=0)
    return set(bodies)


class Stream:
    """One query with one checkpoint; `got` are the rows of the last run."""

    def __init__(self, spark: "SparkSession", checkpoint: Path) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.got: list[str] = []

    def run(self, endpoints: list[str], **options: str) -> "StreamingQuery":
        """Up to what is there now."""
        self.got = []

        def keep(rows: "DataFrame", _: int) -> None:
            self.got += [bytes(row["body"]).decode() for row in rows.select("body").collect()]

        query = (
            self._spark.readStream.format("tandemlog")
            .options(endpoint=",".join(endpoints), topic=TOPIC, startingOffsets="earliest")
            .options(**options)
            .load()
            .writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query


def cuts(query: "StreamingQuery") -> list[Any]:
    """What the progress says of rows that are no longer there."""
    ends = [json.loads(each.sources[0].endOffset) for each in query.recentProgress]
    return [end["@cut"] for end in ends if "@cut" in end]


def test_a_stream_over_failovers_that_lose_messages(
    spark: "SparkSession", cluster: Running, tmp_path: Path
) -> None:
    slaves_stay = {"mode": "async", "replica_lag_time_ms": 120_000}
    stream = Stream(spark, tmp_path / "checkpoint")
    with Elected(tmp_path, min_in_sync=1, replication=slaves_stay) as nodes:
        master = nodes.the_master()
        nodes.wait_in_sync(count=3)
        with Admin(nodes.endpoints) as admin:
            admin.create_topic(TOPIC, queues=1)
        kept = put(nodes.endpoints, "kept", COUNT)
        nodes.wait_caught_up()
        stream.run(nodes.endpoints)
        assert sorted(stream.got) == sorted(kept)
        # A planned change of master loses nothing and is no cut.
        _, following = (node for node in nodes.nodes if node is not master)
        nodes.tandemlog("switchover", "--to", following.node_id, "--yes")
        master = nodes.the_master()
        nodes.wait_in_sync(count=3)
        more = put(nodes.endpoints, "more", COUNT)
        nodes.wait_caught_up()
        query = stream.run(nodes.endpoints)
        assert (sorted(stream.got), cuts(query)) == (sorted(more), [])
        # The master alone has what it acknowledges now, and the stream reads it.
        slaves = [node for node in nodes.nodes if node is not master]
        for slave in slaves:
            slave.kill()
        lost = put(nodes.endpoints, "lost", COUNT)
        stream.run(nodes.endpoints)
        assert sorted(stream.got) == sorted(lost)
        master.kill()
        for slave in slaves:
            slave.start()
        nodes.the_master()
        new = put(nodes.endpoints, "new", 2 * COUNT)
        with pytest.raises(
            PySparkException,
            match=rf"the log was cut: .* {TOPIC}/0 was read up to {3 * COUNT}, and has other "
            rf"messages from {2 * COUNT} on.*read {COUNT} of what.*failOnDataLoss=false continues",
        ):
            stream.run(nodes.endpoints)
        assert stream.got == []
        query = stream.run(nodes.endpoints, failOnDataLoss="false")
        assert sorted(stream.got) == sorted(new)
        assert cuts(query) == [{TOPIC: {"0": COUNT}}]
        last = put(nodes.endpoints, "last", 3)
        query = stream.run(nodes.endpoints)
        assert (sorted(stream.got), cuts(query)) == (sorted(last), [])
    # The same checkpoint with another cluster.
    with Admin(cluster.endpoints) as admin:
        admin.create_topic(TOPIC, 1)
    other = put(cluster.endpoints, "other", COUNT)
    with pytest.raises(PySparkException, match="the checkpoint is of another log"):
        stream.run(cluster.endpoints)
    stream.run(cluster.endpoints, failOnDataLoss="false")
    assert sorted(stream.got) == sorted(other)
