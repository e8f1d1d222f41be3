"""Bytes of a log by their offset, from files here or from a node: what every scan reads from.

A window of the log is read into a buffer of the reader's own. Files are not mapped: a mapped file
that is cut short would kill the process, and executors may have a limit on address space.
"""

import os
from typing import Protocol

from .log_files import LogFiles


class LogBytes(Protocol):
    """Reads of one log; each stays inside one log file."""

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill `target` with the bytes at the log offset; returns how many there were: fewer only
        if the file ends."""

    def next_data(self, offset: int) -> int:
        """The first log offset from here on, in the same file, where something may be written; the
        file's end if nothing is."""

    def close(self) -> None: ...


class LocalLog:
    """The files of a log on this machine. One file is open at a time."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._base = -1
        self._handle = -1

    def read_into(self, offset: int, target: memoryview) -> int:
        """As LogBytes; no bytes where there is no file. Raises OSError."""
        file = self._files.find(offset)
        if file is None:
            return 0
        self._open(file.path, file.base)
        target = target[: file.base + self._files.file_size - offset]
        done = 0
        while done < len(target):
            count = os.preadv(self._handle, [target[done:]], offset - file.base + done)
            if count == 0:
                break
            done += count
        return done

    def next_data(self, offset: int) -> int:
        """As LogBytes: holes of a sparse file are skipped."""
        file = self._files.find(offset)
        if file is None or offset >= file.end:
            return offset
        self._open(file.path, file.base)
        try:
            return file.base + os.lseek(self._handle, offset - file.base, os.SEEK_DATA)
        except OSError:
            return file.end  # ENXIO: only a hole is left

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle, self._base = -1, -1

    def _open(self, path: str, base: int) -> None:
        if self._base != base:
            self.close()
            self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._base = base


def read(log: LogBytes, offset: int, size: int) -> bytes:
    """Bytes at the log offset, fewer where the file ends."""
    buffer = memoryview(bytearray(size))
    return bytes(buffer[: log.read_into(offset, buffer)])
