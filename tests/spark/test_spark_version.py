"""Which PySpark will do for which part; what an older one lacks is refused by name."""

import importlib
import sys
from importlib import metadata

import pyspark.sql.datasource
import pytest

from tandemlog.logs.job_errors import OptionError, PipelineError
from tandemlog.spark.live.live_source import LiveDataSource
from tandemlog.spark.session import spark_session
from tandemlog.spark.spark_version import part_fault, version_fault


def installed(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)


@pytest.mark.parametrize("version", ["4.0.0", "4.1.3", "4.2.1", "4.3.0", "4.3.0rc1"])
def test_versions_that_will_do(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, version)
    assert version_fault() is None


@pytest.mark.parametrize("version", ["3.5.9", "4.4.0", "4.30.0", "5.0.0", "unknown"])
def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, version)
    assert version_fault() == f"PySpark 4.0 to 4.3 is needed, {version} is installed"
    with pytest.raises(PipelineError, match=rf"4\.3 is needed, {version}"):
        spark_session("test")


def test_no_spark_at_all_is_for_others_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert version_fault() is None
    assert part_fault("a part", (4, 3)) is None


GIVEN = {"endpoint": "127.0.0.1:1", "topic": "t"}


def test_a_stream_is_read_since_4_2(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "4.1.2")
    source = LiveDataSource(GIVEN)
    reader = source.streamReader(source.schema())
    with pytest.raises(
        PipelineError, match=r"reading a stream needs PySpark 4\.2 or newer, 4\.1\.2"
    ):
        reader.initialOffset()


def test_a_stream_is_written_since_4_1(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "4.0.5")
    source = LiveDataSource(GIVEN | {"deliveryGuarantee": "at_least_once"})
    with pytest.raises(
        PipelineError, match=r"writing a stream needs PySpark 4\.1 or newer, 4\.0\.5"
    ):
        source.streamWriter(source.schema(), overwrite=False)


@pytest.mark.parametrize("form", ["writer", "streamWriter"])
def test_exactly_once_since_4_3(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    installed(monkeypatch, "4.2.1")
    source = LiveDataSource(GIVEN)
    said = r"exactly_once needs PySpark 4\.3 or newer, 4\.2\.1 is installed; .*=at_least_once"
    with pytest.raises(OptionError, match=said):
        getattr(source, form)(source.schema(), overwrite=False)


def without_newer_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in PySpark 4.0: no limits of a stream, and no writer of Arrow batches for one."""
    parts = ("newer_spark", "live.live_source", "live.live_stream", "sink.writer")
    for name in ("pyspark_tandemlog", *(f"tandemlog.spark.{each}" for each in parts)):
        # imported first, so that the module as it should be comes back after the test
        importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delattr(pyspark.sql.datasource, "DataSourceStreamArrowWriter")


def test_the_format_is_there_on_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "4.0.0")
    without_newer_interfaces(monkeypatch)
    source = importlib.import_module("pyspark_tandemlog").DefaultSource(GIVEN)
    assert "body" in source.schema().fieldNames()
    assert source.reader(source.schema()) is not None
    with pytest.raises(PipelineError, match=r"needs PySpark 4\.2"):
        source.streamReader(source.schema()).latestOffset()


def test_the_format_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "5.0.0")
    without_newer_interfaces(monkeypatch)
    monkeypatch.setitem(sys.modules, "tandemlog.spark.live.live_source", None)
    found = importlib.import_module("pyspark_tandemlog").DefaultSource
    with pytest.raises(ImportError, match=r"PySpark 4\.0 to 4\.3 is needed, 5\.0\.0 is installed"):
        found({}).schema()
