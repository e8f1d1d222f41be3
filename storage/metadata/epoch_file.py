"""The epoch table of a store on disk: `epochFileCheckpoint`, and the same once more in `.bak`.

RocketMQ's controller mode writes the same file, and keeps the table before the last change in its
`.bak`. That backup lacks a term: a master that read it would assign the bytes of that term to the
one before, and treat every slave's log as different. So here both files hold the same table, and
the file is written first: only a crash between the two writes, or a disk that accepts only one,
leaves the backup one term behind, until the next open.

Every change is fsynced when the call returns: an epoch is a promise to other nodes, and the table
decides to which epoch a byte of the log belongs.
"""

import logging
from pathlib import Path

from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochEntry, EpochTable, decode_epochs

from ..disk.file_system import FileSystem
from ..disk.small_files import backup_of, read_small, remove_small, write_small
from ..disk_errors import refusing
from ..errors import CorruptStoreError

logger = logging.getLogger(__name__)

WAY_OUT = (
    "restore it from a copy of this store, or on a master from a slave that was in sync; a slave "
    "does without: remove the file and its .bak, and it compares its whole log with the master's"
)


class EpochFile:
    """`table` is immutable and replaced by every change; one thread changes."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.table = EpochTable()
        self.note = ""
        """Why the table is that of the backup, which may lack the last change; else empty."""
        self._only_backup = False
        self._behind = False
        """Whether the backup differs from the table."""

    def load(self) -> None:
        """Read the table, or its `.bak` if the file is lost or damaged (then `note` is set).

        Raises CorruptStoreError if a file is there and neither can be read: without its epochs a
        different log would count as equal.
        """
        faults = []
        for path in (self.path, backup_of(self.path)):
            data = read_small(self._files, path)
            if not data:
                continue
            try:
                self.table = decode_epochs(data)
            except FormatError as error:
                faults.append(f"{path.name}: {error}")
                continue
            if path == self.path:
                self._behind = read_small(self._files, backup_of(path)) != data
            else:
                self._only_backup = True
                self.note = f"{'; '.join(faults) or self.path.name + ' is missing'}: read {path}"
                logger.warning("epoch table from its backup: %s", self.note)
            return
        if faults:
            raise CorruptStoreError(str(self.path), 0, f"{'; '.join(faults)}: {WAY_OUT}")

    def append(self, entry: EpochEntry) -> None:
        """Begin a term; it replaces those that start at the same place or later.

        Raises FormatError for an epoch that is not newer than all in the table.
        """
        self.replace(self.table.append(entry.epoch, entry.start_offset))

    def truncate_suffix(self, offset: int) -> None:
        """The log was cut at `offset`."""
        self._cut(self.table.truncate_suffix(offset))

    def truncate_prefix(self, offset: int) -> None:
        """The log begins at `offset` now."""
        self._cut(self.table.truncate_prefix(offset))

    def _cut(self, table: EpochTable) -> None:
        """If nothing is cut, a damaged file stays, as it shows that the backup may lack a term,
        until the caller has checked that and calls `replace`."""
        if table == self.table:
            self._back_up()
        else:
            self.replace(table)

    def replace(self, table: EpochTable) -> None:
        """Persist `table`, then publish it. RocketMQ has no empty table: both files are removed for
        one. Raises DiskFullError or StoreReadOnlyError, and publishes nothing."""
        if table == self.table and not self._only_backup:
            return
        with refusing(f"{self.path} cannot be written"):
            if len(table):
                write_small(self._files, self.path, table.encode())
            else:
                remove_small(self._files, backup_of(self.path))
                remove_small(self._files, self.path)
        self.table, self._only_backup = table, False
        self._behind = len(table) > 0
        self._back_up()

    def _back_up(self) -> None:
        """Write the table to the backup if it differs. If the disk refuses, nothing is lost while
        the file itself is whole."""
        if not self._behind:
            return
        path = backup_of(self.path)
        try:
            write_small(self._files, path, self.table.encode())
            self._behind = False
        except OSError as error:
            logger.warning("%s is one change behind: %s", path, error)
