"""Back to what the disk holds, after an fsync that failed.

The kernel keeps pages that it could not write in its cache and calls them clean (ext4, for one):
every read shows them, no later fsync reports them, and a power cut takes them. So before anything
of such a store is believed, what can be written is written, and every page is dropped.
"""

import logging
from pathlib import Path

from ..disk.files import FileSystem
from ..store_paths import StorePaths

logger = logging.getLogger(__name__)


def forget_page_cache(paths: StorePaths, files: FileSystem) -> None:
    """Drop the cached pages of every file of a store, which this process has locked; what else
    lies in its folder is not ours to open. Raises OSError where the disk still fails."""
    folders = [paths.commit_log, paths.queues, paths.index, paths.config, paths.own]
    folders = [each for each in folders if files.status(each) is not None]
    for each in (paths.root, *folders):  # a folder may be a disk of its own
        _write_back(each, files)
    found = [each for each in (paths.checkpoint, paths.abort, paths.epochs) if files.status(each)]
    for each in folders:
        found += _files_below(each, files)
    for path in found:
        handle = files.open(path, write=False)
        try:
            files.drop_cache(handle)
        finally:
            files.close(handle)


def _write_back(folder: Path, files: FileSystem) -> None:
    try:
        files.sync_all(folder)
    except OSError as fault:
        logger.warning("the disk of %s did not write all it was given: %s", folder, fault)
        # Linux may have told of the failure that is known already; of that only once.
        files.sync_all(folder)


def _files_below(root: Path, files: FileSystem) -> list[Path]:
    found: list[Path] = []
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        for name in files.listdir(directory):
            path = directory / name
            status = files.status(path)
            if status is not None:
                (waiting if status.is_directory else found).append(path)
    return found
