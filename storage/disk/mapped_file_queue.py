"""A row of files of one size that together hold one long sequence of bytes.

    00000000000000000000    00000000001073741824    00000000002147483648
    |<------ size ------>|  |<------ size ------>|  |<------ size ------>|
    names: the offset of the first byte, 20 digits; no gaps; the first need not be 0

Log files are posix_fallocated by an allocator ahead of need; queue files (there are thousands) are
sparse. The length of the files is read from existing files, if there are any.

One thread creates and truncates; another may drop old files. Readers take the tuple of files as
it is at that moment; a file that goes away meanwhile stays readable through the views they hold.

Files are removed from either end of the row, one after the other, each from the disk and then from
the row: if the disk refuses to remove one, the row stays as it was, and its neighbours stay too.
Without those there would be a gap, and the store could not be opened again. If one was already
deleted by hand, that is fine.
"""

import errno
import logging
import threading
from itertools import pairwise
from pathlib import Path

from tandemlog.format.files.names import offset_file_name, parse_offset_file_name

from ..disk_errors import refusal
from ..errors import MissingFileError, StoreError, StoreLayoutError
from .allocator import FileAllocator
from .file_system import Buffer, FileSystem, make_sparse
from .mapped_file import MappedFile

logger = logging.getLogger(__name__)


class StaleNameError(StoreError):
    """After a power cut the old file may be there again."""


class MappedFileQueue:
    """The files in `directory`; see the module. Offsets are positions in the whole sequence.

    `file_size` is what new files get where the directory holds none. With `read_only` nothing on
    disk is touched. Raises StoreLayoutError if the files do not fit together.
    """

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        file_size: int,
        *,
        allocator: FileAllocator | None = None,
        read_only: bool = False,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.allocator = allocator
        self._disk = files
        self._read_only = read_only
        self._directory_changed = False
        self.files: tuple[MappedFile, ...] = ()
        """The files, oldest first; replaced as a whole, never changed."""
        self._files_lock = threading.Lock()
        self._load()

    @property
    def start(self) -> int:
        """Offset of the first byte of the first file; 0 if there is none."""
        files = self.files
        return files[0].base if files else 0

    @property
    def end(self) -> int:
        """Offset after the last byte of the last file; 0 if there is none."""
        files = self.files
        return files[-1].end if files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds `offset`, or None."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].base) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def ensure(self, offset: int) -> MappedFile:
        """The file that holds `offset`; it and those before it are created where missing.

        The first file of an empty row starts at offset - offset % file_size. Raises
        StoreLayoutError below the first file, DiskFullError without room.
        """
        file = self.find(offset)
        if file is not None:
            return file
        files = self.files
        if files and offset < files[0].base:
            raise StoreLayoutError(
                f"{self.directory}: offset {offset} lies before the first file {files[0].path.name}"
            )
        base = files[-1].end if files else offset - offset % self.file_size
        while base <= offset:
            self._add(base)
            base += self.file_size
        return self.files[-1]

    def write(self, offset: int, data: Buffer) -> None:
        """Write `data` at `offset`, over file ends too, creating files as needed.

        Raises OSError of the write; a part may then be there.
        """
        rest = memoryview(data).cast("B")
        while rest:
            file = self.ensure(offset)
            piece = rest[: file.end - offset]
            file.write(offset - file.base, piece)
            offset += len(piece)
            rest = rest[len(piece) :]

    def view(self, offset: int, size: int) -> memoryview:
        """Up to `size` bytes from `offset`, not beyond the end of its file; empty outside. Raises
        UnreadableError."""
        file = self.find(offset)
        if file is None:
            return memoryview(b"")
        position = offset - file.base
        return file.view(position, min(size, self.file_size - position))

    def sync(self, start: int, end: int) -> None:
        """Make bytes start..end durable, and the names of the files that hold them."""
        if self._directory_changed:
            self._directory_changed = False  # before the call: a file may be added meanwhile
            try:
                self._disk.fsync_directory(self.directory)
            except OSError:
                self._directory_changed = True
                raise
        for file in self.files:
            if file.base < end and start < file.end:
                file.sync()

    def sync_loaded(self) -> None:
        """Make everything durable that an earlier process may have left to the page cache."""
        if not self.files:
            return
        self._disk.fsync_directory(self.directory)
        for file in self.files:
            file.sync()
            file.release()

    def truncate_after(self, offset: int) -> list[Path]:
        """Delete the files that start after `offset`, newest first; returns which.

        The file that holds `offset` keeps its bytes: the owner has to clear them.
        """
        return self._delete(tuple(file for file in reversed(self.files) if file.base > offset))

    def drop_before(self, offset: int) -> list[Path]:
        """Delete the files that end at or before `offset`, oldest first, never the last one.

        Raises OSError; the files not deleted stay in the row.
        """
        return self._delete(tuple(file for file in self.files[:-1] if file.end <= offset))

    def clear(self, move_to: Path | None = None) -> list[Path]:
        """Delete every file, newest first, or move all of them into the directory `move_to`.

        If that is on another disk they go to one of their own, `move_to`'s parent's name in this
        directory, which is not searched for log files.
        """
        return self._delete(tuple(reversed(self.files)), move_to)

    def replace(self, old: MappedFile, draft: Path) -> None:
        """Put the file `draft`, of the same size and durable, in place of `old`, durably. Raises
        FileNotFoundError or another OSError of the rename before anything has changed, and
        StaleNameError if the name is not durable."""
        self._disk.rename(draft, old.path)
        new = MappedFile(self._disk, old.path, old.base, old.size)
        with self._files_lock:
            self.files = tuple(new if each is old else each for each in self.files)
        old.retire()
        try:
            self._disk.fsync_directory(self.directory)
        except OSError as error:
            raise StaleNameError(f"the name of {old.path} is not durable: {error}") from error

    def release(self) -> None:
        """Release descriptors and maps; the next use opens them again."""
        for file in self.files:
            file.release()

    def close(self) -> None:
        """Close every file permanently; readers' views stay valid. Raises the first OSError,
        after all the others are closed."""
        faults = []
        for file in self.files:
            try:
                file.close()
            except OSError as error:
                faults.append(error)
        if faults:
            raise faults[0]

    def _add(self, base: int) -> None:
        path = self.directory / offset_file_name(base)
        if not self.files:
            self._disk.make_directory(self.directory)
        if self.allocator is not None:
            self.allocator.create(path)
        else:
            self._create_sparse(path)
        self._directory_changed = True
        with self._files_lock:
            self.files = (*self.files, MappedFile(self._disk, path, base, self.file_size))

    def _create_sparse(self, path: Path) -> None:
        draft = self.directory.with_name(f"{self.directory.name}.new")
        try:
            make_sparse(self._disk, draft, path, self.file_size)
        except OSError as error:
            raise refusal(f"cannot create {path}", error) from error

    def _delete(self, files: tuple[MappedFile, ...], move_to: Path | None = None) -> list[Path]:
        if not files:
            return []
        if move_to is not None:
            self._disk.make_directory(move_to)
        for file in files:
            move_to = self._remove(file, move_to)
            with self._files_lock:
                self.files = tuple(each for each in self.files if each is not file)
            file.close()
        if move_to is not None:
            self._disk.fsync_directory(move_to)
        self._disk.fsync_directory(self.directory)
        return [file.path for file in files]

    def _remove(self, file: MappedFile, move_to: Path | None) -> Path | None:
        """Returns the directory that the next file moves to."""
        try:
            if move_to is None:
                file.unlink()
            else:
                file.keep()
                move_to = move_file(self._disk, file.path, move_to)
        except FileNotFoundError:
            if self._disk.status(file.path) is not None:
                raise  # it is the directory `move_to` that is missing
            logger.warning("was gone before it was deleted: %s", file.path)
        return move_to

    def _load(self) -> None:
        entries: list[tuple[int, Path, int]] = []
        for name in self._disk.listdir(self.directory):
            path = self.directory / name
            status = self._disk.status(path)
            if status is None or status.is_directory:
                continue
            base = parse_offset_file_name(name)
            if base is None:
                logger.warning("ignored, not the name of a log or queue file: %s", path)
                continue
            entries.append((base, path, status.size))
        if entries and entries[-1][2] == 0:
            self._drop_empty(entries.pop()[1])
        if entries:
            self.file_size = file_size_of(entries)
        self.files = tuple(
            MappedFile(self._disk, path, base, size, writable=not self._read_only)
            for base, path, size in entries
        )

    def _drop_empty(self, path: Path) -> None:
        """A crash while the newest file was created leaves it with length 0."""
        logger.warning("newest file is empty and ignored: %s", path)
        if not self._read_only:
            self._disk.unlink(path)
            self._disk.fsync_directory(self.directory)


