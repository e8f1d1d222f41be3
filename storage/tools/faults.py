"""What the tools report of a store: its faults, and warnings for readers that do not open it.

    an fsync had failed           what is read may only be in the page cache, and not on the disk
    a set-aside was broken off    the log is in part here, in part in the folder that takes it

Opening the store repairs both. Read-only tools do neither: a dropped page may be the only copy of a
message that an operator wants to save, and a dump beside a running node would take away the pages
that the node reads.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ..disk.file_system import FileSystem
from ..errors import UnreadableError
from ..recovery.set_aside import SetAsideNote
from ..state_files.fsync_flag import FsyncFlag
from ..store_paths import StorePaths

MAX_FAULTS = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it must be: in `file`, about the log offset or the queue offset
    or the entry number `position`."""

    file: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(slots=True)
class FaultReport:
    """What a tool found: the first faults, and notes about what is no fault."""

    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.faults

    def add(self, file: object, position: int, reason: str) -> None:
        self.add_faults([Fault(str(file), position, reason)])

    def add_faults(self, faults: Iterable[Fault]) -> None:
        self.faults += islice(faults, max(MAX_FAULTS - len(self.faults), 0))


@dataclass(slots=True)
class VerifyReport(FaultReport):
    """What verify looked at; the log's faults come before those of what is derived from it.
    `light_queues` are those that the log names in a store that has none: its broker did not keep
    them. `finished` False: a fault ended the check. `log_is_whole` False: the log itself has a
    fault, does not end in zeros, or has a queue that began again. `folds`: the log offset of each
    fold's snapshot that was compared."""

    log_start: int = 0
    log_end: int = 0
    records: int = 0
    units: int = 0
    index_entries: int = 0
    index_files: int = 0
    indexes_tags: bool = True
    finished: bool = True
    log_is_whole: bool = True
    light_queues: set[str] = field(default_factory=set)
    folds: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Caution:
    """`file` says it, `reason` in words; `in_parts`: there is no whole log to look at."""

    file: Path
    reason: str
    in_parts: bool = False


def page_cache_caution(paths: StorePaths, files: FileSystem) -> Caution | None:
    """None if no fsync has failed since the store was opened the last time."""
    if not FsyncFlag(paths.fsync_flag, files).is_raised():
        return None
    return Caution(
        paths.fsync_flag,
        "an fsync has failed: this was read from the page cache, which may differ "
        "from the disk; opening the store (recover) drops the cache first",
    )


def set_aside_caution(paths: StorePaths, files: FileSystem) -> Caution | None:
    """None if no log was being set aside."""
    folder = SetAsideNote(paths, files).load()
    if folder is None:
        return None
    return Caution(
        paths.set_aside,
        "the log was being set aside: opening the store (recover) moves all of it to "
        f"{folder}; until then, the files here may not fit together",
        in_parts=True,
    )


def cautions(directory: Path, files: FileSystem) -> list[Caution]:
    """Both, of the store in `directory`."""
    paths = StorePaths(directory)
    both = (set_aside_caution(paths, files), page_cache_caution(paths, files))
    return [each for each in both if each is not None]


def fault_of(caution: Caution) -> Fault:
    return Fault(str(caution.file), 0, caution.reason)


def unreadable_fault(fault: UnreadableError) -> Fault:
    return Fault(fault.file, fault.position, fault.reason)
