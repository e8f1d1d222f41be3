"""A node of the simulated cluster with a real store on its disk, and what its process is made of.

StoreNode   clock (its own wall clock) ── files (its disk) ── store, while it is up
                                                               ├─ master: group, tables, answers
                                                               └─ slave: as in ha_nodes
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fakes.clock import FakeClock
from ha.errors import DivergedError, HaError
from ha.metadata_sync import MetadataSource
from ha.state import HaState
from sim.ha_nodes import MasterSide, SlaveSide, ViolationError
from sim.store_disk import NodeFiles
from sim.store_requests import Request
from storage.config import ConfirmSource, FlushMode, RetentionConfig, StoreConfig
from storage.errors import BatchRefusedError, StoreError
from storage.message_store import MessageStore
from tandemlog.format.errors import FormatError

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
    sent: dict[int, dict[str, int]] = field(default_factory=dict)
    state: HaState | None = None


@dataclass
class StoreNode:
    """See the module; `store` is None while the node is down. `damaged` are log offsets at which
    the disk gives other bits than were written."""

    name: str
    clock: NodeClock
    files: NodeFiles
    store: MessageStore | None = None
    master: StoreMaster | None = None
    slave: SlaveSide | None = None
    lives: int = 0
    lowest_confirm: int = 0
    damaged: set[int] = field(default_factory=set)
    answers: list[Request] = field(default_factory=list)

    @property
    def log_begin(self) -> int:
        """Where the log on the disk begins, 0 where there is none."""
        names = self.files.names(DIRECTORY / "commitlog")
        return min((int(name) for name in names if name.isdigit()), default=0)

    @contextmanager
    def troubled(self) -> Iterator[None]:
        """Around a call that may fail only where the disk is in trouble, and only by name."""
        before = self.files.refused
        store = self.store
        try:
            yield
        except (ViolationError, DivergedError, BatchRefusedError):
            raise
        except (StoreError, HaError, FormatError, OSError) as fault:
            failed = store is not None and store.failure is not None
            if self.files.refused == before and not self.files.full and not failed:
                raise ViolationError(f"{self.name}: {fault!r} on a good disk") from fault
            raise
        except Exception as fault:
            raise ViolationError(f"{self.name}: {fault!r}") from fault
