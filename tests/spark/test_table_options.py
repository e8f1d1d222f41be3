"""The options of a table travel in its schema; see the module. Then in a real Spark, by SQL."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, VarcharType

from fakes.log_builder import LogBuilder, varied
from helpers.running import Running
from tandemlog import Producer
from tandemlog.logs.job_errors import OptionError
from tandemlog.spark.live.live_source import LiveDataSource
from tandemlog.spark.segments.segment_source import SegmentDataSource
from tandemlog.spark.table_options import (
    given_to_table,
    is_new_table,
    options_of_read,
    options_of_write,
    table_schema,
    without_marks,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = StructType([StructField("body", BinaryType()), StructField("keys", StringType())])
ADDED = {"provider": "tandemlog", "owner": "root", "comment": "of mine", "own": "x"}
A = {"endpoint": "a:1", "topic": "t"}


def new_table(given: dict[str, str]) -> dict[str, str]:
    """As Spark hands them over."""
    return ADDED | given | {f"option.{name}": given[name] for name in given}


def as_read(schema: StructType, mark: bool = True) -> StructType:
    """As Spark hands a table's schema to a reader; without the mark, to a writer of rows that it
    adapted to the table."""
    fields = []
    for each in schema.fields:
        metadata = dict(each.metadata)
        if isinstance(each.dataType, VarcharType) and mark:
            metadata["__CHAR_VARCHAR_TYPE_STRING"] = each.dataType.simpleString()
        kind = StringType() if isinstance(each.dataType, VarcharType) else each.dataType
        fields.append(StructField(each.name, kind, each.nullable, metadata))
    return StructType(fields)


def test_what_spark_adds_to_the_options_goes() -> None:
    assert is_new_table(new_table(A))
    assert not is_new_table(A)
    assert given_to_table(new_table(A)) == A
    located = given_to_table(ADDED | {"path": "file:/a%20b", "location": "file:/a%20b"})
    assert located == {"path": "/a b"}


def test_a_secret_is_no_option_of_a_table() -> None:
    with pytest.raises(OptionError, match="a table takes tokenFile") as refused:
        given_to_table(new_table(A | {"token": "tl_secret"}))
    assert "tl_secret" not in str(refused.value)


def test_the_options_come_back_from_the_schema() -> None:
    table = table_schema(PLAIN, A)
    assert without_marks(table) == PLAIN
    assert options_of_read({}, as_read(table), {"endpoint"}) == (A, True)
    more = {"Tags": "x", "topic": "u"}
    expected = {"endpoint": "a:1", "topic": "u", "tags": "x"}
    assert options_of_read(more, as_read(table), {"endpoint"}) == (expected, True)
    elsewhere = {"endpoint": "b:1"}
    assert options_of_read(elsewhere, as_read(table), {"endpoint"}) == (elsewhere, False)
    assert options_of_read({}, PLAIN, {"endpoint"}) == ({}, False)


def test_rows_are_written_by_the_options_of_the_table_they_were_adapted_to() -> None:
    adapted = as_read(table_schema(PLAIN, A), mark=False)
    assert options_of_write({}, adapted, {"endpoint"}) == (A, True)
    with pytest.raises(OptionError, match="where they go is not known"):
        options_of_write({}, as_read(table_schema(PLAIN, A)), {"endpoint"})
    bodies = as_read(table_schema(StructType(PLAIN.fields[:1]), A))
    with pytest.raises(OptionError, match="needs one of the columns keys, tags, topic"):
        options_of_write({}, bodies, {"endpoint"})


def test_rows_that_an_expression_changed_do_not_go_back_where_they_came_from() -> None:
    """It drops what its column carried, the mark too; `body` still has the options."""
    adapted = as_read(table_schema(PLAIN, A), mark=False)
    plain = StructField("keys", StringType())
    other = as_read(table_schema(PLAIN, A | {"topic": "u"}), mark=False)["keys"]
    mixed = [
        StructType([adapted["body"], plain]),
        StructType([adapted["body"], other]),
        StructType([adapted["keys"], adapted["body"]]),
        StructType([adapted["body"], adapted["keys"], StructField("tags", StringType())]),
        StructType([adapted["body"], StructField("tags", StringType())]),
    ]
    for schema in mixed:
        with pytest.raises(OptionError, match="give endpoint and topic, or INSERT INTO"):
            options_of_write({}, schema, {"endpoint"})
        given = {"endpoint": "a:1", "topic": "u"}
        assert options_of_write(given, schema, {"endpoint"}) == (given, False)


def test_a_table_of_an_older_version_is_read_and_not_written() -> None:
    fields = as_read(table_schema(PLAIN, A), mark=False).fields
    older = StructType(
        [
            StructField("body", BinaryType(), True, {"tandemlog.table": json.dumps(A)}),
            StructField("keys", fields[1].dataType),
        ]
    )
    assert options_of_read({}, older, {"endpoint"}) == (A, True)
    with pytest.raises(OptionError, match="an older version created has to be created again"):
        options_of_write({}, older, {"endpoint"})


def test_no_two_tables_have_the_same_columns() -> None:
    kinds = {
        str(table_schema(PLAIN, {"endpoint": "a", "topic": f"t{number}"})["keys"].dataType)
        for number in range(500)
    }
    assert len(kinds) == 500


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topik": "t"}, "is topic meant"),
        ({"pullBytes": "much"}, "pullBytes='much'"),
        ({"columns": "body,value"}, "no column 'value'.* Kafka's value is here body"),
        ({"includeHeaders": "true"}, "one of Kafka's: .* the column properties"),
        ({"topics": "a,b"}, "exactly one of the options topic, topics"),
    ],
)
def test_mistakes_are_found_when_the_table_is_made(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        LiveDataSource(new_table(A | given)).schema()


def test_a_table_has_a_topic_and_a_cluster() -> None:
    with pytest.raises(OptionError, match=r"topicsPattern and assign .*; none is given"):
        LiveDataSource(new_table({"endpoint": "a:1"})).schema()
    with pytest.raises(OptionError, match="endpoint is missing"):
        LiveDataSource(new_table({"topic": "t"})).schema()


def test_a_table_serves_every_use_with_the_options_of_that_use() -> None:
    given = A | {"maxOffsetsPerTrigger": "5", "batchMessages": "7", "endingOffsets": "latest"}
    schema = as_read(LiveDataSource(new_table(given)).schema())
    assert LiveDataSource({}).reader(schema) is not None
    limit: Any = LiveDataSource({}).streamReader(schema).getDefaultReadLimit()
    assert limit.max_rows == 5


@pytest.mark.parametrize("form", ["reader", "writer", "streamWriter"])
def test_without_any_options_it_is_said_why(form: str) -> None:
    arguments = (PLAIN,) if form == "reader" else (PLAIN, False)
    with pytest.raises(OptionError, match="created without a list of columns"):
        getattr(LiveDataSource({}), form)(*arguments)


def test_files_are_not_written() -> None:
    with pytest.raises(OptionError, match="only reads"):
        SegmentDataSource({"path": "/s"}).writer(PLAIN, overwrite=False)


@pytest.fixture
def tables(spark: "SparkSession") -> Iterator[tuple[str, str]]:
    """Names of two tables, which are dropped."""
    names = (f"t{uuid.uuid4().hex}", f"t{uuid.uuid4().hex}")
    yield names
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def bodies(spark: "SparkSession", table: str) -> list[str]:
    return sorted(
        row[0] for row in spark.sql(f"SELECT CAST(body AS STRING) FROM {table}").collect()
    )


@pytest.mark.spark
def test_topics_as_tables(
    spark: "SparkSession",
    cluster: Running,
    topics: tuple[str, str],
    tables: tuple[str, str],
    tmp_path: Path,
) -> None:
    with Producer(cluster.endpoints) as producer:
        producer.send_many(topics[0], [b"a", b"b", b"c"], keys=["k1", "k2", "k3"])
    source, target = tables
    for table, topic in zip(tables, topics, strict=True):
        spark.sql(
            f"CREATE TABLE {table} USING tandemlog OPTIONS (`kafka.bootstrap.servers` "
            f"'{cluster.master.endpoint}', topic '{topic}', columns 'body,keys', "
            "maxOffsetsPerTrigger '2')"
        )
    assert bodies(spark, source) == ["a", "b", "c"]
    assert bodies(spark, f"{source} WITH (maxRecordsPerPartition = '1')") == ["a", "b", "c"]
    # Rows that fit the target as they are, by name or by place, and rows that do not.
    spark.sql(f"INSERT INTO {target} SELECT * FROM {source} WHERE keys < 'k3'")
    spark.sql(f"INSERT INTO {target} VALUES (X'64', 'k4')")
    spark.sql(f"INSERT INTO {target} (body) SELECT CAST('e' AS BINARY) AS body")
    spark.sql(f"INSERT INTO {target} SELECT X'66' AS body, 'k6' AS keys")
    assert bodies(spark, target) == ["a", "b", "d", "e", "f"]
    assert bodies(spark, source) == ["a", "b", "c"]
    # Rows of a table, with columns of their own: they say not where they go.
    for keys in ("upper(keys) AS keys", "CAST(keys AS STRING) AS keys", "coalesce(keys, 'x') keys"):
        changed = spark.table(source).selectExpr("body", keys)
        with pytest.raises(PySparkException, match="where they go is not known"):
            changed.write.format("tandemlog").mode("append").save()
        spark.sql(f"INSERT INTO {target} SELECT body, {keys} FROM {source} WHERE keys = 'k1'")
    assert bodies(spark, source) == ["a", "b", "c"]
    assert bodies(spark, target) == ["a", "a", "a", "a", "b", "d", "e", "f"]
    for words, work in (
        ("takes no rows of itself", f"INSERT INTO {target} SELECT * FROM {target}"),
        ("cannot be overwritten", f"INSERT OVERWRITE {target} VALUES (X'64', 'k4')"),
    ):
        with pytest.raises(PySparkException, match=words):
            spark.sql(work)
    stream = (
        spark.readStream.option("startingOffsets", "earliest")
        .table(source)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    assert [each.numInputRows for each in stream.recentProgress if each.numInputRows] == [2, 1]
    spark.sql(f"DROP TABLE {source}")
    assert spark.read.format("tandemlog").options(
        endpoint=cluster.master.endpoint, topic=topics[0]
    ).load().count() == 3  # fmt: skip


@pytest.mark.spark
def test_files_as_tables(spark: "SparkSession", tables: tuple[str, str], tmp_path: Path) -> None:
    log = varied(LogBuilder(tmp_path / "a store", 16384), 90)
    log.write()
    spark.sql(f"CREATE TABLE {tables[0]} USING tandemlog_segments LOCATION '{log.store}'")
    spark.sql(
        f"CREATE TABLE {tables[1]} USING tandemlog_segments OPTIONS (dir '{log.store}', "
        "view 'audit')"
    )
    [row] = spark.sql(f"SELECT count(*) FROM {tables[0]} WHERE topic IS NOT NULL").collect()
    assert row[0] == len(log.records)
    [row] = spark.sql(f"SELECT sum(records) FROM {tables[1]}").collect()
    assert row[0] == len(log.records)
    for table in tables:
        spark.sql(f"DROP TABLE {table}")
    assert (log.store / "commitlog").is_dir()
