"""The file `tandemlog/refused-brokers.json`: slave brokers whose log was found to be another one.

A slave broker has no epochs. After the next start of this node, nothing may show any more that its
log is another one: this node's log may have grown beyond its end. So it stays refused, by its
address, until it comes with an empty log.
"""

import logging
from pathlib import Path

from tandemlog_server.storage.disk.checked_json import decode_checked, encode_checked
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.disk.small_files import read_small, write_small
from tandemlog_server.storage.disk_errors import refusing
from tandemlog_server.storage.store_paths import StorePaths

logger = logging.getLogger(__name__)

FILE_NAME = "refused-brokers.json"
MAX_REFUSED = 256


class RefusedBrokers:
    """One thread calls what writes; any thread may call `end_of`. A damaged file is ignored."""

    def __init__(self, directory: Path, files: FileSystem) -> None:
        self.path = StorePaths(directory).own / FILE_NAME
        self._files = files
        self._ends: dict[str, int] = {}

    def load(self) -> None:
        data = read_small(self._files, self.path)
        if data is None:
            return
        try:
            ends = decode_checked(data)["ends"]
            self._ends = {str(address): int(end) for address, end in ends.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s cannot be read: %s", self.path, error)

    def end_of(self, address: str) -> int | None:
        """Where the log of the broker at this address ended when it was refused; None if it was
        not."""
        return self._ends.get(address)

    def note(self, address: str, end: int) -> None:
        """Durable on return. Raises DiskFullError or StoreReadOnlyError: it is refused all the
        same, until this node starts again."""
        if self._ends.get(address) == end or len(self._ends) >= MAX_REFUSED:
            return
        self._ends = {**self._ends, address: end}
        self._save()

    def forget(self, address: str) -> None:
        """The broker has come empty. Raises as `note`."""
        if address in self._ends:
            self._ends = {each: end for each, end in self._ends.items() if each != address}
            self._save()

    def _save(self) -> None:
        with refusing(f"{self.path} cannot be written"):
            write_small(self._files, self.path, encode_checked({"ends": self._ends}))
