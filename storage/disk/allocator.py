"""Makes the next log file before it is needed, in a thread of its own.

    log directory     000...0  000...1      files in use
    spare directory   spare.new             posix_fallocated, zero, fsynced; renamed when used

A spare stays outside the log directory until it is used, so a crash while allocating never leaves a
file of the wrong length where RocketMQ or tandemlog would refuse it. If the log is on its own disk,
a spare from elsewhere cannot be renamed into it: then spares are created on that disk, in a folder
that RocketMQ 5.1.4 and later skip. Files are allocated with posix_fallocate, not sparse: a full
disk then raises ENOSPC here, instead of a SIGBUS or a failed write in the middle of an append.

`create` puts the spare in place; without one it allocates on the spot. A failure in the background
is only logged: `create` tries again and raises DiskFullError, so a full disk heals by itself.

Warming writes every page once, so that appends find the blocks written and in memory; locking
(mlock) keeps the pages of the newest file and of the spare there.
"""

import errno
import logging
import threading
from collections import deque
from pathlib import Path

from ..disk_errors import refusal
from .disk_space import preallocate_big
from .file_system import ZERO_CHUNK, FileSystem

logger = logging.getLogger(__name__)

SPARE_NAME = "spare.new"
SPARE_FOLDER = "spare"
DRAFT_NAME = "mending.new"
"""Of a file of the log that is written again (scrub/log_mending.py), in either place of a spare."""
LOCKED_FILES = 2


class FileAllocator:
    """Files of `size` bytes; `create` and `prepare` are for one thread, the owner of the log."""

    def __init__(
        self,
        files: FileSystem,
        spare_directory: Path,
        size: int,
        log_directory: Path,
        *,
        warm_up: bool = False,
        lock_memory: bool = False,
    ) -> None:
        self._files = files
        self._directories = spare_directory, log_directory
        self._spare = spare_directory / SPARE_NAME
        self._beside = log_directory / SPARE_FOLDER / SPARE_NAME
        self._size = size
        self._warm_up = warm_up
        self._lock_memory = lock_memory
        self._locked: deque[memoryview] = deque(maxlen=LOCKED_FILES)
        self._ready = False
        self._asked = False
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Remove spares that an earlier process left."""
        remove_spares(self._files, *self._directories)

    def start(self) -> None:
        """Start the background thread; without it every file is made when it is needed."""
        self._thread = threading.Thread(target=self._run, name="log-allocator", daemon=True)
        self._thread.start()

    def prepare(self) -> None:
        """A file will be needed soon. Tried once in the background until the next `create`."""
        if not self._asked:
            self._asked = True
            self._wanted.set()

    def create(self, target: Path) -> None:
        """Put a file of the full size, all zero, at `target`.

        The name is durable after an fsync of the directory. Raises DiskFullError if there is
        no room, StoreReadOnlyError if the disk refuses for another reason.
        """
        with self._lock:
            try:
                if not self._ready:
                    self._allocate(self._spare)
                self._ready = self._asked = False
                self._place(target)
            except OSError as error:
                raise refusal(f"cannot create log file {target.name}", error) from error

    def resize(self, size: int) -> None:
        """New files have `size` bytes from now on; a spare of the old size is removed."""
        with self._lock:
            self._size = size
            self._ready = self._asked = False
            self.open()

    def close(self) -> None:
        """Stop the thread and remove an unused spare, or leave it to the next `open`."""
        self._closing = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            self._ready = False
            self._locked.clear()
            try:
                self.open()
            except OSError as error:
                # no reason to leave the files of the log open
                logger.warning("spare log file not removed: %s", error)

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closing:
                return
            with self._lock:
                if not self._ready:
                    self._prepare_spare()

    def _prepare_spare(self) -> None:
        try:
            self._allocate(self._spare)
        except OSError as error:
            logger.warning("next log file not allocated: size=%d error=%s", self._size, error)

    def _place(self, target: Path) -> None:
        try:
            self._files.rename(self._spare, target)
        except OSError as error:
            if error.errno != errno.EXDEV or self._spare == self._beside:
                raise
            # The log lies on a disk of its own: this spare and all later ones are made there
            self._files.unlink(self._spare)
            self._spare = self._beside
            self._allocate(self._spare)
            self._ready = False
            self._files.rename(self._spare, target)

    def _allocate(self, path: Path) -> None:
        """Caller holds the lock. `_ready` is true afterwards; no file is left after a raise."""
        self._files.make_directory(path.parent)
        handle = self._files.open(path, create=True)
        try:
            self._files.truncate(handle, 0)
            preallocate_big(self._files, handle, path, self._size)
            if self._warm_up:
                for position in range(0, self._size, ZERO_CHUNK):
                    chunk = bytes(min(ZERO_CHUNK, self._size - position))
                    self._files.pwrite(handle, chunk, position)
            self._files.fdatasync(handle)
            if self._lock_memory:
                self._keep_in_memory(handle)
        except OSError:
            self._files.close(handle)
            self._files.unlink(path)
            raise
        self._files.close(handle)
        self._ready = path == self._spare

    def _keep_in_memory(self, handle: int) -> None:
        view = self._files.map(handle, self._size)
        try:
            self._files.lock_memory(view)
        except OSError as error:
            # it is only slower; RLIMIT_MEMLOCK is the usual reason
            logger.warning("log file not locked in memory: size=%d error=%s", self._size, error)
            return
        self._locked.append(view)


def remove_spares(files: FileSystem, spare_directory: Path, log_directory: Path) -> None:
    """Remove what an earlier process left: on a full disk there may be no other room."""
    folder = log_directory / SPARE_FOLDER
    for place in (spare_directory, folder):
        for spare in (place / SPARE_NAME, place / DRAFT_NAME):
            if files.status(spare) is not None:
                files.unlink(spare)
    if files.status(folder) is not None and not files.listdir(folder):
        files.remove_directory(folder)
