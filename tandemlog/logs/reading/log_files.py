"""The commit-log files of a store on disk: which there are, how long each is, what is missing.

    00000000000000000000 | 00000000001073741824 | (missing) | 00000000003221225472
    '-- names are the offset of the first byte; every file has the same length from the start

A path is a store (it has a folder `commitlog`) or the folder of the log files itself. Nothing is
opened here, only listed.
"""

import os
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tandemlog.format.files.names import offset_file_name, parse_offset_file_name

from ..job_errors import StoreLayoutError, StoreMissingError

COMMIT_LOG = "commitlog"


@dataclass(frozen=True, slots=True)
class LogFile:
    """`base` is the log offset of its first byte, `length` what it has on disk, in bytes."""

    path: str
    base: int
    length: int

    @property
    def end(self) -> int:
        return self.base + self.length


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of one log, ascending; `file_size` is the length that each should have.

    `store` is the folder around the log, None if the path was that of the log itself. `empty_last`
    is the base of a last file without a byte, which is not among them: it was created in advance,
    or all of it is lost, as the queues can tell.
    """

    directory: str
    store: str | None
    file_size: int
    files: tuple[LogFile, ...]
    empty_last: int | None = None

    @property
    def start(self) -> int:
        return self.files[0].base if self.files else 0

    @property
    def length(self) -> int:
        """Bytes of all files."""
        return sum(file.length for file in self.files)

    def find(self, offset: int) -> LogFile | None:
        """The file that holds the log offset."""
        for file in self.files:
            if file.base <= offset < file.base + self.file_size:
                return file
        return None

    def path_of(self, offset: int) -> str:
        """The path of the file that holds, or should hold, the log offset."""
        base = offset - offset % self.file_size if self.file_size else offset
        return str(Path(self.directory) / offset_file_name(base))

    def missing(self) -> list[tuple[int, int]]:
        """Ranges (start, end) of the log between its files that no file covers."""
        size = self.file_size
        return [
            (before.base + size, after.base)
            for before, after in pairwise(self.files)
            if after.base > before.base + size
        ]

    def short(self) -> list[LogFile]:
        """Files that are not as long as they should be."""
        return [file for file in self.files if file.length < self.file_size]


def log_directory(path: Path) -> tuple[Path, Path | None]:
    """The folder of the log files, and the store around it where `path` is a store.

    Raises StoreMissingError.
    """
    if (path / COMMIT_LOG).is_dir():
        return path / COMMIT_LOG, path
    if not path.is_dir():
        raise StoreMissingError(f"{path} is not a folder: give a store or its {COMMIT_LOG} folder")
    if any(parse_offset_file_name(name) is not None for name in os.listdir(path)):
        around = path.parent if path.name == COMMIT_LOG else None
        return path, around
    raise StoreMissingError(
        f"{path} holds neither a folder {COMMIT_LOG} nor log files (names of 20 digits)"
    )


def store_of(path: str | Path) -> Path | None:
    """The store around the log at `path`, None if there is none. Raises StoreMissingError."""
    return log_directory(Path(path))[1]


def find_log(path: str | Path) -> LogFiles:
    """The log files below `path`. Raises StoreMissingError, and StoreLayoutError if files
    overlap. A log folder without files is a log without records."""
    directory, store = log_directory(Path(path))
    files = []
    for name in sorted(os.listdir(directory)):
        base = parse_offset_file_name(name)
        full = directory / name
        if base is not None and full.is_file():
            files.append(LogFile(str(full), base, full.stat().st_size))
    empty_last = None
    if files and files[-1].length == 0:
        # created in advance, and a crash came before it got its length; or its bytes are lost
        empty_last = files.pop().base
    size = _file_size(files)
    for before, after in pairwise(files):
        if after.base - before.base < before.length or (after.base - before.base) % max(size, 1):
            raise StoreLayoutError(
                f"{after.path} does not follow {before.path}: log files of {size} bytes begin at "
                "multiples of that"
            )
    for file in files:
        if file.length > size:
            raise StoreLayoutError(f"{file.path} has {file.length} bytes, log files have {size}")
    around = str(store) if store is not None else None
    return LogFiles(str(directory), around, size, tuple(files), empty_last)


def remote_files(start: int, end: int, file_size: int, name: str) -> LogFiles:
    """The files that a log start .. end of a node must have; paths are only names."""
    bases = range(start - start % file_size, end, file_size)
    files = (LogFile(f"{name}/{base:020d}", base, file_size) for base in bases)
    return LogFiles(name, None, file_size, tuple(files))


def _file_size(files: list[LogFile]) -> int:
    """What every file's length should be: in a whole log all have it; else the most frequent one,
    and never more than the smallest step between two files."""
    if not files:
        return 0
    steps = [after.base - before.base for before, after in pairwise(files)]
    lengths = Counter(file.length for file in files)
    usual = max(lengths, key=lambda length: (lengths[length], length))
    if not steps or (usual and min(steps) % usual == 0):
        return usual
    return min(steps)
