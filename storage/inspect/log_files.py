"""The commit log as files alone, record by record, for the tools: nothing is opened for writing.

    file 1 [r][r][r][BLANK ....]   file 2 [r][r][0 0 0 ...]
                                                 ^ the end: bytes that are no record

A scan ends where a record should start and none does: zeros (the usual end), bytes of an earlier
use of the file, a torn or a damaged record. `end` and `reason` say which.
"""

from collections.abc import Iterator
from pathlib import Path

from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import Record, decode_record, is_blank

from ..disk.file_system import FileSystem
from ..disk.mapped_file import MappedFile
from ..disk.mapped_file_queue import MappedFileQueue

_NOTHING = b"\0\0\0\0\0\0\0\0"
_HEAD = len(_NOTHING)
_STEP = 8 << 20


class LogScan:
    """Iterate once: every record from `start` (default: the first byte) to the end of the log.
    Raises UnreadableError if the disk does not give it.

    `end` is how far the scan has come, `reason` why it stopped (empty while it runs); `at_zeros`:
    the log simply ends there.
    """

    def __init__(
        self, files: FileSystem, directory: Path, file_size: int, *, start: int | None = None
    ) -> None:
        self._mapped = MappedFileQueue(files, directory, file_size, read_only=True)
        self.start = self._mapped.start if start is None else start
        self.end = self.start
        self.reason = ""
        self.at_zeros = False

    @property
    def file_size(self) -> int:
        return self._mapped.file_size

    @property
    def file(self) -> str:
        """Path of the file that holds `end`."""
        file = self._mapped.find(self.end)
        return str(file.path if file is not None else self._mapped.directory)

    def __iter__(self) -> Iterator[Record]:
        for file in self._mapped.files:
            if file.end <= self.start:
                continue
            data = file.span(0, file.size)
            position = max(self.start - file.base, 0)
            front = _Front(file, data)
            front.reach(position)
            while not is_blank(data, position):
                try:
                    record = decode_record(data, position, physical_offset=file.base + position)
                except CorruptRecordError as error:
                    self._stop(data, position, error)
                    return
                position += record.size
                self.end = file.base + position
                yield record
                front.reach(position)
            file.release()
            self.end = file.end
        self.reason = "end of the last file" if self._mapped.files else "there is no log file"
        self.at_zeros = True

    def _stop(self, data: memoryview, position: int, fault: CorruptRecordError) -> None:
        self.at_zeros = bytes(data[position : position + len(_NOTHING)]) == _NOTHING
        self.reason = "end of the log" if self.at_zeros else f"no record: {fault}"


class _Front:
    """How far a file that is read from front to back is in memory."""

    def __init__(self, file: MappedFile, data: memoryview) -> None:
        self._file = file
        self._data = data
        self._end = 0

    def reach(self, position: int) -> None:
        """The record at `position`, whatever its size says, or what the file has left."""
        if position + _HEAD > self._end:
            self._prefault(position, _STEP)
        size = int.from_bytes(self._data[position : position + 4])
        if position + size > self._end:
            self._prefault(position, max(size, _STEP))

    def _prefault(self, position: int, size: int) -> None:
        self._file.prefault(position, size)
        self._end = min(position + size, self._file.size)
