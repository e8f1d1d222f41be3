"""What replication needs from a store: its view of storage.MessageStore.

All calls may block on the disk, so they run in a worker thread; reading a position does not.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from tandemlog.format.constants import Buffer
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.positions import Position

TOPICS = "topics"
GROUPS = "groups"
CONSUMER_OFFSETS = "consumer-offsets"
GROUP_MEMBERS = "group-members"
LOG_IDENTITY = "log-identity"

PROMISED_TABLES = (TOPICS, GROUPS, CONSUMER_OFFSETS, GROUP_MEMBERS)
"""Those whose changes are acknowledged only when the in-sync set has them; of the consumer offsets
those that begin, go back or are dropped."""


class LogPort(Protocol):
    """The commit log: wrote >= committed >= flushed."""

    wrote: Position
    committed: Position
    flushed: Position

    @property
    def min_offset(self) -> int: ...

    @property
    def file_size(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Bytes from `offset` up to committed, at most to the end of the file that holds it."""
        ...

    def in_memory(self, offset: int, max_bytes: int) -> bool:
        """Whether `read` would not wait for the disk."""
        ...

    def next_record(self, offset: int, below: int) -> int | None:
        """Where the first whole record behind `offset` begins; None if none begins below
        `below`."""
        ...


class EpochsPort(Protocol):
    """The durable epoch table: every change is fsynced on return."""

    @property
    def table(self) -> EpochTable: ...

    @property
    def note(self) -> str:
        """Why the table may lack its last change; empty if it does not."""
        ...

    def append(self, entry: EpochEntry) -> None: ...

    def replace(self, table: EpochTable) -> None: ...


class TablePort(Protocol):
    """One of the JSON tables that travel on the stream."""

    @property
    def version(self) -> int: ...

    def to_json(self) -> bytes: ...

    def replace_from_json(self, data: bytes) -> None: ...


class GroupTablePort(TablePort, Protocol):
    """The consumer groups."""

    def take_rows(self, rows: Mapping[str, object], gone: Collection[str], now_ms: int) -> None: ...


class OffsetsPort(TablePort, Protocol):
    """The consumer offsets."""

    def take_rows(
        self, rows: dict[str, object], before: frozenset[tuple[str, str]]
    ) -> frozenset[tuple[str, str]]: ...


class RawIntakePort(Protocol):
    """Checks log bytes before it stores them; holds back the beginning of a record."""

    def take(self, offset: int, data: Buffer, damaged_until: int = 0) -> None:
        """Raises DamagedChunkError if the bytes are no record; those before it are stored."""
        ...


class StorePort(Protocol):
    """A store that is open."""

    @property
    def doubt(self) -> str:
        """Why bytes that others were promised here may be missing since an earlier stop, until
        `forget_doubt`; empty if nothing is missing."""
        ...

    def count_unflushed(self) -> None:
        """From now on others are promised bytes that are not fsynced here yet: an unclean stop of
        the machine leaves a doubt. Durable on return."""
        ...

    def count_flushed(self) -> bool:
        """All that counts here is fsynced, if the log is flushed to its end, until the next put: a
        stop of the machine leaves no doubt. Durable on return; False, and nothing is changed, if
        the log is not flushed."""
        ...

    def forget_doubt(self) -> None:
        """Durable on return."""
        ...

    @property
    def log(self) -> LogPort: ...

    @property
    def epochs(self) -> EpochsPort: ...

    @property
    def confirmed(self) -> Position: ...

    @property
    def reputed(self) -> Position: ...

    @property
    def topics(self) -> TablePort: ...

    @property
    def groups(self) -> GroupTablePort: ...

    @property
    def consumer_offsets(self) -> OffsetsPort: ...

    @property
    def group_members(self) -> TablePort: ...

    @property
    def log_identity(self) -> TablePort: ...

    @property
    def config(self) -> StoreConfig: ...

    @property
    def needs_prologue(self) -> bool:
        """Whether this store does not know the state from before the log's begin, or where the log
        will begin."""
        ...

    def prologue(self, offset: int) -> bytes:
        """The state from before `offset` that a log beginning there does not contain; for
        `take_prologue` of another store."""
        ...

    def take_prologue(self, data: bytes) -> None:
        """Durable on return. Raises FormatError if `data` is no prologue."""
        ...

    def append_raw(self, offset: int, data: Buffer) -> None:
        """Store the master's bytes; `offset` is the log's end, or any where the log is empty."""
        ...

    def raw_intake(self) -> RawIntakePort:
        """Checks and stores the chunks of one stream."""
        ...

    def pass_over(self, start: int, end: int) -> None:
        """The master's own log has no record in start .. end-1."""
        ...

    def damage_end(self, offset: int) -> int:
        """Up to where this log has no record from `offset` on; 0 if one begins there."""
        ...

    def flush(self) -> int:
        """fdatasync what was written; returns the offset up to which the log is durable now."""
        ...

    def advance_confirmed(self, offset: int) -> None: ...

    def truncate(self, offset: int) -> None: ...

    def reset(self, offset: int) -> None:
        """Set the log and everything derived from it aside; an empty log that starts at `offset`
        replaces it."""
        ...

    @property
    def faults(self) -> list[str]:
        """What is wrong and stops nothing."""
        ...

    def drop_set_aside(self) -> int:
        """Delete logs that were set aside, except the newest ones; returns how many."""
        ...

    def adopt_commit_log_file_size(self, size: int) -> None:
        """Only on an empty log: its files will have the master's size."""
        ...

    def become_master(self, epoch: int) -> None:
        """Dispatch to the log's end, write the epoch entry durably, take writes."""
        ...

    def become_relay(self, epoch: int) -> None:
        """Lead this store's slaves in `epoch`, but take no writes: the bytes come from a RocketMQ
        broker."""
        ...

    def become_slave(self) -> None: ...

    def copy_aside(self, start: int, end: int) -> Path:
        """Keep log bytes that are about to be cut in a file of their own; durable on return."""
        ...


def tables_of(store: StorePort) -> dict[str, TablePort]:
    """The tables of `store` under the names that they have on the stream."""
    return {
        TOPICS: store.topics,
        GROUPS: store.groups,
        CONSUMER_OFFSETS: store.consumer_offsets,
        GROUP_MEMBERS: store.group_members,
        LOG_IDENTITY: store.log_identity,
    }
