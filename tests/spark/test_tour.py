"""The demo: a cluster, live topics, a stream, and the jobs on what they left behind."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tandemlog.logs.executors import InProcess
from tandemlog.logs.job_errors import OptionError, TourError
from tandemlog.spark import tour

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2_000


@pytest.mark.spark
def test_the_whole_tour(spark: "SparkSession", tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    result = tour.run(spark, tmp_path / "demo", rows=ROWS, progress=lambda *step: said.append(step))
    assert result.holds, result.findings
    steps = {row["step"]: row for row in result.rows}
    assert len(said) == len(steps) == result.summary["steps"]
    assert steps["write a topic"]["rows"] == steps["read it"]["rows"] == ROWS
    assert steps["copy it by a stream"]["outcome"].startswith("4 batches")
    # The batch that ran again is stored once.
    assert steps["the last batch again"]["outcome"] == f"1 batches, {ROWS} in the copy"
    assert steps["audit the master's log"]["rows"] == 2 * ROWS
    assert steps["restore from it"]["outcome"] == "equal to the master's log"
    counted = pq.read_table(tmp_path / "demo" / "stats" / "stats.parquet").to_pylist()
    assert sum(row["records"] for row in counted) == 2 * ROWS
    assert (tmp_path / "demo" / "stats" / "stats.png").read_bytes().startswith(b"\x89PNG")


def test_it_wants_spark_and_a_folder_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="Spark"):
        tour.run(InProcess(), tmp_path / "demo")
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="not empty"):
        tour.run(None, tmp_path)  # type: ignore[arg-type]


def test_a_cluster_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(TourError, match="the cluster ended with exit code 1:"):
        tour.run(None, tmp_path / "demo")  # type: ignore[arg-type]
    monkeypatch.setattr(tour, "_START_S", 0)
    with pytest.raises(TourError, match="did not start within 0 s"):
        tour.run(None, tmp_path / "late")  # type: ignore[arg-type]
