"""The place of the disk that does not give its bytes back is never used again.

    before   commitlog/<base>  ──▶ | good | bad place | good |
    after    commitlog/<base>  ──▶ | good | mended    | good |    other blocks of the disk
             tandemlog/bad-<base>-<ms> ──▶ the file with the bad place

A file that is written again leaves its blocks to the file system, which gives them to the next file
that is made. Where the disk also fails to write there, an fsync of that file would fail, and the
store would be read-only permanently. So a file with an unreadable place keeps its blocks under
another name: all of them, since readers may still have it mapped. The newest KEPT are kept. A disk
with more of them is to be replaced.
"""

import errno
import logging
from pathlib import Path
from typing import Final

from ..disk.allocator import SPARE_FOLDER
from ..disk.file_system import FileSystem

logger = logging.getLogger(__name__)

KEPT: Final = 8
_NAME: Final = "bad-"
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)


def occupy(files: FileSystem, own: Path, file: Path, now_ms: int) -> Path | None:
    """Give `file`, of the log, a second name, durably, before another one takes its first; in
    `own`, the store's folder, or beside the log where that is on a disk of its own. None on a file
    system that has no second names. Raises OSError."""
    for folder in (own, file.parent / SPARE_FOLDER):
        files.make_directory(folder)
        path = _free_name(files, folder, file.name, now_ms)
        try:
            files.link(file, path)
        except OSError as error:
            if error.errno == errno.EXDEV:
                continue
            if error.errno in _NO_LINKS:
                break
            raise
        files.fsync_directory(folder)
        for old in occupied(files, folder)[:-KEPT]:
            files.unlink(old)
        return path
    logger.warning("%s: its blocks, of which some cannot be read, may be used again", file)
    return None


def occupied(files: FileSystem, folder: Path) -> list[Path]:
    """The files that keep bad places, the oldest first."""
    names = [each for each in files.listdir(folder) if each.startswith(_NAME)]
    return [folder / each for each in sorted(names, key=_time_in)]


def _free_name(files: FileSystem, folder: Path, name: str, now_ms: int) -> Path:
    while files.status(path := folder / f"{_NAME}{name}-{now_ms}") is not None:
        now_ms += 1
    return path


def _time_in(name: str) -> int:
    last = name.rpartition("-")[2]
    return int(last) if last.isdigit() else 0
