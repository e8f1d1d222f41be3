"""The only module of the store that calls the operating system.

Everything above takes a `FileSystem`, so that a test can fail a call, cut a write short or lose
what was never fsynced. The rules that both implementations keep:

    pwrite writes all or raises; after a raise a part may be there
    written data is durable after fdatasync(handle); a created, renamed or deleted name only after
    fsync_directory of the directory that holds it
    a map shows what pwrite writes; it stays valid after close(handle) and unlink, until its last
    view is gone; nobody may shorten a file that is mapped
    touching a page of a map that the disk cannot give ends the process (SIGBUS): bring_in comes
    before, and raises where a read would have
    a failed fdatasync must never be repeated in the hope that it works: the kernel may have
    dropped the pages that it could not write

Errors are OSError with the errno of the call; the store gives them meaning.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import stat
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol, TypeAlias

import numpy as np

Buffer: TypeAlias = bytes | bytearray | memoryview
Part: TypeAlias = tuple[int, int]
"""First byte and size of a part of a view."""

ZERO_CHUNK = 1 << 20
TEMPORARY_SUFFIX = ".tmp"
NO_FILE = "it is no regular file"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> int:
        """Open for reading, and writing unless told not to; `create` makes it where missing. Only
        a regular file is opened, nothing that would wait (a FIFO) or has no bytes of its own."""
        ...

    def close(self, handle: int) -> None: ...

    def size(self, handle: int) -> int: ...

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def pwrite(self, handle: int, data: Buffer, offset: int) -> None:
        """Write all of `data`; the file grows where needed."""
        ...

    def preallocate(self, handle: int, size: int) -> None:
        """Reserve disk space for the first `size` bytes, zero where new; ENOSPC without room."""
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
        """Make every file and name on the disk that holds `path` durable, by one call: for
        thousands of small files. What it reports is only whether all went well."""
        ...

    def drop_cache(self, handle: int) -> None:
        """Let the next reads of the file ask the disk; what is not yet written stays."""
        ...

    def boot_id(self) -> str:
        """Names this boot of the machine, whose page cache ends with it; empty if not known."""
        ...

    def map(self, handle: int, size: int, *, writable: bool = False) -> memoryview:
        """The first `size` bytes of the file, shared with it; `size` > 0. EIO where the file is
        shorter."""
        ...

    def bring_in(self, view: memoryview, parts: Iterable[Part] | None = None) -> None:
        """Have the pages under a view of a map, or under these parts of it, in memory; while the
        disk reads, other threads run. Raises OSError (EIO) where it cannot give one."""
        ...

    def in_memory(self, view: memoryview) -> bool:
        """Whether all pages under a view of a map are in memory now; waits for nothing."""
        ...

    def lock_memory(self, view: memoryview) -> None:
        """Keep the pages of a map in memory (mlock)."""
        ...

    def status(self, path: Path) -> FileStatus | None:
        """None where there is nothing. Raises OSError for what is neither file nor directory."""
        ...

    def listdir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty where there is no such directory."""
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

    def lock_holder(self, handle: int, offset: int, size: int) -> int | None:
        """The process whose record lock stands in the way of `lock_range`, 0 where it is not known
        which; None where none does. Takes nothing, and does not see the own process's locks."""
        ...


