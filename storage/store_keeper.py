"""The store's housekeeping: small tasks, each at its own interval, in one thread.

    checkpoint   flush queues and index, note how far they are durable
    offsets      persist consumer offsets
    retention    watch the disk, drop old files

A task that raises is logged and tried again at its next turn: a full disk may get space, and a
failing task must not end the others. A task that took much processor time rests in proportion, so
that a checkpoint of thousands of queues takes a few percent from the threads that put and dispatch,
who share one interpreter with it; but not for long, because recovery begins at the last checkpoint.
Tests run the tasks by `run_due` without the thread.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from .clock import Clock

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 60.0
REST_PER_WORK = 25.0
LONGEST_REST_S = 5.0


@dataclass(slots=True)
class Task:
    """`turn` is called `interval_s` after its last end, later where that took much processor time;
    `failed` says why the last turn did not work."""

    name: str
    interval_s: float
    turn: Callable[[], None]
    due_s: float = 0.0
    failed: str = ""


class StoreKeeper:
    """Runs tasks when they are due; `start` in a thread of its own."""

    def __init__(self, tasks: list[Task], clock: Clock) -> None:
        self.tasks = tasks
        self._clock = clock
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        now = clock.monotonic()
        for task in tasks:
            task.due_s = now + task.interval_s

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="store-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; a task that is under way ends first."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT_S)
            self._thread = None

    def set_interval(self, name: str, interval_s: float) -> None:
        """Of the task with that name, from its next turn on."""
        for task in self.tasks:
            if task.name == name:
                task.interval_s = interval_s

    def run_due(self) -> float:
        """Run what is due; returns the seconds until the next task is."""
        now = self._clock.monotonic()
        for task in self.tasks:
            if now >= task.due_s:
                began = self._clock.thread_time()
                self._turn(task)
                rest = min(REST_PER_WORK * (self._clock.thread_time() - began), LONGEST_REST_S)
                task.due_s = self._clock.monotonic() + max(task.interval_s, rest)
        return max(0.0, min(task.due_s for task in self.tasks) - self._clock.monotonic())

    def _turn(self, task: Task) -> None:
        try:
            task.turn()
            task.failed = ""
        except Exception as error:
            if task.failed != str(error):
                logger.exception("%s failed and will be retried", task.name)
            task.failed = str(error) or type(error).__name__

    def _run(self) -> None:
        while not self._closing.wait(self.run_due()):
            pass
