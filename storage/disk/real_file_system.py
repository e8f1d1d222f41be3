"""The only module of the store that calls the operating system (file_system.py has the rules)."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import stat
import struct
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np

from .file_system import (
    Buffer,
    DiskUsage,
    FileStatus,
    Part,
    replace_durably,
    write_fully,
    zero_by_writing,
)
from .mounts import mounted_as
from .spare_descriptors import SPARES

NO_FILE = "it is not a regular file"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)  # of Linux


class RealFileSystem:
    """Linux."""

    def open(self, path: Path | str, *, create: bool = False, write: bool = True) -> int:
        # not blocking: the open of a FIFO would wait for a process at its other end
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_CREAT if create else 0
        handle = SPARES.open(lambda: os.open(path, flags, 0o644))
        kind = os.fstat(handle).st_mode
        if not stat.S_ISREG(kind):
            os.close(handle)
            number = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
            raise OSError(number, NO_FILE, str(path))
        return handle

    def close(self, handle: int) -> None:
        SPARES.close(handle)

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

    def is_cached(self, handle: int, size: int, offset: int) -> bool:
        if not _NO_WAIT:
            return False
        try:
            return os.preadv(handle, [bytearray(size)], offset, _NO_WAIT) == size
        except OSError:  # it would wait, or this file system cannot tell
            return False

    def is_blank(self, handle: int, offset: int) -> bool:
        # what the disk holds of a sparse file begins and ends with a page
        behind = (offset & _PAGE_MASK) + mmap.PAGESIZE
        try:
            if not any(self.pread(handle, behind - offset, offset)):
                os.lseek(handle, behind, os.SEEK_DATA)
        except OSError as error:
            return error.errno == errno.ENXIO  # a hole up to the end
        return False

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
        handle = _open_directory(path)
        try:
            os.fsync(handle)
        finally:
            SPARES.close(handle)

    def sync_all(self, path: Path) -> None:
        handle = _open_directory(path)
        try:
            if _libc.syncfs(handle) != 0:
                _raise_errno("syncfs")
        finally:
            SPARES.close(handle)

    def drop_cache(self, handle: int) -> None:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def boot_id(self) -> str:
        try:
            return BOOT_ID.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def mount_id(self, path: Path) -> str:
        return mounted_as(path)

    def map(self, handle: int, size: int, *, writable: bool = False) -> memoryview:
        length = self.size(handle)
        if size > length:
            raise OSError(errno.EIO, f"the file has {length} of {size} bytes")
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        # which has a descriptor of its own
        return memoryview(SPARES.open(lambda: mmap.mmap(handle, size, mmap.MAP_SHARED, access)))

    def prefault(self, view: memoryview, parts: Iterable[Part] | None = None) -> None:
        if not view.nbytes:
            return
        address = _address(view)
        for position, size in ((0, view.nbytes),) if parts is None else parts:
            first = (address + position) & _PAGE_MASK
            length = address + position + size - first
            if not _is_resident(first, length):
                _populate(first, length)

    def in_memory(self, view: memoryview) -> bool:
        if not view.nbytes:
            return True
        address = _address(view)
        first = address & _PAGE_MASK
        return _is_resident(first, address + view.nbytes - first)

    def lock_memory(self, view: memoryview) -> None:
        address = _address(view)
        if _libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(view.nbytes)) != 0:
            _raise_errno("mlock")

    def status(self, path: Path) -> FileStatus | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        directory = stat.S_ISDIR(status.st_mode)
        if not directory and not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, NO_FILE, str(path))
        return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000, directory)

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

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def disk_usage(self, path: Path) -> DiskUsage:
        disk = os.statvfs(path)
        return DiskUsage(
            total=disk.f_blocks * disk.f_frsize,
            used=(disk.f_blocks - disk.f_bfree) * disk.f_frsize,
            free=disk.f_bavail * disk.f_frsize,
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

    def lock_directory(self, path: Path) -> Callable[[], None] | None:
        handle = _open_directory(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno == errno.EWOULDBLOCK:
                return None
            if error.errno in _NO_FLOCK:
                return lambda: None
            raise
        return partial(os.close, handle)

    def lock_holder(self, handle: int, offset: int, size: int) -> int | None:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, size, 0)
        kind, _, _, _, process_id = _FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, request))
        # a lock of an open file, or of another machine, has no process id here
        return None if kind == fcntl.F_UNLCK else max(process_id, 0)


def _open_directory(path: Path) -> int:
    return SPARES.open(lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


# NFS maps it to a record lock, which a folder cannot have.
_NO_FLOCK = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""


_libc = ctypes.CDLL(None, use_errno=True)
_FALLOC_FL_KEEP_SIZE = 0x01
_FALLOC_FL_ZERO_RANGE = 0x10


def _zero_range_by_kernel(handle: int, offset: int, size: int) -> bool:
    """False if this file system has no such call (tmpfs, for one)."""
    fallocate = getattr(_libc, "fallocate", None)
    if fallocate is None:
        return False
    mode = _FALLOC_FL_ZERO_RANGE | _FALLOC_FL_KEEP_SIZE
    if fallocate(handle, mode, ctypes.c_int64(offset), ctypes.c_int64(size)) == 0:
        return True
    if ctypes.get_errno() in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        return False
    _raise_errno("fallocate")


def _address(view: memoryview) -> int:
    address: int = np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0]
    return address


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
