"""Returns to what the disk holds after an fsync that failed, or may have failed.

The kernel keeps pages that it could not write in its cache and calls them clean (ext4, for one):
every read shows them, no later fsync reports them, and a power cut takes them. So before such a
store is used, all pages that can be written are written, and every page is dropped.

A killed process may have died between the failure and raising its flag (fsync_flag.py). So after
every unclean stop, the same is done with all files that are not known to be durable:
everything but the files of the log that end below the recovery point.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from ..disk.file_system import FileSystem
from ..state_files.recovery_point import RecoveryPointFile
from ..store_paths import StorePaths

logger = logging.getLogger(__name__)


def forget_page_cache(paths: StorePaths, files: FileSystem, *, fsync_failed: bool) -> None:
    """Drop the cached pages of every file of a store, which this process has locked; other files in
    its folder are not opened. If no fsync is known to have failed, log files that were noted as
    durable keep theirs. Raises OSError if the disk still fails."""
    folders = [paths.commit_log, paths.queues, paths.index, paths.config, paths.own]
    folders = [each for each in folders if files.status(each) is not None]
    for each in (paths.root, *folders):  # a folder may be a disk of its own
        _write_back(each, files)
    cached = [each for each in (paths.checkpoint, paths.abort, paths.epochs) if files.status(each)]
    for each in folders:
        if each != paths.commit_log:
            cached += _files_below(each, files)
    _drop(cached, files)
    # only now may the recovery point be read: it is one of the files above
    point = None if fsync_failed else RecoveryPointFile(paths.recovery_point, files).load()
    durable = 0 if point is None else point.flushed
    if paths.commit_log in folders:
        log = _files_below(paths.commit_log, files)
        _drop((each for each in log if not _ends_below(durable, each, files)), files)


def _drop(found: Iterable[Path], files: FileSystem) -> None:
    for path in found:
        handle = files.open(path, write=False)
        try:
            files.drop_cache(handle)
        finally:
            files.close(handle)


def _ends_below(durable: int, path: Path, files: FileSystem) -> bool:
    status = files.status(path)
    return path.name.isdigit() and status is not None and int(path.name) + status.size <= durable


def _write_back(folder: Path, files: FileSystem) -> None:
    try:
        files.sync_all(folder)
    except OSError as error:
        logger.warning("the disk of %s did not write all it was given: %s", folder, error)
        # Linux may have reported the failure that is known already, which it does only once.
        files.sync_all(folder)


def _files_below(root: Path, files: FileSystem) -> list[Path]:
    paths: list[Path] = []
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        for name in files.listdir(directory):
            path = directory / name
            status = files.status(path)
            if status is not None:
                (waiting if status.is_directory else paths).append(path)
    return paths
