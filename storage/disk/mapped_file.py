"""One file of a log or a queue: written through its descriptor, read through a read-only map.

    base ............................................ base + size
    [ written .................. | zeros, or stale bytes ........ ]

The file has its full size from the start; only its owner knows where the data ends. Descriptor and
map are opened when first needed and can be released at any time: views that readers still hold keep
the map, and the disk space of a deleted file, until the last of them is gone.

One thread writes, one flushes, any number read. A descriptor is closed only when no thread is
inside a call with it, and after writes only after an fdatasync: the kernel reports a failed
write-back only to open descriptors, and may forget it with the last one. A file that is only read
needs no descriptor once it is mapped.

Touching a page of a map that the disk cannot read would kill the process. So pages are first
brought into memory, and an unreadable page is an error like any other: `view` does both, `span`
leaves it to the caller that reads parts of it.

Asking the kernel whether pages are in memory costs some microseconds, more than copying a record: a
pull of a queue whose records lie far apart would spend most of its time on that. So pages that were
in memory count as being there as long as the map is open; a store opens its maps again each second.

    chunks of 1 MiB   | . | x | x | . | x | . |        x: all of its pages were there
    a pull's records     r   r   r       r r
"""

import errno
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import PAGE

from ..errors import StoreClosedError, UnreadableError
from .file_system import Buffer, FileSystem

