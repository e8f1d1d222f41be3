"""Raised when an fsync has failed: the next open must not believe the page cache (page_cache.py).

At that moment the disk has a problem, perhaps no space. So the file is created durably when the
store is opened, and raising the flag changes one byte in place: this allocates nothing, and a
single byte cannot be torn. If even that fails, it is tried again until it succeeds or the process
ends.
"""

import logging
from pathlib import Path

from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, write_small

logger = logging.getLogger(__name__)

LOWERED = b"0"
RAISED = b"1"


class FsyncFlag:
    """The flag of one store."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self._durably_raised = False

    def is_raised(self) -> bool:
        return (read_small(self._files, self.path) or LOWERED)[:1] == RAISED

    def lower(self) -> None:
        """Create it if it is missing; durable on return. Raises OSError."""
        self._durably_raised = False
        if self._files.status(self.path) is None:
            write_small(self._files, self.path, LOWERED)
        elif self.is_raised():
            self._set(LOWERED)

    def raise_it(self) -> None:
        """As far as the disk allows; once that has worked, a second call does nothing."""
        if self._durably_raised:
            return
        try:
            self._set(RAISED)
            # a read could show what is only in the cache
            self._durably_raised = True
        except OSError as error:
            logger.error("%s could not be written and will be retried: %s", self.path, error)

    def _set(self, value: bytes) -> None:
        handle = self._files.open(self.path)
        try:
            self._files.pwrite(handle, value, 0)
            self._files.fdatasync(handle)
        finally:
            self._files.close(handle)
