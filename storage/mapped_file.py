"""One file of a log or a queue: written through its descriptor, read through a read-only map.

    base ............................................ base + size
    [ written .................. | zeros, or stale bytes ........ ]

The file has its full size from the start; where data ends is known to its owner alone. Descriptor
and map are opened when first needed and can be released at any time: views that readers still
hold keep the map, and the disk space of a deleted file, until the last of them is gone.

One thread writes, one flushes, any number read. A descriptor is closed only when nobody is inside
a call with it.
"""

import threading
from contextlib import suppress
from pathlib import Path

from .errors import StoreClosedError
from .files import Buffer, FileSystem


class MappedFile:
    """Bytes base .. base+size of a log or queue; positions are relative to `base`."""

    __slots__ = (
        "_files", "_gone", "_handle", "_lock", "_map", "_users", "_writable",
        "base", "path", "size",
    )  # fmt: skip

    def __init__(
        self, files: FileSystem, path: Path, base: int, size: int, *, writable: bool = True
    ) -> None:
        self.path = path
        self.base = base
        self.size = size
        self._files = files
        self._writable = writable
        self._handle = -1
        self._users = 0
        self._gone = False
        self._map: memoryview | None = None
        self._lock = threading.Lock()

    @property
    def end(self) -> int:
        return self.base + self.size

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` or raise OSError; it must fit the file."""
        if position < 0 or position + len(data) > self.size:
            raise ValueError(f"{self.path.name}: {len(data)} bytes at {position} do not fit")
        handle = self._acquire()
        try:
            self._files.pwrite(handle, data, position)
        finally:
            self._release()

    def zero(self, position: int, size: int) -> None:
        """Make `size` bytes from `position` zero."""
        handle = self._acquire()
        try:
            self._files.zero_range(handle, position, size)
        finally:
            self._release()

    def view(self, position: int, size: int) -> memoryview:
        """A read-only view of the map; no copy."""
        mapped = self._map
        if mapped is None:
            mapped = self._open_map()
        if position < 0 or position + size > self.size:
            raise ValueError(f"{self.path.name}: no {size} bytes at {position}")
        return mapped[position : position + size]

    def sync(self) -> None:
        """fdatasync."""
        handle = self._acquire()
        try:
            self._files.fdatasync(handle)
        finally:
            self._release()

    def release(self) -> None:
        """Give descriptor and map back; the next use opens them again."""
        with self._lock:
            self._map = None
            self._close_unused()

    def close(self) -> None:
        """Release for good: a later use raises StoreClosedError."""
        with self._lock:
            self._gone = True
            self._map = None
            self._close_unused()

    def unlink(self) -> None:
        """Delete the file, which stays readable until `close`; durable after an fsync of the
        directory."""
        self.keep()
        self._files.unlink(self.path)

    def keep(self) -> None:
        """Map the file, if it is there: whoever comes while its name goes still reads it."""
        with suppress(OSError):
            self.view(0, 0)

    def _open_map(self) -> memoryview:
        handle = self._acquire()
        try:
            with self._lock:
                if self._map is None:
                    self._map = self._files.map(handle, self.size)
                return self._map
        finally:
            self._release()

    def _acquire(self) -> int:
        with self._lock:
            if self._handle < 0:
                if self._gone:
                    raise StoreClosedError(f"{self.path} is closed")
                self._handle = self._files.open(self.path, write=self._writable)
            self._users += 1
            return self._handle

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._gone:
                self._close_unused()

    def _close_unused(self) -> None:
        """Caller holds the lock. With a call under way, its end closes (after close()), or the
        descriptor simply stays open (after release())."""
        if self._users == 0 and self._handle >= 0:
            handle, self._handle = self._handle, -1
            self._files.close(handle)
