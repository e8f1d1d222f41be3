"""The files of one consume queue: units of 20 bytes, unit n of the queue at byte 20·n.

    first                            last
    |B B B u3 u4 u5 u6 | u7 .. u13 | u14 u15 0 0 0 0 |      B: pre-blank
    file of F bytes      F           F, full length from the start, sparse

A queue whose first record is not number 0 (a log that begins later) starts in the file that would
hold it, filled up to it with pre-blank units, so that positions are the same on every node. File
lengths say nothing; the caller knows where the units end and writes without a gap.
"""

import errno
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.names import offset_file_name, parse_offset_file_name
from tandemlog.format.files.queue_unit import PRE_BLANK, UNIT_DTYPE, UNIT_SIZE

from ..disk.file_pool import FilePool
from ..disk.file_system import Buffer
from ..errors import CorruptStoreError, MissingFileError, StoreLayoutError

UNREADABLE = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
"""Errors of a disk that cannot read the bytes of a file."""


class ConsumeQueue:
    """One queue on disk. Not thread-safe for writing; any number may read what is written."""

    __slots__ = ("_disk", "_prefix", "file_size", "first", "last")

    def __init__(self, directory: Path, disk: FilePool, file_size: int) -> None:
        self._disk = disk
        self._prefix = f"{directory}/"
        self.file_size = file_size
        # byte offsets of the first and the last file, -1 without files
        self.first = -1
        self.last = -1

    @property
    def first_unit(self) -> int:
        """The queue offset at the start of the first file; 0 without files."""
        return max(self.first, 0) // UNIT_SIZE

    @property
    def capacity(self) -> int:
        """The queue offset after the last file."""
        return (self.last + self.file_size) // UNIT_SIZE if self.last >= 0 else 0

    def file(self, base: int) -> str:
        return self._prefix + offset_file_name(base)

    def open(self) -> bool:
        """Find the files; False if there are none.

        Names that are no offsets are left alone. A last file that is too short, as a crash
        between its creation and its first write leaves it, gets its length. Raises
        StoreLayoutError for other lengths, MissingFileError if one is gone.
        """
        names = self._disk.files.listdir(Path(self._prefix))
        bases = [base for name in names if (base := parse_offset_file_name(name)) is not None]
        if not bases:
            return False
        for before, base in pairwise(bases):
            if base - before == self.file_size:
                continue
            if base % self.file_size == before % self.file_size == 0:
                raise MissingFileError(
                    Path(self._prefix),
                    f"{self._prefix}: a file is missing between {before} and {base}",
                )
            raise StoreLayoutError(
                f"{self._prefix}: file {base} does not begin {self.file_size} bytes after "
                f"{before}: configure the store's queue file size, or rebuild the queues"
            )
        self.first, self.last = bases[0], bases[-1]
        length = self._disk.length(self.file(self.last))
        if length > self.file_size or length % UNIT_SIZE or self.first % self.file_size:
            raise StoreLayoutError(
                f"{self.file(self.last)} has {length} bytes, queue files have "
                f"{self.file_size}: configure the store's queue file size, or rebuild the "
                "queues"
            )
        if length < self.file_size:
            self._disk.shorten(self.file(self.last), length, self.file_size)
        return True

    def create_at(self, queue_offset: int) -> None:
        """Create the file that will hold unit `queue_offset`, pre-blank up to it."""
        position = queue_offset * UNIT_SIZE
        base = position - position % self.file_size
        self._create(base)
        if position > base:
            self._disk.write(self.file(base), 0, PRE_BLANK * ((position - base) // UNIT_SIZE))

    def write(self, queue_offset: int, data: Buffer) -> None:
        """Write whole units from unit `queue_offset` on, which must be in the last file or follow
        it; a queue without files begins there. Raises OSError; writing the same again is right
        then."""
        if self.first < 0:
            try:
                self.create_at(queue_offset)
            except OSError:
                self.first = self.last = -1  # else the next call would leave a gap before its units
                raise
        position = queue_offset * UNIT_SIZE
        rest = memoryview(data).cast("B")
        while rest:
            base = position - position % self.file_size
            if base > self.last:
                self._create(base)
            room = base + self.file_size - position
            self._disk.write(self.file(base), position - base, rest[:room])
            position += min(room, len(rest))
            rest = rest[room:]

    def read(self, queue_offset: int, count: int) -> NDArray[np.void]:
        """UNIT_DTYPE[count]: units that were written. Raises CorruptStoreError if a file of
        the queue is missing, too short or unreadable: a queue can be rebuilt from the log, so that
        is damage like any other."""
        position = queue_offset * UNIT_SIZE
        size = count * UNIT_SIZE
        base = position - position % self.file_size
        if position + size <= base + self.file_size:
            return np.frombuffer(self._read_file(base, position - base, size), dtype=UNIT_DTYPE)
        pieces = []
        while size > 0:
            base = position - position % self.file_size
            piece = min(size, base + self.file_size - position)
            pieces.append(self._read_file(base, position - base, piece))
            position += piece
            size -= piece
        return np.frombuffer(b"".join(pieces), dtype=UNIT_DTYPE)

    def is_cached(self, queue_offset: int, count: int) -> bool:
        """Whether `read` of these units would not wait for the disk; False where they lie in two
        files, or there is no such file."""
        position, size = queue_offset * UNIT_SIZE, count * UNIT_SIZE
        base = position - position % self.file_size
        if position + size > base + self.file_size:
            return False
        try:
            return self._disk.is_cached(self.file(base), position - base, size)
        except OSError:
            return False

    def cut(self, queue_offset: int) -> None:
        """Unit `queue_offset` and everything after it is gone, on disk too: zeros or no file."""
        position = queue_offset * UNIT_SIZE
        while self.last >= 0 and self.last >= position:
            self._disk.delete(self.file(self.last))
            self.last -= self.file_size
            if self.last < self.first:
                self.first = self.last = -1
        if self.last >= 0 and position < self.last + self.file_size:
            self._disk.shorten(self.file(self.last), position - self.last, self.file_size)

    def drop_first(self) -> None:
        """Delete the first file; never called for the last one. Raises OSError; it is still the
        first then, or deleting the next one would leave a gap."""
        self._disk.delete(self.file(self.first))
        self.first += self.file_size

    def destroy(self) -> None:
        """Delete all files, those behind a gap too. Raises the first OSError if some cannot be
        deleted, after all the others; a second call tries those again."""
        names = self._disk.files.listdir(Path(self._prefix))
        remaining, faults = [], []
        for base in [base for name in names if (base := parse_offset_file_name(name)) is not None]:
            try:
                self._disk.delete(self.file(base))
            except OSError as error:
                remaining.append(base)
                faults.append(error)
        self.first, self.last = (remaining[0], remaining[-1]) if remaining else (-1, -1)
        if faults:
            raise faults[0]

    def _create(self, base: int) -> None:
        self._disk.create(self.file(base), self.file_size)
        if self.first < 0:
            self.first = base
        self.last = base

    def _read_file(self, base: int, position: int, size: int) -> bytes:
        path = self.file(base)
        try:
            data = self._disk.read(path, position, size)
        except FileNotFoundError as error:
            raise CorruptStoreError(path, position, "the file is missing") from error
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            raise CorruptStoreError(path, position, f"it cannot be read: {error}") from error
        if len(data) != size:
            raise CorruptStoreError(path, position, "the file is too short")
        return data
