"""The file system calls that a store needs, and small helpers on top of them.

The store takes a `FileSystem`, so that a test can fail a call, cut a write short or lose
what was never fsynced. The rules that both implementations keep:

    pwrite      writes all or raises; after a raise a part may be there
    durable     data after fdatasync(handle); a created, renamed or deleted name after
                fsync_directory of its directory
    map         shows what pwrite writes; it stays valid after close(handle) and unlink until its
                last view is gone; a mapped file must not be shortened
    prefault    before a page of a map is touched: if the disk cannot read it, that would end the
                process (SIGBUS), where prefault raises
    fdatasync   is never repeated after a failure: the kernel may have dropped the pages

Errors are OSError with the errno of the call; the store gives them meaning.
"""

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
Part: TypeAlias = tuple[int, int]
"""First byte and size of a part of a view."""

ZERO_CHUNK = 1 << 20
TEMPORARY_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Length in bytes, time of the last change in ms, and whether it is a directory."""

    size: int
    modified_ms: int
    is_directory: bool


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of the disk that holds a path; `free` is what this process may still use."""

    total: int
    used: int
    free: int

    @property
    def percent(self) -> int:
        """Use in percent, rounded up (RocketMQ's figure, section 6.8)."""
        usable = self.used + self.free
        return -(-100 * self.used // usable) if usable else 0


class FileSystem(Protocol):
    """What the store needs of a disk; see the module's rules. Handles are plain ints."""

    def open(self, path: Path | str, *, create: bool = False, write: bool = True) -> int:
        """Open for reading, and with `write` for writing; `create` makes it where missing. Only a
        regular file is opened, nothing that would wait (a FIFO) or has no bytes of its own."""
        ...

    def close(self, handle: int) -> None: ...

    def size(self, handle: int) -> int: ...

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def is_cached(self, handle: int, size: int, offset: int) -> bool:
        """Whether `pread` of these bytes would not wait for the disk; False if that is not
        known."""
        ...

    def is_blank(self, handle: int, offset: int) -> bool:
        """Whether there is nothing but zeros from `offset` to the end of the file; False also where
        they cannot be read, or only all of them would tell."""
        ...

    def pwrite(self, handle: int, data: Buffer, offset: int) -> None:
        """Write all of `data`; the file grows where needed."""
        ...

    def preallocate(self, handle: int, size: int) -> None:
        """Reserve disk space for the first `size` bytes, zero if new; ENOSPC without room."""
        ...

    def zero_range(self, handle: int, offset: int, size: int) -> None:
        """Make bytes of an existing file zero, cheaply, keeping its length and its space."""
        ...

    def truncate(self, handle: int, size: int) -> None:
        """Set the length; new bytes are zero and take no disk space (sparse)."""
        ...

    def fdatasync(self, handle: int) -> None: ...

    def fsync_directory(self, path: Path) -> None: ...

    def sync_all(self, path: Path) -> None:
        """Make every file and name on the disk that holds `path` durable with one call, for
        thousands of small files. An error does not say which file failed."""
        ...

    def drop_cache(self, handle: int) -> None:
        """Drop the clean pages of the file, so that the next reads come from the disk."""
        ...

    def boot_id(self) -> str:
        """Names this boot of the machine, whose page cache ends with it; empty if not known."""
        ...

    def mount_id(self, path: Path) -> str:
        """Names the file system that holds `path` (or will), from when it was mounted: another name
        after it was mounted again, since its page cache ended; empty if not known."""
        ...

    def map(self, handle: int, size: int, *, writable: bool = False) -> memoryview:
        """The first `size` bytes of the file, shared with it; `size` > 0. EIO where the file is
        shorter."""
        ...

    def prefault(self, view: memoryview, parts: Iterable[Part] | None = None) -> None:
        """Bring the pages under a view of a map, or under these parts of it, into memory; while the
        disk reads, other threads run. Raises OSError (EIO) for a page that cannot be read."""
        ...

    def in_memory(self, view: memoryview) -> bool:
        """Whether all pages under a view of a map are in memory now; waits for nothing."""
        ...

    def lock_memory(self, view: memoryview) -> None:
        """Keep the pages of a map in memory (mlock)."""
        ...

    def status(self, path: Path) -> FileStatus | None:
        """None if there is nothing. Raises OSError for what is neither file nor directory."""
        ...

    def listdir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty if there is no such directory."""
        ...

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        """With its parents; nothing happens where it is already there. Not `durable`: only
        with sync_all, or fsync_directory of each parent."""
        ...

    def remove_directory(self, path: Path) -> None:
        """An empty one."""
        ...

    def read_file(self, path: Path) -> bytes: ...

    def atomic_replace(self, path: Path, data: Buffer) -> None:
        """Put `data` in place of the file, durable: after a crash it is the old one or the new."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """In place of `target`; durable after fsync_directory of both directories."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name, `target`, which is not there yet, on the same disk; durable
        after fsync_directory. The file stays until both names are gone."""
        ...

    def unlink(self, path: Path) -> None: ...

    def disk_usage(self, path: Path) -> DiskUsage: ...

    def open_limit(self) -> int:
        """How many files this process may have open at a time, sockets included."""
        ...

    def lock_range(self, handle: int, offset: int, size: int) -> bool:
        """Take the exclusive POSIX record lock, without waiting; False if another process has it.

        It ends when this process closes any handle of that file.
        """
        ...

    def lock_directory(self, path: Path) -> Callable[[], None] | None:
        """Take the exclusive lock of a folder (flock), without waiting, and return the function
        that releases it; None if another process has it. It ends with the process. On a file system
        without such locks it excludes no one."""
        ...

    def lock_holder(self, handle: int, offset: int, size: int) -> int | None:
        """The process that holds the record lock which `lock_range` would take, 0 if it is not
        known which; None if it is free. Takes no lock, and does not see this process's own."""
        ...


def write_fully(
    write: Callable[[int, memoryview, int], int], handle: int, data: Buffer, offset: int
) -> None:
    """Call `write` until all of `data` is written; it returns how many bytes it took."""
    rest = memoryview(data).cast("B")
    while rest:
        wrote = write(handle, rest, offset)
        if wrote <= 0:
            raise OSError(errno.EIO, "a write stored no bytes")
        rest = rest[wrote:]
        offset += wrote


def zero_by_writing(files: FileSystem, handle: int, offset: int, size: int) -> None:
    """Zeros over what is not zero, by reading first: holes and clean pages stay as they are."""
    zeros = bytes(min(size, ZERO_CHUNK))
    end = offset + size
    while offset < end:
        chunk = min(end - offset, ZERO_CHUNK)
        expected = zeros if chunk == len(zeros) else bytes(chunk)
        if files.pread(handle, chunk, offset) != expected:
            files.pwrite(handle, expected, offset)
        offset += chunk


def make_sparse(files: FileSystem, draft: Path, target: Path, size: int) -> None:
    """Put a file of `size` zero bytes that take no disk space at `target`, in place of what is
    there. It gets its name when it has its length, because a broker does not start with a file of
    length 0. `draft` is on the same disk, in a folder that exists; durable after an fsync of the
    file and of the target's folder."""
    handle = files.open(draft, create=True)
    try:
        if files.size(handle):
            files.truncate(handle, 0)
        files.truncate(handle, size)
        files.rename(draft, target)
    except OSError:
        files.unlink(draft)
        raise
    finally:
        files.close(handle)


def replace_durably(files: FileSystem, path: Path, data: Buffer) -> None:
    """Write beside `path`, fsync, rename over it, fsync the directory."""
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    handle = files.open(temporary, create=True)
    try:
        files.truncate(handle, 0)
        files.pwrite(handle, data, 0)
        files.fdatasync(handle)
    finally:
        files.close(handle)
    files.rename(temporary, path)
    files.fsync_directory(path.parent)


def remove_tree(files: FileSystem, path: Path) -> None:
    """Delete a file, or a folder with all that is in it; nothing if there is none."""
    status = files.status(path)
    if status is None:
        return
    if not status.is_directory:
        files.unlink(path)
        return
    for name in files.listdir(path):
        remove_tree(files, path / name)
    files.remove_directory(path)
