"""Python workers import an installed PySpark, not its archive, and collect no garbage among it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tandemlog.spark.executors import run_tasks
from tandemlog.spark.python_daemon import without_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = "/venv/site-packages/pyspark/python/lib/pyspark.zip"


def test_the_archive_of_an_installed_pyspark_goes() -> None:
    path = [ARCHIVE, "/venv/lib/py4j.zip", "", "/venv/site-packages"]
    assert without_archive(path) == path[1:]


def test_a_link_on_the_way_to_it_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    path = [f"{tmp_path}/real/pyspark/python/lib/pyspark.zip", f"{tmp_path}/link"]
    assert without_archive(path) == path[1:]


def test_an_archive_of_its_own_stays() -> None:
    path = [ARCHIVE, "/elsewhere/site-packages"]
    assert without_archive(path) == path


@pytest.mark.spark
def test_workers_have_it_compiled(spark: "SparkSession") -> None:
    [place] = run_tasks(spark, eval, ["__import__('pyspark').__file__"])
    assert "pyspark.zip" not in place


@pytest.mark.spark
def test_workers_keep_their_modules_out_of_collections(spark: "SparkSession") -> None:
    looked_at = "any(each is sys.modules[name].__dict__ for each in gc.get_objects())"
    names = "('numpy', 'pyarrow', 'pyspark.worker', 'tandemlog.spark.segments.source')"
    [found] = run_tasks(
        spark,
        eval,
        [f"(lambda gc, sys: [{looked_at} for name in {names}])"
         "(__import__('gc'), __import__('sys'))"],
    )  # fmt: skip
    assert found == [False] * 4
