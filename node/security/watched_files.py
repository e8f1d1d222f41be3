"""Which files have changed since they were looked at last: by size, time and inode.

A file that is replaced by a rename gets another inode; one that is written over, another time or
size. Files that could not be used are tried again only after the next change, so a fault is one
line, not one for each check. A pair of files is replaced one after the other: for a moment they do
not fit each other, which counts as a fault until the second one changes too.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells two contents of a file apart, without reading them."""

    mtime_ns: int
    size: int
    inode: int


States = Mapping[str, FileState | None]


def state_of_file(name: str) -> FileState | None:
    """A file as it is now; None if it cannot be looked at."""
    try:
        status = os.stat(name)
    except OSError:
        return None
    return FileState(status.st_mtime_ns, status.st_size, status.st_ino)


class WatchedFiles:
    """See the module. `state_of` gives None for a file that cannot be looked at."""

    def __init__(self, names: Iterable[str], state_of: Callable[[str], FileState | None]) -> None:
        self._names = tuple(dict.fromkeys(name for name in names if name))
        self._state_of = state_of
        self._seen = self._states()

    def changed(self) -> bool:
        """Whether one of the files is another one than at the last call."""
        now = self._states()
        changed = now != self._seen
        self._seen = now
        return changed

    def _states(self) -> States:
        return {name: self._state_of(name) for name in self._names}
