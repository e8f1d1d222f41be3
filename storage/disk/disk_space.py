"""Disk space for the small files, without which a store can neither be opened nor become master.

    small files   session.json, abort, recovery.json, replication.json, epochFileCheckpoint, ...:
                  a few kB each, replaced by a whole new one beside the old
    big files     of log and index: their disk space is allocated before they are used
    queue units   a few bytes at a time, but without end: what is not dispatched yet

A big file must leave some space: it is refused before the disk is asked, because asking can do
harm. A posix_fallocate of more than the free space takes all of it until it fails (on ext4 until
the file is removed), and a small file that is replaced at that moment finds no space.

Queue units leave as much space free as a reserve has, so that dispatch does not use the space that
an open has freed for the small files; they wait in memory and in the log.

Other programs fill disks too. So a store keeps a file that only reserves space
(`tandemlog/reserve`). If an open finds less free space than that, it deletes the file before it
writes anything; the file is created again when there is space for it twice. It has no content, so
nothing is lost with it, and it needs no fsync.
"""

import errno
import logging
import os
from pathlib import Path

from tandemlog.format.constants import PAGE

from .file_system import DiskUsage, FileSystem

logger = logging.getLogger(__name__)

SPARED_BYTES = 2 << 20
RESERVE_BYTES = 1 << 20
# so little that it does not change the percentage by which retention decides
RESERVE_SHARE = 1000
ASKED_BYTES = 1 << 20
"""The disk is asked again after this many bytes."""


def preallocate_big(files: FileSystem, handle: int, path: Path, size: int) -> None:
    """Allocate `size` zero bytes for the new file at `path`. Raises OSError: ENOSPC, before
    anything is allocated, where less than SPARED_BYTES (for a smaller file: its size) would be
    left."""
    use = files.disk_usage(path.parent)
    # some network file systems do not report their size
    if use.total and use.free < size + min(size, SPARED_BYTES):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    files.preallocate(handle, size)


def reserve_size(use: DiskUsage) -> int:
    """RESERVE_BYTES, and of a small disk RESERVE_SHARE."""
    return min(RESERVE_BYTES, use.total // RESERVE_SHARE // PAGE * PAGE)


class RoomForUnits:
    """How many bytes large files below `path` may still take without touching the reserve."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self._path = path
        self._files = files
        self._left = 0

    def claim(self, size: int) -> None:
        """Call before `size` bytes are written, which may touch one more page. Raises OSError:
        ENOSPC where less than a reserve would be left free."""
        size += PAGE
        if size > self._left:
            self._left = self._ask_disk(size)
        self._left -= size

    def _ask_disk(self, size: int) -> int:
        try:
            use = self._files.disk_usage(self._path)
        except FileNotFoundError:
            return size  # it is created with the first file
        # some network file systems do not report their size
        if not use.total:
            return ASKED_BYTES
        room = use.free - reserve_size(use)
        if room < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        return min(room, ASKED_BYTES)


class Reserve:
    """The reserve of one store, the file at `path`."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files

    def release(self) -> bool:
        """Before an open writes: remove the reserve if less space is free than it has; returns
        whether it was removed. Raises OSError."""
        files = self._files
        status = files.status(self.path)
        if status is None or files.disk_usage(self.path.parent).free >= status.size:
            return False
        files.unlink(self.path)
        # a journal gives the space back with this
        files.fsync_directory(self.path.parent)
        logger.warning(
            "the disk is full: %s was released for the small files; it is restored when "
            "%d bytes are free", self.path, 2 * status.size,
        )  # fmt: skip
        return True

    def restore(self) -> None:
        """Create it if it is missing and there is room for it twice. Raises OSError; no file is
        left then."""
        files = self._files
        if files.status(self.path) is not None:
            return
        use = files.disk_usage(self.path.parent)
        size = reserve_size(use)
        if not size or use.free < 2 * size:
            return
        handle = files.open(self.path, create=True)
        try:
            files.preallocate(handle, size)
        except OSError:
            files.unlink(self.path)
            raise
        finally:
            files.close(handle)
