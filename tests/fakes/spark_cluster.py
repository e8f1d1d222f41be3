"""A standalone Spark: a master and two workers of one core, each a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from helpers.running import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 120

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that do little: they start faster."""

DRIVER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_S}s",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
"""Settings of a driver that waits until both workers are there."""


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Its address; logs are in `folder`, the executors' folders in `worker0` and `worker1`."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    master_port, *web_ports = free_ports(4)
    address = f"spark://127.0.0.1:{master_port}"
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
    }
    with ExitStack() as stack:

        def start(log: Path, *command: str) -> None:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [spark_class, *command], stdout=output, stderr=output, env=environment
                )
            stack.callback(_end, process)

        log = folder / "master.log"
        start(log, f"{deploy}.master.Master", "--host", "127.0.0.1",
              "--port", str(master_port), "--webui-port", str(web_ports[0]))  # fmt: skip
        logs = [folder / f"worker{number}.log" for number in range(2)]
        for worker_log, web_port in zip(logs, web_ports[1:], strict=True):
            # A worker asks until the master is there.
            start(worker_log, f"{deploy}.worker.Worker", "--host", "127.0.0.1", "-c", "1",
                  "-m", "600m", "-d", str(worker_log.with_suffix("")),
                  "--webui-port", str(web_port), address)  # fmt: skip
        for each in logs:
            _wait_for(each, "Successfully registered with master")
        yield address


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + START_S
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.05)
