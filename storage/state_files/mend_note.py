"""Which stretches of the log were mended whose records are not yet everywhere they belong.

    note written ─▶ file of the log replaced ─▶ queues, index, folds again ─▶ durable ─▶ note gone
                    may take minutes            told: a checkpoint after this has it all

Dispatch had skipped these records, so queues, index and folds on the disk lack them, and
nothing there shows it. While the note is on the disk, an open does that part again; doing it twice
is only work. A checkpoint while the file is still being replaced proves nothing for it.

tandemlog/mended.json, checked JSON: ranges [[start, end], ...], log offsets
"""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from ..disk.checked_json import decode_checked, encode_checked
from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, remove_small, write_small

logger = logging.getLogger(__name__)

Range = tuple[int, int]
"""Log bytes start .. end-1."""


class MendNote:
    """See the module. Any thread may call. `ranges` are all that are noted."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.ranges: tuple[Range, ...] = ()
        self._told: tuple[Range, ...] = ()
        self._lock = threading.Lock()

    @property
    def told(self) -> tuple[Range, ...]:
        """Those that dispatch has been told of."""
        return self._told

    def tell(self, ranges: Sequence[Range]) -> None:
        """Dispatch has been told of these: they may go once it is through, and that is durable."""
        with self._lock:
            self._told = (*self._told, *ranges)

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
        with self._lock:
            self._told = tuple(each for each in self._told if each not in ranges)
            self._write((*self.ranges, *(each for each in ranges if each not in self.ranges)))

    def remove(self, ranges: Sequence[Range]) -> None:
        """Durable on return. Raises OSError."""
        with self._lock:
            self._write(tuple(each for each in self.ranges if each not in ranges))
            self._told = tuple(each for each in self._told if each not in ranges)

    def _write(self, ranges: tuple[Range, ...]) -> None:
        if ranges == self.ranges:
            return
        if ranges:
            write_small(self._files, self.path, encode_checked({"ranges": ranges}))
        else:
            remove_small(self._files, self.path)
        self.ranges = ranges
