"""The sections of a node's settings: every key with its default, its bounds and its description.

The store and replication declare their own settings (storage/config.py, ha/config.py). Their
sections are those dataclasses, read strictly from file and environment: `config.store` is a
StoreConfig. All other sections are declared here and in the files beside this one.

The string below a key is its text in docs/configuration.md (config_docs.py), so each one says in a
whole sentence what the value means.
"""

from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from tandemlog_server.ha.config import ReplicationConfig
from tandemlog_server.storage.config import ConfirmSource, RetentionConfig, StoreConfig

STRICT = ConfigDict(extra="forbid")
"""For dataclasses, as `__pydantic_config__`: pydantic 2.10 takes a dataclass whose annotations are
all inherited for a plain one, and ignores the defaults that it replaces."""


class Section(BaseModel):
    """Keys are exact; values are checked and not changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def keys_of(section: type) -> dict[str, FieldInfo]:
    """The keys of a section, or of the top level, in the order of their declaration."""
    fields: dict[str, FieldInfo] = getattr(section, "__pydantic_fields__", {})
    return {name: each for name, each in fields.items() if each.init is not False}


def section_of(key: FieldInfo) -> type | None:
    """The section that a key stands for; None for a key with a value of its own."""
    kind = key.annotation
    return kind if isinstance(kind, type) and hasattr(kind, "__pydantic_fields__") else None


@dataclass(frozen=True)
class RetentionSection(RetentionConfig):
    """When log files are deleted, and with them the queue and index files that point into them."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT


@dataclass(frozen=True)
class StoreSection(StoreConfig):
    """The store on this node's disk. The sizes of log and queue files apply to a new store; for an
    existing one they are read from its files."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    directory: Path = Path("store")
    store_host: str = ""
    """host:port that is written into records; if empty, the advertised endpoint, that for
    RocketMQ's clients where there is one: they read a message by its id from there."""
    confirm: ConfirmSource = field(init=False, default=ConfirmSource.REPLICATION)
    """No key: a master without slaves too leaves to its replication what is confirmed."""
    retention: RetentionSection = RetentionSection()


@dataclass(frozen=True)
class ReplicationSection(ReplicationConfig):
    """How a master replicates to its slaves."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT


class FollowingSection(Section):
    """How a node with `follow` asks its broker for what is not in the log."""

    offsets_interval_ms: Annotated[int, Gt(0)] = 1_000
    """Time between two requests for the broker's consumer offsets and the end of its log. It grows
    with the time that the broker takes to answer."""
    tables_interval_ms: Annotated[int, Gt(0)] = 10_000
    """Time between two requests for the broker's topics, groups, delay offsets and request
    modes."""


class PutSection(Section):
    """How the node accepts puts."""

    timeout_ms: Annotated[int, Gt(0)] = 5_000
    """How long a put waits for its confirmation before it fails with an unknown outcome."""
    max_pending_bytes: Annotated[int, Gt(0)] = 128 << 20
    """Maximum number of bytes in requests that wait to be appended; above it, streams wait.
    Requests that are being received by data connections may have as many again; an eighth of the
    machine's memory is the most that counts."""
    max_unconfirmed_bytes: Annotated[int, Gt(0)] = 1 << 30
    """Number of unconfirmed log bytes above which all puts are refused, even those that do not wait
    for replicas."""


class PullSection(Section):
    """How the node serves pulls."""

    threads: Annotated[int, Ge(1), Le(64)] = 4
    """Number of threads that read for pulls and queries."""
    max_bytes: Annotated[int, Gt(0), Le(48 << 20)] = 8 << 20
    """Maximum size of one response in bytes, not counting the first record. gRPC copies it in the
    event loop, which takes some milliseconds for 8 MiB."""
    max_wait_ms: Annotated[int, Ge(0)] = 60_000
    """Maximum time that a long poll waits."""
    chunk_bytes: Annotated[int, Gt(0), Le(8 << 20)] = 1 << 20
    """Size of one chunk of FetchSegmentRange in bytes."""


