"""The same job on every kind of Spark: in this process, on a cluster of processes, over Connect."""

import filecmp
import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fakes.log_builder import LogBuilder, varied
from fakes.spark_program import SparkProgram
from helpers.running import Running
from tandemlog import Producer
from tandemlog.logs.executors import InProcess
from tandemlog.logs.reading.queue_ends import CONSUME_QUEUE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = 500


@dataclass
class Job:
    """What goes in, and what must come out."""

    arguments: list[str]
    log: LogBuilder
    folder: Path

    def check(self, answer: dict[str, Any]) -> None:
        assert answer["records"] == len(self.log.records)
        assert sum(answer["batches"]) == ROWS
        assert len(answer["batches"]) > 1
        left = [ROWS - sum(answer["batches"][: number + 1]) for number in range(3)]
        assert answer["lags"] == left
        assert answer["copied"] == sorted(f"row {number}" for number in range(ROWS))
        self._check_files()

    def _check_files(self) -> None:
        """The queues and the index are those that are made without Spark."""
        from fakes.spark_job import SIZES
        from tandemlog.logs.jobs.rebuild import rebuild

        alone = self.folder / "alone"
        rebuild(InProcess(2), self.log.store, alone, SIZES)
        for folder in (CONSUME_QUEUE, "index"):
            files = [path for path in (alone / folder).rglob("*") if path.is_file()]
            names = [str(path.relative_to(alone)) for path in files]
            _, different, missing = filecmp.cmpfiles(
                alone, self.folder / "out", names, shallow=False
            )
            assert names
            assert (different, missing) == ([], [])


@pytest.fixture
def job(cluster: Running, topics: tuple[str, str], tmp_path: Path) -> Job:
    log = varied(LogBuilder(tmp_path / "store", 16384), 90)
    with Producer(cluster.endpoints) as producer:
        producer.send_many(
            topics[0],
            [b"row %d" % number for number in range(ROWS)],
            queues=[number % 4 for number in range(ROWS)],
        )
    names = [str(tmp_path / "out"), ",".join(cluster.endpoints), *topics]
    return Job([str(log.write()), *names, str(tmp_path / "checkpoint")], log, tmp_path)


def run(master: str, job: Job, settings: dict[str, str] | None = None) -> dict[str, Any]:
    """The job as a program of its own."""
    given = [f"{name}={value}" for name, value in (settings or {}).items()]
    arguments = [master, *job.arguments, *given]
    program = SparkProgram("fakes.spark_job", arguments, job.folder / "driver.log")
    try:
        output = program.finish()
    finally:
        program.kill()
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def test_in_this_process(spark: "SparkSession", job: Job) -> None:
    from fakes.spark_job import run_job

    job.check(run_job(spark, job.arguments))


@pytest.mark.lane("programs")
def test_on_a_standalone_cluster(job: Job) -> None:
    from fakes.spark_cluster import DRIVER, spark_cluster

    with spark_cluster(job.folder) as master:
        answer = run(master, job, DRIVER)
    job.check(answer)
    assert answer["workers"] == ["worker0", "worker1"]


def test_over_connect(spark: "SparkSession", connect_port: int, job: Job) -> None:
    for module in ("pandas", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(module, reason="Spark's Connect client is not installed")
    job.check(run(f"sc://127.0.0.1:{connect_port}", job))


def test_beside_a_package_of_the_users_own_called_pipeline(
    cluster: Running, topics: tuple[str, str], tmp_path: Path
) -> None:
    """It stands before ours on the module path, in the driver and in every worker."""
    with Producer(cluster.endpoints) as producer:
        producer.send_many(topics[0], [b"b", b"a"])
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "__init__.py").write_text("OWNER = 'user'\n")
    (tmp_path / "users_job.py").write_text(
        textwrap.dedent(
            """
            import json
            import sys

            from pipeline import OWNER

            from tandemlog.spark.session import Profile, spark_session

            endpoint, topic = sys.argv[1:]
            spark = spark_session("users", "local[2]", Profile.TEST)
            rows = spark.read.format("tandemlog").options(endpoint=endpoint, topic=topic).load()
            bodies = sorted(bytes(row.body).decode() for row in rows.collect())
            # Spark hangs up on the task that makes these while it still writes.
            long = spark.sparkContext.range(50_000, numSlices=1).map(lambda each: "x" * 1_000)
            assert long.take(1) == ["x" * 1_000]
            print(json.dumps([OWNER, *bodies]), flush=True)
            spark.stop()
            """
        )
    )
    # Workers that plan a query have PySpark's own parent. On a busy machine one of them may find
    # that Spark has hung up; a task that Spark hangs up on would say so every time.
    arguments = [",".join(cluster.endpoints), topics[0]]
    said = (users_job(arguments, tmp_path / f"driver-{attempt}.log") for attempt in range(3))
    assert any("Broken pipe" not in each for each in said)


def users_job(arguments: list[str], log: Path) -> str:
    """What the user's program logs; it must read its topic."""
    program = SparkProgram("users_job", arguments, log, log.parent)
    try:
        output = program.finish()
    finally:
        program.kill()
    assert json.loads(output.splitlines()[-1]) == ["user", "a", "b"]
    return program.tail(1_000_000)
