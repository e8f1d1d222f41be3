"""The members of consumer groups: `config/groupMembers.json`, a table of tandemlog's own.

    "groups": {"<group>": {"epoch": n, "members": [...]}, ...}

RocketMQ keeps who consumes in memory, and ignores this file. What a row means is for the node's
groups; here it is durable, and travels to the slaves as the other tables do.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ..disk.file_system import FileSystem
from .json_file import Json, JsonFile, parse, table

_GROUPS = "groups"


class GroupMembers:
    """See the module. Any thread may call."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self._file = JsonFile(path, files)
        self._lock = threading.Lock()

    def load(self) -> None:
        with self._lock:
            self._file.load()

    @property
    def note(self) -> str:
        """What had to be repaired while loading; empty if nothing was."""
        return self._file.note

    @property
    def version(self) -> int:
        return self._file.version

    def rows(self) -> Json:
        """By group."""
        return table(self._file.document, _GROUPS)

    def update(
        self, rows: Mapping[str, object | None], now_ms: int, allowed: Callable[[], bool]
    ) -> bool:
        """Put these rows in place of those of the same groups, None to drop one, durably. False,
        and nothing is changed, if it is not `allowed` (any more): a slave takes the table from its
        master alone. Raises DiskFullError or StoreReadOnlyError, and changes nothing."""
        with self._lock:
            if not allowed():
                return False
            document = self._file.with_next_version(now_ms)
            changed = {**table(self._file.document, _GROUPS), **rows}
            document[_GROUPS] = {name: row for name, row in changed.items() if row is not None}
            self._file.replace(document)
            return True

    def to_json(self) -> bytes:
        """The whole table in the form of its file, for a slave."""
        with self._lock:
            return self._file.encoded()

    def replace_from_json(self, data: bytes) -> None:
        """Take a master's table in place of the own one, durably; raises FormatError."""
        document = parse(data)
        with self._lock:
            if document != self._file.document:
                self._file.replace(document)
