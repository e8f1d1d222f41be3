"""The settings of one node's replication, declared as those of a store (storage/config.py)."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from annotated_types import Ge, Gt

from tandemlog.transport.security import Security
from tandemlog_server.storage.config import check_bounds


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """How a master replicates to its slaves. Sizes in bytes, times in milliseconds, as the names
    say."""

    mode: Replication = Replication.ASYNC
    """sync: a put is confirmed once every in-sync replica has stored it durably; async: once the
    master has."""
    min_in_sync: Annotated[int, Ge(1)] = 1
    """Number of in-sync replicas, including the master, below which sync puts are refused."""
    heartbeat_ms: Annotated[int, Gt(0)] = 300
    """Time without other traffic after which a heartbeat is sent."""
    dead_after_ms: Annotated[int, Gt(0)] = 3_000
    """Silence after which a peer is considered dead."""
    replica_lag_time_ms: Annotated[int, Gt(0)] = 3_000
    """How long a slave may lag behind before it leaves the in-sync set."""
    rejoin_ms: Annotated[int, Ge(0)] = 1_000
    """How long a slave must keep up before it rejoins the in-sync set."""
    confirm_interval_ms: Annotated[int, Gt(0)] = 5
    """Minimum time between two messages that carry only the confirm offset."""
    metadata_interval_ms: Annotated[int, Gt(0)] = 300
    """Time between two checks for changed topics, groups and consumer offsets."""
    members_interval_ms: Annotated[int, Gt(0)] = 1_000
    """Minimum time between two lists of the members that are sent to the slaves."""
    chunk_bytes: int = 4 << 20
    """Maximum number of log bytes in one message of the stream; on a slow link it is less."""
    window_bytes: int = 256 << 20
    """Maximum number of bytes that are sent to a slave and not yet acknowledged."""
    flush_batch_bytes: Annotated[int, Gt(0)] = 16 << 20
    """How many bytes a slave collects before it flushes and acknowledges them."""
    log_first_bytes: Annotated[int, Ge(0)] = 16 << 20
    """How many bytes a slave must be behind the master to receive log before it dispatches."""
    log_first_ms: Annotated[int, Ge(0)] = 10_000
    """How long dispatch on a slave is held back for that at most."""
    proof_bytes: Annotated[int, Gt(0)] = 64 << 10
    """How many bytes before the end of its log a slave proves to be equal when it connects."""
    checksum_block_bytes: Annotated[int, Gt(0)] = 1 << 20
    """Size of a block in bytes when two logs are compared by checksums."""
    reconnect_min_ms: Annotated[int, Gt(0)] = 100
    """First pause before a slave reconnects."""
    reconnect_max_ms: Annotated[int, Gt(0)] = 5_000
    """Longest pause before a slave reconnects."""
    refused_retry_ms: Annotated[int, Gt(0)] = 10_000
    """Pause after a refusal that an operator has to resolve."""
    forget_after_ms: Annotated[int, Gt(0)] = 600_000
    """Time after which an absent slave that was not in sync is removed from the list."""
    max_streams: Annotated[int, Gt(0)] = 64
    """Maximum number of streams of slaves that have never been in sync; the others may have as many
    again."""

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.dead_after_ms < 2 * self.heartbeat_ms:
            raise ValueError(
                f"dead_after_ms ({self.dead_after_ms}) must be at least twice heartbeat_ms "
                f"({self.heartbeat_ms})"
            )
        if not 1 <= self.chunk_bytes <= 32 << 20:
            raise ValueError(f"chunk_bytes must be between 1 and {32 << 20}: {self.chunk_bytes}")
        if self.window_bytes < self.chunk_bytes:
            raise ValueError(
                f"window_bytes ({self.window_bytes}) must be at least chunk_bytes "
                f"({self.chunk_bytes})"
            )

    @property
    def required(self) -> int:
        """How many in-sync members an acknowledgement needs; 1 in async replication."""
        return self.min_in_sync if self.mode is Replication.SYNC else 1


@dataclass(frozen=True, slots=True)
class HaConfig(ReplicationConfig):
    """One node and its replication. `security` is what this node shows to a master, and by what it
    knows one."""

    cluster_id: str
    node_id: str
    role: Role = Role.MASTER
    endpoint: str = ""
    http_endpoint: str = ""
    store_host: str = ""
    master_endpoint: str = ""
    security: Security = field(default_factory=Security)
    rocketmq_endpoint: str = ""
    rocketmq_grpc_endpoint: str = ""

    def __post_init__(self) -> None:
        ReplicationConfig.__post_init__(self)  # super() does not find a class with slots
        if not self.cluster_id:
            raise ValueError(
                "cluster_id must not be empty: slaves of other clusters are refused by it"
            )
        if not self.node_id:
            raise ValueError("node_id must not be empty: acknowledgements are counted by node")
        if self.role is Role.SLAVE and not self.master_endpoint:
            raise ValueError("a slave needs master_endpoint, host:port of the master's gRPC")
