"""The sections of a node's settings: every key with its default, its limits and its description.

The descriptions are the text of docs/configuration.md (config_docs.py), so each one says in a whole
sentence what the value means.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tandemlog_server.ha.config import Replication
from tandemlog_server.storage.config import FlushMode


class Section(BaseModel):
    """Keys are exact; values are checked and not changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RetentionSection(Section):
    """When log files are deleted, and with them the queue and index files that point into them."""

    reserved_hours: float = Field(
        default=72,
        gt=0,
        description="Hours for which a full log file is kept, counted while the node runs: "
        "a clock that jumps deletes nothing.",
    )
    delete_hours: tuple[int, ...] = Field(
        default=(4,),
        description="Hours of the day (0..23, local time) in which expired files are deleted.",
    )
    check_interval_ms: int = Field(
        default=10_000, gt=0, description="Time between two checks for files to delete."
    )
    delete_batch_max: int = Field(
        default=10, gt=0, description="Maximum number of files that one check deletes."
    )
    disk_max_used_percent: int = Field(
        default=75, description="Disk usage above which expired files are deleted at any hour."
    )
    disk_clean_forcibly_percent: int = Field(
        default=85,
        description="Disk usage above which the oldest files are deleted even before they expire.",
    )
    disk_warning_percent: int = Field(
        default=90, description="Disk usage above which puts are refused."
    )
    clean_forcibly: bool = Field(
        default=True,
        description="Whether files may be deleted before they expire when the disk is nearly full.",
    )


class StoreSection(Section):
    """The store on this node's disk. The sizes of log and queue files apply to a new store; for an
    existing one they are read from its files."""

    directory: Path = Field(
        default=Path("store"),
        description="Folder of the store; it is created if it does not exist.",
    )
    commit_log_file_size: int = Field(
        default=1 << 30, description="Size of a commit log file in bytes."
    )
    queue_file_size: int = Field(
        default=6_000_000, description="Size of a consume queue file in bytes, a multiple of 20."
    )
    index_slots: int = Field(
        default=5_000_000, description="Number of hash slots in each index file."
    )
    index_entries: int = Field(
        default=20_000_000, description="Number of entries for which each index file has room."
    )
    index_enabled: bool = Field(
        default=True, description="Whether the keys of messages are indexed."
    )
    index_tags: bool = Field(
        default=True, description="Whether tags are indexed too, as in RocketMQ 5.4."
    )

    flush: FlushMode = Field(
        default=FlushMode.ASYNC,
        description="async: the log is flushed at intervals; sync: a put waits until its bytes are "
        "flushed.",
    )
    flush_interval_ms: int = Field(default=500, gt=0, description="Time between two flushes.")
    flush_least_pages: int = Field(
        default=4,
        ge=0,
        description="Minimum number of unflushed pages (4 KiB each) for a flush at that interval.",
    )
    flush_thorough_interval_ms: int = Field(
        default=10_000,
        gt=0,
        description="Time after which the log is flushed even if there is less than that.",
    )
    buffered: bool = Field(
        default=False,
        description="Whether appends go to memory first and to the file every commit_interval_ms.",
    )
    commit_interval_ms: int = Field(
        default=200, gt=0, description="Time between two commits to the file, if buffered."
    )
    commit_least_pages: int = Field(
        default=4,
        ge=0,
        description="Minimum number of uncommitted pages (4 KiB each) for a commit at that "
        "interval.",
    )
    checkpoint_interval_ms: int = Field(
        default=500,
        gt=0,
        description="Minimum time between two checkpoints, which flush queues, index and producer "
        "table.",
    )
    warm_up: bool = Field(
        default=False,
        description="Whether every page of a new log file is touched before the file is used.",
    )
    lock_memory: bool = Field(
        default=False,
        description="Whether the log file that is being written is locked in memory (mlock).",
    )

    max_message_size: int = Field(
        default=4 << 20, gt=0, description="Maximum size of a message body in bytes."
    )
    max_batch_size: int = Field(
        default=32 << 20, gt=0, description="Maximum size of a put request in bytes."
    )
    max_dirty_bytes: int = Field(
        default=1 << 30,
        gt=0,
        description="Number of unflushed bytes above which puts wait for the disk.",
    )
    busy_timeout_ms: int = Field(
        default=1_000,
        ge=0,
        description="How long a put waits for the disk before it is refused as busy.",
    )
    max_reput_lag_bytes: int = Field(
        default=32 << 20,
        gt=0,
        description="Number of bytes not yet dispatched to queues and index above which puts wait "
        "for dispatch.",
    )
    verify_crc_on_recover: bool = Field(
        default=True, description="Whether recovery checks the CRC of message bodies."
    )
    property_crc: bool = Field(
        default=False,
        description="Whether every record gets RocketMQ's CRC32 over all its bytes, which takes 20 "
        "more bytes and is checked wherever records are read (RocketMQ 5.2 and later: "
        "enabledAppendPropCRC).",
    )

    store_host: str = Field(
        default="",
        description="host:port that is written into records; if empty, the advertised endpoint.",
    )
    delay_levels: str = Field(
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        description="RocketMQ's delay levels, which give the tags code of delayed messages.",
    )
    producer_retention_ms: int = Field(
        default=7 * 24 * 3_600_000,
        ge=3_600_000,
        description="How long the sequences of a silent producer are kept, measured by the log's "
        "store times; it must be at least twice as long as a client retries a request.",
    )
    producer_sequences_kept: int = Field(
        default=64,
        gt=0,
        description="How many of a producer's last requests are remembered, so that a repeated one "
        "gets the same result.",
    )
    max_topics: int = Field(
        default=100_000, gt=0, description="Number of topics at which no more can be created."
    )
    max_queues: int = Field(
        default=1_000_000,
        gt=0,
        le=1 << 22,
        description="Number of queues of all topics at which no topic can be created and no "
        "further "
        "queue can get its first message.",
    )
    max_groups: int = Field(
        default=10_000,
        gt=0,
        description="Number of consumer groups at which no more can be created.",
    )
    max_offset_rows: int = Field(
        default=1_000_000,
        gt=0,
        description="Number of consumer offsets (one for each group and queue) at which no more "
        "can "
        "be added.",
    )
    set_aside_kept: int = Field(
        default=2,
        ge=0,
        description="How many logs that were set aside (resync-*) a slave keeps once it is in sync "
        "again.",
    )
    set_aside_hours: float = Field(
        default=168,
        ge=0,
        description="Age in hours at which a slave deletes those too; 0 means never.",
    )
    producers_kept: int = Field(
        default=20_000,
        gt=0,
        description="How many producers are remembered at a time. A new one replaces the one that "
        "has been silent longest; if that is less than an hour, one of the identity or host that "
        "has most of them, and it has to wait if that is its own.",
    )
    retention: RetentionSection = Field(
        default=RetentionSection(), description="See [store.retention]."
    )


