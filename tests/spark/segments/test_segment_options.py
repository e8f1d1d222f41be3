"""Options are read once; what cannot be is one clear error."""

import pickle
from pathlib import Path

import pytest

from fakes.built_archives import archive_log
from fakes.log_builder import LogBuilder, varied
from tandemlog.archive.open_store import open_object_store
from tandemlog.logs.job_errors import OnCorruption, OptionError, StoreMissingError
from tandemlog.logs.reading import log_spans
from tandemlog.logs.reading.log_source import open_store
from tandemlog.logs.reading.selection import Selection
from tandemlog.spark.segments.segment_options import View, parse_segment_options
from tandemlog.spark.segments.segment_source import SegmentReader


def test_the_defaults() -> None:
    options = parse_segment_options({"path": "/data"})
    assert (options.view, options.on_corruption) == (View.MESSAGES, OnCorruption.FAIL)
    assert options.verify_crc
    assert options.target_bytes == 256 << 20


def test_every_option_is_understood() -> None:
    options = parse_segment_options(
        {
            "endpoint": "h:1", "view": "RAW", "columns": "size, record", "targetbytes": "64m",
            "fromoffset": "10", "tooffset": "1k", "oncorruption": "report", "verifycrc": "False",
            "indextags": "false", "blockbytes": "4096", "fetchtimeoutms": "5",
        }
    )  # fmt: skip
    assert options.endpoint == "h:1"
    assert options.view is View.RAW
    assert options.columns == ("size", "record")
    assert options.target_bytes == 64 << 20
    assert (options.from_offset, options.to_offset) == (10, 1024)
    assert options.on_corruption is OnCorruption.REPORT
    assert not options.verify_crc
    assert not options.index_tags


def test_dir_stands_for_path() -> None:
    assert parse_segment_options({"dir": "/data"}).path == "/data"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "either path"),
        ({"path": "a", "endpoint": "b"}, "either path"),
        ({"path": "a", "viev": "raw"}, "unknown option 'viev'"),
        ({"path": "a", "view": "rows"}, "option view.*messages or raw"),
        ({"path": "a", "targetBytes": "many"}, "option targetBytes"),
        ({"path": "a", "targetBytes": "0"}, "option targetBytes.*between 1 and"),
        ({"path": "a", "fromOffset": "-1"}, "option fromOffset"),
        ({"path": "a", "fromOffset": "9", "toOffset": "8"}, "below fromOffset"),
        ({"path": "a", "verifyCrc": "yes"}, "option verifyCrc.*true or false"),
        ({"path": "a", "onCorruption": "ignore"}, "fail or skip or report"),
    ],
)
def test_bad_options_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_segment_options(given)


def test_how_the_node_lets_the_job_in() -> None:
    given = {"endpoint": "h:1", "caFile": "/ca", "TOKEN": "tl_secret"}
    options = parse_segment_options(given)
    assert dict(options.connecting) == {"ca_file": "/ca", "token": "tl_secret"}
    assert "tl_secret" not in repr(options)
    assert parse_segment_options({"cluster": "prod"}).endpoint == ""


def test_a_url_is_that_of_an_archive() -> None:
    with pytest.raises(StoreMissingError, match="memory://bucket/store has no manifest"):
        open_store("memory://bucket/store")
    with pytest.raises(OptionError, match=r"nope://.*Protocol not known"):
        open_store("nope://a/x")


def test_what_of_a_log_is_chosen() -> None:
    given = {"path": "a", "topic": "Orders, b", "startingTimestamp": "5", "endingTimestamp": "9"}
    assert parse_segment_options(given).selection == Selection(("Orders", "b"), 5, 9)
    for view in ("blocks", "audit"):
        with pytest.raises(OptionError, match=f"the view {view} is of all bytes"):
            parse_segment_options(given | {"view": view})


def test_options_of_the_object_store_are_secrets() -> None:
    options = parse_segment_options({"path": "s3://b/a", "storageOptions": '{"secret": "sesame"}'})
    assert options.storage == {"secret": "sesame"}
    assert "sesame" not in repr(options)
    for text in ('{"secret": "sesame"', '["sesame"]'):
        with pytest.raises(OptionError, match="storageOptions: must be a JSON object") as caught:
            parse_segment_options({"path": "a", "storageOptions": text})
        assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("path", ["memory://planned", "folder"])
def test_an_archive_is_planned_and_read(tmp_path: Path, path: str) -> None:
    """The same rows as of the files, in each view; without an object whose times are not asked."""
    place = path if path.startswith("memory") else str(tmp_path / path)
    builder = varied(LogBuilder(tmp_path / "store", 16384))
    builder.write()
    archive_log(open_object_store(place), builder, 2000)
    times = builder.records[40].store_timestamp, builder.records[50].store_timestamp
    chosen = {
        "startingTimestamp": str(times[0]),
        "endingTimestamp": str(times[1]),
        "targetBytes": "1500",
    }
    for view in ("messages", "raw", "entries", "index", "blocks"):
        rows = [
            [
                row
                for partition in reader.partitions()
                for batch in reader.read(partition)
                for row in batch.to_pylist()
            ]
            for where in (place, str(builder.store))
            for reader in (SegmentReader(parse_segment_options({"path": where, "view": view})),)
        ]
        assert rows[0]
        if view in ("messages", "raw"):
            assert rows[0] == rows[1]
        if view == "blocks":  # the last file has zeros behind the log's end, an archive has not
            assert rows[0][:-1] == rows[1][:-1]
    reader = SegmentReader(parse_segment_options({"path": place} | chosen))
    all_of_it = SegmentReader(parse_segment_options({"path": place, "targetBytes": "1500"}))
    partitions = reader.partitions()
    assert 0 < len(partitions) < len(all_of_it.partitions()) / 2
    pickled = pickle.loads(pickle.dumps(reader))
    batches = [each for partition in partitions for each in pickled.read(partition)]
    found = [row["physical_offset"] for batch in batches for row in batch.to_pylist()]
    assert found == [each.physical_offset for each in builder.records[40:50]]


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path / "a store", 16384))
    builder.write()
    assert open_store(builder.store.as_uri()).files == open_store(builder.store).files


def test_so_many_partitions_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = varied(LogBuilder(tmp_path / "store", 16384))
    builder.write()
    monkeypatch.setattr(log_spans, "LEAST_BYTES", 1_000)
    given = {"path": str(builder.store)}
    for count in (1, 3, 7):
        options = parse_segment_options(given | {"minPartitions": str(count)})
        assert len(SegmentReader(options).partitions()) == count


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("subscribe", "filter by the column topic"),
        ("startingOffsets", "fromOffset and toOffset are positions in the log"),
        ("maxOffsetsPerTrigger", "format tandemlog has streams"),
        ("failOnDataLoss", "onCorruption"),
        ("includeHeaders", "the column properties"),
        ("kafka.group.id", "groupId"),
    ],
)
def test_names_of_kafka_and_of_live_topics_are_answered(name: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_segment_options({"path": "/data", name: "1"})


def test_kafkas_name_of_the_endpoint() -> None:
    assert parse_segment_options({"kafka.bootstrap.servers": "a:1"}).endpoint == "a:1"
    with pytest.raises(OptionError, match="given twice"):
        parse_segment_options({"kafka.bootstrap.servers": "a:1", "endpoint": "a:1"})
