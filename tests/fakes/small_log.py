"""A commit log of small files on a disk in memory, driven step by step."""

from pathlib import Path

from fakes.batches import Put, batch_of, registered
from fakes.clock import FakeClock
from tandemlog.format.record.batch import AppendSegment, RecordBatch
from tandemlog.format.record.record import Record, decode_record, is_blank
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.log.commit_log import CommitLog
from tandemlog_server.storage.queues.queue_table import QueueTable

ROOT = Path("/store")
FILE_SIZE = 4096
NOW = 1_700_000_000_123


class Log:
    """A log on a disk in memory, and the table of its queues."""

    def __init__(self, files: MemoryFiles | None = None, **settings: object) -> None:
        self.files = files or MemoryFiles()
        chosen = {"commit_log_file_size": FILE_SIZE, "busy_timeout_ms": 0, **settings}
        self.config = StoreConfig(directory=ROOT, **chosen)  # type: ignore[arg-type]
        self.table = QueueTable()
        self.log = CommitLog(self.config, self.files, FakeClock())

    def put(self, *puts: Put) -> list[AppendSegment]:
        batch = batch_of(puts)
        return append(self.log, self.table, batch)

    def again(self) -> "Log":
        """The same store opened by the next process."""
        return Log(self.files, commit_log_file_size=self.config.commit_log_file_size)

    def content(self) -> bytes:
        return b"".join(bytes(file.view(0, file.size)) for file in self.log.files)

    def records(self) -> list[Record]:
        """Every record up to `committed`, by the plain decoder."""
        found = []
        offset = self.log.min_offset
        while offset < self.log.committed.value:
            data = self.log.read(offset, FILE_SIZE)
            if is_blank(data, 0):
                offset += FILE_SIZE - offset % FILE_SIZE
                continue
            found.append(decode_record(data, physical_offset=offset))
            offset += found[-1].size
        return found


def append(
    log: CommitLog, table: QueueTable, batch: RecordBatch, now_ms: int = NOW
) -> list[AppendSegment]:
    """As the put path does: checked, its queues registered."""
    dense = registered(table, batch)
    return log.append(log.check(batch), dense, table.next_queue_offsets, now_ms)


def positions(log: CommitLog) -> tuple[int, int, int]:
    return log.wrote.value, log.committed.value, log.flushed.value


SIZE = len(Put().record())


def sized(size: int, **more: object) -> Put:
    """A put whose record has `size` bytes."""
    return Put(body=b"b" * (size - SIZE + 5), **more)  # type: ignore[arg-type]
