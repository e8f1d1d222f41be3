"""A disk in memory whose process dies in the middle of a call."""

from pathlib import Path

from tandemlog.testing.memory_file import Failure
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.state_files.lock_file import _held


class DeathError(BaseException):
    """The process ends here: no handler of the program may do anything about it."""


class MortalFiles(MemoryFiles):
    """See MemoryFiles. With `calls_left` n >= 0 the process dies in call n+1: that one and all
    after it raise, until the test has let it `rest`."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left = -1

    def rest(self) -> bool:
        """Calls work again, and the process's lock is free; whether it had died."""
        _held.get(self, set()).clear()
        died, self.calls_left = self.calls_left == 0, -1
        return died

    def _failing(self, call: str, path: Path | str) -> Failure | None:
        if self.calls_left == 0:
            raise DeathError(f"{call} {path}")
        self.calls_left -= 1
        return super()._failing(call, path)
