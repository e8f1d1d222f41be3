"""A file of the log with right bytes in place of wrong ones, put in place of the file under its
readers and its writer.

    old     | good | XXXX | good | good .... zero |      keeps its bytes for who holds a view of it
               │      ▼       │      │
    patch      │   | mend |   │      │                   fetched from a copy that is whole
               ▼      ▼       ▼      ▼
    draft   | good | mend | good | good .... zero |      fsynced, then renamed over the old name

The old file is only read: a write into a failing sector could stop the store, and may tear. The
name is there at every moment, and after a crash it has the old file or the whole new one.

Below `committed` the bytes of a file never change, unless the log is cut. So most of the draft is
copied beside everything else; then writers and flushes wait while the rest is copied, fsynced and
renamed, which for a file that is full is nothing. The name is durable before they continue: a later
fsync reaches the new file, and must not belong to a name that a power cut takes back.

What was there before stays as evidence in `tandemlog/damaged-<offset>-<ms>`: the bytes of the
stretch, zeros where the disk did not give them. The newest EVIDENCE_KEPT of them are kept. Where
the disk did not give some, the file itself stays too: see bad_places.py.
"""

import errno
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..disk.allocator import DRAFT_NAME, SPARE_FOLDER
from ..disk.disk_space import preallocate_big
from ..disk.file_system import FileSystem
from ..disk.mapped_file import MappedFile
from ..disk_errors import refusing
from ..errors import NotMendedError
from ..log.commit_log import CommitLog
from .page_reads import pages, read_exactly

logger = logging.getLogger(__name__)

COPY_STEP: Final = 1 << 20
EVIDENCE_KEPT: Final = 64
_EVIDENCE: Final = "damaged-"

Pace = Callable[[int], None]
"""Gets the number of bytes that were copied, and may wait."""


def at_once(_bytes: int) -> None:
    """Wait for nothing."""


@dataclass(frozen=True, slots=True)
class Patch:
    """The right bytes of the log from offset `start` on; they lie in one file. `cuts`: of the log
    for which they are right (CommitLog.cuts); None for the log as it is now."""

    start: int
    data: bytes
    cuts: int | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.data)


