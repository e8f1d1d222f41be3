"""The settings of one node's replication; read from file and environment in `node` only."""

from dataclasses import dataclass, field
from enum import Enum

from tandemlog.transport.security import Security


class Role(Enum):
    """What the configuration makes of a node; ELECTED: the cluster decides (ha/election); RELAY: it
    follows a RocketMQ broker, and leads slaves of its own (rocketmq/follow)."""

    MASTER = "master"
    SLAVE = "slave"
    RELAY = "relay"
    ELECTED = "elected"


class Replication(Enum):
    """Whether a put waits for slaves.

    ASYNC: the confirm offset is the master's own position. SYNC: it is the lowest durable offset
    of the in-sync set, and the set must have `min_in_sync` members (the master is one of them).
    SYNC_DEGRADE: as SYNC, but the set may shrink to the master alone, which then continues.
    """

    ASYNC = "async"
    SYNC = "sync"
    SYNC_DEGRADE = "sync-degrade"

    @property
    def waits(self) -> bool:
        """Whether an acknowledgement waits for the other members of the in-sync set."""
        return self is not Replication.ASYNC


@dataclass(frozen=True, slots=True)
class HaConfig:
    """One node. Sizes in bytes, times in milliseconds, as the names say. `security` is what this
    node shows to a master, and by what it knows one."""

    cluster_id: str
    node_id: str
    role: Role = Role.MASTER
    endpoint: str = ""
    http_endpoint: str = ""
    store_host: str = ""
    master_endpoint: str = ""

    replication: Replication = Replication.ASYNC
    min_in_sync: int = 1

    heartbeat_ms: int = 300
    dead_after_ms: int = 3_000
    replica_lag_time_ms: int = 3_000
    rejoin_ms: int = 1_000
    confirm_interval_ms: int = 5
    metadata_interval_ms: int = 300
    members_interval_ms: int = 1_000
    forget_after_ms: int = 600_000
    max_streams: int = 64

    chunk_bytes: int = 4 << 20
    window_bytes: int = 256 << 20
    flush_batch_bytes: int = 16 << 20
    log_first_bytes: int = 16 << 20
    log_first_ms: int = 10_000
    proof_bytes: int = 64 << 10
    checksum_block_bytes: int = 1 << 20

    reconnect_min_ms: int = 100
    reconnect_max_ms: int = 5_000
    refused_retry_ms: int = 10_000

    security: Security = field(default_factory=Security)

    def __post_init__(self) -> None:
        if not self.cluster_id:
            raise ValueError(
                "cluster_id must not be empty: slaves of other clusters are refused by it"
            )
        if not self.node_id:
            raise ValueError("node_id must not be empty: acknowledgements are counted by node")
        if self.role is Role.SLAVE and not self.master_endpoint:
            raise ValueError("a slave needs master_endpoint, host:port of the master's gRPC")
        if self.min_in_sync < 1:
            raise ValueError(
                f"min_in_sync counts the master too and must be at least 1, not {self.min_in_sync}"
            )
        if self.dead_after_ms < 2 * self.heartbeat_ms:
            raise ValueError(
                f"dead_after_ms ({self.dead_after_ms}) must be at least twice heartbeat_ms "
                f"({self.heartbeat_ms})"
            )
        if not 1 <= self.chunk_bytes <= 32 << 20:
            raise ValueError(f"chunk_bytes must be between 1 and {32 << 20}: {self.chunk_bytes}")
        if self.max_streams < 1:
            raise ValueError(f"max_streams must be at least 1, not {self.max_streams}")
        if self.window_bytes < self.chunk_bytes:
            raise ValueError(
                f"window_bytes ({self.window_bytes}) must be at least chunk_bytes "
                f"({self.chunk_bytes})"
            )

    @property
    def required(self) -> int:
        """How many in-sync members an acknowledgement needs; 1 in async replication."""
        return self.min_in_sync if self.replication is Replication.SYNC else 1
