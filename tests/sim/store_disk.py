"""The disk of a simulated node: everything that MemoryFiles does, and misfortune by the call.

    calls of the store ──▶ die_in n    the process ends inside call n+1, and with it every later one
                       ──▶ fail_in n   call n+1 of those that may fail gives EIO or ENOSPC, once
                       ──▶ capacity    what is written beyond it is ENOSPC, until there is space

Which call that is nobody chooses by name: an open, a checkpoint, a truncation and a put meet it
alike. A disk can be copied, to ask what would be if this node became master now.
"""

import errno
from pathlib import Path
from random import Random

from fakes.clock import FakeClock
from fakes.mortal_files import DeathError
from tandemlog.testing.memory_file import Failure, MemoryFile
from tandemlog.testing.memory_files import ENDLESS, MemoryFiles
from tandemlog_server.storage.state_files.lock_file import _held

MAY_FAIL = frozenset(
    {
        "open", "pwrite", "preallocate", "fdatasync", "fsync_directory", "rename", "unlink",
        "truncate", "zero_range", "make_directory", "sync_all", "atomic_replace",
    }
)  # fmt: skip
NO_SPACE = frozenset({"pwrite", "preallocate", "make_directory", "atomic_replace", "rename"})
"""Where a full disk shows; an fsync that says so has failed like any other."""


class NodeDeathError(DeathError):
    """The process on this disk ends here."""

    def __init__(self, files: "NodeFiles", call: str) -> None:
        super().__init__(call)
        self.files = files


class NodeFiles(MemoryFiles):
    """See the module. `clock` tells the times of files."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        super().__init__()
        self.dead = False
        self.die_in = -1
        self.refused = 0
        self.fail_in = -1
        self.fail_number = errno.EIO

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        """It is the clock's."""

    # -- what the world does to it

    def rest(self, *, kept: Random | None = None, power: bool = False) -> None:
        """The process is gone. With `power` the machine too: of what was not fsynced there stays
        what `kept` chooses."""
        self.dead = False
        self.die_in = self.fail_in = -1
        _held.get(self, set()).clear()
        if power:
            self.crash(kept)
        else:
            self.kill()
        for file in self._all_files():
            file.data = bytearray(file.data)  # maps of the process that died hold the old one

    def fill(self, left: int) -> None:
        """From now on there is room for so many bytes."""
        self.capacity = self._used() + left

    def empty(self) -> None:
        self.capacity = ENDLESS

    @property
    def full(self) -> bool:
        return self.capacity != ENDLESS

    def peek(self, path: Path) -> bytes | None:
        """The bytes of a file, None where there is none; the process does not notice."""
        file = self._found(path)
        return None if file is None else bytes(file.data)

    def names(self, path: Path) -> list[str]:
        """What is in a directory; the process does not notice."""
        return sorted(self._tree.get(str(path), ()))

    def flip(self, path: Path, position: int, mask: int) -> None:
        """The disk gives other bits from now on, and remembers no others."""
        file = self._file(path)
        file.data[position] ^= mask
        if position < len(file.durable):
            file.durable[position] ^= mask

    def copy(self, clock: FakeClock) -> "NodeFiles":
        """The same disk once more, without a process and without misfortune."""
        twin = NodeFiles(clock)
        copies: dict[int, MemoryFile] = {}
        for mine, its in ((self._tree, twin._tree), (self._durable, twin._durable)):
            for path, entries in mine.items():
                its[path] = {
                    name: None if file is None else copies.setdefault(id(file), _twin(file))
                    for name, file in entries.items()
                }
        twin.boots = self.boots
        return twin

    # -- the calls

    def _failing(self, call: str, path: Path | str) -> Failure | None:
        if self.dead or self.die_in == 0:
            self.dead = True
            raise NodeDeathError(self, f"{call} {path}")
        if self.die_in > 0:
            self.die_in -= 1
        chosen = NO_SPACE if self.fail_number == errno.ENOSPC else MAY_FAIL
        if self.fail_in >= 0 and call in chosen:
            self.fail_in -= 1
            if self.fail_in < 0:
                self.calls[call] += 1
                self.refused += 1
                return Failure(call, self.fail_number, "", 0, 1, 0)
        failure = super()._failing(call, path)
        self.refused += failure is not None
        return failure

    def _allocate(self, file: MemoryFile, path: Path | str, size: int) -> None:
        try:
            super()._allocate(file, path, size)
        except OSError:
            self.refused += 1
            raise


def _twin(file: MemoryFile) -> MemoryFile:
    return MemoryFile(
        data=bytearray(file.data),
        durable=bytearray(file.durable),
        unsynced=list(file.unsynced),
        durable_size=file.durable_size,
        allocated=file.allocated,
        modified_ms=file.modified_ms,
        copy_whole=file.copy_whole,
        failed=file.failed,
        bad=list(file.bad),
    )
