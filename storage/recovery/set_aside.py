"""A log that no longer fits its master is set aside: it moves to `resync-<ms>/` with its queues and
its index, and an empty log begins.

    1  tandemlog/set-aside          names the folder: from here on the move will be completed, if
                                    need be by the next open before anything else
    2  recovery point, checkpoint   note nothing as durable any more
    3  log files, newest first; consumequeue/; index/     moved, and durable before 4, in any order
       tandemlog/index.json, producers, folds/,
       queue-begins.json, producers-begin                 removed: they describe what has moved
    4  tandemlog/set-aside          removed

So after a crash the log is either here, unchanged, or there, and a part of it is never in use: the
rest of a log would look like one that has lost files, and its confirm offset would be a guess. A
log on a disk of its own stays there, in a folder of the same name inside its own; queues and index
on one are emptied, because they can be rebuilt.

This store never needs the moved files. They are kept until the new log is known to be complete:
until this slave is in sync, they may hold the only copy of a message. Then the newest
`set_aside_kept` stay for `set_aside_hours`, and the others go.
"""

import errno
import logging
from pathlib import Path

from tandemlog.format.files.names import parse_offset_file_name

from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import move_file
from ..disk.small_files import read_small, remove_small, write_small
from ..disk_errors import refusal
from ..errors import StoreError, StoreReadOnlyError
from ..log.commit_log import require_file_start
from ..state_files.recovery_point import RecoveryPointFile
from ..state_files.store_checkpoint import StoreCheckpoint
from ..store_parts import StoreParts
from ..store_paths import StorePaths
from .persistence import Persistence, reset_checkpoints

logger = logging.getLogger(__name__)

PREFIX = "resync-"


class SetAsideNote:
    """The note of one store: where the log is being moved to."""

    def __init__(self, paths: StorePaths, files: FileSystem) -> None:
        self._root = paths.root
        self._path = paths.set_aside
        self._files = files
        # whether a failed `save` may have left the note
        self.remains = False

    def load(self) -> Path | None:
        """The folder; None if no log is being moved."""
        data = read_small(self._files, self._path)
        if data is None:
            return None
        name = data.decode("ascii", "replace").strip()
        if not name.startswith(PREFIX) or "/" in name:
            logger.error("%s is damaged, what is left is moved to a folder of its own", self._path)
            return self.unused_folder(0)
        return self._root / name

    def unused_folder(self, now_ms: int) -> Path:
        """A folder name for what is set aside at `now_ms`; nothing is created."""
        while self._files.status(folder := self._root / f"{PREFIX}{now_ms}") is not None:
            now_ms += 1
        return folder

    def save(self, folder: Path) -> None:
        """Durable on return. Raises OSError, without a note, unless the disk refuses to remove it.
        Then it `remains`, or may after a power cut, and the next open moves away what is in the log
        by then."""
        try:
            write_small(self._files, self._path, folder.name.encode())
        except OSError:
            self.remains = True
            self.remove()
            self.remains = False
            raise

    def remove(self) -> None:
        """Call when what was moved is durable."""
        remove_small(self._files, self._path)


def set_aside(parts: StoreParts, persistence: Persistence, offset: int, *, running: bool) -> None:
    """Move log, queues and index into `resync-<ms>` and begin an empty log at `offset`
    (see the module). Raises StoreError; if something has moved by then, or may be moved by the
    next open, the log takes no more writes, and the next open ends it."""
    log = parts.log
    log.require_writable()
    require_file_start(offset, log.file_size)
    note = SetAsideNote(parts.paths, parts.files)
    try:
        folder = note.unused_folder(parts.clock.now_ms()) if log.files else None
        if folder is not None:
            note.save(folder)
    except OSError as error:
        if note.remains:
            raise log.fail(_broken_off(error)) from error
        raise refusal("the log cannot be set aside", error) from error
    parts.reput.stop()
    try:
        with persistence.starting_over():
            if folder is None:
                log.reset(offset)
            else:
                move_aside(parts, folder, offset)
                note.remove()
            _forget_all(parts, offset)
    except StoreError as error:
        log.fail(error)
        raise
    except OSError as error:
        raise log.fail(_broken_off(error)) from error
    if running:
        parts.reput.start()
    # if that raises, the log continues: nothing is noted as durable, and a later save will do
    persistence.save()


def _broken_off(fault: OSError) -> StoreReadOnlyError:
    return StoreReadOnlyError(f"setting the log aside failed: {fault}; restart the node")


