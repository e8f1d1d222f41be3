"""The log of a running node, as what a backup takes: its confirmed bytes, and its tables."""

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from tandemlog.archive.errors import BackupRefusedError
from tandemlog.format.archive.state import ArchiveState
from tandemlog.format.files.queue_unit import DelayLevels
from tandemlog.logs.job_errors import FetchError
from tandemlog.logs.reading.fetched_log import fetched_log
from tandemlog.logs.reading.fetched_state import fetched_state
from tandemlog.logs.reading.log_files import remote_files

if TYPE_CHECKING:
    from collections.abc import Collection

    from tandemlog.format.files.log_history import LogHistory


class NodeLog:
    """Of the first of `endpoints` that answers, as it was then. Raises FetchError, OptionError;
    reading raises FetchError.

    The tables are read behind the log's bytes: they tell whether those are still the node's."""

    def __init__(self, endpoints: str, timeout_ms: int = 30_000) -> None:
        source = fetched_log(endpoints, timeout_ms)
        state = fetched_state(source)
        self.begin, self.end, self.file_size = state.begin, state.end, state.file_size
        self.history: LogHistory = state.history
        self.delay_levels = DelayLevels(state.delay_levels)
        self.in_batch_queues: Collection[str] = state.in_batch_queues
        self.name = source.endpoint
        files = remote_files(self.begin, self.end, self.file_size, source.endpoint)
        self._source = replace(source, files=files, first=self.begin, confirmed=self.end)
        self._log = self._source.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    def read(self, start: int, end: int) -> bytes:
        content = bytearray(end - start)
        view = memoryview(content)
        at = start
        while at < end:
            done = self._log.read_into(at, view[at - start :])
            if not done:
                raise FetchError(f"{self.name} has no byte of the log at {at}")
            at += done
        return bytes(content)

    def state(self, log_offset: int, *, prologue: bool) -> ArchiveState:
        """Raises BackupRefusedError if the log was cut below its end meanwhile, as by a failover
        that loses messages: what was read may be of two masters."""
        state = fetched_state(self._source, log_offset if prologue else 0)
        cut = self.history.cut_against(state.history)
        if cut < self.end:
            raise BackupRefusedError(
                f"the log of {self.name} was cut at {cut} while it was backed up: run it again"
            )
        tables = {name: data.decode() for name, data in state.tables.items()}
        return ArchiveState(log_offset, tables, state.prologue, state.at_ms)
