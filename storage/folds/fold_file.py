"""The snapshot of one fold on the disk: when it is written, when it is read, when it goes.

    dispatched or appended   |--------------------------| snapshot taken at S
    flushed                  |------------------|             S not flushed yet: it waits
                             |--------------------------| F   F >= S: written, noted = S
    nothing for the fold to  |--------------------------------| T   noted = T, once flushed; the
                                                                    recovery point has it too

A fold may be true up to what is written, which is ahead of what is flushed. So a snapshot waits
until the log is flushed up to its position, and a later round writes it: no snapshot on the disk
covers bytes that a power cut may still take. It is written whole. If that takes long, it is done
less often, FOLDS_SHARE of the time at most, and an open applies more of the log.
"""

from collections.abc import Callable
from pathlib import Path

from tandemlog.format.errors import FormatError

from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, remove_small, write_small
from ..disk_errors import refusing
from .fold import Fold, Snapshot
from .snapshot_form import snapshot_offset

FOLDS_SHARE = 0.05


class FoldFile:
    """See the module; one caller at a time. `before_write` makes durable what the fold has changed
    beside itself up to its snapshot: no open applies these records again."""

    def __init__(
        self, fold: Fold, path: Path, files: FileSystem, monotonic: Callable[[], float]
    ) -> None:
        self.fold = fold
        self.before_write: Callable[[], None] = lambda: None
        self.path = path
        self._files = files
        self._monotonic = monotonic
        # what waits for the flush, what is on the disk, and when the next one may be taken
        self._taken: Snapshot | None = None
        self._saved: Snapshot | None = None
        self._next = 0.0
        self._needs_from = 0
        # the log offset of the snapshot on the disk
        self._on_disk: int | None = None

    @property
    def keep_from(self) -> int | None:
        """Retention keeps the log from there on; None while no snapshot is on the disk."""
        noted = self.fold.noted
        return None if noted is None else min(noted, self._needs_from)

    @property
    def position(self) -> tuple[int, int] | None:
        """The log offset of the snapshot on the disk, and up to which it says all."""
        noted = self.fold.noted
        return None if self._on_disk is None or noted is None else (self._on_disk, noted)

    @property
    def is_current(self) -> bool:
        """Whether the snapshot on the disk is of this log, and lacks nothing that was mended."""
        return self._saved is not None and self.fold.holds(self._saved)

    def save(self, flushed: int, *, closing: bool) -> None:
        """The log is flushed up to `flushed`; `closing`: the last round. Raises StoreError that
        names the file."""
        fold, taken, saved = self.fold, self._taken, self._saved
        if taken is not None and (closing or not fold.holds(taken)):
            taken = None
        # what is on the disk is stale, or of a log that was cut
        at_once = closing or saved is None or not fold.holds(saved)
        if saved is not None and fold.holds(saved) and taken is None:
            reached = fold.next_offset  # before the changes: no later one is missed
            if fold.changes == saved.changes:
                fold.noted = max(fold.noted or 0, min(reached, flushed))
                return
        if taken is None and (at_once or self._monotonic() >= self._next):
            taken = fold.snapshot()
            if saved is not None and saved.changes == taken.changes:
                taken = None
        if taken is not None and taken.log_offset <= flushed:
            self.before_write()
            began = self._monotonic()
            with refusing(f"{self.path} cannot be written"):
                write_small(self._files, self.path, taken.encode())
            self._needs_from, fold.noted = taken.needs_from, taken.log_offset
            if not fold.holds(taken):
                fold.noted = None  # meanwhile the log was cut, or the fold rebuilt
            self._on_disk = taken.log_offset
            ended = self._monotonic()
            self._next = ended + (ended - began) / FOLDS_SHARE
            self._saved, taken = taken.without_rows(), None
        self._taken = taken

    def read(self) -> bytes | None:
        """The snapshot, None if there is none or it cannot be read."""
        try:
            return read_small(self._files, self.path)
        except OSError:
            return None

    def load(self) -> str:
        """Let the fold become what the snapshot says; returns what is wrong with it, empty if all
        is well. Raises OSError."""
        data = read_small(self._files, self.path)
        if data is None:
            return ""
        try:
            self.fold.restore(data)
            self._needs_from = self.fold.needs_from()
            self._on_disk = self.fold.next_offset
        except (FormatError, ValueError) as error:
            return f"{self.path} is damaged and is rebuilt from the log: {error}"
        return ""

    def forget(self) -> None:
        """Everything the store holds is removed."""
        self._taken = self._saved = None

    def withdraw(self, log_end: int) -> bool:
        """Remove the snapshot if it describes more than a log that ends at `log_end`; whether it
        did. Raises OSError."""
        data = read_small(self._files, self.path)
        if data is None or _offset(data) <= log_end:
            return False
        remove_small(self._files, self.path)
        self.fold.noted = None
        return True


def _offset(data: bytes) -> int:
    try:
        return snapshot_offset(data)
    except (FormatError, ValueError):
        return 0  # damaged, so it is not used
