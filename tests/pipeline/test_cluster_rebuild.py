"""Distributed for real: a standalone master and two workers, each a process of its own."""

import filecmp
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fakes.log_builder import LogBuilder, varied
from pipeline.jobs.rebuild import RebuildOptions, rebuild
from pipeline.queue_ends import CONSUME_QUEUE
from pipeline.tasks import InProcess

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 90

JOB = """
import sys
from pipeline.jobs.rebuild import RebuildOptions, rebuild
from pipeline.session import Profile, spark_session

store, out, master = sys.argv[1:]
spark = spark_session("rebuild", master, Profile.CLUSTER, {
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.cores.max": "2", "spark.executor.cores": "1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s", "spark.ui.enabled": "false",
})
options = RebuildOptions(index_slots=20, index_entries=100, queue_file_size=200,
                         target_bytes=6000)
result = rebuild(spark, store, out, options)
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print("records", result.summary["records"], "executors", executors)
spark.stop()
"""


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return int(each.getsockname()[1])


@contextmanager
def process(log: Path, *command: str, **environment: str) -> Iterator[None]:
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment
        )
        try:
            yield
        finally:
            running.terminate()
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + START_S
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.2)


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers of one core; its address."""
    pyspark = pytest.importorskip("pyspark")
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = free_port()
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYTHONPATH": str(ROOT),
    }
    with ExitStack() as stack:
        master_log = folder / "master.log"
        stack.enter_context(
            process(
                master_log, spark_class, "org.apache.spark.deploy.master.Master",
                "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port()),
                **environment,
            )
        )  # fmt: skip
        wait_for(master_log, "I have been elected leader")
        for number in range(2):
            worker_log = folder / f"worker{number}.log"
            stack.enter_context(
                process(
                    worker_log, spark_class, "org.apache.spark.deploy.worker.Worker",
                    "--host", "127.0.0.1", "-c", "1", "-m", "600m",
                    "-d", str(folder / f"work{number}"), "--webui-port", str(free_port()),
                    f"spark://127.0.0.1:{port}", **environment,
                )
            )  # fmt: skip
            wait_for(worker_log, "Successfully registered with master")
        yield f"spark://127.0.0.1:{port}"


def test_rebuild_on_a_standalone_cluster(tmp_path: Path) -> None:
    log = varied(LogBuilder(tmp_path / "store", 16384), 90)
    store = log.write()
    options = RebuildOptions(
        index_slots=20, index_entries=100, queue_file_size=200, target_bytes=6000
    )
    rebuild(InProcess(2), store, tmp_path / "alone", options)
    with cluster(tmp_path) as master:
        done = subprocess.run(
            [sys.executable, "-c", JOB, str(store), str(tmp_path / "out"), master],
            capture_output=True, text=True, timeout=240, check=False, cwd=ROOT,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"records {len(log.records)} executors 2" in done.stdout
    for folder in (CONSUME_QUEUE, "index"):
        names = [
            str(path.relative_to(tmp_path / "alone"))
            for path in (tmp_path / "alone" / folder).rglob("*")
            if path.is_file()
        ]
        _, different, missing = filecmp.cmpfiles(
            tmp_path / "alone", tmp_path / "out", names, shallow=False
        )
        assert names
        assert (different, missing) == ([], [])