def _forget_all(parts: StoreParts, offset: int) -> None:
    """The log is empty and begins at `offset`."""
    parts.queues.reset(offset)
    if parts.index is not None:
        parts.index.reset(offset)
    for fold in parts.folds:
        fold.reset(offset)
    parts.time_steps.truncate(0)
    parts.queue_table.clear_offsets()
    parts.confirmed.retreat(offset)
    parts.reput.begin_at(offset)
    parts.source.cut(0)
    parts.queue_begins.remove()
    parts.producer_begins.remove()


def move_aside(parts: StoreParts, folder: Path, offset: int) -> None:
    """Step 3 of a store that is open. The log is empty then and begins at `offset`."""
    files, paths = parts.files, parts.paths
    files.make_directory(folder)
    parts.log.reset(offset, move_to=folder / paths.commit_log.name)
    parts.queues.close()
    if parts.index is not None:
        parts.index.close()
    _move_derived(paths, files, folder)
    logger.warning("log set aside: %s", folder)


def finish_interrupted_move(paths: StorePaths, files: FileSystem) -> Path | None:
    """If the last process was moving the log aside, finish that: the store is empty then. Returns
    the folder that has all of it now, None if there was nothing to do.

    Before any other access to the store: the disk decides which moves survive a power cut, so the
    rest may have gaps. Raises OSError; the next call continues.
    """
    note = SetAsideNote(paths, files)
    folder = note.load()
    if folder is None:
        return None
    checkpoint = StoreCheckpoint(paths.checkpoint, files)
    checkpoint.load()
    reset_checkpoints(RecoveryPointFile(paths.recovery_point, files), checkpoint)
    _move_log(paths.commit_log, files, folder / paths.commit_log.name)
    _move_derived(paths, files, folder)
    note.remove()
    logger.warning("log set aside: %s", folder)
    return folder


def drop_set_aside(parts: StoreParts) -> int:
    """Delete folders of logs set aside, except those to keep; returns how many were deleted. A
    folder that a log is being moved to stays. If the disk refuses, the next call tries again."""
    files, paths, config = parts.files, parts.paths, parts.config
    busy = SetAsideNote(paths, files).load()
    folders = sorted(
        (int(name.removeprefix(PREFIX)), name)
        for name in files.listdir(paths.root)
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).isdecimal()
    )
    kept_ms = round(config.set_aside_hours * 3_600_000)
    # the names are times of the clock, which tell an age only if it has not jumped for that long
    age_known = kept_ms > 0 and parts.seen_time.steady_ms >= kept_ms
    oldest = parts.clock.now_ms() - kept_ms
    newest = {name for _, name in folders[max(0, len(folders) - config.set_aside_kept) :]}
    deleted = 0
    for time_ms, name in folders:
        expired = age_known and time_ms < oldest
        if (name in newest and not expired) or (busy is not None and busy.name == name):
            continue
        try:
            for folder in (paths.commit_log / name, paths.root / name):
                if files.status(folder) is not None:
                    _empty(folder, files)
                    files.remove_directory(folder)
        except OSError as error:
            logger.warning("%s cannot be deleted: %s", paths.root / name, error)
            continue
        deleted += 1
        logger.info("deleted the log set aside in %s", paths.root / name)
    return deleted


def _move_log(directory: Path, files: FileSystem, move_to: Path) -> None:
    """Every log file, newest first, durably."""
    files.make_directory(move_to)
    for name in reversed(files.listdir(directory)):
        status = files.status(directory / name)
        if parse_offset_file_name(name) is None or status is None or status.is_directory:
            continue
        move_to = move_file(files, directory / name, move_to)
    files.fsync_directory(move_to)
    if files.status(directory) is not None:
        files.fsync_directory(directory)


def _move_derived(paths: StorePaths, files: FileSystem, folder: Path) -> None:
    """Queues and index, which are closed, and what describes them; durably."""
    for directory in (paths.queues, paths.index):
        if files.status(directory) is None:
            continue
        try:
            files.rename(directory, folder / directory.name)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EBUSY):
                raise
            # an operator who wants it back rebuilds it from the log
            logger.warning("%s is a disk of its own and stays, emptied: %s", directory, error)
            _empty(directory, files)
    files.fsync_directory(folder)
    files.fsync_directory(paths.root)
    remove_small(files, paths.index_state)
    remove_small(files, paths.producers)
    if files.status(paths.folds) is not None:
        _empty(paths.folds, files)
    remove_small(files, paths.queue_begins)
    remove_small(files, paths.producer_begins)


def _empty(directory: Path, files: FileSystem) -> None:
    for name in files.listdir(directory):
        status = files.status(directory / name)
        if status is not None and status.is_directory:
            _empty(directory / name, files)
            files.remove_directory(directory / name)
        elif status is not None:
            files.unlink(directory / name)
    files.fsync_directory(directory)
