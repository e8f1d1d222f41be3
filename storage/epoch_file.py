"""The epoch table of a store on disk: `epochFileCheckpoint` and the one before it, `.bak`.

RocketMQ's controller mode writes the same file. Every change is fsynced when the call returns: an
epoch is promised to other nodes, and a byte of the log belongs to the epoch that the table says.
"""

import logging
from pathlib import Path

from tandemlog.format.epochs import EpochEntry, EpochTable, decode_epochs
from tandemlog.format.errors import FormatError

from .disk_refusal import refusing
from .errors import CorruptStoreError
from .files import FileSystem
from .small_files import backup_of, read_small, remove_small, replace_with_backup

logger = logging.getLogger(__name__)


class EpochFile:
    """`table` is immutable and replaced by every change; one thread changes."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.table = EpochTable()
        self.note = ""
        """Where the table is that of the backup, why: the last change is not in it."""
        self._only_backup = False

    def load(self) -> None:
        """Read the table, or its `.bak` where the file is lost or damaged (`note` says so).

        Raises CorruptStoreError where a file is there and neither can be read: going on without
        its epochs would compare equal with logs that are not.
        """
        faults = []
        for path in (self.path, backup_of(self.path)):
            data = read_small(self._files, path)
            if not data:
                continue
            try:
                self.table = decode_epochs(data)
            except FormatError as fault:
                faults.append(f"{path.name}: {fault}")
                continue
            if path != self.path:
                self._only_backup = True
                self.note = f"{'; '.join(faults) or self.path.name + ' is missing'}: read {path}"
                logger.warning("epoch table from its backup: %s", self.note)
            return
        if faults:
            raise CorruptStoreError(
                str(self.path), 0, f"{'; '.join(faults)}: restore it from a copy of this store"
            )

    def append(self, entry: EpochEntry) -> None:
        """Begin a term; it replaces those that start at the same place or later.

        Raises FormatError for an epoch that is not newer than all in the table.
        """
        self.replace(self.table.append(entry.epoch, entry.start_offset))

    def truncate_suffix(self, offset: int) -> None:
        """The log was cut at `offset`."""
        self.replace(self.table.truncate_suffix(offset))

    def truncate_prefix(self, offset: int) -> None:
        """The log begins at `offset` now."""
        self.replace(self.table.truncate_prefix(offset))

    def replace(self, table: EpochTable) -> None:
        """Persist `table`, then publish it. RocketMQ knows no empty table: no file stands for
        one, and no backup either, because that would come back. Raises DiskFullError or
        StoreReadOnlyError, and publishes nothing."""
        if table == self.table:
            return
        with refusing(f"{self.path} cannot be written"):
            if len(table):
                replace_with_backup(
                    self._files, self.path, table.encode(), keep_backup=self._only_backup
                )
            else:
                remove_small(self._files, backup_of(self.path))
                remove_small(self._files, self.path)
        self._only_backup = False
        self.table = table
