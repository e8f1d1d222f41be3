import importlib
import sys
from importlib import metadata

import pytest

from tandemlog.spark.errors import PipelineError
from tandemlog.spark.session import spark_session
from tandemlog.spark.spark_version import version_fault


def installed(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)


@pytest.mark.parametrize("version", ["4.3.0", "4.3.7"])
def test_the_version_that_is_needed(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, version)
    assert version_fault() is None


@pytest.mark.parametrize("version", ["4.1.0", "4.30.0", "5.0.0"])
def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, version)
    assert version_fault() == f"PySpark 4.3 is needed, {version} is installed"
    with pytest.raises(PipelineError, match=f"4.3 is needed, {version}"):
        spark_session("test")


def test_no_spark_at_all_is_for_others_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert version_fault() is None


def test_the_format_says_which_spark_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in PySpark 4.1, which has no such module."""
    installed(monkeypatch, "4.1.0")
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    for name in ("source", "stream", "refused"):
        monkeypatch.delitem(sys.modules, f"tandemlog.spark.live.{name}", raising=False)
    monkeypatch.delitem(sys.modules, "pyspark_tandemlog", raising=False)
    found = importlib.import_module("pyspark_tandemlog").DefaultSource
    with pytest.raises(ImportError, match=r"PySpark 4\.3 is needed, 4\.1\.0 is installed"):
        found({}).schema()
    monkeypatch.delitem(sys.modules, "pyspark_tandemlog")
