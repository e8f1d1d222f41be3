"""Many files with few descriptors, for the consume queues and the index.

A store has thousands of queue files and writes to each of them rarely: descriptors are opened when
first needed, kept in the order of their use, and the longest unused is closed when there are too
many. A descriptor is closed only when no thread is inside a call with it, because its number could
be given to another file. Files are opened and closed outside the lock: with it in its hand, a
thread would hold up all others while the disk, or the interpreter, lets it wait.

If a file to be deleted was already deleted by hand, that is fine. A file is created in a temporary
folder and moved to its place when it has its length.

The pool remembers which files were written until `sync`, and keeps their descriptors open until
then: the kernel reports a failed write-back only to open descriptors, and may forget it with the
last one. A few files are synced one by one; many are synced with one call for the whole file
system, which costs one commit of its journal instead of thousands.
"""

import errno
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ..disk_errors import is_crowded
from ..errors import FlushFailedError, StoreError
from .file_system import Buffer, FileSystem, make_sparse

logger = logging.getLogger(__name__)

Handle = TypeVar("Handle", int, Path)

DRAFT_NAME = "queue.new"
SYNC_TOGETHER = 64
MOST_OPEN = 65_536
"""A write into a file that is open costs 10 µs, and 23 µs into one that is opened for it."""
LOOKED_AT = 256


