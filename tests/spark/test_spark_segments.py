"""The data source inside a real Spark: found by its name, right in every view, clear in errors."""

import filecmp
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fakes.log_builder import LogBuilder, flip, varied
from tandemlog.logs.executors import InProcess, run_tasks
from tandemlog.logs.job_errors import TaskFailedError
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.logs.reading.window_dispatch import INDEX_ITEM
from tandemlog.logs.view_columns import MESSAGES, VIEWS, arrow_schema
from tandemlog.spark.spark_schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogBuilder:
    builder = varied(LogBuilder(tmp_path_factory.mktemp("spark") / "store", 16384), 90)
    builder.write()
    return builder


def read(spark: "SparkSession", log: LogBuilder, **options: str) -> "DataFrame":
    reader = spark.read.format("tandemlog_segments")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(log.store))


def test_the_format_is_found_by_its_name(spark: "SparkSession", log: LogBuilder) -> None:
    rows = read(spark, log, targetBytes="6000").orderBy("physical_offset").collect()
    assert len(rows) == len(log.records)
    for row, record in zip(rows, log.records, strict=True):
        assert row["topic"] == record.topic
        assert row["queue_offset"] == record.queue_offset
        assert row["msg_id"] == record.msg_id
        assert row["properties"] == record.properties
        assert bytes(row["body"]) == record.body
        assert row["born_host"] == record.born_host


def test_sql_and_columns(spark: "SparkSession", log: LogBuilder) -> None:
    frame = read(spark, log, columns="topic,size")
    assert frame.columns == ["topic", "size"]
    frame.createOrReplaceTempView("messages")
    counts = dict(
        map(tuple, spark.sql("SELECT topic, count(*) FROM messages GROUP BY topic").collect())
    )
    expected = {each.topic: 0 for each in log.records}
    for record in log.records:
        expected[record.topic] += 1
    assert counts == expected


def test_a_schema_of_the_users_own(spark: "SparkSession", log: LogBuilder) -> None:
    reader = spark.read.format("tandemlog_segments").schema("body binary, queue_id int")
    rows = reader.load(str(log.store)).collect()
    assert sorted(bytes(row["body"]) for row in rows) == sorted(each.body for each in log.records)


def test_offsets_choose_records(spark: "SparkSession", log: LogBuilder) -> None:
    first, last = log.records[20].physical_offset, log.records[50].physical_offset
    frame = read(spark, log, fromOffset=str(first), toOffset=str(last), targetBytes="1500")
    found = sorted(row["physical_offset"] for row in frame.select("physical_offset").collect())
    assert found == [each.physical_offset for each in log.records[20:50]]


def test_the_other_views(spark: "SparkSession", log: LogBuilder) -> None:
    raw = read(spark, log, view="raw").orderBy("physical_offset").collect()
    assert [bytes(row["record"])[:4] for row in raw] == [r.size.to_bytes(4) for r in log.records]
    entries = read(spark, log, view="entries").collect()
    dispatched = [each for each in log.records if each.sys_flag & 0xC in (0, 8)]
    assert sum(row["count"] for row in entries) == len(dispatched)
    assert all(len(row["units"]) == 20 * row["count"] for row in entries)
    index = read(spark, log, view="index").collect()
    items = np.frombuffer(b"".join(bytes(row["entries"]) for row in index), INDEX_ITEM)
    assert len(items) == sum(row["count"] for row in index) > len(log.records)
    found = read(spark, log, view="audit").collect()
    assert sum(row["records"] for row in found) == len(log.records)
    assert {row["damages"] for row in found} == {0}
    blocks = read(spark, log, view="blocks", blockBytes="4096").collect()
    assert {row["physical_offset"] % 4096 for row in blocks} == {0}


def test_schemas_are_those_that_spark_makes_of_them() -> None:
    types = pytest.importorskip("pyspark.sql.pandas.types")
    for columns in VIEWS.values():
        made = types.to_arrow_schema(spark_schema(columns), timezone="UTC")
        assert made.names == arrow_schema(columns).names
        assert made.types == arrow_schema(columns).types


def test_damage_fails_is_skipped_or_is_reported(spark: "SparkSession", tmp_path: Path) -> None:
    log = varied(LogBuilder(tmp_path / "store", 16384))
    log.write()
    bad = next(each for each in log.records[30:] if len(each.body) > 20)
    flip(log, bad.physical_offset + 100)
    with pytest.raises(Exception, match=f"message {bad.queue_offset} of {bad.topic}"):
        read(spark, log).collect()
    assert read(spark, log, onCorruption="skip").count() == len(log.records) - 1
    (row,) = read(spark, log, onCorruption="report").where("fault IS NOT NULL").collect()
    assert row["physical_offset"] == bad.physical_offset
    assert str(log.path(bad.physical_offset)) in row["fault"]
    assert read(spark, log, verifyCrc="false").count() == len(log.records)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "rows"}, "must be messages or raw or entries or index or audit or blocks"),
        ({"viev": "raw"}, "unknown option"),
        ({"columns": "topic,nothing"}, "no column 'nothing'"),
        ({"fromOffset": "999999999"}, "behind the log's end"),
    ],
)
def test_bad_options_are_refused_by_the_driver(
    spark: "SparkSession", log: LogBuilder, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, log, **options).collect()


def test_a_missing_store_is_refused_by_the_driver(spark: "SparkSession", tmp_path: Path) -> None:
    reader = spark.read.format("tandemlog_segments")
    with pytest.raises(Exception, match="is not a folder"):
        reader.load(str(tmp_path / "none")).collect()


def test_an_empty_log_has_no_rows(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    frame = spark.read.format("tandemlog_segments").load(str(tmp_path))
    assert frame.count() == 0
    assert frame.columns == list(MESSAGES)


def test_jobs_do_the_same_as_without_spark(
    spark: "SparkSession", log: LogBuilder, tmp_path: Path
) -> None:
    options = RebuildOptions(
        index_slots=20, index_entries=100, queue_file_size=200, target_bytes=6000
    )
    steps: list[tuple[str, int, int]] = []
    made = rebuild(
        spark, log.store, tmp_path / "spark", options,
        progress=lambda what, done, total: steps.append((what, done, total)),
    )  # fmt: skip
    alone = rebuild(InProcess(2), log.store, tmp_path / "alone", options)
    assert made.summary["records"] == alone.summary["records"] == len(log.records)
    names = [str(path.relative_to(tmp_path / "alone")) for path in (tmp_path / "alone").rglob("*")
             if path.is_file()]  # fmt: skip
    _, different, missing = filecmp.cmpfiles(
        tmp_path / "alone", tmp_path / "spark", names, shallow=False
    )
    assert (different, missing) == ([], [])
    assert steps[-1][1] == steps[-1][2] > 0
    assert audit(spark, log.store, target_bytes=6000).holds


def test_what_a_task_raises_comes_back_in_words(spark: "SparkSession") -> None:
    assert run_tasks(spark, abs, [-1, 2, -3]) == [1, 2, 3]
    with pytest.raises(TaskFailedError, match="ValueError: invalid literal"):
        run_tasks(spark, int, ["1", "x"])