class ReplicationSection(Section):
    """How a master replicates to its slaves."""

    mode: Replication = Field(
        default=Replication.ASYNC,
        description="sync: a put is confirmed once every in-sync replica has stored it durably; "
        "async: once the master has.",
    )
    min_in_sync: int = Field(
        default=1,
        ge=1,
        description="Number of in-sync replicas, including the master, below which sync puts are "
        "refused.",
    )
    heartbeat_ms: int = Field(
        default=300, gt=0, description="Time without other traffic after which a heartbeat is sent."
    )
    dead_after_ms: int = Field(
        default=3_000, gt=0, description="Silence after which a peer is considered dead."
    )
    replica_lag_time_ms: int = Field(
        default=3_000,
        gt=0,
        description="How long a slave may lag behind before it leaves the in-sync set.",
    )
    rejoin_ms: int = Field(
        default=1_000,
        ge=0,
        description="How long a slave must keep up before it rejoins the in-sync set.",
    )
    confirm_interval_ms: int = Field(
        default=5,
        gt=0,
        description="Minimum time between two messages that carry only the confirm offset.",
    )
    metadata_interval_ms: int = Field(
        default=300,
        gt=0,
        description="Time between two checks for changed topics, groups and consumer offsets.",
    )
    members_interval_ms: int = Field(
        default=1_000,
        gt=0,
        description="Minimum time between two lists of the members that are sent to the slaves.",
    )
    chunk_bytes: int = Field(
        default=4 << 20,
        description="Maximum number of log bytes in one message of the stream; on a slow link it "
        "is "
        "less.",
    )
    window_bytes: int = Field(
        default=256 << 20,
        description="Maximum number of bytes that are sent to a slave and not yet acknowledged.",
    )
    flush_batch_bytes: int = Field(
        default=16 << 20,
        gt=0,
        description="How many bytes a slave collects before it flushes and acknowledges them.",
    )
    log_first_bytes: int = Field(
        default=16 << 20,
        ge=0,
        description="How many bytes a slave must be behind the master to receive log before it "
        "dispatches.",
    )
    log_first_ms: int = Field(
        default=10_000,
        ge=0,
        description="How long dispatch on a slave is held back for that at most.",
    )
    proof_bytes: int = Field(
        default=64 << 10,
        gt=0,
        description="How many bytes before the end of its log a slave proves to be equal when it "
        "connects.",
    )
    checksum_block_bytes: int = Field(
        default=1 << 20,
        gt=0,
        description="Size of a block in bytes when two logs are compared by checksums.",
    )
    reconnect_min_ms: int = Field(
        default=100, gt=0, description="First pause before a slave reconnects."
    )
    reconnect_max_ms: int = Field(
        default=5_000, gt=0, description="Longest pause before a slave reconnects."
    )
    refused_retry_ms: int = Field(
        default=10_000, gt=0, description="Pause after a refusal that an operator has to resolve."
    )
    forget_after_ms: int = Field(
        default=600_000,
        gt=0,
        description="Time after which an absent slave that was not in sync is removed from the "
        "list.",
    )
    max_streams: int = Field(
        default=64,
        gt=0,
        description="Maximum number of streams of slaves that have never been in sync; the others "
        "may have as many again.",
    )


