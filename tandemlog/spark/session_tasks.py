"""Runs a function for each task of a Spark job: what logs/executors.py does with a session.

    run_in_session(spark, work, [a, b, c])  ──▶  data source tandemlog_tasks, 3 partitions
        executor: work(a) ──▶ one row, the answer in pickle  ──▶  driver: [work(a), work(b), ...]

The Data Source API is the only way to run plain Python on executors that works on a local master,
a cluster and a Connect server alike.
"""

import base64
import pickle
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tandemlog.arrow.plain_arrays import batch_of
from tandemlog.logs import job_errors
from tandemlog.logs.executors import AnswerT, TaskProgress, TaskT
from tandemlog.logs.job_errors import TaskFailedError
from tandemlog.logs.view_columns import arrow_schema

from .spark_schema import spark_schema

NAME = "tandemlog_tasks"
_COLUMNS = {"task": "int", "answer": "binary"}
_POLL_S = 0.2


class TaskSource(DataSource):
    """See the module; the option `work` is a pickled (function, tasks) in base64."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return spark_schema(_COLUMNS)

    def reader(self, schema: StructType) -> "TaskReader":
        return TaskReader(self.options["work"])


class TaskReader(DataSourceReader):
    """A partition a task."""

    def __init__(self, work: str) -> None:
        self._work = work

    def partitions(self) -> list[InputPartition]:
        _, tasks = _unpacked(self._work)
        return [InputPartition(number) for number in range(len(tasks))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        number = partition.value
        if number is None:
            return
        function, tasks = _unpacked(self._work)
        answer = pickle.dumps(function(tasks[number]))
        yield batch_of([{"task": number, "answer": answer}], arrow_schema(_COLUMNS))


def run_in_session(
    spark: SparkSession,
    work: Callable[[TaskT], AnswerT],
    tasks: Sequence[TaskT],
    progress: TaskProgress | None = None,
) -> list[AnswerT]:
    """See logs/executors.py, run_tasks."""
    spark.dataSource.register(TaskSource)
    packed = base64.b64encode(pickle.dumps((work, list(tasks)))).decode()
    frame = spark.read.format(NAME).option("work", packed).load()
    with _reported(spark, len(tasks), progress):
        try:
            rows = frame.collect()
        except Exception as error:
            raise _task_failure(error) from error
    answers = {row["task"]: bytes(row["answer"]) for row in rows}
    return [cast("AnswerT", pickle.loads(answers[number])) for number in range(len(tasks))]


def slots_of(spark: SparkSession) -> int:
    """How many tasks the session's executors run side by side."""
    if is_remote(spark):
        return int(spark.conf.get("spark.default.parallelism", "8") or 8)
    return spark.sparkContext.defaultParallelism


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect, which has no SparkContext here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _unpacked(text: str) -> tuple[Callable[[Any], Any], list[Any]]:
    work: tuple[Callable[[Any], Any], list[Any]] = pickle.loads(base64.b64decode(text))
    return work


def _task_failure(problem: Exception) -> Exception:
    """The error of the task, from the traceback in the text of Spark's error; else that error."""
    errors = re.findall(r"^(?:[\w.]+\.)?(\w+Error): (.*)$", str(problem), re.MULTILINE)
    if not errors:
        return problem
    kind, text = errors[-1]
    return TaskFailedError(text if kind in _OWN else f"{kind}: {text}")


_OWN = frozenset(name for name in vars(job_errors) if name.endswith("Error"))


@contextmanager
def _reported(spark: SparkSession, total: int, progress: TaskProgress | None) -> Iterator[None]:
    """Tell `progress` how many tasks are done while the block runs."""
    if progress is None:
        yield
        return
    progress(0, total)
    with (_remote_progress if is_remote(spark) else _local_progress)(spark, total, progress):
        yield
    progress(total, total)


@contextmanager
def _remote_progress(spark: Any, total: int, progress: TaskProgress) -> Iterator[None]:
    def handler(stages: Any = None, **_: Any) -> None:
        done = sum(stage.num_completed_tasks for stage in stages or ())
        progress(min(done, total), total)

    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


@contextmanager
def _local_progress(spark: SparkSession, total: int, progress: TaskProgress) -> Iterator[None]:
    context = spark.sparkContext
    group = f"tandemlog-{uuid.uuid4()}"
    context.setJobGroup(group, "tandemlog pipeline")
    over = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not over.wait(_POLL_S):
            done = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage_id in info.stageIds if info is not None else ():
                    stage = tracker.getStageInfo(stage_id)
                    done += stage.numCompletedTasks if stage is not None else 0
            progress(min(done, total), total)

    watcher = threading.Thread(target=watch, name="tandemlog-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
