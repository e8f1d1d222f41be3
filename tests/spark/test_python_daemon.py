"""Python workers import an installed PySpark, not its archive, and collect no garbage among it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tandemlog.logs.executors import run_tasks
from tandemlog.spark.python_daemon import quiet, without_archive

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


def child(work: Callable[[], int]) -> tuple[int, str]:
    """The exit code of a forked process, and what it said on stderr."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 2)
        os._exit(work())
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


NO_SOCKET: Any = None


def test_a_worker_on_which_spark_hangs_up_ends_without_a_word() -> None:
    def writes(_: object, __: bool) -> int:
        reading, writing = os.pipe()
        stream = os.fdopen(writing, "wb", 65_536)
        stream.write(b"rows")  # stays in the buffer: to close the stream would fail again
        os.close(reading)
        stream.flush()
        return 0

    assert child(lambda: quiet(writes)(NO_SOCKET, True)) == (1, "")


def test_other_errors_of_a_worker_are_passed_on() -> None:
    def fails(_: object, __: bool) -> int:
        raise ConnectionRefusedError("no route")

    with pytest.raises(ConnectionRefusedError, match="no route"):
        quiet(fails)(NO_SOCKET, True)
    assert quiet(lambda _, __: 7)(NO_SOCKET, True) == 7


@pytest.mark.spark
def test_workers_have_it_compiled(spark: "SparkSession") -> None:
    [place] = run_tasks(spark, eval, ["__import__('pyspark').__file__"])
    assert "pyspark.zip" not in place


@pytest.mark.spark
def test_workers_keep_their_modules_out_of_collections(spark: "SparkSession") -> None:
    looked_at = "any(each is sys.modules[name].__dict__ for each in gc.get_objects())"
    names = "('numpy', 'pyarrow', 'pyspark.worker', 'tandemlog.spark.segments.segment_source')"
    [found] = run_tasks(
        spark,
        eval,
        [f"(lambda gc, sys: [{looked_at} for name in {names}])"
         "(__import__('gc'), __import__('sys'))"],
    )  # fmt: skip
    assert found == [False] * 4
