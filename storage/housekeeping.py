"""The periodic tasks of a store, one after the other in one thread.

checkpoint         queues, index and producers durable, and noted     setting
consumer offsets   saved if they have changed                         5 s
retention          log files that have expired go                     setting
producers          those that are silent for long are forgotten       60 s
log maps           pages that were read once are given back           1 s
unreadable         bytes that could not be read are tried again       5 s
fsync flag         a failed fsync is noted, until the disk takes it   5 s
reserve            created again when there is room                   5 s
"""

from collections.abc import Callable

from .log.commit_log import CommitLog
from .store_keeper import Task
from .store_parts import StoreParts

RETENTION = "retention"
OFFSETS_INTERVAL_S = 5.0
FORGET_INTERVAL_S = 60.0
MAPS_INTERVAL_S = 1.0
UNREADABLE_INTERVAL_S = 5.0
FLAG_INTERVAL_S = 5.0
RESERVE_INTERVAL_S = 5.0


def housekeeping(
    parts: StoreParts,
    *,
    persist: Callable[[], None],
    clean: Callable[[], None],
    note_failure: Callable[[], None],
    restore_reserve: Callable[[], None],
) -> list[Task]:
    """The tasks in the table's order; `clean` is retention."""
    config = parts.config
    return [
        Task("checkpoint", config.checkpoint_interval_ms / 1000, persist),
        Task("consumer-offsets", OFFSETS_INTERVAL_S, lambda: save_offsets(parts)),
        Task(RETENTION, config.retention.check_interval_ms / 1000, clean),
        Task("producers", FORGET_INTERVAL_S, lambda: forget_producers(parts)),
        Task("log-maps", MAPS_INTERVAL_S, lambda: release_maps(parts.log)),
        Task("unreadable", UNREADABLE_INTERVAL_S, parts.log.look_again),
        Task("fsync-flag", FLAG_INTERVAL_S, note_failure),
        Task("reserve", RESERVE_INTERVAL_S, restore_reserve),
    ]


def save_offsets(parts: StoreParts) -> None:
    parts.consumer_offsets.save(parts.clock.now_ms())


def forget_producers(parts: StoreParts) -> None:
    """Their age is told by the times of records, so not before the clock has been steady for as
    long: an error of days must not make a producer unknown."""
    if parts.seen_time.steady_ms >= parts.config.producer_retention_ms:
        parts.producers.forget(parts.config.producer_retention_ms)


def release_maps(log: CommitLog) -> None:
    """Pages that were read once would count as this process's memory permanently; the next read
    maps the file again."""
    for file in log.files:
        file.release()
