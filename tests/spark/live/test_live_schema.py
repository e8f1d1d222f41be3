import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tandemlog.logs.job_errors import OptionError
from tandemlog.logs.view_columns import MESSAGES, arrow_schema
from tandemlog.spark.cluster.cluster_errors import SinkSchemaError
from tandemlog.spark.live.live_schema import LIVE, check_sink_schema, columns_of, live_columns
from tandemlog.spark.spark_schema import spark_schema


def rows(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_columns_are_those_of_segments_without_what_only_files_know() -> None:
    assert set(LIVE) < set(MESSAGES)
    assert {"body", "topic", "queue_id", "queue_offset", "properties"} < set(LIVE)
    assert "size" not in LIVE


def test_arrow_carries_what_spark_expects() -> None:
    assert arrow_schema(LIVE) == to_arrow_schema(spark_schema(LIVE), timezone="UTC")


def test_chosen_columns_keep_their_order() -> None:
    assert list(live_columns(("tags", "body"))) == ["tags", "body"]
    with pytest.raises(OptionError, match="size"):
        live_columns(("body", "size"))


def test_a_users_own_schema() -> None:
    assert list(columns_of(rows(body=BinaryType(), queue_id=IntegerType()))) == ["body", "queue_id"]
    with pytest.raises(OptionError, match="column body is binary, not string"):
        columns_of(rows(body=StringType()))


@pytest.mark.parametrize(
    "schema",
    [
        rows(body=BinaryType()),
        rows(body=StringType(), queue_id=LongType(), keys=StringType()),
        rows(body=StringType(), properties=MapType(StringType(), StringType())),
        spark_schema(LIVE),
        spark_schema(MESSAGES),
    ],
)
def test_rows_that_are_messages(schema: StructType) -> None:
    check_sink_schema(schema, "t")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (rows(id=LongType()), "column id is not one that the sink writes"),
        (rows(tags=StringType()), "no column body"),
        (rows(value=StringType()), "value is here body"),
        (rows(body=StringType(), key=StringType()), "key is here sharding_key"),
        (rows(body=DoubleType()), "column body must be binary or string, not double"),
        (rows(body=StringType(), queue_id=StringType()), "column queue_id must be int"),
        (
            rows(body=StringType(), properties=MapType(StringType(), LongType())),
            "column properties must be map<string,string>",
        ),
    ],
)
def test_rows_that_are_none(schema: StructType, words: str) -> None:
    with pytest.raises(SinkSchemaError, match=words):
        check_sink_schema(schema, "t")


def test_a_topic_has_to_come_from_somewhere() -> None:
    with pytest.raises(SinkSchemaError, match="no topic"):
        check_sink_schema(rows(body=StringType()), None)
    check_sink_schema(rows(body=StringType(), topic=StringType()), None)
