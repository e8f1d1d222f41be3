"""Warnings for readers of a store's files that do not open the store.

    an fsync had failed           what is read may only be in the page cache, and not on the disk
    a set-aside was broken off    the log is in part here, in part in the folder that takes it

Opening the store repairs both. Read-only tools do neither: a dropped page may be the only copy of a
message that an operator wants to save, and a dump beside a running node would take away the pages
that the node reads.
"""

from dataclasses import dataclass
from pathlib import Path

from ..disk.file_system import FileSystem
from ..recovery.set_aside import SetAsideNote
from ..state_files.fsync_flag import FsyncFlag
from ..store_paths import StorePaths


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
    found = (set_aside_caution(paths, files), page_cache_caution(paths, files))
    return [each for each in found if each is not None]