def mend_file(
    log: CommitLog,
    files: FileSystem,
    own: Path,
    patches: Sequence[Patch],
    write_lock: AbstractContextManager[Any],
    pace: Pace = at_once,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Put the right bytes into the file that holds them all; durable on return. `pace(bytes)` is
    called after each piece that was copied without a lock: it may wait. `ready()` is called when
    the new file is durable, before it takes the old one's name.

    `own` is the store's folder for drafts; `write_lock` is held while the file is replaced, so that
    retention drops none meanwhile. Raises NotMendedError if the file is gone or the log was
    cut meanwhile, UnreadableError for a page outside the patches, DiskFullError,
    StoreReadOnlyError: nothing has changed then. FlushFailedError, which is permanent, if the new
    name could not be made durable.
    """
    file = log.mapped.find(patches[0].start)
    end = max(patch.end for patch in patches)
    if file is None or end > min(file.end, log.flushed.value):
        raise NotMendedError(f"log bytes {patches[0].start}..{end} are not in one file of the log")
    draft = _Draft(log, files, file, patches, write_lock, pace, ready)
    try:
        with refusing(f"{file.path} cannot be written again"):
            try:
                draft.replace(own)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # the log lies on a disk of its own
                draft.replace(file.path.parent / SPARE_FOLDER)
    finally:
        draft.remove()
    logger.warning(
        "mended: %s offsets=%s", file.path, ", ".join(f"{p.start}..{p.end}" for p in patches)
    )


class _Draft:
    """See the module."""

    def __init__(
        self,
        log: CommitLog,
        files: FileSystem,
        file: MappedFile,
        patches: Sequence[Patch],
        write_lock: AbstractContextManager[Any],
        pace: Pace,
        ready: Callable[[], None],
    ) -> None:
        self._log = log
        self._files = files
        self._file = file
        self._patches = sorted(patches, key=lambda patch: patch.start)
        self._write_lock = write_lock
        self._pace = pace
        self._ready = ready
        self._path: Path | None = None
        self._source = self._target = -1

    def replace(self, folder: Path) -> None:
        """Make the draft in `folder`, and put it in place of the file. Raises OSError."""
        log, files, file = self._log, self._files, self._file
        cuts, safe = log.cuts, min(log.committed.value, file.end)
        if any(patch.cuts not in (None, cuts) for patch in self._patches):
            raise NotMendedError(f"{file.path} was cut or dropped meanwhile")
        files.make_directory(folder)
        self._path = folder / DRAFT_NAME
        self._source = files.open(file.path, write=False)
        self._target = files.open(self._path, create=True)
        try:
            files.truncate(self._target, 0)
            preallocate_big(files, self._target, self._path, file.size)
            self._copy(file.base, safe, self._pace)
            for patch in self._patches:
                files.pwrite(self._target, patch.data, patch.start - file.base)
            files.fdatasync(self._target)
            self._ready()
            with self._write_lock:
                log.replace_file(file, self._path, cuts, lambda end: self._complete(safe, end))
        finally:
            files.close(self._source)
            files.close(self._target)

    def _complete(self, start: int, end: int) -> None:
        if end > start:
            self._copy(start, end, at_once)
            self._files.fdatasync(self._target)

    def _copy(self, start: int, end: int, pace: Pace) -> None:
        """Log bytes start..end but for those of the patches, in pieces."""
        at = start
        for patch in self._patches:
            self._copy_all(at, min(patch.start, end), pace)
            at = max(at, patch.end)
        self._copy_all(at, end, pace)

    def _copy_all(self, start: int, end: int, pace: Pace) -> None:
        base, path = self._file.base, self._file.path
        for at in range(start, end, COPY_STEP):
            size = min(COPY_STEP, end - at)
            data = read_exactly(self._files, self._source, path, at - base, size)
            self._files.pwrite(self._target, data, at - base)
            pace(size)

    def remove(self) -> None:
        """Of a draft that did not become the file."""
        path, self._path = self._path, None
        try:
            if path is not None and self._files.status(path) is not None:
                self._files.unlink(path)
        except OSError as error:
            logger.warning("%s was not removed, the next open does that: %s", path, error)


def keep_evidence(log: CommitLog, files: FileSystem, own: Path, patch: Patch, now_ms: int) -> bool:
    """Keep what the file has in place of the patch, durably; returns whether all of it could be
    read. Raises NotMendedError if the file is gone, DiskFullError or StoreReadOnlyError."""
    file = log.mapped.find(patch.start)
    if file is None:
        raise NotMendedError(f"log bytes {patch.start}..{patch.end} are gone")
    with refusing(f"log bytes {patch.start}..{patch.end} cannot be kept as evidence"):
        handle = files.open(file.path, write=False)
        data, begin, whole = bytearray(len(patch.data)), patch.start - file.base, True
        try:
            for at, page in pages(files, handle, begin, len(data)):
                if page is None:
                    whole = False
                else:
                    data[at - begin : at - begin + len(page)] = page
        finally:
            files.close(handle)
        if _is_kept(files, own, patch.start, data):
            return whole  # by a try that failed later: each of them would push out an older one
        while files.status(path := own / f"{_EVIDENCE}{patch.start}-{now_ms}") is not None:
            now_ms += 1
        files.atomic_replace(path, data)
        _drop_old(files, own)
    return whole


def evidence(files: FileSystem, own: Path) -> list[Path]:
    """What was kept, the oldest first."""
    names = [each for each in files.listdir(own) if each.startswith(_EVIDENCE)]
    return [own / each for each in sorted(names, key=_time_in)]


def _is_kept(files: FileSystem, own: Path, start: int, data: bytearray) -> bool:
    """Whether the newest evidence of that place has these bytes."""
    prefix = f"{_EVIDENCE}{start}-"
    paths = [each for each in evidence(files, own) if each.name.startswith(prefix)]
    status = files.status(paths[-1]) if paths else None
    return status is not None and status.size == len(data) and files.read_file(paths[-1]) == data


def _drop_old(files: FileSystem, own: Path) -> None:
    for path in evidence(files, own)[:-EVIDENCE_KEPT]:
        files.unlink(path)


def _time_in(name: str) -> int:
    last = name.rpartition("-")[2]
    return int(last) if last.isdigit() else 0
