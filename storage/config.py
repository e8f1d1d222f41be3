"""The settings of one store: names, defaults, bounds and descriptions. `node` reads them from file
and environment (node/settings/sections.py), and prints them: the string below a setting is its text
in docs/configuration.md.

Sizes of log and queue files hold for a new store; those of a store that exists are read from its
files. Defaults are RocketMQ's where it has the setting (format text, sections 1, 2, 3 and 6).
"""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, get_type_hints

from annotated_types import Ge, Gt, Le

from tandemlog.format.delay.timing import DEFAULT_MAX_DELAY_MS
from tandemlog.format.files.queue_unit import UNIT_SIZE

LOG_FILE_SIZES = range(4096, 1 << 31)
"""In bytes."""
MAX_QUEUES = 1 << 22


def check_bounds(settings: object) -> None:
    """Raises ValueError for the first field that is outside the bounds of its annotation."""
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        for bound in getattr(hint, "__metadata__", ()):
            if isinstance(bound, Gt) and not value > bound.gt:
                raise ValueError(f"{name} must be above {bound.gt}: {value}")
            if isinstance(bound, Ge) and not value >= bound.ge:
                raise ValueError(f"{name} must be at least {bound.ge}: {value}")
            if isinstance(bound, Le) and not value <= bound.le:
                raise ValueError(f"{name} must be at most {bound.le}: {value}")


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
    """When log files are deleted. Percentages are of the disk in use."""

    reserved_hours: Annotated[float, Gt(0)] = 72
    """Hours for which a full log file is kept, counted while the node runs: a clock that jumps
    deletes nothing."""
    delete_hours: tuple[int, ...] = (4,)
    """Hours of the day (0..23, local time) in which expired files are deleted."""
    check_interval_ms: Annotated[int, Gt(0)] = 10_000
    """Time between two checks for files to delete."""
    delete_batch_max: Annotated[int, Gt(0)] = 10
    """Maximum number of files that one check deletes."""
    disk_max_used_percent: int = 75
    """Disk usage above which expired files are deleted at any hour."""
    disk_clean_forcibly_percent: int = 85
    """Disk usage above which the oldest files are deleted even before they expire."""
    disk_warning_percent: int = 90
    """Disk usage above which puts are refused."""
    clean_forcibly: bool = True
    """Whether files may be deleted before they expire when the disk is nearly full."""

    def __post_init__(self) -> None:
        check_bounds(self)
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
    """Folder of the store; it is created if it does not exist."""
    commit_log_file_size: int = 1 << 30
    """Size of a commit log file in bytes."""
    queue_file_size: int = 300_000 * UNIT_SIZE
    """Size of a consume queue file in bytes, a multiple of 20."""
    index_slots: int = 5_000_000
    """Number of hash slots in each index file."""
    index_entries: int = 20_000_000
    """Number of entries for which each index file has room."""
    index_enabled: bool = True
    """Whether the keys of messages are indexed."""
    index_tags: bool = True
    """Whether tags are indexed too, as in RocketMQ 5.4."""

    flush: FlushMode = FlushMode.ASYNC
    """async: the log is flushed at intervals; sync: a put waits until its bytes are flushed."""
    flush_interval_ms: Annotated[int, Gt(0)] = 500
    """Time between two flushes."""
    flush_least_pages: Annotated[int, Ge(0)] = 4
    """Minimum number of unflushed pages (4 KiB each) for a flush at that interval."""
    flush_thorough_interval_ms: Annotated[int, Gt(0)] = 10_000
    """Time after which the log is flushed even if there is less than that."""
    buffered: bool = False
    """Whether appends go to memory first and to the file every commit_interval_ms."""
    commit_interval_ms: Annotated[int, Gt(0)] = 200
    """Time between two commits to the file, if buffered."""
    commit_least_pages: Annotated[int, Ge(0)] = 4
    """Minimum number of uncommitted pages (4 KiB each) for a commit at that interval."""
    checkpoint_interval_ms: Annotated[int, Gt(0)] = 500
    """Minimum time between two checkpoints, which flush queues, index and producer table."""
    warm_up: bool = False
    """Whether every page of a new log file is touched before the file is used."""
    lock_memory: bool = False
    """Whether the log file that is being written is locked in memory (mlock)."""

    max_message_size: Annotated[int, Gt(0)] = 4 << 20
    """Maximum size of a message body in bytes."""
    max_batch_size: Annotated[int, Gt(0)] = 32 << 20
    """Maximum size of a put request in bytes."""
    max_dirty_bytes: Annotated[int, Gt(0)] = 1 << 30
    """Number of unflushed bytes above which puts wait for the disk."""
    busy_timeout_ms: Annotated[int, Ge(0)] = 1_000
    """How long a put waits for the disk before it is refused as busy."""
    max_reput_lag_bytes: Annotated[int, Gt(0)] = 32 << 20
    """Number of bytes not yet dispatched to queues and index above which puts wait for dispatch."""
    verify_crc_on_recover: bool = True
    """Whether recovery checks the CRC of message bodies."""
    property_crc: bool = False
    """Whether every record gets RocketMQ's CRC32 over all its bytes, which takes 20 more bytes and
    is checked wherever records are read (RocketMQ 5.2 and later: enabledAppendPropCRC)."""

    store_host: str = "127.0.0.1:10911"
    """host:port that is written into records."""
    delay_levels: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    """RocketMQ's delay levels, which give the tags code of delayed messages."""
    confirm: ConfirmSource = ConfirmSource.LOCAL
    """Who moves the confirm offset."""
    producer_retention_ms: Annotated[int, Ge(3_600_000)] = 7 * 24 * 3_600_000
    """How long the sequences of a silent producer are kept, measured by the log's store times; it
    must be at least twice as long as a client retries a request."""
    producer_sequences_kept: Annotated[int, Gt(0)] = 64
    """How many of a producer's last requests are remembered, so that a repeated one gets the same
    result."""
    max_topics: Annotated[int, Gt(0)] = 100_000
    """Number of topics at which no more can be created."""
    max_queues: Annotated[int, Gt(0), Le(MAX_QUEUES)] = 1_000_000
    """Number of queues of all topics at which no topic can be created and no further queue can get
    its first message."""
    max_groups: Annotated[int, Gt(0)] = 10_000
    """Number of consumer groups at which no more can be created."""
    max_offset_rows: Annotated[int, Gt(0)] = 1_000_000
    """Number of consumer offsets (one for each group and queue) at which no more can be added."""
    max_delay_ms: Annotated[int, Gt(0)] = DEFAULT_MAX_DELAY_MS
    """How long a message may be delayed, as RocketMQ's timerMaxDelaySec (3 days); 40 days and more
    are possible."""
    max_delayed: Annotated[int, Gt(0)] = 2_000_000
    """How many messages may wait for their time; each takes about 60 bytes of memory."""
    max_open_halves: Annotated[int, Gt(0)] = 100_000
    """How many messages of open transactions there may be; each takes about 500 bytes of memory."""
    set_aside_kept: Annotated[int, Ge(0)] = 2
    """How many logs that were set aside (resync-*) a slave keeps once it is in sync again."""
    set_aside_hours: Annotated[float, Ge(0)] = 168
    """Age in hours at which a slave deletes those too; 0 means never."""
    producers_kept: Annotated[int, Gt(0)] = 20_000
    """How many producers are remembered at a time. A new one replaces the one that has been silent
    longest; if that is less than an hour, one of the identity or host that has most of them, and it
    has to wait if that is its own."""
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    """When log files are deleted."""

    def __post_init__(self) -> None:
        check_bounds(self)
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
