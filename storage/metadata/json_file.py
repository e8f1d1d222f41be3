"""One of RocketMQ's JSON tables on disk: `config/<name>.json` and the copy before it, `.bak`.

    {"dataVersion": {"counter": n, "stateVersion": n, "timestamp": ms}, "<table>": {...}, ...}

Members that tandemlog does not use are kept unchanged, so that RocketMQ finds them again. A write
puts the old content to `.bak` and replaces the file atomically; a file that is missing, empty or
no JSON is read from `.bak` (section 4.4 of the format text). Both unreadable is an error: starting
with an empty table would silently lose every topic or consumer offset.
"""

import logging
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

from tandemlog.format.errors import FormatError
from tandemlog.format.files import store_json

from ..disk.file_system import FileSystem
from ..disk.small_files import backup_of, read_small, replace_with_backup, write_small
from ..disk_errors import refusing
from ..errors import CorruptStoreError

logger = logging.getLogger(__name__)

VERSION = "dataVersion"
_INTEGER = re.compile("-?[0-9]{1,19}")
_LONGS = range(-(1 << 63), 1 << 63)

Json = dict[str, object]
Rows = TypeVar("Rows")


class JsonFile:
    """The document of one table; the caller holds its own lock around every change."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files
        self.document: Json = {}
        self.note = ""
        # whether there was anything to read, which may be an empty table
        self.found = False
        self._only_backup = False

    def load(self) -> None:
        """Read the table, or its `.bak`; neither being there is an empty table.

        `note` says where the backup had to serve. Raises CorruptStoreError if there is
        something and none of it can be read.
        """
        faults = []
        for path in (self.path, backup_of(self.path)):
            data = read_small(self._files, path)
            if data is None or not data.strip(b" \t\r\n\0"):
                faults.append(f"{path.name} is {'missing' if data is None else 'empty'}")
                continue
            try:
                self.document = parse(data)
                self.found = True
            except FormatError as error:
                faults.append(f"{path.name}: {error}")
                continue
            if faults:
                self._only_backup = True
                self.note = f"{'; '.join(faults)}; {path.name} was taken instead"
                logger.warning("%s: %s", self.path, self.note)
            return
        if not all(fault.endswith(("is empty", "is missing")) for fault in faults):
            raise CorruptStoreError(
                str(self.path), 0, f"{'; '.join(faults)}: restore the file, or delete it and .bak"
            )
        self.document = {}

    def replace(self, document: Json) -> None:
        """Write the document durably, then publish it; the old content stays as `.bak`. Raises
        DiskFullError or StoreReadOnlyError, and changes nothing."""
        with refusing(f"{self.path} cannot be written"):
            data = store_json.dumps(document).encode()
            replace_with_backup(self._files, self.path, data, keep_backup=self._only_backup)
            if not self.found and read_small(self._files, backup_of(self.path)) is None:
                # the first table too has a copy: else its loss would look like an empty table
                write_small(self._files, backup_of(self.path), data)
        self._only_backup, self.found = False, True
        self.document = document

    def encoded(self) -> bytes:
        return store_json.dumps(self.document).encode()

    @property
    def version(self) -> int:
        """The counter of dataVersion: grows with every change of the table."""
        return integer(table(self.document, VERSION).get("counter"), 0)

    def with_next_version(self, now_ms: int) -> Json:
        """A copy of the document, its version one higher."""
        before = table(self.document, VERSION)
        version = {
            **before,
            "counter": integer(before.get("counter"), 0) + 1,
            "stateVersion": integer(before.get("stateVersion"), 0),
            "timestamp": now_ms,
        }
        return {**self.document, VERSION: version}


def parse(data: bytes) -> Json:
    """The document in `data`; raises FormatError if it is no JSON object."""
    document = store_json.loads(data)
    if not isinstance(document, dict):
        raise FormatError(f"a JSON object is expected, not {type(document).__name__}")
    return {str(name): value for name, value in document.items()}


def table(document: Mapping[str, object], name: str) -> Json:
    """The object that `document` has under `name`, empty if it has none."""
    rows = document.get(name)
    return {str(key): value for key, value in rows.items()} if isinstance(rows, dict) else {}


def integer(value: object, default: int) -> int:
    """`value` as an int of 64 bits, else `default`; fastjson writes some numbers as text. A larger
    number would fit neither the messages to a slave nor a column."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in _LONGS:
        return value
    return default


class JsonTable(ABC, Generic[Rows]):
    """A table that lies in a JsonFile and travels whole to the slaves. Any thread may call."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self._file = JsonFile(path, files)
        self._lock = threading.Lock()

    @property
    def note(self) -> str:
        """What had to be repaired while loading; empty if nothing was."""
        return self._file.note

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._file.version

    def load(self) -> None:
        """Raises CorruptStoreError for a file that cannot be read."""
        with self._lock:
            self._file.load()
            try:
                self._publish(self._decode(self._file.document))
            except FormatError as error:
                raise CorruptStoreError(str(self._file.path), 0, str(error)) from error

    def to_json(self) -> bytes:
        """The whole table in the form of its file, for a slave."""
        with self._lock:
            return self._file.encoded()

    def replace_from_json(self, data: bytes) -> None:
        """Take a master's table in place of the own one, durably; raises FormatError."""
        document = parse(data)
        rows = self._decode(document)
        with self._lock:
            if document == self._file.document:
                return
            self._file.replace(document)
            self._publish(rows)
        self._changed()

    @abstractmethod
    def _decode(self, document: Json) -> Rows:
        """What `_publish` takes; raises FormatError."""

    @abstractmethod
    def _publish(self, rows: Rows) -> None:
        """Caller holds the lock."""

    def _changed(self) -> None:
        """After every change, without the lock."""
