"""Which log files may go, and whether the disk still takes writes: RocketMQ's rules, section 6.8.

                     use of the disk, percent
    0 ........ max_used ........ clean_forcibly ........ warning ........ 100
       by age,      by age,           the oldest go           and writes
       in the       at any hour       whatever their age      are refused
       delete hour

A file's age is counted from its last change. Files go oldest first, never the newest, never one
above `keep_from` (what is not yet dispatched, or not yet on every in-sync replica, is needed), and
at most `delete_batch_max` in one round. Queue and index files follow the log: they are dropped by
the store once the log's first offset has moved.

The decision is a pure function; the store asks the disk and does the deleting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .config import RetentionConfig

MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class LogFileAge:
    """One file of the log: its first offset, its length in bytes and its last change in ms."""

    start_offset: int
    size: int
    modified_ms: int

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size


@dataclass(frozen=True, slots=True)
class Decision:
    """Drop everything below `drop_before` (None: nothing), and why; `disk_full` refuses writes."""

    drop_before: int | None
    files: int
    reason: str
    disk_full: bool


def decide(
    files: Sequence[LogFileAge],
    config: RetentionConfig,
    *,
    now_ms: int,
    local_hour: int,
    disk_used_percent: int,
    keep_from: int,
    manual: bool = False,
) -> Decision:
    """What one round of cleaning does. `files` is the whole log, oldest first.

    `keep_from` is a log offset: a file that ends above it stays. `manual` is an operator's
    request: it opens the round at any hour, but deletes by age like the others.
    """
    disk_full = disk_used_percent >= config.disk_warning_percent
    forcibly = config.clean_forcibly and disk_used_percent >= config.disk_clean_forcibly_percent
    opened_by = _opened_by(config, local_hour, disk_used_percent, manual)
    if not opened_by and not forcibly:
        return Decision(None, 0, "", disk_full)
    reserved_ms = config.reserved_hours * MS_PER_HOUR
    drop_before: int | None = None
    count = 0
    for file in files[:-1]:
        expired = forcibly or file.modified_ms + reserved_ms <= now_ms
        if not expired or file.end_offset > keep_from or count == config.delete_batch_max:
            break
        drop_before, count = file.end_offset, count + 1
    reason = f"the disk is {disk_used_percent} % full" if forcibly else opened_by
    return Decision(drop_before, count, reason if count else "", disk_full)


def _opened_by(
    config: RetentionConfig, local_hour: int, disk_used_percent: int, manual: bool
) -> str:
    if manual:
        return "asked for"
    if disk_used_percent >= config.disk_max_used_percent:
        return f"expired, the disk is {disk_used_percent} % full"
    if local_hour in config.delete_hours:
        return f"expired, it is {local_hour:02d} o'clock"
    return ""
