"""Which files have changed since they were looked at last: by size, time and inode.

A file that is replaced by a rename gets another inode; one that is written over, another time or
size. What could not be used is tried again only after the next change, so a fault is one line and
not one for each look. A pair of files is replaced one after the other: for a moment they do not fit
each other, which counts as a fault until the second one changes too.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """What tells two contents of a file apart, without reading them."""

    mtime_ns: int
    size: int
    inode: int


Looks = Mapping[str, Look | None]


class WatchedFiles:
    """See the module. `look` gives None for a file that is not there."""

    def __init__(self, names: Iterable[str], look: Callable[[str], Look | None]) -> None:
        self._names = tuple(dict.fromkeys(name for name in names if name))
        self._look = look
        self._seen = self._looks()

    def changed(self) -> bool:
        """Whether one of the files is another one than at the last call."""
        now = self._looks()
        changed = now != self._seen
        self._seen = now
        return changed

    def _looks(self) -> Looks:
        return {name: self._look(name) for name in self._names}
