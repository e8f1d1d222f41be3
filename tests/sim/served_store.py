"""A store in memory that serves clients: FakeStore's log with real records, and what is derived.

    record of FakeStore:  length | RocketMQ's record, its queue offset and log offset filled in
    derived               queues (places of records), the real table of producers, by a walk
    beside the log        the real tables: topics, groups, members, consumer offsets

What is derived follows the log up to its end whenever somebody asks; after a truncation it is made
anew. What of it counts is the caller's to say: readers see what is confirmed.
"""

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fakes.fake_store import FakeDisk
from sim.election_nodes import ElectedStore
from tandemlog.format.files.log_history import NO_CUT
from tandemlog.format.filter.expression import Condition
from tandemlog.format.record.batch import AppendSegment, RecordBatch
from tandemlog.format.record.producer_mark import MARK_NAME, mark_in
from tandemlog.format.record.record import decode_record
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.metadata.consumer_offsets import ConsumerOffsets
from tandemlog_server.storage.metadata.group_members import GroupMembers
from tandemlog_server.storage.metadata.log_identity import LogIdentity
from tandemlog_server.storage.metadata.topics import GroupTable, TopicConfig, TopicTable
from tandemlog_server.storage.producers.producer_requests import Duplicate
from tandemlog_server.storage.producers.producer_table import ProducerTable
from tandemlog_server.storage.puts.put_path import PutResult
from tandemlog_server.storage.puts.retried_requests import mark_of
from tandemlog_server.storage.reads.results import GetResult, GetStatus, QueueRange

HEAD = 4
"""Bytes of a record's length in FakeStore."""
FILLER = 1 << 31
QUEUE_OFFSET = 20
"""Where a record has its queue offset, and the log offset behind it."""
TOPIC = "T"
QUEUES = 2
Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    """One record: in the log from `start` on, below `end`."""

    start: int
    end: int
    queue: Queue
    queue_offset: int
    body: bytes


class Derived:
    """What the log says, up to where it was walked."""

    def __init__(self, disk: FakeDisk, monotonic: Callable[[], float]) -> None:
        self._disk = disk
        self.producers = ProducerTable(monotonic=monotonic)
        self.rows: list[Row] = []
        self.queues: dict[Queue, list[Row]] = {}
        self._walked = disk.start

    @property
    def walked(self) -> int:
        return self._walked

    def follow(self) -> "Derived":
        """As far as the log goes."""
        disk = self._disk
        while self._walked < disk.end:
            at = self._walked - disk.start
            (length,) = struct.unpack_from(">I", disk.data, at)
            if length & FILLER:
                self._walked += length & ~FILLER
                continue
            if at + HEAD + length > len(disk.data):
                break
            self._take(bytes(disk.data[at + HEAD : at + HEAD + length]))
            self._walked += HEAD + length
        return self

    def _take(self, data: bytes) -> None:
        start, end = self._walked, self._walked + HEAD + len(data)
        record = decode_record(data)
        queue = record.topic, record.queue_id
        row = Row(start, end, queue, record.queue_offset, record.body)
        held = self.queues.setdefault(queue, [])
        assert record.queue_offset == len(held), f"{row} follows {held[-1:]}"
        held.append(row)
        self.rows.append(row)
        mark = mark_in(record.properties_raw) if MARK_NAME in data else None
        self.producers.replay(
            np.array([start], np.int64),
            np.array([end - start], np.uint32),
            np.array([record.store_timestamp], np.int64),
            [(0, mark.encode().encode())] if mark is not None else [],
            end,
        )