class PutSection(Section):
    """How the node accepts puts."""

    timeout_ms: int = Field(
        default=5_000,
        gt=0,
        description="How long a put waits for its confirmation before it fails with an unknown "
        "outcome.",
    )
    max_pending_bytes: int = Field(
        default=128 << 20,
        gt=0,
        description="Maximum number of bytes in requests that wait to be appended; above it, "
        "streams wait. Requests that are being received by data connections may have as many "
        "again; an eighth of the machine's memory is the most that counts.",
    )
    max_unconfirmed_bytes: int = Field(
        default=1 << 30,
        gt=0,
        description="Number of unconfirmed log bytes above which all puts are refused, even those "
        "that do not wait for replicas.",
    )


class PullSection(Section):
    """How the node serves pulls."""

    threads: int = Field(
        default=4, ge=1, le=64, description="Number of threads that read for pulls and queries."
    )
    max_bytes: int = Field(
        default=8 << 20,
        gt=0,
        le=48 << 20,
        description="Maximum size of one response in bytes, not counting the first record. gRPC "
        "copies it in the event loop, which takes some milliseconds for 8 MiB.",
    )
    max_wait_ms: int = Field(
        default=60_000, ge=0, description="Maximum time that a long poll waits."
    )
    chunk_bytes: int = Field(
        default=1 << 20,
        gt=0,
        le=8 << 20,
        description="Size of one chunk of FetchSegmentRange in bytes.",
    )


class LimitsSection(Section):
    """What all callers together may use of this node, not counting replication. One identity, or
    one host without identities, gets at most three quarters of `calls`, `streams`, `long_polls` and
    `answer_bytes`, and less the more others use (security.md). A request above a limit is refused
    as BUSY."""

    calls: int = Field(
        default=8_192,
        ge=16,
        description="Maximum number of calls in progress, including streams and long polls.",
    )
    streams: int = Field(
        default=1_024,
        ge=4,
        description="Maximum number of streams for puts, log ranges and health.",
    )
    long_polls: int = Field(
        default=4_096, ge=0, description="Maximum number of pulls that wait for a message."
    )
    answer_bytes: int = Field(
        default=256 << 20,
        ge=8 << 20,
        description="Maximum number of bytes in responses that are being read or sent; each byte "
        "counts twice because gRPC copies it. One connection may use half of it, and all of them "
        "together an eighth of the machine's memory at most.",
    )
    connection_calls: int = Field(
        default=2_048,
        ge=4,
        description="Maximum number of calls of one connection in progress. HTTP/2 lets a "
        "connection have 1,024; a lower limit refuses them by name.",
    )
    connection_streams: int = Field(
        default=512, ge=1, description="Maximum number of streams of one connection."
    )
    connection_long_polls: int = Field(
        default=1_024, ge=0, description="Maximum number of long polls of one connection."
    )
    connection_bytes_in_flight: int = Field(
        default=256 << 20,
        ge=1 << 20,
        description="Maximum number of bytes of puts of one connection that have no answer yet; "
        "the request that crosses the limit is still accepted.",
    )
    connection_calls_per_s: int = Field(
        default=0,
        ge=0,
        description="Maximum number of calls and of requests in streams per second of one "
        "connection; 0 means no limit.",
    )
    connection_bytes_per_s: int = Field(
        default=0,
        ge=0,
        description="Maximum number of bytes per second, in and out, of one connection; a put "
        "above it waits, and a read is refused. 0 means no limit.",
    )
    metric_topics: int = Field(
        default=1_000,
        ge=0,
        description="Maximum number of topics that have time series of their own in /metrics; the "
        "rest is summed as `other`.",
    )
    metric_groups: int = Field(
        default=1_000,
        ge=0,
        description="The same maximum for consumer groups, and for pairs of group and topic.",
    )


class LogSection(Section):
    """What the node logs on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    format: Literal["text", "json"] = Field(
        default="text",
        description="Lines for people, or one JSON object per line; docs/monitoring.md has its "
        "fields.",
    )
