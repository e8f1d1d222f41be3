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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tandemlog_server.storage.disk.file_system import (
    Buffer,
    DiskUsage,
    FileStatus,
    Part,
    replace_durably,
)

from .memory_file import (
    PAGE,
    Failure,
    MemoryFile,
    address,
    check_readable,
    drop_cached,
    fail_to_write,
    folder_and_name,
    lose,
    make_durable,
    os_error,
    padded,
    resize,
)

ENDLESS = 1 << 50


class MemoryFiles:
    """See the module; a FileSystem. `calls` counts every call by name."""

    def __init__(self, *, capacity: int = ENDLESS) -> None:
        self.capacity = capacity
        self.now_ms = 1_700_000_000_000
        self.calls: Counter[str] = Counter()
        self.boots = 1
        self.mounts = 1
        # by the names of folders: a path is hashed part by part, a name at once
        self._tree: dict[str, dict[str, MemoryFile | None]] = {"/": {}}
        self._durable: dict[str, dict[str, MemoryFile | None]] = {"/": {}}
        self._handles: dict[int, tuple[MemoryFile, Path | str, bool]] = {}
        self._next_handle = 100
        self._failures: list[Failure] = []
        self._locked: set[int] = set()
        self._locked_elsewhere: set[Path] = set()
        self._locked_directories: set[Path] = set()
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
        self._failures.append(Failure(call, number, name, skip, times, took))

    def spoil(self, path: Path, start: int, size: int) -> None:
        """The disk does not give these bytes of a file any more."""
        self._file(path).bad.append((start, start + size))

    def lose_write_back(self, path: Path) -> None:
        """The kernel cannot write a file back by itself: who has it open is told at the next
        fdatasync; without an open handle no caller ever is."""
        file = self._file(path)
        fail_to_write(file)
        file.to_be_told = {handle for handle, each in self._handles.items() if each[0] is file}

    def heal(self) -> None:
        """No call fails any more, and the disk gives every byte."""
        self._failures.clear()
        for file in self._all_files():
            file.bad.clear()

    def crash(self, survivors: random.Random | None = None, *, reboot: bool = True) -> None:
        """Lose power: only what was fsynced stays. With `survivors` each write since then stays
        whole, or in part, or not, as the disk's cache would have it. Without `reboot` the disk
        alone has lost it, and is mounted again."""
        with self._lock:
            self._drop_process()
            self.boots += reboot
            self.mounts += 1
            self._tree = {path: dict(entries) for path, entries in self._durable.items()}
            for entries in self._tree.values():
                for file in entries.values():
                    if file is not None:
                        lose(file, survivors)

    def kill(self) -> None:
        """The process dies (SIGKILL): handles and locks are gone, every byte stays."""
        with self._lock:
            self._drop_process()

    def lock_elsewhere(self, path: Path) -> None:
        """Another process takes the record lock of `path`, or the lock of a folder."""
        self._locked_elsewhere.add(path)

    def content(self, path: Path) -> bytearray:
        """The bytes of a file, to look at or to damage."""
        return self._file(path).data

    def durable_content(self, path: Path) -> bytes:
        """What a crash would leave of a file."""
        file = self._file(path)
        return bytes(padded(file.durable, file.durable_size))

    @property
    def open_handles(self) -> int:
        return len(self._handles)

    @property
    def used_bytes(self) -> int:
        """What the files take; with `capacity` equal to it the disk is full."""
        with self._lock:
            return self._used()

    @property
    def locks_held(self) -> int:
        return len(self._locked)

    # -- FileSystem

    def open(self, path: Path | str, *, create: bool = False, write: bool = True) -> int:
        with self._lock:
            self._enter("open", path)
            folder, name = folder_and_name(path)
            entries = self._tree.get(folder)
            if entries is None:
                raise os_error(errno.ENOENT, path)
            if name in entries:
                file = entries[name]
                if file is None:
                    raise os_error(errno.EISDIR, path)
            elif create:
                file = entries[name] = MemoryFile(modified_ms=self.now_ms)
            else:
                raise os_error(errno.ENOENT, path)
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
            check_readable(file, offset, size)
            return bytes(file.data[offset : offset + size])

    def is_cached(self, handle: int, size: int, offset: int) -> bool:
        return len(self.pread(handle, size, offset)) == size

    def is_blank(self, handle: int, offset: int) -> bool:
        try:
            return not any(self.pread(handle, self.size(handle) - offset, offset))
        except OSError:
            return False

    def pwrite(self, handle: int, data: Buffer, offset: int) -> None:
        with self._lock:
            file, path = self._for_writing("pwrite", handle)
            piece = bytes(data)
            failure = self._failing("pwrite", path)
            if failure is not None:
                self._put(file, path, piece[: failure.took], offset)
                raise os_error(failure.number, path)
            self._put(file, path, piece, offset)

    def preallocate(self, handle: int, size: int) -> None:
        with self._lock:
            file, path = self._for_writing("preallocate", handle)
            self._enter("preallocate", path)
            self._allocate(file, path, size)
            if size > len(file.data):
                resize(file, size)

    def zero_range(self, handle: int, offset: int, size: int) -> None:
        with self._lock:
            file, path = self._for_writing("zero_range", handle)
            self._enter("zero_range", path)
            self._put(file, path, bytes(max(min(size, len(file.data) - offset), 0)), offset)

    def truncate(self, handle: int, size: int) -> None:
        with self._lock:
            file, path = self._for_writing("truncate", handle)
            self._enter("truncate", path)
            resize(file, size)
            file.modified_ms = self.now_ms

    def fdatasync(self, handle: int) -> None:
        with self._lock:
            file, path, _ = self._opened("fdatasync", handle)
            failure = self._failing("fdatasync", path)
            if handle in file.to_be_told:
                file.to_be_told.discard(handle)
                raise os_error(errno.EIO, path)
            if failure is not None:
                fail_to_write(file)
                raise os_error(failure.number, path)
            make_durable(file)

    def sync_all(self, path: Path) -> None:
        with self._lock:
            failure = self._failing("sync_all", path)
            for entries in self._tree.values():
                for file in entries.values():
                    if file is not None and failure is not None:
                        fail_to_write(file)
                    elif file is not None:
                        make_durable(file)
            if failure is not None:
                raise os_error(failure.number, path)
            self._durable = {each: dict(entries) for each, entries in self._tree.items()}

    def fsync_directory(self, path: Path) -> None:
        with self._lock:
            self._enter("fsync_directory", path)
            if (entries := self._tree.get(str(path))) is None:
                raise os_error(errno.ENOENT, path)
            self._durable[str(path)] = dict(entries)

    def drop_cache(self, handle: int) -> None:
        with self._lock:
            file, path, _ = self._opened("drop_cache", handle)
            self._enter("drop_cache", path)
            drop_cached(file)

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def mount_id(self, path: Path) -> str:
        return f"mount {self.mounts}"

    def map(self, handle: int, size: int, *, writable: bool = False) -> memoryview:
        with self._lock:
            file, path, may_write = self._opened("map", handle)
            self._enter("map", path)
            if size > len(file.data):
                raise OSError(errno.EIO, f"the file has {len(file.data)} of {size} bytes")
            if writable and not may_write:
                raise os_error(errno.EACCES, path)
            file.copy_whole |= writable
            view = memoryview(file.data)[:size]
            return view if writable else view.toreadonly()

    def prefault(self, view: memoryview, parts: Iterable[Part] | None = None) -> None:
        with self._lock:
            self.calls["prefault"] += 1
            spoiled = [file for file in self._all_files() if file.bad and file.data is view.obj]
            for file in spoiled:
                at = address(view) - address(memoryview(file.data))
                for position, size in parts if parts is not None else [(0, len(view))]:
                    check_readable(file, at + position, size)

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
            if str(path) in self._tree:
                return FileStatus(PAGE, self.now_ms, True)
            file = self._found(path)
            return None if file is None else FileStatus(len(file.data), file.modified_ms, False)

    def listdir(self, path: Path) -> list[str]:
        with self._lock:
            self._enter("listdir", path)
            return sorted(self._tree.get(str(path), ()))

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        with self._lock:
            self._enter("make_directory", path)
            missing = [str(path)]
            while missing[-1] not in self._tree:
                missing.append(folder_and_name(missing[-1])[0])
            for each in reversed(missing[:-1]):
                folder, name = folder_and_name(each)
                if name in self._tree[folder]:
                    raise os_error(errno.EEXIST, each)
                for tree in (self._tree, self._durable):
                    tree[each] = {}
                    tree[folder][name] = None

    def remove_directory(self, path: Path) -> None:
        with self._lock:
            self._enter("remove_directory", path)
            entries = self._tree.get(str(path))
            if entries is None:
                raise os_error(errno.ENOENT, path)
            if entries:
                raise os_error(errno.ENOTEMPTY, path)
            folder, name = folder_and_name(path)
            for tree in (self._tree, self._durable):
                tree.pop(str(path), None)
                tree[folder].pop(name, None)

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
            if str(source) in self._tree:
                self._rename_directory(str(source), str(target))
                return
            file = self._file(source)
            folder, name = self._folder_of(target)
            if str(target) in self._tree:
                raise os_error(errno.EISDIR, target)
            self._remove_name(source)
            self._tree[folder][name] = file

    def link(self, source: Path, target: Path) -> None:
        with self._lock:
            self._enter("link", target)
            file = self._file(source)
            folder, name = self._folder_of(target)
            if name in self._tree[folder]:
                raise os_error(errno.EEXIST, target)
            self._tree[folder][name] = file

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._enter("unlink", path)
            self._file(path)
            self._remove_name(path)

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
            if Path(path) in self._locked_elsewhere:
                return False
            self._locked.add(id(file))
            return True

    def lock_directory(self, path: Path) -> Callable[[], None] | None:
        with self._lock:
            self._enter("lock_directory", path)
            if path in self._locked_elsewhere or path in self._locked_directories:
                return None
            self._locked_directories.add(path)
        return lambda: self._locked_directories.discard(path)

    def lock_holder(self, handle: int, offset: int, size: int) -> int | None:
        with self._lock:
            _, path, _ = self._opened("lock_holder", handle)
            self._enter("lock_holder", path)
            return 0 if Path(path) in self._locked_elsewhere else None

    # -- inside

    def _enter(self, call: str, path: Path | str) -> None:
        failure = self._failing(call, path)
        if failure is not None:
            raise os_error(failure.number, path)

    def _failing(self, call: str, path: Path | str) -> Failure | None:
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

    def _opened(self, call: str, handle: int) -> tuple[MemoryFile, Path | str, bool]:
        file = self._handles.get(handle)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), f"{call} of handle {handle}")
        return file

    def _for_writing(self, call: str, handle: int) -> tuple[MemoryFile, Path | str]:
        file, path, write = self._opened(call, handle)
        if not write:
            raise os_error(errno.EBADF, path)
        return file, path

    def _found(self, path: Path) -> MemoryFile | None:
        folder, name = folder_and_name(path)
        return self._tree.get(folder, {}).get(name)

    def _file(self, path: Path) -> MemoryFile:
        file = self._found(path)
        if file is None:
            raise os_error(errno.EISDIR if str(path) in self._tree else errno.ENOENT, path)
        return file

    def _folder_of(self, path: Path | str) -> tuple[str, str]:
        """Of a new name, and the name."""
        folder, name = folder_and_name(path)
        if folder not in self._tree:
            raise os_error(errno.ENOENT, path)
        return folder, name

    def _remove_name(self, path: Path) -> None:
        folder, name = folder_and_name(path)
        del self._tree[folder][name]

    def _put(self, file: MemoryFile, path: Path | str, data: bytes, offset: int) -> None:
        self._allocate(file, path, offset + len(data))
        if offset + len(data) > len(file.data):
            resize(file, offset + len(data))
        file.data[offset : offset + len(data)] = data
        file.unsynced.append((offset, data))
        file.modified_ms = self.now_ms

    def _allocate(self, file: MemoryFile, path: Path | str, size: int) -> None:
        more = size - file.allocated
        if more > 0:
            if self.capacity != ENDLESS and self._used() + more > self.capacity:
                raise os_error(errno.ENOSPC, path)
            file.allocated = size

    def _all_files(self) -> Iterator[MemoryFile]:
        return (file for entries in self._tree.values() for file in entries.values() if file)

    def _used(self) -> int:
        held = list(self._all_files())
        held += [file for file, _, _ in self._handles.values()]
        return sum(file.allocated for file in {id(file): file for file in held}.values())

    def _rename_directory(self, source: str, target: str) -> None:
        folder, name = self._folder_of(target)
        if name in self._tree[folder]:
            raise os_error(errno.ENOTEMPTY, target)
        before, name_before = folder_and_name(source)
        for tree in (self._tree, self._durable):
            for path in [each for each in tree if f"{each}/".startswith(f"{source}/")]:
                tree[target + path[len(source) :]] = tree.pop(path)
            tree[before].pop(name_before, None)
            tree[folder][name] = None

    def _drop_process(self) -> None:
        self._handles.clear()
        self._locked.clear()
        self._locked_directories = set()
