"""Runs a job's tasks, here or on Spark's executors, and returns their results in order.

    run_tasks(spark, work, [a, b, c])
        a session      spark/session_tasks.py: three tasks of one Spark job
        InProcess      work(a), work(b), work(c), one after the other, here

Heavy jobs do their work in the worker and return small results. `work` is a function of a module
that executors can import, and may run more than once. This package works without PySpark, which is
there if a session is.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

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


class Session(Protocol):
    """A session of Spark, classic or of Spark Connect."""

    @property
    def version(self) -> str: ...


Executor: TypeAlias = InProcess | Session


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
    """The module for sessions, which needs PySpark."""
    return importlib.import_module(_OF_SESSIONS)
