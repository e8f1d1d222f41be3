"""What the scrub needs of a store: a MessageStore is one."""

from collections.abc import Sequence
from typing import Protocol

from ..clock import Clock
from ..config import StoreConfig
from ..disk.file_system import FileSystem
from ..dispatch.reput import ReputService
from ..log.commit_log import CommitLog
from ..log.log_scanner import Damage
from ..metadata.log_identity import LogIdentity
from ..positions import Position
from .log_mending import Pace, Patch, at_once


class ScrubbedStore(Protocol):
    """See the module."""

    @property
    def log(self) -> CommitLog: ...

    @property
    def files(self) -> FileSystem: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> StoreConfig: ...

    @property
    def confirmed(self) -> Position: ...

    @property
    def reputed(self) -> Position: ...

    @property
    def reput(self) -> ReputService: ...

    @property
    def damages(self) -> list[Damage]: ...

    @property
    def log_identity(self) -> LogIdentity: ...

    def mend(
        self, patches: Sequence[Patch], *, pace: Pace = at_once, again: bool = False
    ) -> None: ...


def scrub_limit(store: ScrubbedStore) -> int:
    """Up to where the log is scrubbed: a record ends there, it is dispatched, confirmed and on the
    disk, so every byte below has its last value."""
    return min(store.reputed.value, store.confirmed.value, store.log.flushed.value)
