"""`lock`: one process at a time opens a store.

RocketMQ takes a POSIX record lock on byte 0 of this file and writes the four letters `lock`
(section 4.3); taking the same lock keeps a Java broker out, and keeps tandemlog out of the broker's
store. POSIX locks do not prevent a process from locking twice, and closing any handle of the file
releases the lock, so this module also remembers the stores that this process has open.

If that file is removed, a second process would get in, which locks another file of the same name.
So the folder itself is locked first (flock), which no other process can take away.
"""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from weakref import WeakKeyDictionary

from ..disk.file_system import FileSystem
from ..disk.real_file_system import RealFileSystem
from ..disk_errors import refusal
from ..errors import StoreLockedError
from .abort_file import AbortFile

logger = logging.getLogger(__name__)

LOCK_TEXT = b"lock"
Unlock = Callable[[], None]

# The stores that this process has open, by the file system that they are on.
_held: WeakKeyDictionary[FileSystem, set[Path]] = WeakKeyDictionary()
_held_guard = threading.Lock()
_DISK = RealFileSystem()


class LockFile:
    """The exclusive right to one store; `acquire` before the first change, `release` at close."""

    def __init__(self, path: Path, abort: AbortFile, files: FileSystem) -> None:
        self.path = path
        self._abort = abort
        self._files = files
        self._world: FileSystem = _DISK if isinstance(files, RealFileSystem) else files
        self._store = Path(os.path.realpath(path))  # of a loop too
        self._handle: int | None = None
        self._unlock: Unlock | None = None

    def acquire(self) -> None:
        """Raises StoreLockedError that names the process which has the store open, and
        DiskFullError or StoreReadOnlyError if the disk refuses: then nothing is locked."""
        with _held_guard:
            self._refuse_own()
            try:
                self._files.make_directory(self.path.parent)
                self._unlock = self._files.lock_directory(self.path.parent)
                if self._unlock is None:
                    raise self._taken(0)
                self._handle = self._locked()
            except OSError as error:
                raise refusal(f"{self.path.parent} cannot be opened", error) from error
            finally:
                if self._handle is None:
                    self._give_back()
            _held[self._world].add(self._store)

    def check(self) -> None:
        """Raises StoreLockedError as `acquire` does, but locks and writes nothing: another process
        may open the store meanwhile. Raises OSError if the disk refuses, but not for a user who may
        not even read the file."""
        with _held_guard:
            # Before any handle: closing it would give the lock of this process up.
            self._refuse_own()
            if self._files.status(self.path) is None:
                return
            try:
                handle = self._files.open(self.path, write=False)
            except PermissionError as error:
                logger.warning("whether a process has the store open is not known: %s", error)
                return
            try:
                holder = self._files.lock_holder(handle, 0, 1)
            finally:
                self._files.close(handle)
            if holder is not None:
                raise self._taken(holder)

    def release(self) -> None:
        with _held_guard:
            if self._handle is not None:
                self._files.close(self._handle)
                self._handle = None
                self._give_back()
                _held[self._world].discard(self._store)

    def _give_back(self) -> None:
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    def _refuse_own(self) -> None:
        if self._store in _held.setdefault(self._world, set()):
            raise StoreLockedError(
                f"{self.path.parent} is open in this process (pid {os.getpid()}); "
                "close it there first"
            )

    def _locked(self) -> int:
        """A handle of the file, with the lock and RocketMQ's text. After an error it is closed, or
        the lock would outlive the attempt."""
        handle = self._files.open(self.path, create=True)
        try:
            if not self._files.lock_range(handle, 0, 1):
                raise self._taken(self._files.lock_holder(handle, 0, 1) or 0)
            self._files.pwrite(handle, LOCK_TEXT, 0)
        except BaseException:
            self._files.close(handle)
            raise
        return handle

    def _taken(self, holder: int) -> StoreLockedError:
        """`holder`: the process, 0 if the lock does not tell; then the abort file may."""
        process_id = holder or self._abort.process_id()
        name = "another process" if process_id is None else f"process {process_id}"
        return StoreLockedError(
            f"{self.path.parent} is open in {name}; one process at a time may have a store open: "
            "stop that one, or choose another directory"
        )
