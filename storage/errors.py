"""The errors of a store. Every error names what is wrong, where, and what to do about it."""

from pathlib import Path


class StoreError(Exception):
    """Any failure of a store."""


class StoreLockedError(StoreError):
    """Another process has this store open."""


class StoreLayoutError(StoreError):
    """Files that do not fit together: lengths, names, gaps between log files."""


class MissingFileError(StoreLayoutError):
    """A file is missing between others in `directory`; a consume queue can be rebuilt from the
    log."""

    def __init__(self, directory: Path, message: str) -> None:
        super().__init__(message)
        self.directory = directory


class StoreClosedError(StoreError):
    """The store is closed or closing."""


class StoreReadOnlyError(StoreError):
    """The store accepts no writes: a slave, a failed fsync, a full disk. `reason` names the
    cause."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the store accepts no writes: {reason}")
        self.reason = reason


class DamagedChunkError(StoreError):
    """Bytes that a master has sent are not a record at log offset `offset`. The bytes before them
    are stored; ask for the rest again."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(
            f"the master sent bytes that are not a record at log offset {offset}: {reason}"
        )
        self.offset = offset
        self.reason = reason


class FlushFailedError(StoreReadOnlyError):
    """An fsync failed: writes since the last successful one may be lost. Fatal for the store."""


class DiskFullError(StoreReadOnlyError):
    """No space for the next file, or use above the warning level. Goes away when there is space."""


class StoreBusyError(StoreError):
    """Back-pressure: the disk cannot keep up, or no file descriptor is free. Nothing was stored;
    try again later."""


class OffsetOutOfRangeError(StoreError):
    """A position outside the log, which holds `minimum` to `maximum`."""

    def __init__(self, offset: int, minimum: int, maximum: int) -> None:
        super().__init__(f"offset {offset} is outside the log, which holds {minimum}..{maximum}")
        self.offset = offset
        self.minimum = minimum
        self.maximum = maximum


class CorruptStoreError(StoreError):
    """Damaged bytes on disk; `file` and `position` say where."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file} at {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason


class UnreadableError(StoreError):
    """Bytes that the disk cannot read; `file` and `position` say where. Their content is unknown,
    so nothing is cut, skipped or rebuilt because of them."""

    def __init__(self, file: str, position: int, size: int, why: str) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.reason = (
            f"bytes {position}..{position + size} cannot be read: {why}. Copy what can be "
            "read of the file to a good disk, or copy the store again from another node"
        )
        super().__init__(f"{file}: {self.reason}")


class NotMendedError(StoreError):
    """A file of the log was not written again: it is gone, or the log was cut meanwhile. Nothing
    has changed."""


class BatchRefusedError(StoreError):
    """A client's batch that was refused; nothing of it was stored.

    `code` is one of the names of tandemlog.v1 ErrorCode (BAD_RECORD, MESSAGE_TOO_LARGE, ...),
    `field` the offending part, `record_index` the record (-1: not about one record).
    `of_the_store`: the reason lies in this store's log or tables; a later master may accept the
    batch, whatever the code.
    """

    def __init__(
        self,
        code: str,
        field: str,
        message: str,
        *,
        limit: int = 0,
        actual: int = 0,
        record_index: int = -1,
        of_the_store: bool = False,
    ) -> None:
        super().__init__(message)
        self.of_the_store = of_the_store
        self.code = code
        self.field = field
        self.limit = limit
        self.actual = actual
        self.record_index = record_index
