"""The settings of a reader or a writer of format("tandemlog"): typed, checked and with defaults.

The options are read from Spark's text in option_reading.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tandemlog.cluster.topology import ReadFrom
from tandemlog.transport.security import Security

from .queue_offsets import Position

CONNECTING: Final = {
    "cluster": "cluster",
    "caFile": "ca_file",
    "certFile": "cert_file",
    "keyFile": "key_file",
    "token": "token",
    "tokenFile": "token_file",
    "serverName": "server_name",
}
"""How a cluster is reached, beside its endpoint, for both sources: option -> setting of
tandemlog/cluster/profiles.py."""


class Strategy(Enum):
    """What to do with a starting time that is later than every message of a queue."""

    ERROR = "error"
    LATEST = "latest"


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How to reach the cluster; times in ms."""

    endpoint: tuple[str, ...]
    request_timeout_ms: int = 10_000
    retry_timeout_ms: int = 30_000
    security: Security = field(default_factory=Security)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which queues are read: exactly one of the fields is set. `assigned` by topic."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits of one micro-batch: rows, bytes (about), rows to wait for and for how long (ms)."""

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = 900_000


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How many tasks read: see partition_plan.py."""

    min_partitions: int | None = None
    max_partitions: int | None = None
    max_records: int | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The settings of a reader. `tags` None and `where` empty: all; sizes in bytes, times in ms."""

    cluster: ClusterOptions
    selection: Selection
    start: Position | None = None
    end: Position | None = None
    time_strategy: Strategy = Strategy.ERROR
    fail_on_data_loss: bool = True
    admission: Admission = field(default_factory=Admission)
    partitioning: Partitioning = field(default_factory=Partitioning)
    columns: tuple[str, ...] | None = None
    tags: str | None = None
    where: str = ""
    read_from: ReadFrom = ReadFrom.SLAVE
    group: str | None = None
    pull_bytes: int = 8 << 20
    pull_timeout_ms: int = 30_000
    verify_crc: bool = True


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The settings of a writer. `topic` None: taken from the column; sizes in bytes, times in
    ms."""

    cluster: ClusterOptions
    topic: str | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    idempotency_id: str | None = None
    idempotency_epoch: int = 0
    batch_messages: int = 4096
    batch_bytes: int = 1 << 20
    send_timeout_ms: int = 120_000
    wait: bool = True
    unique_ids: bool = True


class Use(Enum):
    """What options are for."""

    BATCH = "a batch read"
    STREAM = "a stream"
    WRITE = "a write"