def move_file(files: FileSystem, path: Path, move_to: Path) -> Path:
    """Move a file into the directory `move_to`; if that is on another disk, into one beside the
    file with the name of `move_to`'s parent. Returns which: the next file goes there too. Durable
    after an fsync of both directories."""
    try:
        files.rename(path, move_to / path.name)
    except OSError as error:
        beside = path.parent / move_to.parent.name
        if error.errno != errno.EXDEV or beside == move_to:
            raise
        logger.warning("%s lies on a disk of its own: moving to %s", path.parent, beside)
        files.make_directory(beside)
        return move_file(files, path, beside)
    return move_to


def file_size_of(entries: list[tuple[int, Path, int]]) -> int:
    """The one length of all files (base, path, length); StoreLayoutError if they disagree.

    The first file's length counts, unless the next file's start contradicts it and fits all others.
    """
    base, path, size = entries[0]
    if len(entries) > 1:
        step = entries[1][0] - base
        if step != size and all(each[2] == step for each in entries[1:]):
            size = step
    for _, path, length in entries:
        if length != size:
            raise StoreLayoutError(
                f"{path} has {length} bytes, the files beside it have {size}: bring the whole "
                "file back, or move it and every later one away to continue with what is before it"
            )
    for (base, path, _), (later, later_path, _) in pairwise(entries):
        if later != base + size:
            raise MissingFileError(
                path.parent,
                f"{path.parent}: gap between {path.name} and {later_path.name}, "
                f"{base + size:020d} is missing: bring it back, or move one side away",
            )
    base, path, _ = entries[0]
    if size == 0 or base % size:
        raise StoreLayoutError(
            f"{path} has {size} bytes and cannot start at {base}, which is no multiple of that: "
            "the file was cut or renamed, bring the whole one back"
        )
    return size
