"""A disk in memory that fails, writes short and loses power on demand.

It passes the same suite as the real one (conformance/files_suite.py), and is stricter where a
kernel would be lenient: what was not fsynced is gone after `crash`, a name whose directory was
not fsynced too; a file that is mapped can be neither grown nor cut. After a failed fdatasync the
writes before it never become durable, however often the call is repeated, and reads show them until
the file's cache is dropped.

Simpler than a disk: making, renaming and removing a directory is durable at once.
"""

import errno
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from storage.disk.files import Buffer, DiskUsage, FileStatus, Part, replace_durably

PAGE = 4096
ENDLESS = 1 << 50


@dataclass(eq=False)
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    durable_size: int = 0
    allocated: int = 0
    modified_ms: int = 0
    # a map may have changed any byte, or the file was cut: the journal does not tell all
    copy_whole: bool = False
    # an fdatasync has failed: `data` shows what is not on the disk
    failed: bool = False
    # handles whose next fdatasync tells of a write-back that has failed; with the last of them it
    # is forgotten
    to_be_told: set[int] = field(default_factory=set)
    # (start, end) of bytes that the disk does not give
    bad: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Failure:
    call: str
    number: int
    name: str
    skip: int
    times: int
    took: int  # bytes that a failing pwrite still writes


class MemoryFiles:
    """See the module; a FileSystem. `calls` counts every call by name."""

    def __init__(self, *, capacity: int = ENDLESS) -> None:
        self.capacity = capacity
        self.now_ms = 1_700_000_000_000
        self.calls: Counter[str] = Counter()
        self.boots = 1
        self._tree: dict[Path, dict[str, _File | None]] = {Path("/"): {}}
        self._durable: dict[Path, dict[str, _File | None]] = {Path("/"): {}}
        self._handles: dict[int, tuple[_File, Path, bool]] = {}
        self._next_handle = 100
        self._failures: list[_Failure] = []
        self._locked: set[int] = set()
        self._locked_elsewhere: set[Path] = set()
        self._lock = threading.RLock()

    # -- what a test does to the disk

    def fail(
        self,
        call: str,
        number: int = errno.EIO,
        *,
        name: str = "",
        skip: int = 0,
        times: int = ENDLESS,
        took: int = 0,
    ) -> None:
        """Let `call` fail with errno `number` where the path contains `name`, after `skip` good
        calls, `times` times; a pwrite still writes its first `took` bytes."""
        self._failures.append(_Failure(call, number, name, skip, times, took))

    def spoil(self, path: Path, start: int, size: int) -> None:
        """The disk does not give these bytes of a file any more."""
        self._file(path).bad.append((start, start + size))

    def lose_write_back(self, path: Path) -> None:
        """The kernel cannot write a file back by itself: who has it open is told at the next
        fdatasync; where nobody has, nobody ever is."""
        file = self._file(path)
        _fail_to_write(file)
        file.to_be_told = {handle for handle, each in self._handles.items() if each[0] is file}

    def heal(self) -> None:
        """No call fails any more, and the disk gives every byte."""
        self._failures.clear()
        for file in self._all_files():
            file.bad.clear()

    def crash(self, survivors: random.Random | None = None) -> None:
        """Lose power: only what was fsynced stays. With `survivors` each write since then stays
        whole, or in part, or not, as the disk's cache would have it."""
        with self._lock:
            self._drop_process()
            self.boots += 1
            self._tree = {path: dict(entries) for path, entries in self._durable.items()}
            for entries in self._tree.values():
                for file in entries.values():
                    if file is not None:
                        _lose(file, survivors)

    def kill(self) -> None:
        """The process dies (SIGKILL): handles and locks are gone, every byte stays."""
        with self._lock:
            self._drop_process()

    def lock_elsewhere(self, path: Path) -> None:
        """Another process takes the record lock of `path`."""
        self._locked_elsewhere.add(path)

    def content(self, path: Path) -> bytearray:
        """The bytes of a file, to look at or to damage."""
        return self._file(path).data

    def durable_content(self, path: Path) -> bytes:
        """What a crash would leave of a file."""
        file = self._file(path)
        return bytes(_padded(file.durable, file.durable_size))

    @property
    def open_handles(self) -> int:
        return len(self._handles)

    @property
    def locks_held(self) -> int:
        return len(self._locked)

    # -- FileSystem

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> int:
        with self._lock:
            self._enter("open", path)
            entries = self._tree.get(path.parent)
            if entries is None:
                raise _error(errno.ENOENT, path)
            if path.name in entries:
                file = entries[path.name]
                if file is None:
                    raise _error(errno.EISDIR, path)
            elif create:
                file = entries[path.name] = _File(modified_ms=self.now_ms)
            else:
                raise _error(errno.ENOENT, path)
            self._next_handle += 1
            self._handles[self._next_handle] = (file, path, write)
            return self._next_handle

    def close(self, handle: int) -> None:
        with self._lock:
            file, path, _ = self._opened("close", handle)
            self._enter("close", path)
            del self._handles[handle]
            file.to_be_told.discard(handle)
            self._locked.discard(id(file))

    def size(self, handle: int) -> int:
        return len(self._opened("size", handle)[0].data)

    def pread(self, handle: int, size: int, offset: int) -> bytes:
        with self._lock:
            file, path, _ = self._opened("pread", handle)
            self._enter("pread", path)
            _check_readable(file, offset, size)
            return bytes(file.data[offset : offset + size])

    def pwrite(self, handle: int, data: Buffer, offset: int) -> None:
        with self._lock:
            file, path = self._for_writing("pwrite", handle)
            piece = bytes(data)
            failure = self._failing("pwrite", path)
            if failure is not None:
                self._put(file, path, piece[: failure.took], offset)
                raise _error(failure.number, path)
            self._put(file, path, piece, offset)

    def preallocate(self, handle: int, size: int) -> None:
        with self._lock:
            file, path = self._for_writing("preallocate", handle)
            self._enter("preallocate", path)
            self._allocate(file, path, size)
            if size > len(file.data):
                _resize(file, size)

    def zero_range(self, handle: int, offset: int, size: int) -> None:
        with self._lock:
            file, path = self._for_writing("zero_range", handle)
            self._enter("zero_range", path)
            self._put(file, path, bytes(max(min(size, len(file.data) - offset), 0)), offset)

    def truncate(self, handle: int, size: int) -> None:
        with self._lock:
            file, path = self._for_writing("truncate", handle)
            self._enter("truncate", path)
            _resize(file, size)
            file.modified_ms = self.now_ms

    def fdatasync(self, handle: int) -> None:
        with self._lock:
            file, path, _ = self._opened("fdatasync", handle)
            failure = self._failing("fdatasync", path)
            if handle in file.to_be_told:
                file.to_be_told.discard(handle)
                raise _error(errno.EIO, path)
            if failure is not None:
                _fail_to_write(file)
                raise _error(failure.number, path)
            _make_durable(file)

    def sync_all(self, path: Path) -> None:
        with self._lock:
            failure = self._failing("sync_all", path)
            for entries in self._tree.values():
                for file in entries.values():
                    if file is not None and failure is not None:
                        _fail_to_write(file)
                    elif file is not None:
                        _make_durable(file)
            if failure is not None:
                raise _error(failure.number, path)
            self._durable = {each: dict(entries) for each, entries in self._tree.items()}

    def fsync_directory(self, path: Path) -> None:
        with self._lock:
            self._enter("fsync_directory", path)
            if path not in self._tree:
                raise _error(errno.ENOENT, path)
            self._durable[path] = dict(self._tree[path])

    def drop_cache(self, handle: int) -> None:
        with self._lock:
            file, path, _ = self._opened("drop_cache", handle)
            self._enter("drop_cache", path)
            if file.failed:
                held = bytearray(_padded(file.durable, len(file.data)))
                for offset, piece in file.unsynced:
                    _overlay(held, offset, piece)
                file.data[:] = held[: len(file.data)]
                file.failed = False

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def map(self, handle: int, size: int, *, writable: bool = False) -> memoryview:
        with self._lock:
            file, path, may_write = self._opened("map", handle)
            self._enter("map", path)
            if size > len(file.data):
                raise OSError(errno.EIO, f"the file has {len(file.data)} of {size} bytes")
            if writable and not may_write:
                raise _error(errno.EACCES, path)
            file.copy_whole |= writable
            view = memoryview(file.data)[:size]
            return view if writable else view.toreadonly()

    def prefault(self, view: memoryview, parts: Iterable[Part] | None = None) -> None:
        with self._lock:
            self.calls["prefault"] += 1
            spoiled = [file for file in self._all_files() if file.bad and file.data is view.obj]
            for file in spoiled:
                at = _address(view) - _address(memoryview(file.data))
                for position, size in parts if parts is not None else [(0, len(view))]:
                    _check_readable(file, at + position, size)

    def in_memory(self, view: memoryview) -> bool:
        """Everything is, but what the disk does not give."""
        try:
            self.prefault(view)
        except OSError:
            return False
        return True

    def lock_memory(self, view: memoryview) -> None:
        with self._lock:
            self._enter("lock_memory", Path("/"))

    def status(self, path: Path) -> FileStatus | None:
        with self._lock:
            self._enter("status", path)
            if path in self._tree:
                return FileStatus(PAGE, self.now_ms, True)
            file = self._tree.get(path.parent, {}).get(path.name)
            return FileStatus(len(file.data), file.modified_ms, False) if file else None

    def listdir(self, path: Path) -> list[str]:
        with self._lock:
            self._enter("listdir", path)
            return sorted(self._tree.get(path, {}))

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        with self._lock:
            self._enter("make_directory", path)
            for each in reversed([path, *path.parents]):
                if each not in self._tree:
                    if each.name in self._tree[each.parent]:
                        raise _error(errno.EEXIST, each)
                    for tree in (self._tree, self._durable):
                        tree[each] = {}
                        tree[each.parent][each.name] = None

    def remove_directory(self, path: Path) -> None:
        with self._lock:
            self._enter("remove_directory", path)
            if path not in self._tree:
                raise _error(errno.ENOENT, path)
            if self._tree[path]:
                raise _error(errno.ENOTEMPTY, path)
            for tree in (self._tree, self._durable):
                tree.pop(path, None)
                tree[path.parent].pop(path.name, None)

    def read_file(self, path: Path) -> bytes:
        with self._lock:
            self._enter("read_file", path)
            return bytes(self._file(path).data)

    def atomic_replace(self, path: Path, data: Buffer) -> None:
        self._enter("atomic_replace", path)
        replace_durably(self, path, data)

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            self._enter("rename", source)
            if source in self._tree:
                self._rename_directory(source, target)
                return
            file = self._file(source)
            if target.parent not in self._tree:
                raise _error(errno.ENOENT, target)
            if target in self._tree:
                raise _error(errno.EISDIR, target)
            del self._tree[source.parent][source.name]
            self._tree[target.parent][target.name] = file

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._enter("unlink", path)
            self._file(path)
            del self._tree[path.parent][path.name]

    def disk_usage(self, path: Path) -> DiskUsage:
        with self._lock:
            self._enter("disk_usage", path)
            used = self._used()
            return DiskUsage(self.capacity, used, max(self.capacity - used, 0))

    def open_limit(self) -> int:
        return 1024

    def lock_range(self, handle: int, offset: int, size: int) -> bool:
        with self._lock:
            file, path, _ = self._opened("lock_range", handle)
            self._enter("lock_range", path)
            if path in self._locked_elsewhere:
                return False
            self._locked.add(id(file))
            return True

    def lock_holder(self, handle: int, offset: int, size: int) -> int | None:
        with self._lock:
            _, path, _ = self._opened("lock_holder", handle)
            self._enter("lock_holder", path)
            return 0 if path in self._locked_elsewhere else None

    # -- inside

    def _enter(self, call: str, path: Path) -> None:
        failure = self._failing(call, path)
        if failure is not None:
            raise _error(failure.number, path)

    def _failing(self, call: str, path: Path) -> _Failure | None:
        self.calls[call] += 1
        for failure in self._failures:
            if failure.call != call or failure.name not in str(path):
                continue
            if failure.skip:
                failure.skip -= 1
            elif failure.times:
                failure.times -= 1
                return failure
        return None

    def _opened(self, call: str, handle: int) -> tuple[_File, Path, bool]:
        found = self._handles.get(handle)
        if found is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), f"{call} of handle {handle}")
        return found

    def _for_writing(self, call: str, handle: int) -> tuple[_File, Path]:
        file, path, write = self._opened(call, handle)
        if not write:
            raise _error(errno.EBADF, path)
        return file, path

    def _file(self, path: Path) -> _File:
        file = self._tree.get(path.parent, {}).get(path.name)
        if file is None:
            raise _error(errno.EISDIR if path in self._tree else errno.ENOENT, path)
        return file

    def _put(self, file: _File, path: Path, data: bytes, offset: int) -> None:
        self._allocate(file, path, offset + len(data))
        if offset + len(data) > len(file.data):
            _resize(file, offset + len(data))
        file.data[offset : offset + len(data)] = data
        file.unsynced.append((offset, data))
        file.modified_ms = self.now_ms

    def _allocate(self, file: _File, path: Path, size: int) -> None:
        more = size - file.allocated
        if more > 0:
            if self.capacity != ENDLESS and self._used() + more > self.capacity:
                raise _error(errno.ENOSPC, path)
            file.allocated = size

    def _all_files(self) -> Iterator[_File]:
        return (file for entries in self._tree.values() for file in entries.values() if file)

    def _used(self) -> int:
        held = list(self._all_files())
        held += [file for file, _, _ in self._handles.values()]
        return sum(file.allocated for file in {id(file): file for file in held}.values())

    def _rename_directory(self, source: Path, target: Path) -> None:
        if target.parent not in self._tree:
            raise _error(errno.ENOENT, target)
        if self._tree.get(target) or target.name in self._tree[target.parent]:
            raise _error(errno.ENOTEMPTY, target)
        for tree in (self._tree, self._durable):
            for path in [each for each in tree if each == source or source in each.parents]:
                tree[target / path.relative_to(source)] = tree.pop(path)
            tree[source.parent].pop(source.name, None)
            tree[target.parent][target.name] = None

    def _drop_process(self) -> None:
        self._handles.clear()
        self._locked.clear()


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data) if view.nbytes else 0


