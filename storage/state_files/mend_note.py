"""Which stretches of the log were mended whose records are not yet everywhere they belong.

    note written ─▶ file of the log replaced ─▶ queues, index, folds again ─▶ durable ─▶ note gone

Dispatch had skipped these records, so queues, index and folds on the disk lack them, and
nothing there shows it. While the note is on the disk, an open does that part again; doing it twice
is only work.

tandemlog/mended.json, checked JSON: ranges [[start, end], ...], log offsets
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from ..disk.checked_json import decode_checked, encode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, remove_small, write_small

logger = logging.getLogger(__name__)

Range = tuple[int, int]
"""Log bytes start .. end-1."""


class MendNote:
    """See the module; the callers take turns."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.ranges: tuple[Range, ...] = ()

    def load(self) -> None:
        """No file: nothing was mended. A damaged one counts for the whole log. Raises OSError."""
        data = read_small(self._files, self.path)
        if data is None:
            return
        try:
            self.ranges = tuple((int(a), int(b)) for a, b in decode_checked(data)["ranges"])
        except (ValueError, KeyError, TypeError):
            logger.warning("%s is damaged: what is derived from the log is rebuilt", self.path)
            self.ranges = ((0, 1 << 62),)

    def add(self, ranges: Sequence[Range]) -> None:
        """Durable on return. Raises OSError."""
        self._write((*self.ranges, *(each for each in ranges if each not in self.ranges)))

    def remove(self, ranges: Sequence[Range]) -> None:
        """Durable on return. Raises OSError."""
        self._write(tuple(each for each in self.ranges if each not in ranges))

    def _write(self, ranges: tuple[Range, ...]) -> None:
        if ranges == self.ranges:
            return
        if ranges:
            write_small(self._files, self.path, encode_checked({"ranges": ranges}))
        else:
            remove_small(self._files, self.path)
        self.ranges = ranges
