"""The housekeeping of a store: small tasks, each at its own interval, one after the other in one
thread.

    checkpoint         queues, index and producers durable, and noted     setting
    consumer offsets   saved if they have changed                         5 s
    retention          watch the disk, delete expired log files           setting
    producers          forget those that have long been silent            60 s
    log maps           pages that were read once are given back           1 s
    unreadable         bytes that could not be read are tried again       5 s
    fsync flag         a failed fsync is noted, until the disk takes it   5 s
    reserve            created again when there is room                   5 s

A task that raises is logged and tried again at its next turn: a full disk may get space, and a
failing task must not end the others. A task that took much processor time rests in proportion, so
that a checkpoint of thousands of queues takes a few percent from the threads that put and dispatch,
who share one interpreter with it; but not for long, because recovery begins at the last checkpoint:
it dispatches again what came since, at full load in about half the time in which it came.
Tests run the tasks by `run_due` without the thread.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from .clock import Clock
from .log.commit_log import CommitLog
from .store_parts import StoreParts

logger = logging.getLogger(__name__)

RETENTION = "retention"
OFFSETS_INTERVAL_S = 5.0
FORGET_INTERVAL_S = 60.0
MAPS_INTERVAL_S = 1.0
UNREADABLE_INTERVAL_S = 5.0
FLAG_INTERVAL_S = 5.0
RESERVE_INTERVAL_S = 5.0
JOIN_TIMEOUT_S = 60.0
REST_PER_WORK = 25.0
LONGEST_REST_S = 5.0
CHECKPOINT_REST_S = 10.0


@dataclass(slots=True)
class Task:
    """`turn` is called `interval_s` after its last end, later where that took much processor time;
    but not by more than `longest_rest_s`; `failed` says why the last turn did not work."""

    name: str
    interval_s: float
    turn: Callable[[], object]
    longest_rest_s: float = LONGEST_REST_S
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
                rest = REST_PER_WORK * (self._clock.thread_time() - began)
                rest = min(rest, task.longest_rest_s)
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


def housekeeping(
    parts: StoreParts,
    *,
    persist: Callable[[], None],
    clean: Callable[[], object],
    note_failure: Callable[[], None],
    restore_reserve: Callable[[], None],
) -> list[Task]:
    """The tasks in the table's order; `clean` is retention."""
    config = parts.config
    return [
        Task("checkpoint", config.checkpoint_interval_ms / 1000, persist, CHECKPOINT_REST_S),
        Task("consumer-offsets", OFFSETS_INTERVAL_S, lambda: save_offsets(parts)),
        Task(RETENTION, config.retention.check_interval_ms / 1000, clean),
        Task("producers", FORGET_INTERVAL_S, lambda: forget_producers(parts)),
        Task("log-maps", MAPS_INTERVAL_S, lambda: release_maps(parts.log)),
        Task("unreadable", UNREADABLE_INTERVAL_S, parts.log.retry_unreadable),
        Task("fsync-flag", FLAG_INTERVAL_S, note_failure),
        Task("reserve", RESERVE_INTERVAL_S, restore_reserve),
    ]


def save_offsets(parts: StoreParts) -> None:
    parts.consumer_offsets.save(parts.clock.now_ms())


def forget_producers(parts: StoreParts) -> None:
    """Their age follows from the times of records, so not before the clock has been steady for that
    long: a clock that is days off must not make a producer unknown."""
    if parts.seen_time.steady_ms >= parts.config.producer_retention_ms:
        parts.producers.forget(parts.config.producer_retention_ms)


def release_maps(log: CommitLog) -> None:
    """Pages that were read once would count as this process's memory; the next read maps the file
    again."""
    for file in log.files:
        file.release()