class LimitsSection(Section):
    """What all callers together may use of this node, not counting replication. One identity, or
    one host without identities, gets at most three quarters of `calls`, `streams`, `long_polls` and
    `answer_bytes`, and less the more others use (security.md). A request above a limit is refused
    as BUSY."""

    calls: Annotated[int, Ge(16)] = 8_192
    """Maximum number of calls in progress, including streams and long polls."""
    streams: Annotated[int, Ge(4)] = 1_024
    """Maximum number of streams for puts, log ranges and health."""
    long_polls: Annotated[int, Ge(0)] = 4_096
    """Maximum number of pulls that wait for a message."""
    answer_bytes: Annotated[int, Ge(8 << 20)] = 256 << 20
    """Maximum number of bytes in responses that are being read or sent; each byte counts twice
    because gRPC copies it. One connection may use half of it, and all of them together an eighth of
    the machine's memory at most."""
    connection_calls: Annotated[int, Ge(4)] = 2_048
    """Maximum number of calls of one connection in progress. HTTP/2 lets a connection have 1,024; a
    lower limit refuses them by name."""
    connection_streams: Annotated[int, Ge(1)] = 512
    """Maximum number of streams of one connection."""
    connection_long_polls: Annotated[int, Ge(0)] = 1_024
    """Maximum number of long polls of one connection."""
    connection_bytes_in_flight: Annotated[int, Ge(1 << 20)] = 256 << 20
    """Maximum number of bytes of puts of one connection that have no answer yet; the request that
    crosses the limit is still accepted."""
    connection_calls_per_s: Annotated[int, Ge(0)] = 0
    """Maximum number of calls and of requests in streams per second of one connection; 0 means no
    limit."""
    connection_bytes_per_s: Annotated[int, Ge(0)] = 0
    """Maximum number of bytes per second, in and out, of one connection; a put above it waits, and
    a read is refused. 0 means no limit."""
    metric_topics: Annotated[int, Ge(0)] = 1_000
    """Maximum number of topics that have time series of their own in /metrics; the rest is summed
    as `other`."""
    metric_groups: Annotated[int, Ge(0)] = 1_000
    """The same maximum for consumer groups, and for pairs of group and topic."""


class GroupsSection(Section):
    """The members of consumer groups, on the master. A request outside these limits is refused by
    name."""

    members: Annotated[int, Ge(1)] = 10_000
    """Maximum number of members of all groups together. One identity, or one host without
    identities, gets three quarters at most, and less the more others have."""
    members_per_group: Annotated[int, Ge(1)] = 1_000
    """Maximum number of members of one group."""
    topics_per_member: Annotated[int, Ge(1)] = 1_024
    """Maximum number of topics that one member subscribes to."""
    min_session_timeout_ms: Annotated[int, Ge(10)] = 1_000
    """Shortest session timeout that a member may ask for. A shorter one finds a dead member sooner,
    and takes a slow network for one."""
    max_session_timeout_ms: Annotated[int, Ge(1_000)] = 1_800_000
    """Longest session timeout that a member may ask for."""
    max_rebalance_timeout_ms: Annotated[int, Ge(1_000)] = 3_600_000
    """Longest time that a member may take to give up a queue; a longer one is shortened to this."""
    heartbeat_interval_ms: Annotated[int, Ge(10)] = 3_000
    """Longest time between two reports of a member; a member with a short session reports four
    times in it."""

    def interval_ms(self, session_timeout_ms: int) -> int:
        """How often a member reports: several times in its session."""
        return max(10, min(self.heartbeat_interval_ms, session_timeout_ms // 4))


class WorkSection(Section):
    """Work queues, on the master: messages that are leased, acknowledged one by one, and come again
    if they are not."""

    queue_unacked: Annotated[int, Ge(1), Le(1_000_000)] = 10_000
    """Maximum number of messages of one queue that a group has received and not ended. Above it,
    nothing new of the queue is delivered to the group."""
    node_unacked: Annotated[int, Ge(1), Le(100_000_000)] = 1_000_000
    """The same for all groups together; a message takes about 100 bytes of memory. One identity, or
    one host without identities, gets three quarters at most, and less the more others have."""
    queues: Annotated[int, Ge(1)] = 100_000
    """Maximum number of queues, each counted once for every group that works on it. One identity,
    or one host without identities, gets three quarters at most, and less the more others have."""
    write_interval_ms: Annotated[int, Ge(1), Le(60_000)] = 100
    """Longest time until acknowledgements are written to the log. What was not written when a
    master is lost is delivered again."""
    grace_ms: Annotated[int, Ge(0), Le(600_000)] = 10_000
    """How long a new master waits before it delivers again what consumers may have received from
    the last one."""


class TransactionsSection(Section):
    """What the master does with transactions that their producers have not ended. Defaults are
    RocketMQ's."""

    check_after_ms: Annotated[int, Ge(100)] = 6_000
    """Age of a transaction at which the master first asks a producer of its group whether it is to
    be committed."""
    check_interval_ms: Annotated[int, Ge(100)] = 30_000
    """Time between two such questions about one transaction."""
    max_checks: Annotated[int, Ge(0)] = 15
    """Number of questions after which a transaction ends as `undecided` says."""
    undecided: Literal["rollback", "keep"] = "rollback"
    """rollback: it is rolled back, with a copy of its messages in TRANS_CHECK_MAX_TIME_TOPIC; keep:
    it stays open until an operator decides, or until it is as old as retention keeps the log."""


class ScrubSection(Section):
    """How a node reads again what it holds, compares it with the other nodes, and mends what is
    damaged: docs/operations.md."""

    on: bool = True
    """Whether it does."""
    bytes_per_s: Annotated[int, Ge(65_536)] = 8 << 20
    """Bytes of the log that are checked in a second, on the average; many small messages count as
    more. A damaged file is written again at eight times this rate."""
    interval_ms: Annotated[int, Gt(0)] = 86_400_000
    """Time between the begins of two rounds through the whole log, if a round takes no longer."""


class LogSection(Section):
    """What the node logs on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged."""
    format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object per line; docs/monitoring.md has its fields."""
