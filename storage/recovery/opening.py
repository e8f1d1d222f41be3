"""Opening a store: the steps, in the one order that is safe.

     1  lock            from here on no other process changes the files
     2  leftovers       drafts and spare files of a process that died are removed
     3  reserve         released if the disk has no room for the small files (disk_space.py)
     4  page cache      dropped if the last stop was not clean: an fsync may have failed
     5  set aside       a move of the log that was interrupted is finished (set_aside.py)
     6  survey          settings checked against the files, the log analyzed: nothing is changed
     7  begin           what may be missing is noted; then the abort file says that we are open
     8  recover         the files are opened and made consistent (recovery.py)
     9  topics          those that a damaged table has lost come back
    10  save            all of it durable, and noted
    11  withdraw        notes about lost parts of the log are withdrawn, if 10 did not replace them
    12  flushed         nothing that counted as stored can be missing any more

A crash between two steps repeats them at the next open. A full disk ends 9 or 10 early: the store
opens anyway, so that it can be read and that retention can make room; the report says what waits.
Any other failure closes everything again, and releases the lock.
"""

import logging
import os
from dataclasses import dataclass

from ..clock import Clock, SteadyClock
from ..config import StoreConfig
from ..disk.allocator import remove_spares
from ..disk.disk_space import Reserve
from ..disk.file_pool import remove_drafts
from ..disk.file_system import FileSystem
from ..disk_errors import refusal
from ..errors import DiskFullError, FlushFailedError, StoreReadOnlyError
from ..inspect.geometry import Geometry
from ..progress import Progress
from ..state_files.abort_file import AbortFile
from ..state_files.lock_file import LockFile
from ..store_parts import StoreParts
from ..store_paths import StorePaths
from .analysis import Analysis, analyze
from .last_stop import LastStop
from .persistence import Persistence
from .recovery import recover, restore_topics
from .recovery_report import RecoveryReport
from .set_aside import finish_interrupted_move
from .withdrawal import withdraw

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that is locked, recovered and ready to be used; its owner closes the parts and
    releases the lock."""

    parts: StoreParts
    report: RecoveryReport
    lock: LockFile
    abort: AbortFile
    last_stop: LastStop
    reserve: Reserve
    persistence: Persistence


def survey(config: StoreConfig, files: FileSystem) -> tuple[Geometry, Analysis]:
    """Sizes and analysis of the store; nothing is changed. Raises StoreLayoutError or
    CorruptStoreError if the files do not fit the settings, UnreadableError."""
    geometry = Geometry.of(config, files)
    if config.index_enabled:
        geometry.check_index()
    return geometry, analyze(geometry, files)


def open_store(
    config: StoreConfig,
    files: FileSystem,
    clock: Clock,
    progress: Progress | None = None,
    confirmed_at_most: int | None = None,
) -> Opened:
    """See the module, and MessageStore.open for what it raises."""
    began = clock.monotonic()
    steady = SteadyClock(clock)
    paths = StorePaths(config.directory)
    abort = AbortFile(paths.abort, files)
    lock = LockFile(paths.lock, abort, files)
    lock.acquire()
    try:
        opened = _open_locked(config, files, steady, lock, abort, progress, confirmed_at_most)
    except OSError as error:
        lock.release()
        raise refusal(f"{config.directory} cannot be opened", error) from error
    except BaseException:
        lock.release()
        raise
    report = opened.report
    report.seconds = clock.monotonic() - began
    if report.waits:
        logger.error("the store is open on a full disk: %s", report.waits)
    logger.info(
        "store open: directory=%s log=%d..%d seconds=%.2f",
        config.directory, report.log_start, report.log_end, report.seconds,
    )  # fmt: skip
    return opened


def _open_locked(
    config: StoreConfig,
    files: FileSystem,
    clock: SteadyClock,
    lock: LockFile,
    abort: AbortFile,
    progress: Progress | None,
    confirmed_at_most: int | None,
) -> Opened:
    """Steps 2 to 12."""
    paths = StorePaths(config.directory)
    last_stop = LastStop(paths, files)
    reserve = Reserve(paths.reserve, files)
    remove_spares(files, paths.own, paths.commit_log)
    remove_drafts(files, paths.own, paths.queues)
    reserve.release()
    last_stop.drop_page_cache_if_needed(clean=not abort.exists())
    aside = finish_interrupted_move(paths, files)
    geometry, analysis = survey(config, files)
    if aside is not None:
        analysis.notes.append(
            "the last process ended while it was setting the log aside: the whole log is "
            f"now in {aside}"
        )
    last_stop.note_open(analysis)
    abort.create(os.getpid())
    parts = StoreParts(geometry, files, clock)
    try:
        report = recover(parts, analysis, progress)
        report.doubt = last_stop.doubt
        persistence = Persistence(parts, analysis.store_timestamp, confirmed_at_most)
        _make_durable(parts, report, persistence)
        last_stop.flushed()
    except BaseException as error:
        if isinstance(error, FlushFailedError):
            last_stop.note_failed_fsync()
        parts.close()
        raise
    return Opened(parts, report, lock, abort, last_stop, reserve, persistence)


def _make_durable(parts: StoreParts, report: RecoveryReport, persistence: Persistence) -> None:
    """Steps 9 to 11. Raises OSError, StoreReadOnlyError."""
    try:
        restore_topics(parts, report)
    except StoreReadOnlyError as error:
        report.waits = report.waits or f"lost topics are not restored: {error.reason}"
    saved = True
    try:
        persistence.save()
    except DiskFullError as error:
        saved = False
        report.waits = report.waits or f"nothing new is durable yet: {error.reason}"
    withdraw(parts, report.log_end, report.queues_rebuilt, saved=saved)
