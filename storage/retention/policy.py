"""Which log files may go, and whether the disk still takes writes: RocketMQ's rules, section 6.8.

                     use of the disk, percent
    0 ........ max_used ........ clean_forcibly ........ warning ........ 100
       by age,      by age,           the oldest go           and writes
       in the       at any hour       whatever their age      are refused
       delete hour

A file's age is the time that the node has seen pass since the file was full (seen_time.py):
RocketMQ compares the file's last change with the clock, which may be days ahead. Files are deleted
oldest first, never the newest, never one above `keep_from` (what is not yet dispatched, or not yet
on every in-sync replica). Each is a decision of its own, by the disk's use after the one before.
Queue and index files follow when the log's first offset has moved.

The decision is a pure function; cleaner.py asks the disk, does the deleting and counts: at most
`delete_batch_max` files in one round.
"""

from dataclasses import dataclass

from ..config import RetentionConfig

MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class LogFileAge:
    """One file of the log: its first offset, its length in bytes, and for how long it has been
    full, in ms."""

    start_offset: int
    size: int
    age_ms: int

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size


@dataclass(frozen=True, slots=True)
class Decision:
    """The file to `drop` (None: nothing), and why; `disk_full` refuses writes."""

    drop: LogFileAge | None
    reason: str
    disk_full: bool


def decide(
    oldest: LogFileAge | None,
    config: RetentionConfig,
    *,
    local_hour: int,
    disk_used_percent: int,
    keep_from: int,
) -> Decision:
    """Whether the oldest file of the log goes.

    `oldest` is None if there is only the newest. `keep_from` is a log offset: a file that ends
    above it stays.
    """
    disk_full = disk_used_percent >= config.disk_warning_percent
    stays = Decision(None, "", disk_full)
    if oldest is None or oldest.end_offset > keep_from:
        return stays
    if config.clean_forcibly and disk_used_percent >= config.disk_clean_forcibly_percent:
        return Decision(oldest, f"the disk is {disk_used_percent} % full", disk_full)
    opened_by = _opened_by(config, local_hour, disk_used_percent)
    expired = oldest.age_ms >= config.reserved_hours * MS_PER_HOUR
    return Decision(oldest, opened_by, disk_full) if opened_by and expired else stays


def _opened_by(config: RetentionConfig, local_hour: int, disk_used_percent: int) -> str:
    """Why expired files may go now; empty if they may not."""
    if disk_used_percent >= config.disk_max_used_percent:
        return f"expired, the disk is {disk_used_percent} % full"
    if local_hour in config.delete_hours:
        return f"expired, it is {local_hour:02d} o'clock"
    return ""
