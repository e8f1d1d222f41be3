"""The settings of one store. Read from file and environment in `node` only; validated here.

Sizes of log and queue files hold for a new store; those of a store that exists are read from its
files. Defaults are RocketMQ's where it has the setting (format text, sections 1, 2, 3 and 6).
"""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tandemlog.format.files.queue_unit import UNIT_SIZE

LOG_FILE_SIZES = range(4096, 1 << 31)
"""In bytes."""


class FlushMode(Enum):
    """When a put counts as safe on this node's disk."""

    ASYNC = "async"
    SYNC = "sync"


class ConfirmSource(Enum):
    """Who moves the confirm offset: this store alone, or the replication above it."""

    LOCAL = "local"
    REPLICATION = "replication"


@dataclass(frozen=True, slots=True)
class RetentionConfig:
    """When log files are deleted. Ratios are percent of the disk in use."""

    reserved_hours: float = 72
    delete_hours: tuple[int, ...] = (4,)
    check_interval_ms: int = 10_000
    delete_batch_max: int = 10
    disk_max_used_percent: int = 75
    disk_clean_forcibly_percent: int = 85
    disk_warning_percent: int = 90
    clean_forcibly: bool = True

    def __post_init__(self) -> None:
        if any(not 0 <= hour <= 23 for hour in self.delete_hours):
            raise ValueError(f"delete_hours must be hours of a day, 0..23: {self.delete_hours}")
        if not (
            0
            < self.disk_max_used_percent
            <= self.disk_clean_forcibly_percent
            <= self.disk_warning_percent
            <= 100
        ):
            raise ValueError(
                "disk percentages must rise: disk_max_used_percent <= "
                "disk_clean_forcibly_percent <= disk_warning_percent"
            )


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """One store; sizes in bytes, times in milliseconds, as the names say."""

    directory: Path
    commit_log_file_size: int = 1 << 30
    queue_file_size: int = 300_000 * UNIT_SIZE
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    index_enabled: bool = True
    index_tags: bool = True

    flush: FlushMode = FlushMode.ASYNC
    flush_interval_ms: int = 500
    flush_least_pages: int = 4
    flush_thorough_interval_ms: int = 10_000
    buffered: bool = False
    commit_interval_ms: int = 200
    commit_least_pages: int = 4
    checkpoint_interval_ms: int = 500
    warm_up: bool = False
    lock_memory: bool = False

    max_message_size: int = 4 << 20
    max_batch_size: int = 32 << 20
    max_dirty_bytes: int = 1 << 30
    busy_timeout_ms: int = 1_000
    max_reput_lag_bytes: int = 32 << 20
    verify_crc_on_recover: bool = True
    property_crc: bool = False

    store_host: str = "127.0.0.1:10911"
    delay_levels: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    confirm: ConfirmSource = ConfirmSource.LOCAL
    producer_retention_ms: int = 7 * 24 * 3_600_000
    producer_sequences_kept: int = 64
    max_topics: int = 100_000
    max_queues: int = 1_000_000
    max_groups: int = 10_000
    max_offset_rows: int = 1_000_000
    set_aside_kept: int = 2
    set_aside_hours: float = 168
    producers_kept: int = 20_000
    retention: RetentionConfig = field(default_factory=RetentionConfig)

    def __post_init__(self) -> None:
        if self.commit_log_file_size not in LOG_FILE_SIZES:
            raise ValueError(
                f"commit_log_file_size must be 4096 .. 2^31-1: {self.commit_log_file_size}"
            )
        if self.queue_file_size <= 0 or self.queue_file_size % UNIT_SIZE:
            raise ValueError(
                f"queue_file_size must be a multiple of {UNIT_SIZE}: {self.queue_file_size}"
            )
        if self.index_slots < 1 or self.index_entries < 2:
            raise ValueError("index_slots must be at least 1 and index_entries at least 2")
        if not 1 <= self.max_queues <= 1 << 22:
            raise ValueError(f"max_queues must be 1 .. {1 << 22}: {self.max_queues}")
        if self.max_message_size < 1:
            raise ValueError(f"max_message_size must be positive: {self.max_message_size}")
