"""`abort`: it exists while a store is open, so if it exists at open, the last exit was not clean.

It holds the process id as text (RocketMQ 5; version 4 leaves it empty). RocketMQ deletes it at
shutdown only when the store was writable and everything was dispatched (section 4.2); otherwise the
next start recovers as after a crash. tandemlog does the same.
"""

from pathlib import Path

from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, remove_small, write_small


class AbortFile:
    """The mark of a store in use."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.path = path
        self._files = files

    def exists(self) -> bool:
        return self._files.status(self.path) is not None

    def process_id(self) -> int | None:
        """The process that created it, if it says."""
        text = (read_small(self._files, self.path) or b"").strip()
        return int(text) if text.isdigit() else None

    def create(self, process_id: int) -> None:
        """Create it, durably, in place of an older one."""
        write_small(self._files, self.path, str(process_id).encode())

    def remove(self) -> None:
        """The store is closed clean: durable on return."""
        remove_small(self._files, self.path)