class RealFileSystem:
    """Linux."""

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> int:
        # not blocking: the open of a FIFO would wait for somebody at its other end
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open(path, flags | (os.O_CREAT if create else 0), 0o644)
        kind = os.fstat(handle).st_mode
        if not stat.S_ISREG(kind):
            os.close(handle)
            number = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
            raise OSError(number, NO_FILE, str(path))
        return handle

    def close(self, handle: int) -> None:
        os.close(handle)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        data = os.pread(handle, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        have = len(data)
        while have < size and (data := os.pread(handle, size - have, offset + have)):
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)

    def pwrite(self, handle: int, data: Buffer, offset: int) -> None:
        if os.pwrite(handle, data, offset) != len(data):
            # Rare: a signal, or a disk with room for a part. Again from the start is the same.
            write_fully(os.pwrite, handle, data, offset)

    def preallocate(self, handle: int, size: int) -> None:
        os.posix_fallocate(handle, 0, size)

    def zero_range(self, handle: int, offset: int, size: int) -> None:
        if size <= 0 or _zero_range_by_kernel(handle, offset, size):
            return
        zero_by_writing(self, handle, offset, size)

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def fsync_directory(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def sync_all(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _libc.syncfs(handle) != 0:
                _raise_errno("syncfs")
        finally:
            os.close(handle)

    def drop_cache(self, handle: int) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def boot_id(self) -> str:
        try:
            return BOOT_ID.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def map(self, handle: int, size: int, *, writable: bool = False) -> memoryview:
        length = self.size(handle)
        if size > length:
            raise OSError(errno.EIO, f"the file has {length} of {size} bytes")
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return memoryview(mmap.mmap(handle, size, mmap.MAP_SHARED, access))

    def bring_in(self, view: memoryview, parts: Iterable[Part] | None = None) -> None:
        if not view.nbytes:
            return
        address = np.frombuffer(view, dtype=np.uint8).ctypes.data
        for position, size in ((0, view.nbytes),) if parts is None else parts:
            first = (address + position) & _PAGE_MASK
            length = address + position + size - first
            if not _is_resident(first, length):
                _populate(first, length)

    def in_memory(self, view: memoryview) -> bool:
        if not view.nbytes:
            return True
        address = np.frombuffer(view, dtype=np.uint8).ctypes.data
        first = address & _PAGE_MASK
        return _is_resident(first, address + view.nbytes - first)

    def lock_memory(self, view: memoryview) -> None:
        address = np.frombuffer(view, dtype=np.uint8).ctypes.data
        if _libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(view.nbytes)) != 0:
            _raise_errno("mlock")

    def status(self, path: Path) -> FileStatus | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        directory = stat.S_ISDIR(found.st_mode)
        if not directory and not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, NO_FILE, str(path))
        return FileStatus(found.st_size, found.st_mtime_ns // 1_000_000, directory)

    def listdir(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            if durable:
                self.fsync_directory(each.parent)

    def remove_directory(self, path: Path) -> None:
        os.rmdir(path)

    def read_file(self, path: Path) -> bytes:
        handle = self.open(path, write=False)
        try:
            return self.pread(handle, self.size(handle), 0)
        finally:
            self.close(handle)

    def atomic_replace(self, path: Path, data: Buffer) -> None:
        replace_durably(self, path, data)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def disk_usage(self, path: Path) -> DiskUsage:
        found = os.statvfs(path)
        return DiskUsage(
            total=found.f_blocks * found.f_frsize,
            used=(found.f_blocks - found.f_bfree) * found.f_frsize,
            free=found.f_bavail * found.f_frsize,
        )

    def open_limit(self) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def lock_range(self, handle: int, offset: int, size: int) -> bool:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, size, offset)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def lock_holder(self, handle: int, offset: int, size: int) -> int | None:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, size, 0)
        kind, _, _, _, process_id = _FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, asked))
        # a lock of an open file, or of another machine, has no process of ours
        return None if kind == fcntl.F_UNLCK else max(process_id, 0)


_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""


def write_fully(
    write: Callable[[int, memoryview, int], int], handle: int, data: Buffer, offset: int
) -> None:
    """Call `write` until all of `data` is written; it answers how many bytes it took."""
    rest = memoryview(data).cast("B")
    while rest:
        wrote = write(handle, rest, offset)
        if wrote <= 0:
            raise OSError(errno.EIO, "a write took no bytes")
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
    """A file of `size` zero bytes that take no disk space, at `target`: it gets its name when it
    has its length, so nobody ever finds one of length 0, with which a broker does not start. What
    was there is replaced. `draft` is on the same disk, in a folder that is there; durable after an
    fsync of the file and of the target's folder."""
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


_libc = ctypes.CDLL(None, use_errno=True)
_FALLOC_FL_KEEP_SIZE = 0x01
_FALLOC_FL_ZERO_RANGE = 0x10


def _zero_range_by_kernel(handle: int, offset: int, size: int) -> bool:
    """False where this file system has no such call (tmpfs, for one)."""
    fallocate = getattr(_libc, "fallocate", None)
    if fallocate is None:
        return False
    mode = _FALLOC_FL_ZERO_RANGE | _FALLOC_FL_KEEP_SIZE
    if fallocate(handle, mode, ctypes.c_int64(offset), ctypes.c_int64(size)) == 0:
        return True
    if ctypes.get_errno() in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        return False
    _raise_errno("fallocate")


_PAGE_MASK = ~(mmap.PAGESIZE - 1)
_MADV_POPULATE_READ = 22
_EHWPOISON = 133
_madvise = _libc.madvise
_madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
# Keeps the interpreter: it waits for nothing, and to give that up would cost more than the call.
_mincore = ctypes.PyDLL(None, use_errno=True).mincore
_mincore.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p]


def _is_resident(address: int, size: int) -> bool:
    """Whether all pages from `address`, where one begins, are in the page cache. A few us where
    they are mapped too; to have the kernel populate them again would cost it 50 us a MiB."""
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    return _mincore(address, size, pages) == 0 and b"\0" not in pages.raw


def _populate(address: int, size: int) -> None:
    """Raises OSError (EIO) for pages that cannot be read. Before Linux 5.14 it cannot be asked for:
    then reading them is left to chance."""
    if _madvise(address, size, _MADV_POPULATE_READ) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.EFAULT, _EHWPOISON):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    if number != errno.EINVAL:
        raise OSError(number, f"madvise: {os.strerror(number)}")


def _raise_errno(call: str) -> NoReturn:
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {os.strerror(number)}")
