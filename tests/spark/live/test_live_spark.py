"""The live source and sink inside a real Spark, over real nodes."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from fakes.fake_cluster import running_cluster
from helpers.made_certificates import Authority
from helpers.running import Running
from tandemlog import Admin, Consumer, Producer
from tandemlog.spark.live.live_schema import LIVE
from tandemlog.spark.spark_schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark


def produce(cluster: Running, topic: str, rows: int, start: int = 0, **columns: Any) -> None:
    """Row i to queue i mod 4."""
    numbers = range(start, start + rows)
    with Producer(cluster.endpoints) as producer:
        producer.send_many(
            topic,
            [b"row %d" % number for number in numbers],
            queues=[number % 4 for number in numbers],
            **columns,
        )


def reader(spark: "SparkSession", cluster: Running, **options: str) -> "DataFrame":
    return (
        spark.read.format("tandemlog")
        .options(endpoint=",".join(cluster.endpoints), **options)
        .load()
    )


def stored(cluster: Running, topic: str) -> list[str]:
    with (
        Consumer(cluster.endpoints, read_from="master") as consumer,
        consumer.follow(topic, until_end=True) as stream,
    ):
        return sorted(message.body.decode() for message in stream)


def rows_named(rows: int, start: int = 0) -> list[str]:
    return sorted(f"row {number}" for number in range(start, start + rows))


def bodies(frame: "DataFrame") -> list[str]:
    return sorted(row[0] for row in frame.select(F.col("body").cast("string")).collect())


def test_what_was_written_is_read(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str]
) -> None:
    topic = topics[0]
    frame = spark.range(1000, numPartitions=3).select(
        F.concat(F.lit("row "), F.col("id")).alias("body"),
        F.when(F.col("id") % 2 == 0, "even").alias("tags"),
        F.concat(F.lit("k"), F.col("id")).alias("keys"),
        (F.col("id") % 4).cast("int").alias("queue_id"),
        F.create_map(F.lit("half"), (F.col("id") / 2).cast("int").cast("string")).alias(
            "properties"
        ),
    )
    frame.write.format("tandemlog").mode("append").options(
        endpoint=cluster.master.endpoint, topic=topic
    ).save()
    found = reader(spark, cluster, topic=topic)
    assert found.schema == spark_schema(LIVE)
    assert bodies(found) == rows_named(1000)
    [row] = found.where("keys = 'k10'").collect()
    assert (row.tags, row.queue_id, row.properties["half"]) == ("even", 2, "5")
    assert bytes(row.body) == b"row 10"
    offsets = found.groupBy("queue_id").agg(F.max("queue_offset")).collect()
    assert sorted(map(tuple, offsets)) == [(queue, 249) for queue in range(4)]


def test_options_of_a_batch_read(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str]
) -> None:
    topic = topics[0]
    produce(cluster, topic, 100, tags=["a" if n % 10 == 0 else "b" for n in range(100)])
    starts = json.dumps({topic: {"0": 20, "1": -1, "2": -1, "3": -1}})
    assert bodies(reader(spark, cluster, topic=topic, startingOffsets=starts)) == sorted(
        f"row {4 * offset}" for offset in range(20, 25)
    )
    assert reader(spark, cluster, topic=topic, tags="a").count() == 10
    split = reader(spark, cluster, topic=topic, minPartitions="8", columns="body,queue_id")
    assert split.rdd.getNumPartitions() == 8
    assert split.columns == ["body", "queue_id"]
    assert bodies(split) == rows_named(100)


def test_a_dataframe_that_is_used_twice(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str]
) -> None:
    """Spark 4.3 keeps the filters that a source takes over for all uses of a DataFrame."""
    produce(cluster, topics[0], 100, tags=["a" if n % 10 == 0 else "b" for n in range(100)])
    setting = "spark.sql.python.filterPushdown.enabled"
    for chosen in ("true", "false"):
        spark.conf.set(setting, chosen)
        try:
            frame = reader(spark, cluster, topic=topics[0])
            assert frame.count() == 100
            assert frame.where("queue_id = 1").count() == 25
            assert frame.where("tags = 'a'").count() == 10
            assert frame.count() == 100
            both = frame.where("queue_id = 1").union(frame.where("queue_id = 2"))
            assert sorted(row.queue_id for row in both.collect()) == [1] * 25 + [2] * 25
            assert frame.where("queue_offset < 3").crossJoin(frame.select("body")).count() == 1200
        finally:
            spark.conf.unset(setting)


def test_the_order_of_a_read_depends_on_its_offsets_alone(spark: "SparkSession") -> None:
    """Queues that share partitions, read with answers of different sizes, and from a slave that
    is behind and one that is not."""
    with running_cluster(slaves=1) as small:
        small.log.create_topic("t", 6)
        for start in range(0, 600, 50):
            numbers = range(start, start + 50)
            with Producer(small.endpoints) as producer:
                producer.send_many(
                    "t", [b"%d" % n for n in numbers], queues=[n * n % 6 for n in numbers]
                )
        read = spark.read.format("tandemlog").options(
            endpoint=",".join(small.endpoints), topic="t", maxPartitions="2"
        )
        orders = []
        slave = small.cluster.nodes["n1"]
        for pull_bytes, behind in (("1", None), ("3k", None), ("8m", None), ("3k", 200), ("8m", 1)):
            small.call(partial(setattr, slave, "visible", behind))
            rows = read.option("pullBytes", pull_bytes).load().select("queue_id", "queue_offset")
            orders.append([tuple(row) for row in rows.collect()])
    assert orders[0] == sorted(orders[0])
    assert all(order == orders[0] for order in orders)
    assert len(orders[0]) == 600


ERRORS = {
    "option": ({"topik": "x"}, "option topik does not exist: is topic meant"),
    "pushdown": ({"pushdown": "true"}, "option pushdown does not exist any more: Spark 4.3"),
    "topic": ({"topic": "nope"}, "there is no topic 'nope'"),
    "offsets": ({"startingOffsets": '{"T": {"0": 9}}'}, "names T/0"),
    "range": (
        {"startingOffsets": '{"A": {"0": 99, "1": 0, "2": 0, "3": 0}}'},
        r"has no offset 99, it holds 0..1",
    ),
    "schema": ({"columns": "size"}, "no column 'size'"),
    "cluster": (
        {"endpoint": "127.0.0.1:1", "retryTimeoutMs": "300"},
        "127.0.0.1:1 (connection refused)",
    ),
}


@pytest.mark.parametrize("case", sorted(ERRORS))
def test_one_clear_error_of_a_read(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str], case: str
) -> None:
    produce(cluster, topics[0], 4)
    changes, words = ERRORS[case]
    options = {"endpoint": cluster.master.endpoint, "topic": topics[0]}
    options |= {name: value.replace('"A"', f'"{topics[0]}"') for name, value in changes.items()}
    with pytest.raises(PySparkException) as caught:
        spark.read.format("tandemlog").options(**options).load().count()
    assert words in str(caught.value)
    # Before any task: a task's error would come as a failed stage.
    assert "aborted due to stage failure" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("'x' as body", {"topic": "nope"}, "there is no topic 'nope'"),
        ("1 as id", {}, "column id is not one that the sink writes"),
        ("1.5 as body", {}, "column body must be binary or string"),
        ("'x' as body", {"batchMessage": "9"}, "is batchMessages meant"),
        (
            "'x' as body",
            {"endpoint": "127.0.0.1:1", "retryTimeoutMs": "300"},
            "127.0.0.1:1 (connection refused)",
        ),
    ],
)
def test_one_clear_error_of_a_write(
    spark: "SparkSession",
    cluster: Running,
    columns: str,
    options: dict[str, str],
    words: str,
) -> None:
    given = {"endpoint": cluster.master.endpoint, "topic": "any"} | options
    with Admin(cluster.endpoints) as admin:
        if "any" not in {topic.name for topic in admin.topics()}:
            admin.create_topic("any", 1)
    frame = spark.sql(f"select {columns}")
    with pytest.raises(PySparkException) as caught:
        frame.write.format("tandemlog").mode("append").options(**given).save()
    assert words in str(caught.value)
    assert "aborted due to stage failure" not in str(caught.value)


def test_other_save_modes_are_refused(spark: "SparkSession", cluster: Running) -> None:
    frame = spark.sql("select 'x' as body").write.format("tandemlog")
    frame = frame.options(endpoint=cluster.master.endpoint, topic="any")
    with pytest.raises(PySparkException, match="append"):
        frame.mode("overwrite").save()


def copy(
    spark: "SparkSession",
    cluster: Running,
    topics: tuple[str, str],
    checkpoint: Path,
    source: dict[str, str],
    sink: dict[str, str] | None = None,
) -> "StreamingQuery":
    """From one topic to the other, up to where the first one ends now."""
    endpoint = ",".join(cluster.endpoints)
    rows = spark.readStream.format("tandemlog").options(endpoint=endpoint, topic=topics[0])
    query = (
        rows.options(**source)
        .load()
        .drop("topic")
        .writeStream.format("tandemlog")
        .options(endpoint=endpoint, topic=topics[1], checkpointLocation=str(checkpoint))
        .options(**(sink or {}))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_available_now_in_limited_batches_and_on_from_there(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str], tmp_path: Path
) -> None:
    produce(cluster, topics[0], 100)
    source = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    query = copy(spark, cluster, topics, tmp_path, source)
    assert [each.numInputRows for each in query.recentProgress if each.numInputRows] == [40, 40, 20]
    assert stored(cluster, topics[1]) == rows_named(100)
    produce(cluster, topics[0], 8, start=100)
    query = copy(spark, cluster, topics, tmp_path, source)
    [progress] = [each for each in query.recentProgress if each.numInputRows]
    assert progress.batchId == 3
    assert json.loads(progress.sources[0].latestOffset)[topics[0]] == dict.fromkeys("0123", 27)
    assert stored(cluster, topics[1]) == rows_named(108)


@pytest.mark.parametrize(
    ("source", "sink", "words"),
    [
        ({"maxOffsetPerTrigger": "5"}, {}, "is maxOffsetsPerTrigger meant"),
        ({"endingOffsets": "latest"}, {}, "endingOffsets is for a batch read"),
        ({"maxOffsetsPerTrigger": "z"}, {}, "maxOffsetsPerTrigger='z'"),
        ({"topic": "nope"}, {}, "there is no topic 'nope'"),
        ({"startingOffsets": '{"A": {"0": 99, "1": 0, "2": 0, "3": 0}}'}, {}, "has no offset 99"),
        ({}, {"topic": "nope"}, "there is no topic 'nope'"),
        ({}, {"idempotencyId": "x"}, "a stream is known by its checkpoint"),
    ],
    ids=["option", "batch", "value", "topic", "range", "target", "name"],
)
def test_one_clear_error_of_a_stream(
    spark: "SparkSession",
    cluster: Running,
    topics: tuple[str, str],
    tmp_path: Path,
    source: dict[str, str],
    sink: dict[str, str],
    words: str,
) -> None:
    produce(cluster, topics[0], 4)
    given = {name: value.replace('"A"', f'"{topics[0]}"') for name, value in source.items()}
    with pytest.raises(PySparkException) as caught:
        copy(spark, cluster, topics, tmp_path, {"startingOffsets": "earliest"} | given, sink)
    assert words in str(caught.value)
    assert "another exception occurred" not in str(caught.value)
    assert "aborted due to stage failure" not in str(caught.value)


def forget_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died when the batch was written and not committed."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink()


@pytest.mark.parametrize(("guarantee", "times"), [("exactly_once", 1), ("at_least_once", 2)])
def test_a_batch_that_is_written_again(
    spark: "SparkSession",
    cluster: Running,
    topics: tuple[str, str],
    tmp_path: Path,
    guarantee: str,
    times: int,
) -> None:
    produce(cluster, topics[0], 60)
    source = {"startingOffsets": "earliest"}
    sink = {"deliveryGuarantee": guarantee, "batchMessages": "7"}
    copy(spark, cluster, topics, tmp_path, source, sink)
    forget_commit(tmp_path, 0)
    produce(cluster, topics[0], 4, start=60)
    copy(spark, cluster, topics, tmp_path, source, sink)
    assert stored(cluster, topics[1]) == sorted(rows_named(60) * times + rows_named(4, 60))


def test_the_first_offset_is_kept_by_the_group(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str], tmp_path: Path
) -> None:
    produce(cluster, topics[0], 20)
    source = {"startingOffsets": "latest", "groupId": topics[0]}
    # A first run that finds nothing: its start is known to the cluster from now on.
    copy(spark, cluster, topics, tmp_path / "one", source)
    produce(cluster, topics[0], 12, start=20)
    copy(spark, cluster, topics, tmp_path / "one", source)
    assert stored(cluster, topics[1]) == rows_named(12, 20)
    # The first batch was planned and is lost on the way, and more has come meanwhile.
    forget_commit(tmp_path / "one", 0)
    produce(cluster, topics[0], 4, start=32)
    copy(spark, cluster, topics, tmp_path / "one", source)
    assert stored(cluster, topics[1]) == rows_named(16, 20)


def test_a_first_batch_is_planned_again_from_where_it_began(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str], tmp_path: Path
) -> None:
    """The checkpoint says it, whatever startingOffsets means by then."""
    produce(cluster, topics[0], 4)
    copy(spark, cluster, topics, tmp_path, {"startingOffsets": "earliest"})
    forget_commit(tmp_path, 0)
    produce(cluster, topics[0], 4, start=4)
    copy(spark, cluster, topics, tmp_path, {"startingOffsets": "latest"})
    assert stored(cluster, topics[1]) == rows_named(8)


def test_a_deleted_topic_ends_a_running_stream(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str], tmp_path: Path
) -> None:
    produce(cluster, topics[0], 4)
    query = (
        spark.readStream.format("tandemlog")
        .options(endpoint=",".join(cluster.endpoints), topic=topics[0])
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    query.processAllAvailable()
    with Admin(cluster.endpoints) as admin:
        admin.delete_topic(topics[0])
    with pytest.raises(PySparkException, match="was deleted"):
        query.awaitTermination(200)


def test_a_group_hears_of_progress(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str], tmp_path: Path
) -> None:
    produce(cluster, topics[0], 40)
    source = {"startingOffsets": "earliest", "groupId": topics[0], "maxOffsetsPerTrigger": "20"}
    copy(spark, cluster, topics, tmp_path, source)
    with Admin(cluster.endpoints) as admin:
        stands = admin.committed(topics[0])
    assert sum(stands.values()) >= 20


def test_a_job_that_is_given_a_name_may_run_again(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str]
) -> None:
    frame = spark.range(50, numPartitions=2).select(
        F.concat(F.lit("row "), F.col("id")).alias("body")
    )
    for _ in range(2):
        frame.write.format("tandemlog").mode("append").options(
            endpoint=cluster.master.endpoint, topic=topics[0], idempotencyId=topics[0][:50]
        ).save()
    assert stored(cluster, topics[0]) == rows_named(50)


def test_a_name_that_is_given_twice_for_other_rows_is_an_error(
    spark: "SparkSession", cluster: Running, topics: tuple[str, str]
) -> None:
    frame = spark.range(50, numPartitions=2).select(
        F.concat(F.lit("row "), F.col("id")).alias("body")
    )
    other = frame.select(
        F.when(F.col("body") == "row 7", "?").otherwise(F.col("body")).alias("body")
    )
    name = topics[0][:50]

    def write(rows: "DataFrame", topic: str) -> None:
        rows.write.format("tandemlog").mode("append").options(
            endpoint=cluster.master.endpoint, topic=topic, idempotencyId=name
        ).save()

    write(frame, topics[0])
    for rows, topic in (
        (other, topics[0]),
        (frame, topics[1]),
        (frame.withColumn("keys", F.lit("k")), topics[0]),
    ):
        with pytest.raises(PySparkException, match="idempotencyId"):
            write(rows, topic)
    assert stored(cluster, topics[0]) == rows_named(50)
    assert stored(cluster, topics[1]) == []


def test_a_cluster_that_asks_who_the_job_is(spark: "SparkSession", tmp_path: Path) -> None:
    """TLS, a client certificate and a token; the options reach the executors."""
    authority = Authority(tmp_path)
    security = authority.client()
    (tmp_path / "token").write_text("tl_job")
    with running_cluster(credentials=authority.node("n0"), tokens={"tl_job"}) as cluster:
        cluster.log.create_topic("t", 2)
        options = {
            "endpoint": ",".join(cluster.endpoints),
            "topic": "t",
            "caFile": security.ca_file,
            "certFile": security.cert_file,
            "keyFile": security.key_file,
        }
        proven = {**options, "tokenFile": str(tmp_path / "token")}
        frame = spark.range(10).select(F.concat(F.lit("row "), F.col("id")).alias("body"))
        frame.write.format("tandemlog").mode("append").options(**proven).save()
        found = spark.read.format("tandemlog").options(**proven, readFrom="any").load()
        assert bodies(found) == rows_named(10)
        with pytest.raises(PySparkException, match=r"unknown token \(no token was given"):
            spark.read.format("tandemlog").options(**options).load().collect()