def _check_readable(file: _File, start: int, size: int) -> None:
    for first, last in file.bad:
        if start < last and first < start + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def _make_durable(file: _File) -> None:
    if file.copy_whole:
        file.durable = bytearray(file.data)
    for offset, piece in file.unsynced:
        _overlay(file.durable, offset, piece)
    file.unsynced.clear()
    del file.durable[len(file.data) :]
    file.durable_size = len(file.data)


def _fail_to_write(file: _File) -> None:
    file.unsynced.clear()
    file.copy_whole = False
    file.failed = True


def _lose(file: _File, survivors: random.Random | None) -> None:
    kept = bytearray(_padded(file.durable, file.durable_size))
    for offset, piece in file.unsynced if survivors is not None else ():
        assert survivors is not None
        fate = survivors.random()
        if fate < 0.4:
            _overlay(kept, offset, piece)
        elif fate < 0.7:
            # the disk writes pages: a prefix that ends at a page's end
            end = (offset + survivors.randint(0, len(piece))) // PAGE * PAGE
            _overlay(kept, offset, piece[: max(end - offset, 0)])
    # what lies beyond the durable length was never made part of the file
    file.data = bytearray(_padded(kept, file.durable_size))
    file.durable = bytearray(file.data)
    file.unsynced = []
    file.allocated = min(file.allocated, file.durable_size)
    file.copy_whole = file.failed = False


def _overlay(target: bytearray, offset: int, piece: bytes) -> None:
    if offset > len(target):
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(piece)] = piece


def _padded(data: bytearray, size: int) -> bytes:
    return bytes(data[:size]).ljust(size, b"\0")


def _resize(file: _File, size: int) -> None:
    if size == len(file.data):
        return
    try:
        if size < len(file.data):
            del file.data[size:]
            file.copy_whole = True
            file.unsynced = [(at, piece[: max(size - at, 0)]) for at, piece in file.unsynced]
        else:
            file.data.extend(bytes(size - len(file.data)))
    except BufferError:
        raise RuntimeError("the length of a file may not change while it is mapped") from None


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