CHUNK_BITS: Final = 20
CHUNK: Final = 1 << CHUNK_BITS
OUT_OF_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""The process or the machine lacks something. Every other error of an open or a map (EIO, a file
that is missing, became a folder or may not be read) is about the file."""


class Residency:
    """Which chunks of a file of `size` bytes have been seen in memory; none at first."""

    __slots__ = ("_known", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._known = bytearray(-(-size // CHUNK))

    def covers(self, position: int, size: int) -> bool:
        """Whether all of these bytes are known to be there."""
        return 0 not in self._known[position // CHUNK : -(-(position + size) // CHUNK)]

    def missing(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """b[n]: which of many short stretches are not known to be there, by their first and last
        byte."""
        seen = np.frombuffer(self._known, np.uint8)
        first, last = seen[begins >> CHUNK_BITS], seen[(ends - 1) >> CHUNK_BITS]
        absent: NDArray[np.bool_] = (first & last) == 0
        return absent

    def note(self, position: int, size: int) -> None:
        """These bytes are there."""
        end = position + size
        first = -(-position // CHUNK)
        last = len(self._known) if end >= self._size else end // CHUNK
        for chunk in range(first, last):
            self._known[chunk] = 1


class MappedFile:
    """Bytes base .. base+size of a log or queue; positions are relative to `base`."""

    __slots__ = (
        "_files", "_gone", "_handle", "_lock", "_map", "_there", "_unsynced", "_users",
        "_writable", "base", "path", "size",
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
        self._unsynced = False
        self._gone = False
        self._map: memoryview | None = None
        self._there = Residency(size)
        self._lock = threading.Lock()

    @property
    def end(self) -> int:
        return self.base + self.size

    def open(self) -> None:
        """Open the descriptor for the next write, and keep it until that is synced. Raises OSError
        before anything is written."""
        self._acquire(writes=True)
        self._release()

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` or raise OSError; it must fit the file."""
        if position < 0 or position + len(data) > self.size:
            raise ValueError(f"{self.path.name}: {len(data)} bytes at {position} do not fit")
        handle = self._acquire(writes=True)
        try:
            self._files.pwrite(handle, data, position)
        finally:
            self._release()

    def zero(self, position: int, size: int) -> None:
        """Make `size` bytes from `position` zero."""
        handle = self._acquire(writes=True)
        try:
            self._files.zero_range(handle, position, size)
        finally:
            self._release()

    def view(self, position: int, size: int) -> memoryview:
        """A read-only view of the map, no copy, its pages in memory. Raises UnreadableError."""
        view = self.span(position, size)
        if not self._there.covers(position, size):
            self._prefault(view, position)
        return view

    def span(self, position: int, size: int) -> memoryview:
        """As `view`, but only the parts for which `prefault` was called may be read."""
        mapped = self._map
        if mapped is None:
            mapped = self._open_map()
        if position < 0 or position + size > self.size:
            raise ValueError(f"{self.path.name}: no {size} bytes at {position}")
        return mapped[position : position + size]

    def in_memory(self, position: int, size: int) -> bool:
        """Whether `view` of these bytes would not wait for the disk."""
        view = self.span(position, size)
        there = self._there
        if there.covers(position, size):
            return True
        if not self._files.in_memory(view):
            return False
        there.note(position, size)
        return True

    def prefault(self, position: int, size: int) -> None:
        """Bring these bytes into memory, as far as the file has them. Raises UnreadableError."""
        self.view(position, max(min(size, self.size - position), 0))

    def prefault_parts(self, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Bring many stretches i8[n] into memory. Raises UnreadableError."""
        whole, ends = self.span(0, self.size), begins + lengths
        long = lengths > CHUNK
        for part in np.flatnonzero(long).tolist():
            self.prefault(int(begins[part]), int(lengths[part]))
        unseen = np.flatnonzero(self._there.missing(begins, ends) & ~long)
        if not len(unseen):
            return
        # At the end of a log the chunk is not full yet: the parts lie side by side, and one
        # question for all of them costs as much as for one record.
        first, last = int(begins[unseen].min()), int(ends[unseen].max())
        if last - first <= CHUNK and self.in_memory(first, last - first):
            return
        for chunk in np.unique(np.concatenate([begins[unseen], ends[unseen] - 1]) >> CHUNK_BITS):
            position = int(chunk) << CHUNK_BITS
            self.in_memory(position, min(CHUNK, self.size - position))
        unseen = unseen[self._there.missing(begins[unseen], ends[unseen])]
        parts = list(zip(begins[unseen].tolist(), lengths[unseen].tolist(), strict=True))
        try:
            self._files.prefault(whole, parts)
        except OSError:
            for position, size in parts:
                self._prefault(whole[position : position + size], position)

    def _prefault(self, view: memoryview, position: int) -> None:
        there = self._there
        try:
            self._files.prefault(view)
        except OSError as error:
            raise self._unreadable(view, position, error) from error
        there.note(position, len(view))

    def _unreadable(self, view: memoryview, position: int, fault: OSError) -> UnreadableError:
        """Names the first page of a view at `position` that cannot be read."""
        begin = 0
        while begin < len(view):
            size = min(PAGE - (position + begin) % PAGE, len(view) - begin)
            try:
                self._files.prefault(view[begin : begin + size])
            except OSError:
                return UnreadableError(str(self.path), position + begin, size, str(fault.strerror))
            begin += size
        return UnreadableError(str(self.path), position, len(view), str(fault.strerror))

    def sync(self) -> None:
        """fdatasync."""
        handle = self._acquire()
        with self._lock:
            self._unsynced = False  # before the call: a write may come meanwhile
        try:
            self._files.fdatasync(handle)
        except OSError:
            self._unsynced = True
            raise
        finally:
            self._release()

    def release(self) -> None:
        """Release the map, and the descriptor unless a write through it waits for its fdatasync;
        the next use opens them again."""
        with self._lock:
            self._map = None
            if not self._unsynced:
                self._close_unused()

    def close(self) -> None:
        """Release permanently: a later use raises StoreClosedError."""
        with self._lock:
            self._gone = True
            self._map = None
            self._close_unused()

    def retire(self) -> None:
        """Another file has the name now, with everything that was written here. Who still uses
        this object keeps the bytes of the views it has, and finds the other file after that."""
        with self._lock:
            # a descriptor is closed after each use from here on
            self._writable = self._unsynced = False
            self._map = None
            self._close_unused()

    def unlink(self) -> None:
        """Delete the file, which stays readable until `close`; durable after an fsync of the
        directory."""
        self.keep()
        self._files.unlink(self.path)

    def keep(self) -> None:
        """Map the file, if it is there: readers can then use it while its name is removed."""
        with suppress(OSError, UnreadableError):
            self.span(0, 0)

    def _open_map(self) -> memoryview:
        try:
            try:
                handle = self._acquire()
                try:
                    return self._mapped_by(handle)
                finally:
                    self._release()
            except OSError as error:
                if error.errno != errno.EROFS:
                    raise
                return self._map_to_read()
        except OSError as error:
            if error.errno in OUT_OF_ROOM:
                raise  # the process lacks something; the file may be whole
            reason = str(error.strerror)
            raise UnreadableError(str(self.path), 0, self.size, reason) from error

    def _map_to_read(self) -> memoryview:
        """A file system that failed is often read-only from then on, and what it has is still to be
        read. The descriptor for writes can then not be opened, and ext4 maps no file by one that
        was open before."""
        handle = self._files.open(self.path, write=False)
        try:
            return self._mapped_by(handle)
        finally:
            self._files.close(handle)

    def _mapped_by(self, handle: int) -> memoryview:
        with self._lock:
            if self._map is None:
                self._there = Residency(self.size)
                self._map = self._files.map(handle, self.size)
            return self._map

    def _acquire(self, *, writes: bool = False) -> int:
        with self._lock:
            if self._handle < 0:
                if self._gone:
                    raise StoreClosedError(f"{self.path} is closed")
                self._handle = self._files.open(self.path, write=self._writable)
            self._users += 1
            self._unsynced |= writes
            return self._handle

    def _release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._gone or not self._writable:
                self._close_unused()

    def _close_unused(self) -> None:
        """Caller holds the lock. With a call under way, its end closes (after close()), or the
        descriptor simply stays open (after release())."""
        if self._users == 0 and self._handle >= 0:
            handle, self._handle = self._handle, -1
            self._files.close(handle)
