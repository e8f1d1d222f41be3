"""Runs functions on Spark's executors, one task each, and returns their results to the driver.

    run_tasks(spark, work, [a, b, c])
        a session      session_tasks.py: three tasks of one Spark job
        InProcess      work(a), work(b), work(c), one after the other, here

Heavy jobs do their work in the worker and return small results. `work` is a function of a module
that executors can import, and may run more than once. This module, and all that a job imports, work
without PySpark: only who has a session needs it.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_SESSIONS: Final = "tandemlog.spark.session_tasks"

TaskT = TypeVar("TaskT")
AnswerT = TypeVar("AnswerT")
TaskProgress = Callable[[int, int], None]
"""Tasks done, tasks in all."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """In the place of a session: tasks run one after the other in this process, without Spark or
    Java. For small stores, and for tests of everything but Spark."""

    slots: int = 1


Executor: TypeAlias = "SparkSession | InProcess"


def run_tasks(
    spark: Executor,
    work: Callable[[TaskT], AnswerT],
    tasks: Sequence[TaskT],
    progress: TaskProgress | None = None,
) -> list[AnswerT]:
    """work(task) of every task, in their order; `progress` is called now and then. Raises
    TaskFailedError if a task failed permanently, and what Spark raises for other reasons."""
    if not tasks:
        return []
    if isinstance(spark, InProcess):
        return _one_by_one(work, tasks, progress)
    return cast("list[AnswerT]", _sessions().run_in_session(spark, work, tasks, progress))


def _one_by_one(
    work: Callable[[TaskT], AnswerT], tasks: Sequence[TaskT], progress: TaskProgress | None
) -> list[AnswerT]:
    answers = []
    for number, task in enumerate(tasks):
        answers.append(work(task))
        if progress is not None:
            progress(number + 1, len(tasks))
    return answers


def parallelism(spark: Executor) -> int:
    """How many tasks run side by side."""
    if isinstance(spark, InProcess):
        return spark.slots
    return cast("int", _sessions().slots_of(spark))


def _sessions() -> Any:
    """The module for sessions, imported now: it needs PySpark, which is there if a session is."""
    return importlib.import_module(_OF_SESSIONS)
