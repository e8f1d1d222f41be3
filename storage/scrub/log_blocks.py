"""Bytes of the log for the scrub, read beside the maps that readers use.

    readers   map ── page cache ──┐
                                  ├── disk
    scrub     pread on its own ───┘   of a cold file: its pages are dropped before and after

What lies in the page cache may be right while the disk has lost it, so a file that is full is read
from the disk: its clean pages are dropped first, and again when the scrub has gone through it, so
that it leaves the cache as it would be without it. The newest file, which puts and tailing readers
use, is left as it is.
"""

from ..disk.file_system import FileSystem
from ..disk.mapped_file import MappedFile
from ..errors import OffsetOutOfRangeError, UnreadableError
from ..log.commit_log import CommitLog
from .page_reads import read_exactly


class LogBlocks:
    """See the module; for one thread. With `cold` the pages of full files are dropped."""

    def __init__(self, log: CommitLog, files: FileSystem, *, cold: bool) -> None:
        self._log = log
        self._files = files
        self._cold = cold
        self._file: MappedFile | None = None
        self._handle = -1

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes at log `offset`, which are committed and lie in one file. Raises
        OffsetOutOfRangeError, UnreadableError that names the first page that cannot be read."""
        log = self._log
        file = log.mapped.find(offset)
        if file is None or offset + size > min(log.committed.value, file.end):
            raise OffsetOutOfRangeError(offset, log.min_offset, log.committed.value)
        try:
            if file is not self._file:
                self._open(file)
            return read_exactly(self._files, self._handle, file.path, offset - file.base, size)
        except OSError as error:
            raise UnreadableError(
                str(file.path), offset - file.base, size, str(error.strerror)
            ) from error

    def _open(self, file: MappedFile) -> None:
        self.close()
        self._handle = self._files.open(file.path, write=False)
        self._file = file
        self._drop()

    def _drop(self) -> None:
        newest = self._log.files[-1:]
        if self._cold and self._handle >= 0 and self._file not in newest:
            self._files.drop_cache(self._handle)

    def close(self) -> None:
        """Let the file go; the next read opens one again."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            try:
                if self._cold and self._file not in self._log.files[-1:]:
                    self._files.drop_cache(handle)
            finally:
                self._files.close(handle)
                self._file = None
