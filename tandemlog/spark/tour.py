"""A tour of the pipeline on one machine: a cluster, live topics, a stream, and jobs over its files.

    tandemlog up (a master, a slave)
      write ▶ read ▶ copy by a stream ▶ copy again: no row twice           live, over gRPC
    stopped
      audit ▶ rebuild ▶ compare ▶ export ▶ restore ▶ stats                 files

Every step is a row with its result; an unexpected result is a finding.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tandemlog import Admin, ConnectionOptions
from tandemlog.errors import TandemlogError
from tandemlog.logs.executors import InProcess
from tandemlog.logs.job_errors import OptionError, TourError
from tandemlog.logs.jobs.audit import audit
from tandemlog.logs.jobs.compare import compare
from tandemlog.logs.jobs.export import export
from tandemlog.logs.jobs.job_result import JobProgress, JobResult, no_progress
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog.logs.jobs.restore import restore
from tandemlog.logs.jobs.stats import stats

ROWS: Final = 100_000
QUEUES: Final = 4
SOURCE, COPY = "tour", "tour-copy"
_SHOWN: Final = frozenset(
    {"bytes", "tail", "equal", "blocks", "queues", "units", "index_entries", "files", "log_files"}
)
_START_S: Final = 60
_STOP_S: Final = 60
_HTTP_DISTANCE: Final = 100
_LOG_FILE: Final = 32 << 20
_INDEX: Final = RebuildOptions(index_slots=50_000, index_entries=200_000)


@dataclass
class _Tour:
    spark: SparkSession
    folder: Path
    rows: int
    progress: JobProgress
    result: JobResult = field(default_factory=lambda: JobResult("demo"))
    endpoint: str = ""

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """One row of the table."""
        self.progress(name, len(self.result.rows), len(_LIVE) + len(_FILES))
        started = time.monotonic()
        done = work()
        seconds = round(time.monotonic() - started, 2)
        self.result.rows.append({"step": name, **done, "seconds": seconds})

    def job(self, result: JobResult) -> dict[str, Any]:
        """A job's findings become the tour's."""
        self.result.findings += result.findings
        shown = [f"{name} {each}" for name, each in result.summary.items() if name in _SHOWN]
        return {"rows": result.summary.get("records"), "outcome": ", ".join(shown)}

    @property
    def master(self) -> Path:
        return self.folder / "cluster" / "n0" / "store"

    @property
    def slave(self) -> Path:
        return self.folder / "cluster" / "n1" / "store"


def run(
    spark: SparkSession | InProcess,
    folder: str | Path | None = None,
    *,
    rows: int = ROWS,
    progress: JobProgress = no_progress,
) -> JobResult:
    """The tour, with its cluster, checkpoint and outputs below `folder`, which is created or empty,
    or else below a new temporary folder, which stays.

    Raises OptionError for a folder that is not empty or without Spark, TourError if the cluster
    does not start or a step has an unexpected result, and what the steps raise.
    """
    if isinstance(spark, InProcess):
        raise OptionError("the demo shows Spark: it does not run without")
    # Only now, so that a refusal leaves no folder behind.
    folder = Path(folder or tempfile.mkdtemp(prefix="tandemlog-demo-"))
    if folder.exists() and any(folder.iterdir()):
        raise OptionError(f"{folder} is not empty: the demo needs an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    tour = _Tour(spark, folder, rows, progress)
    with _cluster(folder / "cluster") as tour.endpoint:
        for name, work in _LIVE.items():
            tour.step(name, partial(work, tour))
    for name, work in _FILES.items():
        tour.step(name, partial(work, tour))
    seconds = round(time.monotonic() - started, 1)
    tour.result.summary = {"messages": rows, "steps": len(tour.result.rows), "seconds": seconds}
    tour.result.notes.append(f"everything it made is in {folder}")
    return tour.result


def _write(tour: _Tour) -> dict[str, Any]:
    with Admin(tour.endpoint) as admin:
        for topic in (SOURCE, COPY):
            admin.create_topic(topic, QUEUES)
    frame = tour.spark.range(tour.rows, numPartitions=QUEUES).select(
        F.concat(F.lit("order "), F.col("id")).alias("body"),
        F.concat(F.lit("customer-"), F.col("id") % 1000).alias("keys"),
        F.when(F.col("id") % 10 == 0, "returned").otherwise("paid").alias("tags"),
    )
    frame.write.format("tandemlog").mode("append").options(
        endpoint=tour.endpoint, topic=SOURCE
    ).save()
    return {"rows": tour.rows, "outcome": f"exactly once to {QUEUES} queues"}


def _read(tour: _Tour) -> dict[str, Any]:
    frame = tour.spark.read.format("tandemlog").options(endpoint=tour.endpoint, topic=SOURCE)
    counts = frame.load().groupBy("tags").count().orderBy("tags").collect()
    total = sum(row["count"] for row in counts)
    _expect(total == tour.rows, f"{total} messages were read, {tour.rows} were written")
    return {"rows": total, "outcome": ", ".join(f"{row['tags']} {row['count']}" for row in counts)}


def _copy(tour: _Tour) -> dict[str, Any]:
    """A stream from topic to topic, in batches of a quarter."""
    source = tour.spark.readStream.format("tandemlog").options(
        endpoint=tour.endpoint,
        topic=SOURCE,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=max(tour.rows // 4, 1),
    )
    query = (
        source.load()
        .drop("topic")
        .writeStream.format("tandemlog")
        .options(
            endpoint=tour.endpoint,
            topic=COPY,
            checkpointLocation=str(tour.folder / "checkpoint"),
        )
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [each.numInputRows for each in query.recentProgress if each.numInputRows]
    with Admin(tour.endpoint) as admin:
        copied = sum(each.max_offset for each in admin.ranges(COPY))
    _expect(copied == tour.rows, f"{copied} messages were copied, {tour.rows} are there")
    return {"rows": sum(batches), "outcome": f"{len(batches)} batches, {copied} in the copy"}


def _copy_again(tour: _Tour) -> dict[str, Any]:
    """The last batch once more, as after a driver that died before it committed the batch."""
    commits = tour.folder / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    return _copy(tour)


def _restore(tour: _Tour) -> dict[str, Any]:
    restored = tour.folder / "restored"
    row = tour.job(restore(tour.spark, tour.folder / "export", restored, _INDEX))
    compared = compare(tour.spark, tour.master, restored)
    tour.result.findings += compared.findings
    return row | {"outcome": "equal to the master's log" if compared.holds else "NOT EQUAL"}


_LIVE: Final[dict[str, Callable[[_Tour], dict[str, Any]]]] = {
    "write a topic": _write,
    "read it": _read,
    "copy it by a stream": _copy,
    "the last batch again": _copy_again,
}
_FILES: Final[dict[str, Callable[[_Tour], dict[str, Any]]]] = {
    "audit the master's log": lambda tour: tour.job(audit(tour.spark, tour.master)),
    "rebuild its queues and index": lambda tour: tour.job(
        rebuild(tour.spark, tour.master, tour.folder / "rebuilt", _INDEX)
    ),
    "compare master and slave": lambda tour: tour.job(compare(tour.spark, tour.master, tour.slave)),
    "export to Parquet": lambda tour: tour.job(
        export(tour.spark, tour.master, tour.folder / "export")
    ),
    "restore from it": _restore,
    "statistics": lambda tour: tour.job(stats(tour.spark, tour.master, tour.folder / "stats")),
}


def _expect(true: bool, otherwise: str) -> None:
    if not true:
        raise TourError(otherwise)


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    """`tandemlog up` with one slave and small log files; yields the endpoint of the master."""
    port = _free_port()
    log = folder.with_name("cluster.log")
    command = [sys.executable, "-m", "tandemlog", "up", "--dir", str(folder), "--slaves", "1"]
    command += ["--port", str(port), "--commit-log-file-size", str(_LOG_FILE)]
    command += ["--index-slots", str(_INDEX.index_slots)]
    command += ["--index-entries", str(_INDEX.index_entries)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(os.environ)
        )
    endpoint = f"127.0.0.1:{port}"
    try:
        _wait_ready(endpoint, process, log)
        yield endpoint
        _wait_level(endpoint)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(endpoint: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the master and its slave answer."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            raise TourError(f"the cluster ended with exit code {code}: {_last_words(log)}")
        if len(_reachable(endpoint)) == 2:
            return
        time.sleep(0.1)
    raise TourError(f"the cluster did not start within {_START_S} s: {_last_words(log)}")


def _last_words(log: Path) -> str:
    return log.read_text()[-2000:]


def _wait_level(endpoint: str) -> None:
    """Wait until the slave has the whole log of the master: both are compared later."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        ends = [node.flushed_offset for node in _reachable(endpoint)]
        if len(ends) == 2 and ends[0] == ends[1]:
            return
        time.sleep(0.1)
    raise TourError(f"the slave did not get level with the master within {_START_S} s")


def _reachable(endpoint: str) -> list[Any]:
    with (
        contextlib.suppress(TandemlogError),
        Admin(endpoint, connection=ConnectionOptions(retry_timeout_ms=500)) as admin,
    ):
        return [node for node in admin.cluster().nodes if node.reachable]
    return []


def _free_port() -> int:
    """A port that is free now, with its neighbour and those of HTTP."""
    for port in range(20_000, 32_000, 250):
        wanted = (port, port + 1, port + _HTTP_DISTANCE, port + _HTTP_DISTANCE + 1)
        with contextlib.suppress(OSError):
            for each in wanted:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", each))
            return port
    raise TourError("no free ports on this machine")
