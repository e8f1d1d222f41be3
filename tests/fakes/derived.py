"""The derived part of a store, put together over a log in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fakes.clock import FakeClock
from fakes.memory_log import MemoryLog
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.dispatch.dispatch_source import DispatchSource
from tandemlog_server.storage.dispatch.reput import Dispatchers, ReputService
from tandemlog_server.storage.folds.fold import Fold
from tandemlog_server.storage.index.index_service import IndexService
from tandemlog_server.storage.inspect.geometry import queue_directories
from tandemlog_server.storage.positions import Position
from tandemlog_server.storage.producers.producer_table import ProducerTable
from tandemlog_server.storage.queues.consume_queue_store import ConsumeQueueStore
from tandemlog_server.storage.queues.queue_checkpoint import QueueCheckpoint
from tandemlog_server.storage.queues.queue_table import QueueTable
from tandemlog_server.storage.recovery.index_loading import IndexFindings, load_index
from tandemlog_server.storage.recovery.queue_loading import LoadContext, QueueFindings, load_queues


@dataclass
class Derived:
    """Queues, index, producers and their dispatch."""

    log: MemoryLog
    table: QueueTable
    queues: ConsumeQueueStore
    index: IndexService
    producers: ProducerTable
    confirmed: Position
    reput: ReputService
    clock: FakeClock
    files: FileSystem
    root: Path
    queue_findings: QueueFindings | None = None
    index_findings: IndexFindings | None = None

    @classmethod
    def over(
        cls,
        log: MemoryLog,
        files: FileSystem,
        root: Path,
        *,
        queue_file_size: int = 400,
        slots: int = 50,
        entries: int = 200,
        batch_bytes: int = 1 << 14,
        index_tags: bool = True,
        memory_bytes: int = 1 << 20,
        folds: Sequence[Fold] = (),
    ) -> "Derived":
        clock = FakeClock()
        table = QueueTable()
        queues = ConsumeQueueStore(
            root / "consumequeue", files, table,
            file_size=queue_file_size, memory_bytes=memory_bytes, open_files=8,
        )  # fmt: skip
        index = IndexService(
            root / "index", root / "tandemlog", files, clock,
            slots=slots, entries=entries, time_of=log.time_of,
        )  # fmt: skip
        producers = ProducerTable()
        confirmed = Position("confirmed", log.end)
        reput = ReputService(
            DispatchSource(log, index_tags=index_tags),
            Dispatchers(table, queues, [producers, *folds], index),
            confirmed,
            Position("reputed", log.min_offset),
            clock,
            batch_bytes=batch_bytes,
        )  # fmt: skip
        queues.next_offset = index.next_offset = producers.next_offset = log.min_offset
        return cls(
            log, table, queues, index, producers, confirmed, reput, clock, files, root
        )  # fmt: skip

    def open(
        self,
        *,
        dispatched: int | None = None,
        checkpoint: QueueCheckpoint | None = None,
        clean: bool = False,
    ) -> "Derived":
        """Take over what is on disk."""
        log = self.log
        position = log.min_offset if checkpoint is None else min(checkpoint.log_offset, log.end)
        context = LoadContext(
            log.min_offset, log.end, position if dispatched is None else dispatched,
            checkpoint, clean,
        )  # fmt: skip
        directories = queue_directories(self.files, self.queues.directory)
        self.queue_findings = load_queues(self.queues, self.table, directories, context)
        self.index_findings = load_index(
            self.index, self.files, log_start=log.min_offset, log_end=log.end, clean=clean
        )
        return self

    def dispatch(self) -> "Derived":
        """To the end of the log."""
        self.confirmed.advance(self.log.end)
        self.reput.run_to()
        return self

    def units(self, topic: str, queue_id: int = 0) -> list[tuple[int, int, int]]:
        """(physical offset, size, tags code) of a queue from its first file on."""
        dense = self.table.get(topic, queue_id)
        end = self.queues.max_offset(dense)
        first = self.queues.queue(dense).first_unit
        found = self.queues.read(dense, first, end - first)
        return [tuple(each) for each in found.tolist()]

    def entries(self) -> list[tuple[str, int, int, int]]:
        """(file, number, key hash, physical offset) of the whole index."""
        return [
            (file.name, number, int(entry["key_hash"]), int(entry["physical_offset"]))
            for file in self.index.files
            for number, entry in enumerate(file.read(1, file.header.next_entry), 1)
        ]
