"""Reading the log through the maps of its files: no lock and no copy.

Any thread can read everything between the first file and `committed` at any time, but for what is
barred: bytes that the copies of other nodes prove wrong, until they are mended. A file that is
dropped or cut meanwhile is out of range for new reads, and stays readable through the views that
readers already hold.
"""

from collections.abc import Iterator
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ..disk.mapped_file import CHUNK, MappedFile
from ..disk.mapped_file_queue import MappedFileQueue
from ..errors import OffsetOutOfRangeError, StoreClosedError, UnreadableError
from ..positions import Position


class LogReader:
    """Reads below `committed` of the files in `mapped`; all offsets are positions in the log."""

    def __init__(self, mapped: MappedFileQueue, committed: Position) -> None:
        self._mapped = mapped
        self._committed = committed
        self._unreadable: dict[str, UnreadableError] = {}
        self._barred: tuple[tuple[int, int], ...] = ()
        self._barring = Lock()

    @property
    def unreadable(self) -> tuple[UnreadableError, ...]:
        """What readers could not read, one for each file, until `retry_unreadable` can."""
        return tuple(self._unreadable.values())

    def bar(self, start: int, end: int) -> None:
        """Give no bytes of start .. end-1 to readers until `unbar`: they are known to be wrong."""
        with self._barring:
            self._barred = (*self._without(start, end), (start, end))

    def unbar(self, start: int, end: int) -> None:
        """They are right now, or not known to be wrong any more; of what was barred with other
        bounds, the rest stays barred."""
        with self._barring:
            self._barred = tuple(self._without(start, end))

    def _without(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        for begin, stop in self._barred:
            if begin < min(stop, start):
                yield begin, min(stop, start)
            if max(begin, end) < stop:
                yield max(begin, end), stop

    @property
    def barred(self) -> tuple[tuple[int, int], ...]:
        """What is kept from readers, (start, end) in log offsets."""
        return self._barred

    def _check_barred(self, file: MappedFile, offset: int, size: int) -> None:
        for start, end in self._barred:
            if offset < end and start < offset + size:
                raise UnreadableError(
                    str(file.path), start - file.base, end - start, "other copies differ"
                )

    @property
    def min_offset(self) -> int:
        """Where the first file begins; the end where there is none."""
        files = self._mapped.files
        return files[0].base if files else self._committed.value

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Up to `max_bytes` from `offset`, within one file; no copy.

        Empty at the committed end. Raises OffsetOutOfRangeError outside the log, UnreadableError.
        """
        committed = self._committed.value
        file = self._mapped.find(offset)
        if offset == committed:
            return memoryview(b"")
        if file is None or offset > committed:
            raise self._out_of_range(offset)
        size = min(max_bytes, committed - offset, file.end - offset)
        for start, _ in self._barred:
            if offset < start:
                size = min(size, start - offset)
        return self._view(file, offset, size)

    def view(self, offset: int, size: int) -> memoryview:
        """Exactly `size` bytes from `offset`, which lie in one file and are committed; no copy.

        Raises OffsetOutOfRangeError if they do not, UnreadableError.
        """
        file = self._mapped.find(offset)
        if file is None or offset + size > min(self._committed.value, file.end):
            raise self._out_of_range(offset)
        return self._view(file, offset, size)

    def view_in_memory(self, offset: int, size: int) -> memoryview | None:
        """As `view`, None where it would wait for the disk."""
        file = self._mapped.find(offset)
        committed = self._committed.value
        if file is None or offset + size > min(committed, file.end):
            raise self._out_of_range(offset)
        if self._barred:
            self._check_barred(file, offset, size)
        position = offset - file.base
        begin, end = position & -CHUNK, -(-(position + size) & -CHUNK)
        try:
            # a chunk that is full is remembered: then the next question costs nothing
            full = end <= min(committed - file.base, file.size)
            if (full and file.in_memory(begin, end - begin)) or file.in_memory(position, size):
                return file.span(position, size)
        except StoreClosedError:
            raise self._out_of_range(offset) from None
        return None

    def parts(self, base: int, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> memoryview:
        """The file that begins at log offset `base`, to the end of the last of these stretches of
        it, i8[n] >= 1; only they may be looked at. Raises as `view`."""
        file = self._mapped.find(base)
        size = int((begins + lengths).max())
        if file is None or base + size > min(self._committed.value, file.end):
            raise self._out_of_range(base)
        if self._barred:
            for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
                self._check_barred(file, base + begin, length)
        try:
            file.prefault_parts(begins, lengths)
            return file.span(0, size)
        except StoreClosedError:
            raise self._out_of_range(base) from None
        except UnreadableError as error:
            self._unreadable[error.file] = error
            raise

    def retry_unreadable(self) -> None:
        """Try again to read what is `unreadable`; forget it if that works, or if it left the
        log."""
        files = {str(file.path): file for file in self._mapped.files}
        for path, error in list(self._unreadable.items()):
            try:
                if path in files:
                    files[path].view(error.position, error.size)
            except (UnreadableError, OSError):
                continue
            except StoreClosedError:
                pass
            self._unreadable.pop(path, None)

    def in_memory(self, offset: int, max_bytes: int) -> bool:
        """Whether `read` of these bytes would not wait for the disk."""
        file = self._mapped.find(offset)
        if file is None:
            return True
        try:
            return file.in_memory(offset - file.base, min(max_bytes, file.end - offset))
        except StoreClosedError:
            return True

    def _view(self, file: MappedFile, offset: int, size: int) -> memoryview:
        if self._barred:
            self._check_barred(file, offset, size)
        try:
            return file.view(offset - file.base, size)
        except StoreClosedError:
            # dropped or cut away since it was found
            raise self._out_of_range(offset) from None
        except UnreadableError as error:
            self._unreadable[error.file] = error
            raise

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(offset, self.min_offset, self._committed.value)
