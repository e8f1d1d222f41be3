"""An archive inside a real Spark: the rows of its log, in parallel, and not more than is asked."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.built_archives import archive_log, put_manifest, put_segments
from fakes.log_builder import LogBuilder, varied
from tandemlog.archive.folder_store import FolderStore
from tandemlog.logs.executors import InProcess
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
FILE = 16384


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogBuilder:
    builder = varied(LogBuilder(tmp_path_factory.mktemp("spark-archive") / "store", FILE), 90)
    builder.write()
    return builder


@pytest.fixture(scope="module")
def archive(log: LogBuilder) -> Path:
    folder = log.store.with_name("archive")
    archive_log(FolderStore(folder), log, 2500)
    return folder


def read(spark: "SparkSession", place: str, **options: str) -> "DataFrame":
    reader = spark.read.format("tandemlog_segments")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(place)


def test_the_rows_are_those_of_the_files(
    spark: "SparkSession", log: LogBuilder, archive: Path
) -> None:
    frame = read(spark, archive.as_uri(), targetBytes="6000")
    assert frame.rdd.getNumPartitions() > 4
    rows = frame.orderBy("physical_offset").collect()
    assert [row["physical_offset"] for row in rows] == [e.physical_offset for e in log.records]
    for row, record in zip(rows, log.records, strict=True):
        assert (row["topic"], row["queue_offset"]) == (record.topic, record.queue_offset)
        assert bytes(row["body"]) == record.body
        assert row["properties"] == record.properties


def test_topics_and_times_are_pushed_down(
    spark: "SparkSession", log: LogBuilder, archive: Path
) -> None:
    since, before = log.records[30].store_timestamp, log.records[60].store_timestamp
    frame = read(
        spark,
        str(archive),
        topic="Orders,six",
        startingTimestamp=str(since),
        endingTimestamp=str(before),
        targetBytes="3000",
    )
    expected = [
        each.physical_offset for each in log.records[30:60] if each.topic in ("Orders", "six")
    ]
    assert sorted(row["physical_offset"] for row in frame.collect()) == expected
    every = read(spark, str(archive), targetBytes="3000")
    assert frame.rdd.getNumPartitions() < every.rdd.getNumPartitions()


def test_options_of_the_object_store_reach_the_tasks(
    spark: "SparkSession", log: LogBuilder, archive: Path
) -> None:
    """fsspec's `dir://` is a folder of another file system: an archive there needs its options."""
    options = f'{{"fo": {{"protocol": "file"}}, "path": "{archive.parent}"}}'
    frame = read(spark, "dir://archive", storageOptions=options, columns="physical_offset")
    assert frame.count() == len(log.records)


def test_damage_names_the_object(spark: "SparkSession", log: LogBuilder, tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "archive")
    entries = put_segments(store, log, 2500)
    put_manifest(store, log, entries)
    path = tmp_path / "archive" / entries[2].name.log_key
    path.write_bytes(b"\1" * entries[2].name.size)
    with pytest.raises(Exception, match=entries[2].name.log_key):
        read(spark, str(tmp_path / "archive")).collect()
    rest = read(spark, str(tmp_path / "archive"), fromOffset=str(entries[2].end)).count()
    assert rest == sum(each.physical_offset >= entries[2].end for each in log.records)


def test_jobs_take_an_archive_too(spark: "SparkSession", log: LogBuilder, archive: Path) -> None:
    for executor in (InProcess(), spark):
        found = audit(executor, str(archive), target_bytes=6000)
        assert found.holds
        assert found.summary["records"] == len(log.records)
    options = RebuildOptions(index_slots=20, index_entries=100, target_bytes=6000)
    built = [
        rebuild(InProcess(), str(place), archive.with_name(f"built-{name}"), options).summary
        for name, place in (("archive", archive), ("store", log.store))
    ]
    same = ("records", "queues", "units", "index_entries")
    assert [built[0][name] for name in same] == [built[1][name] for name in same]
