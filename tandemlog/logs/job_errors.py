"""What can go wrong in a job over logs: each error names the thing, the place and the way out."""

from enum import StrEnum


class OnCorruption(StrEnum):
    """What a reader does at bytes of the log that are not a record."""

    FAIL = "fail"
    SKIP = "skip"
    REPORT = "report"


class PipelineError(Exception):
    """Base of all."""


class OptionError(PipelineError, ValueError):
    """An option that does not exist or has a value that cannot be; names it and what is allowed."""


class StoreMissingError(PipelineError):
    """No store, or no commit log, where the path points to."""


class StoreLayoutError(PipelineError):
    """Files that do not fit together, or not the sizes that were given."""


class CorruptLogError(PipelineError):
    """Bytes of the log that are not a record, where records are wanted all the same.

    `file` and `offset` (in the log) say where, `reason` what is wrong there.
    """

    def __init__(self, file: str, offset: int, reason: str) -> None:
        super().__init__(f"{file}: offset {offset}: {reason}")
        self.file = file
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type["CorruptLogError"], tuple[str, int, str]]:
        return type(self), (self.file, self.offset, self.reason)


class FetchError(PipelineError):
    """A node could not be reached or refused the bytes asked for."""


class TaskFailedError(PipelineError):
    """A task on an executor failed permanently; says with what."""


class TourError(PipelineError):
    """The demo's cluster does not start, or a step gives something else than it must."""
