"""A log that no longer fits its master moves aside, whole: `resync-<ms>/` takes it, its queues and
its index, and an empty log begins.

    1  tandemlog/set-aside          names the folder: from here on the move is ended, if need be
                                    by the next open
    2  recovery point, checkpoint   vouch for nothing any more
    3  log files, newest first; consumequeue/; index/     moved, durably
       tandemlog/index.json, producers.json               removed: they speak of what has moved
    4  tandemlog/set-aside          removed

So a crash finds the log here as it was, or there, and never a part of it in use: what is left of a
log would look like one that has lost files, and what is confirmed of it would be a guess. A log on
a disk of its own stays there, in a folder of the same name inside its own.
"""

import logging
from pathlib import Path

from tandemlog.format.checkpoint import Checkpoint

from .examination import Examination
from .files import FileSystem
from .recovery_point import RecoveryPoint
from .small_files import read_small, remove_small, write_small
from .store_parts import StoreParts
from .store_paths import StorePaths

logger = logging.getLogger(__name__)

PREFIX = "resync-"
NOTHING = RecoveryPoint(dispatched=0, flushed=0, confirmed=0)


class SetAsideNote:
    """The note of one store: where the log is being moved to."""

    def __init__(self, paths: StorePaths, files: FileSystem) -> None:
        self._root = paths.root
        self._path = paths.set_aside
        self._files = files
        # whether a failed `save` may have left the note all the same
        self.remains = False

    def load(self) -> Path | None:
        """The folder; None where no log is being moved."""
        data = read_small(self._files, self._path)
        if data is None:
            return None
        name = data.decode("ascii", "replace").strip()
        if not name.startswith(PREFIX) or "/" in name:
            logger.error("%s is damaged, what is left goes to a folder of its own", self._path)
            return self.unused_folder(0)
        return self._root / name

    def unused_folder(self, now_ms: int) -> Path:
        """A folder for what is set aside at `now_ms`; nothing of it is made yet."""
        while self._files.status(folder := self._root / f"{PREFIX}{now_ms}") is not None:
            now_ms += 1
        return folder

    def save(self, folder: Path) -> None:
        """Durable on return. Raises OSError: there is no note then, except where the disk does
        not let it be taken back either. Then it `remains`, or may after a power cut, and the next
        open moves away what is in the log by then."""
        try:
            write_small(self._files, self._path, folder.name.encode())
        except OSError:
            self.remains = True
            self.remove()
            self.remains = False
            raise

    def remove(self) -> None:
        """What was moved is durable."""
        remove_small(self._files, self._path)


def vouch_for_nothing(parts: StoreParts) -> None:
    """Step 2. RocketMQ's checkpoint too: its times are of records that will not be here."""
    parts.recovery_point.save(NOTHING)
    parts.checkpoint.save(Checkpoint())


def move_aside(parts: StoreParts, folder: Path, offset: int) -> None:
    """Step 3: to be repeated until it has ended. The log is empty then and begins at `offset`."""
    files, paths = parts.files, parts.paths
    files.make_directory(folder)
    parts.log.reset(offset, move_to=folder / paths.commit_log.name)
    parts.queues.close()
    if parts.index is not None:
        parts.index.close()
    for directory in (paths.queues, paths.index):
        if files.status(directory) is not None:
            files.rename(directory, folder / directory.name)
    files.fsync_directory(folder)
    files.fsync_directory(paths.root)
    remove_small(files, paths.index_state)
    remove_small(files, paths.producers)
    logger.warning("log set aside: %s", folder)


def end_broken_off(parts: StoreParts, found: Examination) -> None:
    """Where the last process was moving the log aside, end that: the store is empty then, and
    `found` says so. Before recovery has changed anything. Raises OSError or StoreError."""
    note = SetAsideNote(parts.paths, parts.files)
    folder = note.load()
    if folder is None:
        return
    vouch_for_nothing(parts)
    move_aside(parts, folder, 0)
    note.remove()
    found.point = NOTHING
    found.checkpoint = parts.checkpoint.value
    found.log_start = found.log_end = found.durable = 0
    found.scanned_from = found.scanned_records = found.store_timestamp = 0
    found.reason, found.damages, found.remains = "", [], None
    found.notes.append(
        f"the last process was broken off while it set the log aside: all of it is in {folder} now"
    )