class ServedStore(ElectedStore):
    """See the module. `files` hold the tables from one start to the next."""

    topics: Any
    groups: Any
    consumer_offsets: Any
    group_members: Any
    log_identity: Any

    def __init__(
        self,
        disk: FakeDisk,
        before: Callable[[str], None],
        flush: FlushMode,
        clock: Clock,
        files: MemoryFiles,
        new_id: Callable[[], int],
    ) -> None:
        super().__init__(disk, before, flush)
        self.clock = clock
        folder = Path("/store/config")
        tables = (
            TopicTable(folder / "topics.json", files),
            GroupTable(folder / "groups.json", files),
            ConsumerOffsets(folder / "offsets.json", files),
            GroupMembers(folder / "members.json", files),
        )
        for table in tables:
            table.load()
        self.topics, self.groups, self.consumer_offsets, self.group_members = tables
        epochs: Any = self.epochs  # a table is all that is asked of it
        self.log_identity = LogIdentity(folder / "identity.json", files, epochs, new_id)
        self.log_identity.load()
        if self.topics.get(TOPIC) is None:
            self.topics.create(TopicConfig(TOPIC, QUEUES, QUEUES), 0)
        self._derived = Derived(disk, clock.monotonic)
        self.reader = ServedReader(self)
        self.failure = None

    @property
    def derived(self) -> Derived:
        return self._derived.follow()

    @property
    def producers(self) -> ProducerTable:
        return self.derived.producers

    def truncate(self, offset: int) -> None:
        super().truncate(offset)
        if offset < self._derived.walked:
            self._derived = Derived(self.disk, self.clock.monotonic)
        self.lower_offsets()

    def lower_offsets(self) -> None:
        """As the real store does behind a cut."""
        queues = self.derived.queues
        self.consumer_offsets.clamp(lambda *queue: len(queues[queue]) if queue in queues else None)

    def reset(self, offset: int) -> None:
        super().reset(offset)
        self._derived = Derived(self.disk, self.clock.monotonic)
        self.log_identity.begin_log(self.clock.now_ms())

    def become_master(self, epoch: int) -> None:
        self.log_identity.begin_term(epoch, self.log.wrote.value, self.clock.now_ms())
        super().become_master(epoch)
        self.lower_offsets()

    def cut_positions(self, rows: Sequence[tuple[str, int, int]], cut: int) -> dict[int, int]:
        """As cut_positions.py."""
        beyond = {}
        for index, (topic, queue_id, queue_offset) in enumerate(rows):
            held = self.derived.queues.get((topic, queue_id), [])
            first = sum(row.start < cut for row in held)
            if cut < NO_CUT and queue_offset > first:
                beyond[index] = first
        return beyond

    def queue_end(self, topic: str, queue_id: int) -> int | None:
        return len(self.derived.queues.get((topic, queue_id), ()))

    def put(self, batch: RecordBatch) -> PutResult:
        """As PutPath, for requests of one record. Raises BatchRefusedError."""
        mark = mark_of(batch)
        outcome = self.producers.check(mark, batch.count) if mark is not None else None
        if isinstance(outcome, Duplicate):
            return self._stored_before(outcome)
        data = bytearray(batch.records)
        record = decode_record(bytes(data))
        queue = record.topic, record.queue_id
        number = len(self.derived.queues.get(queue, ()))
        start, end = self.append(bytes(data))
        place = start - self.disk.start + HEAD + QUEUE_OFFSET
        struct.pack_into(">qq", self.disk.data, place, number, start)
        return PutResult([segment(start, number)], end, record.store_timestamp)

    def _stored_before(self, outcome: Duplicate) -> PutResult:
        if not outcome.extents:
            return PutResult([], outcome.end_offset, outcome.store_timestamp, duplicate=True)
        start = outcome.extents[0].physical_offset
        number = next(row.queue_offset for row in self.derived.rows if row.start == start)
        return PutResult(
            [segment(start, number)], outcome.end_offset, outcome.store_timestamp, duplicate=True
        )


def segment(start: int, number: int) -> AppendSegment:
    return AppendSegment(0, 1, start, np.array([number], np.int64))


class ServedReader:
    """What is confirmed, by queue: the part of QueueReader that services ask for."""

    def __init__(self, store: ServedStore) -> None:
        self._store = store

    def held(self, queue: Queue) -> list[Row]:
        """The confirmed rows of a queue."""
        confirmed = self._store.confirmed.value
        rows = self._store.derived.queues.get(queue, [])
        count = len(rows)
        while count and rows[count - 1].end > confirmed:
            count -= 1
        return rows[:count]

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        max_bytes: int,
        tag_hashes: Collection[int] = (),
        condition: Condition | None = None,
    ) -> GetResult:
        rows = self.held((topic, queue_id))
        if not rows:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0)
        if queue_offset == len(rows):
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, 0, len(rows))
        if queue_offset > len(rows):
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, len(rows), 0, len(rows))
        taken = rows[queue_offset : queue_offset + (max_messages or 8)]
        start = self._store.disk.start
        data = [bytes(self._store.disk.data[each.start - start + HEAD : each.end - start])
                for each in taken]  # fmt: skip
        return GetResult(
            GetStatus.FOUND,
            queue_offset + len(taken),
            0,
            len(rows),
            np.array([len(each) for each in data], np.uint32),
            b"".join(data),
        )

    def ranges_from(
        self, first: int, most: int, topics: Sequence[str] = ()
    ) -> tuple[list[QueueRange], int]:
        ranges = []
        for number in range(QUEUES):
            count = len(self.held((TOPIC, number)))
            if count:
                ranges.append(QueueRange(TOPIC, number, 0, count, 0, 0))
        return ranges, 0

    def dense(self, topic: str, queue_id: int) -> int:
        return queue_id if self.held((topic, queue_id)) else -1

    def ends_of(self, numbers: Sequence[int]) -> list[int]:
        return [len(self.held((TOPIC, number))) if number >= 0 else 0 for number in numbers]

    @property
    def count(self) -> int:
        """Queues with messages."""
        return sum(bool(self.held((TOPIC, number))) for number in range(QUEUES))
