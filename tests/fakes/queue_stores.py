"""Consume queues over a plain list of records."""

from pathlib import Path

import numpy as np
import pytest

from tandemlog.format.files.queue_unit import UNIT_DTYPE, UNIT_SIZE
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import (
    StoreBusyError,
)
from tandemlog_server.storage.inspect.geometry import queue_directories
from tandemlog_server.storage.queues.consume_queue_store import ConsumeQueueStore
from tandemlog_server.storage.queues.queue_checkpoint import QueueCheckpoint
from tandemlog_server.storage.queues.queue_table import QueueTable
from tandemlog_server.storage.recovery.queue_loading import LoadContext, QueueFindings, load_queues

ROOT = Path("/store/consumequeue")


UNITS_A_FILE = 5


SIZE = 100


class Store:
    """A store over a list of records (queue, queue offset); record n is at log offset 100·n."""

    def __init__(self, *, log_start: int = 0, units_a_file: int = UNITS_A_FILE) -> None:
        self.files = MemoryFiles()
        self.units_a_file = units_a_file
        self.records: list[tuple[int, int]] = []
        self.log_start = log_start
        self.open()

    def open(self) -> None:
        self.files.make_directory(ROOT)
        self.table = QueueTable()
        self.queues = ConsumeQueueStore(
            ROOT, self.files, self.table,
            file_size=self.units_a_file * UNIT_SIZE, open_files=3, memory_bytes=1,
        )  # fmt: skip
        for queue in range(4):
            self.table.register("T", queue)
        self.queues.next_offset = self.log_start

    @property
    def end(self) -> int:
        return self.log_start + SIZE * len(self.records)

    def load(self, checkpoint: QueueCheckpoint | None, *, clean: bool = False) -> QueueFindings:
        self.open()
        dispatched = self.log_start if checkpoint is None else checkpoint.log_offset
        context = LoadContext(
            self.log_start, self.end, min(dispatched, self.end), checkpoint, clean
        )
        return load_queues(self.queues, self.table, queue_directories(self.files, ROOT), context)

    def add(self, *queues: int) -> None:
        """Records of these queues, each with its next number."""
        for queue in queues:
            self.records.append((queue, sum(each == queue for each, _ in self.records)))

    def dispatch(self, first: int = 0, last: int | None = None) -> list[int]:
        rows = self.records[first:last]
        units = np.zeros(len(rows), dtype=UNIT_DTYPE)
        units["physical_offset"] = self.log_start + SIZE * (first + np.arange(len(rows)))
        units["size"] = SIZE
        dense = np.array([queue for queue, _ in rows], dtype=np.int64)
        offsets = np.array([offset for _, offset in rows], dtype=np.int64)
        end = self.log_start + SIZE * (first + len(rows))
        ends: list[int] = self.queues.append(dense, offsets, units, end).tolist()
        return ends

    def expected(self, queue: int) -> list[int]:
        return [
            self.log_start + SIZE * row
            for row, (each, _) in enumerate(self.records)
            if each == queue
        ]

    def held(self, queue: int) -> list[int]:
        count = self.queues.max_offset(queue)
        places: list[int] = self.queues.read(queue, 0, count)["physical_offset"].tolist()
        return places

    def content(self, queue: int) -> bytes:
        directory = ROOT / "T" / str(queue)
        return b"".join(
            bytes(self.files.content(directory / name)) for name in self.files.listdir(directory)
        )


def rebuild(store: Store) -> None:
    damaged = frozenset(store.queues.damaged)
    store.queues.rebuild_begin(damaged)
    rows = [(n, *each) for n, each in enumerate(store.records) if each[0] in damaged]
    units = np.zeros(len(rows), dtype=UNIT_DTYPE)
    units["physical_offset"] = [store.log_start + SIZE * n for n, _, _ in rows]
    units["size"] = SIZE
    dense = np.array([queue for _, queue, _ in rows], dtype=np.int64)
    offsets = np.array([offset for _, _, offset in rows], dtype=np.int64)
    store.queues.rebuild_append(damaged, dense, offsets, units)
    with pytest.raises(StoreBusyError):
        store.queues.max_offset(next(iter(damaged)))
    store.queues.rebuild_end(damaged)
