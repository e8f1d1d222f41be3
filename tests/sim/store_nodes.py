"""A node of the simulated cluster with a real store on its disk, and what its process is made of.

StoreNode   clock (its own wall clock) ── files (its disk) ── store, while it is up
                                                               ├─ master: group, tables, answers
                                                               └─ slave: as in ha_nodes
"""

from dataclasses import dataclass, field
from pathlib import Path

from fakes.clock import FakeClock
from sim.ha_nodes import MasterSide, SlaveSide, ViolationError
from sim.store_disk import NodeFiles
from sim.store_requests import Request
from tandemlog.format.errors import FormatError
from tandemlog_server.ha.errors import ChunkDamagedError, DivergedError, HaError, LogMovedError
from tandemlog_server.ha.master.metadata_sync import MetadataSource, TableCursor
from tandemlog_server.ha.state import HaState
from tandemlog_server.storage.config import ConfirmSource, FlushMode, RetentionConfig, StoreConfig
from tandemlog_server.storage.errors import BatchRefusedError, StoreBusyError, StoreError
from tandemlog_server.storage.message_store import MessageStore

DIRECTORY = Path("/store")
HOUR_S = 3600.0
CONFIG = StoreConfig(
    directory=DIRECTORY,
    commit_log_file_size=4096,
    queue_file_size=200,
    index_slots=8,
    index_entries=24,
    flush=FlushMode.SYNC,
    busy_timeout_ms=0,
    confirm=ConfirmSource.REPLICATION,
    producer_retention_ms=round(6 * HOUR_S * 1000),
    producer_sequences_kept=4,
    retention=RetentionConfig(reserved_hours=1, delete_hours=tuple(range(24))),
)


class NodeClock(FakeClock):
    """The clocks of one machine: time passes as everywhere, the wall clock may be set wrong."""

    def __init__(self, world: FakeClock) -> None:
        super().__init__()
        self._world = world
        self.wrong_ms = 0

    def now_ms(self) -> int:
        return self._world.now_ms() + self.wrong_ms

    def monotonic(self) -> float:
        return self._world.monotonic()


@dataclass
class StoreMaster(MasterSide):
    """A master's term: and what it sends beside the log."""

    tables: MetadataSource | None = None
    sent: dict[int, TableCursor] = field(default_factory=dict)
    state: HaState | None = None


@dataclass
class StoreNode:
    """See the module; `store` is None while the node is down. `damaged` are log offsets at which
    the disk gives other bits than were written; `new_topics` are those that somebody waits for,
    with the version of the table; `may_hear_damage`: its master sends what is no record; `short`:
    it has lost what others were promised without an fsync, with its power or in a failed fsync;
    `refused_before` are the calls that its disk had refused before the store was opened."""

    name: str
    clock: NodeClock
    files: NodeFiles
    store: MessageStore | None = None
    master: StoreMaster | None = None
    slave: SlaveSide | None = None
    lives: int = 0
    lowest_confirm: int = 0
    refused_before: int = 0
    damaged: set[int] = field(default_factory=set)
    answers: list[Request] = field(default_factory=list)
    new_topics: list[tuple[str, int]] = field(default_factory=list)
    may_hear_damage: bool = False
    short: bool = False

    @property
    def log_begin(self) -> int:
        """Where the log on the disk begins, 0 where there is none."""
        names = self.files.names(DIRECTORY / "commitlog")
        return min((int(name) for name in names if name.isdigit()), default=0)

    def log_bytes(self) -> list[bytes | None]:
        """All that is there of the log."""
        folder = DIRECTORY / "commitlog"
        return [self.files.peek(folder / name) for name in self.files.names(folder)]

    def troubled(self) -> "Trouble":
        """Around a call that may fail only where the disk is in trouble, and only by name."""
        return Trouble(self)


class Trouble:
    """See StoreNode.troubled."""

    __slots__ = ("_before", "_node", "_store")

    def __init__(self, node: StoreNode) -> None:
        self._node = node

    def __enter__(self) -> None:
        self._before = self._node.files.refused
        self._store = self._node.store

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        if fault is None or not isinstance(fault, Exception):
            return  # all is well, or the process died
        if isinstance(fault, ViolationError | DivergedError | LogMovedError | BatchRefusedError):
            return
        node = self._node
        if node.may_hear_damage and isinstance(fault, ChunkDamagedError):
            return
        if isinstance(fault, StoreBusyError) and node.files.refused > node.refused_before:
            return  # a queue whose file could not be read is rebuilt by the next dispatch
        if not isinstance(fault, StoreError | HaError | FormatError | OSError):
            raise ViolationError(f"{node.name}: {fault!r}") from fault
        failed = self._store is not None and self._store.failure is not None
        if node.files.refused == self._before and not node.files.full and not failed:
            raise ViolationError(f"{node.name}: {fault!r} on a good disk") from fault
