"""A log to read, wherever its bytes are: local files, an archive, or a node that sends them.

    open_log(path=...)        LocalLogSource     files of a store, end found by looking
    open_log(path=URL)        archived_log.py    objects of an archive, as its newest manifest says
    open_log(endpoint=...)    fetched by gRPC    the node says where the log begins and ends

The driver uses it to plan (start, end, spans), and tasks use it to read (connect); the same small
value is pickled with the reader.
"""

import importlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

from tandemlog.format.constants import BLANK_SIZE

from ..job_errors import CorruptLogError, StoreMissingError
from .archived_log import archived_log, is_archive
from .find_record import next_record
from .log_bytes import LocalLog, LogBytes, read
from .log_end import LogEnd, find_log_end
from .log_files import LogFiles, find_log, store_of
from .queue_ends import QueueEnds, queue_ends

NODE_PREFIX = "node:"


class LogSource(Protocol):
    """Where a log's bytes are, in a form that a task gets by pickle."""

    @property
    def files(self) -> LogFiles: ...
    def connect(self) -> LogBytes: ...
    def start(self) -> int: ...
    def end(self) -> LogEnd: ...

    def check_complete(self, start: int = 0, end: int | None = None) -> None:
        """Raises CorruptLogError if a file of the log is missing or cut off, or the log ends before
        what its queues point to. Of an archive, only what lies between these log offsets counts."""


@dataclass(frozen=True)
class LocalLogSource:
    """Files on disk, the same paths for the driver and all tasks."""

    files: LogFiles
    queues: QueueEnds

    def connect(self) -> LogBytes:
        return LocalLog(self.files)

    def start(self) -> int:
        """The log offset of the first record: a log may begin inside its first file."""
        if not self.files.files:
            return 0
        file = self.files.files[0]
        with closing(LocalLog(self.files)) as log:
            if any(read(log, file.base, BLANK_SIZE)):
                return file.base
            record = next_record(log, file.base, file.end, file.end)
        return record.physical_offset if record is not None else file.base

    def end(self) -> LogEnd:
        """Raises OSError."""
        return find_log_end(self.files, self.queues.log_end, self.queues.last_record)

    def lost_end(self, end: LogEnd) -> tuple[int, int, str] | None:
        """Start and end of what is lost if the queues say that the log continued behind `end`, and
        a sentence about it; None if they do not."""
        queues, files = self.queues, self.files
        if queues.log_end <= end.offset:
            return None
        why = ""
        if files.find(end.offset) is None:
            what = "has no bytes" if files.empty_last == end.offset else "is missing"
            why = f", where a file {what}"
        detail = f"the log ends at {end.offset}{why}, but in the queues {queues}"
        return end.offset, queues.log_end, detail

    def check_complete(self, start: int = 0, end: int | None = None) -> None:
        """As LogSource."""
        for start, end in self.files.missing():
            raise CorruptLogError(
                self.files.path_of(start), start, f"the file is missing, up to offset {end}"
            )
        for file in self.files.short():
            raise CorruptLogError(
                file.path,
                file.end,
                f"the file has {file.length} bytes, the others {self.files.file_size}",
            )
        lost = self.lost_end(self.end())
        if lost is not None:
            raise CorruptLogError(self.files.path_of(lost[0]), lost[0], lost[2])


def open_log(
    path: str | None = None,
    endpoint: str | None = None,
    timeout_ms: int = 30_000,
    connecting: Mapping[str, str] | None = None,
    storage: Mapping[str, Any] | None = None,
) -> LogSource:
    """The log below `path` (a store, or an archive, which may be a URL), or that of the node at
    `endpoint`; `connecting` has the settings of tandemlog/cluster/profiles.py that say how to reach
    it, `storage` the options of fsspec's file system. Raises StoreMissingError, StoreLayoutError,
    OptionError for a URL that no archive can have, CorruptLogError for an archive with a damaged
    manifest, and FetchError if the node or the object store cannot be reached."""
    if path is not None:
        folder = _mounted(path)
        if is_archive(folder):
            return archived_log(folder, storage or {}, timeout_ms)
        # the queues first: of a store that is being written they must not know more than the log
        queues = queue_ends(store_of(folder))
        return LocalLogSource(find_log(folder), queues)
    if endpoint is None:
        raise StoreMissingError("neither a path nor an endpoint was given")
    # The one late import: gRPC takes a tenth of a second in every worker, and few readers fetch.
    fetch = importlib.import_module("tandemlog.logs.reading.fetched_log")
    return cast("LogSource", fetch.fetched_log(endpoint, timeout_ms, connecting or {}))


def _mounted(path: str) -> str:
    """The path, also of a `file:` URL."""
    if path.lower().startswith("file:"):
        return unquote(urlsplit(path).path)
    return path


def is_stored_archive(store: str) -> bool:
    """Whether a job's argument names an archive."""
    return not store.startswith(NODE_PREFIX) and is_archive(_mounted(store))


def open_store(store: str | Path) -> LogSource:
    """The log that a job's argument names: a folder, the URL of an archive, or `node:HOST:PORT` for
    that of a node.
    Raises as open_log."""
    text = str(store)
    if text.startswith(NODE_PREFIX):
        return open_log(endpoint=text.removeprefix(NODE_PREFIX))
    return open_log(path=text)