class FilePool:
    """Access to files below `root` by path. Thread-safe."""

    def __init__(
        self,
        root: Path,
        files: FileSystem,
        *,
        open_files: int | None = None,
        workshop: Path | None = None,
    ) -> None:
        """`open_files` None is half of what the process may have, at most MOST_OPEN. New files are
        made in `workshop`, or in `root` where that is None or on another disk."""
        self.files = files
        self._root = root
        self._draft = (workshop or root) / DRAFT_NAME
        self._making = threading.Lock()
        self._crowded = False
        self._failure: FlushFailedError | None = None
        if open_files is None:
            open_files = min(files.open_limit() // 2, MOST_OPEN)
        self._open_files = open_files
        self._lock = threading.Lock()
        # path -> [descriptor, callers inside]. In _open the file that was unused for longest comes
        # first and is closed first. Files in _unsynced wait for an fsync and stay open.
        self._open: OrderedDict[str, list[int]] = OrderedDict()
        self._unsynced: dict[str, list[int]] = {}
        # how often a path got another file: what a thread has opened meanwhile may be the old one
        self._forgotten = 0
        self._dirty: set[str] = set()
        self._dirty_directories: set[Path] = set()

    def read(self, path: str, position: int, size: int) -> bytes:
        """Up to `size` bytes of an existing file."""
        entry = self._acquire(path)
        try:
            return self.files.pread(entry[0], size, position)
        finally:
            self._release(path, entry)

    def is_cached(self, path: str, position: int, size: int) -> bool:
        """Whether `read` of these bytes would not wait for the disk."""
        entry = self._acquire(path)
        try:
            return self.files.is_cached(entry[0], size, position)
        finally:
            self._release(path, entry)

    def write(self, path: str, position: int, data: Buffer) -> None:
        """Write all of `data` into an existing file; durable after `sync`. Raises FlushFailedError
        if too many files wait for an fsync, so that it had to come first, and it failed."""
        if self._crowded:
            self.sync()
        entry = self._acquire(path)
        try:
            self.files.pwrite(entry[0], data, position)
        finally:
            self._release(path, entry, dirty=True)

    def create(self, path: str, size: int) -> None:
        """Make the file with its full length, sparse and zero; durable after `sync`. A file that is
        there already is stale and becomes empty."""
        where = Path(path)
        with self._making:
            new = self._make_directory(where.parent)
            try:
                make_sparse(self.files, self._draft, where, size)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # the queues lie on a disk of their own; a broker skips files that lie there
                self._draft = self._root / DRAFT_NAME
                make_sparse(self.files, self._draft, where, size)
        self._forget(path)  # a descriptor of what was there before
        with self._lock:
            self._note_dirty(path)
            self._dirty_directories.update(new)

    def shorten(self, path: str, position: int, size: int) -> None:
        """Drop everything from `position` on; the file gets the length `size`, sparse. Raises as
        `write` does. A file that is so already is left alone: after a crash recovery cuts every
        queue, and nearly none has anything there."""
        if self._crowded:
            self.sync()
        entry, changed = self._acquire(path), False
        try:
            if self.files.size(entry[0]) != size or not self.files.is_blank(entry[0], position):
                changed = True
                self.files.truncate(entry[0], position)
                self.files.truncate(entry[0], size)
        finally:
            self._release(path, entry, dirty=changed)

    def mark_dirty(self, path: str) -> None:
        """Something changed the file by other means, through a map: `sync` covers it too."""
        with self._lock:
            self._note_dirty(path)

    def length(self, path: str) -> int:
        entry = self._acquire(path)
        try:
            return self.files.size(entry[0])
        finally:
            self._release(path, entry)

    def delete(self, path: str) -> None:
        """Remove the file; the removal is durable after `sync`."""
        self._forget(path)
        try:
            self.files.unlink(Path(path))
        except FileNotFoundError:
            logger.warning("was gone before it was deleted: %s", path)
        with self._lock:
            self._dirty.discard(path)
            self._dirty_directories.add(Path(path).parent)

    def sync(self) -> None:
        """Make everything written, created and deleted before this call durable.

        Raises FlushFailedError if an fsync fails; what was not synced is then forgotten, because a
        second one may report success although the kernel has dropped the pages. Raises OSError if a
        file cannot be opened; the next call continues with what is left.
        """
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        with self._lock:
            self._crowded = False
            dirty, self._dirty = self._dirty, set()
            directories, self._dirty_directories = self._dirty_directories, set()
            self._open.update(self._unsynced)
            self._unsynced.clear()
        try:
            if len(dirty) + len(directories) > SYNC_TOGETHER:
                self._fsync(self.files.sync_all, self._root)
                return
            for path in list(dirty):
                self._sync_file(path)
                dirty.discard(path)
            for directory in list(directories):
                if self.files.status(directory) is not None:
                    self._fsync(self.files.fsync_directory, directory)
                directories.discard(directory)
        except OSError:
            with self._lock:
                for path in dirty:
                    self._note_dirty(path)
                self._dirty_directories |= directories
            raise

    def close(self) -> None:
        """Close the descriptors not in use; later calls open them again. Raises StoreError if a
        file cannot be closed, after all the others. That close is not repeated: its number may
        belong to another file by then."""
        faults = []
        with self._lock:
            for opened in (self._open, self._unsynced):
                for path in [path for path, entry in opened.items() if entry[1] == 0]:
                    entry = opened.pop(path)
                    try:
                        self.files.close(entry[0])
                    except OSError as error:
                        faults.append(StoreError(f"{path} could not be closed: {error}"))
        if faults:
            raise faults[0]

    def _make_directory(self, directory: Path) -> list[Path]:
        """Returns the directories in which a name is new: this one, and the parents that were
        created for it, up to one that existed."""
        new = [directory]
        while self.files.status(new[-1]) is None:
            new.append(new[-1].parent)
        if len(new) > 1:
            self.files.make_directory(directory, durable=False)
        return new

    def _sync_file(self, path: str) -> None:
        try:
            entry = self._acquire(path)
        except FileNotFoundError:
            return  # deleted meanwhile
        try:
            self._fsync(self.files.fdatasync, entry[0])
        finally:
            self._release(path, entry)

    def _fsync(self, call: Callable[[Handle], None], what: Handle) -> None:
        try:
            call(what)
        except OSError as error:
            if is_crowded(error):
                raise  # a directory could not be opened: no fsync was tried
            self._failure = FlushFailedError(f"fsync below {self._root} failed: {error}")
            raise self._failure from error

    def _acquire(self, path: str) -> list[int]:
        while True:
            with self._lock:
                entry = self._entry(path)
                if entry is not None:
                    return entry
                forgotten = self._forgotten
            # not under the lock: see the module
            handle = self.files.open(path)
            unused: list[int] = []
            with self._lock:
                entry = self._entry(path)
                is_new = entry is None and forgotten == self._forgotten
                if is_new:
                    entry = [handle, 1]
                    (self._unsynced if path in self._dirty else self._open)[path] = entry
                    unused = self._take_unused(keep=path)
            try:
                with ExitStack() as closing:
                    for each in unused if is_new else (handle,):
                        closing.callback(self.files.close, each)
            except OSError:
                if entry is not None:
                    self._release(path, entry)
                raise
            if entry is not None:
                return entry

    def _entry(self, path: str) -> list[int] | None:
        """That of an open file, with one caller more inside. Caller holds the lock."""
        entry = self._open.get(path)
        if entry is not None:
            self._open.move_to_end(path)
        elif (entry := self._unsynced.get(path)) is None:
            return None
        entry[1] += 1
        return entry

    def _release(self, path: str, entry: list[int], *, dirty: bool = False) -> None:
        with self._lock:
            if dirty:
                # after the write: a sync that began before it did not cover it
                self._note_dirty(path)
            entry[1] -= 1
            if entry[1] == 0 and entry is not (self._open.get(path) or self._unsynced.get(path)):
                self.files.close(entry[0])

    def _note_dirty(self, path: str) -> None:
        """Caller holds the lock."""
        self._dirty.add(path)
        entry = self._open.pop(path, None)
        if entry is not None:
            self._unsynced[path] = entry

    def _take_unused(self, keep: str) -> list[int]:
        """Descriptors to be closed, no longer in the pool, so that there are not too many. Caller
        holds the lock. If the others wait for an fsync, one more stays open than there should, and
        the next write begins with one."""
        unused: list[int] = []
        while len(self._open) + len(self._unsynced) > self._open_files:
            for path, entry in islice(self._open.items(), LOOKED_AT):
                if entry[1] == 0 and path != keep:
                    break
            else:
                self._crowded = True
                return unused
            del self._open[path]
            unused.append(entry[0])
        return unused

    def _forget(self, path: str) -> None:
        with self._lock:
            self._forgotten += 1
            entry = self._open.pop(path, None) or self._unsynced.pop(path, None)
            if entry is not None and entry[1] == 0:
                self.files.close(entry[0])


def remove_drafts(files: FileSystem, *directories: Path) -> None:
    """Remove drafts that a killed process left."""
    for directory in directories:
        if files.status(directory / DRAFT_NAME) is not None:
            files.unlink(directory / DRAFT_NAME)
