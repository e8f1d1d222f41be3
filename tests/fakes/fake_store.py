"""A store in memory as the replication sees it, on a disk that can lose what was not fsynced.

A record of its log is a 4-byte length and that many bytes, so that opening can do what the real
store does: keep whole records, cut a torn tail.
"""

import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias

from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.storage.config import FlushMode, StoreConfig
from tandemlog_server.storage.errors import (
    FlushFailedError,
    OffsetOutOfRangeError,
    StoreError,
    StoreReadOnlyError,
)
from tandemlog_server.storage.positions import Position

Buffer: TypeAlias = bytes | bytearray | memoryview

_LENGTH = struct.Struct(">I")
_FILLER = 1 << 31
NO_BROKER = "a fake store follows no broker of RocketMQ"


def record(payload: bytes) -> bytes:
    """One record of the fake log."""
    return _LENGTH.pack(len(payload)) + payload


@dataclass
class FakeDisk:
    """What is left of a node when its process is gone."""

    file_size: int = 4096
    start: int = 0
    data: bytearray = field(default_factory=bytearray)
    durable: int = 0
    epochs: EpochTable = field(default_factory=EpochTable)
    confirmed: int = 0
    state: bytes = b""
    aside: list[bytes] = field(default_factory=list)
    fsync_fails: bool = False
    counts_unflushed: bool = False
    doubt: str = ""
    prologue: bytes = b"{}"

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def power_cut(self, rng: Random) -> None:
        """Keep what is durable and some beginning of the rest."""
        if self.counts_unflushed:
            self.doubt = "a power cut"
        keep = rng.randint(self.durable, self.end)
        del self.data[keep - self.start :]
        self.durable = keep

    def wipe(self) -> None:
        self.__init__(file_size=self.file_size)  # type: ignore[misc]

    def cut_torn_tail(self) -> None:
        """What recovery does: the log ends after its last whole record."""
        position = 0
        while position + 4 <= len(self.data):
            (length,) = _LENGTH.unpack_from(self.data, position)
            size = (length & ~_FILLER) if length & _FILLER else length + 4
            if position + size > len(self.data):
                break
            position += size
        del self.data[position:]
        self.durable = min(self.durable, self.end)


class FakeTable:
    """One JSON table."""

    def __init__(self) -> None:
        self.version = 0
        self.json = b"{}"

    def change(self, json: bytes) -> None:
        self.json = json
        self.version += 1

    def to_json(self) -> bytes:
        return self.json

    def replace_from_json(self, data: bytes) -> None:
        self.change(data)


class FakeGroups(FakeTable):
    """The consumer groups."""

    def take_rows(self, rows: Mapping[str, object], gone: Collection[str], now_ms: int) -> None:
        raise AssertionError(NO_BROKER)


class FakeOffsets(FakeTable):
    """The consumer offsets."""

    def take_rows(
        self, rows: dict[str, object], before: frozenset[tuple[str, str]]
    ) -> frozenset[tuple[str, str]]:
        raise AssertionError(NO_BROKER)


class FakeLog:
    """The commit log on a FakeDisk."""

    def __init__(self, disk: FakeDisk) -> None:
        self._disk = disk
        self.wrote = Position("wrote", disk.end)
        self.committed = Position("committed", disk.end)
        self.flushed = Position("flushed", disk.durable)

    @property
    def min_offset(self) -> int:
        return self._disk.start

    @property
    def file_size(self) -> int:
        return self._disk.file_size

    def read(self, offset: int, max_bytes: int) -> Buffer:
        if not self._disk.start <= offset <= self.committed.value:
            raise OffsetOutOfRangeError(offset, self._disk.start, self.committed.value)
        file_end = offset - offset % self.file_size + self.file_size
        end = min(offset + max_bytes, self.committed.value, file_end)
        return bytes(self._disk.data[offset - self._disk.start : end - self._disk.start])

    def in_memory(self, offset: int, max_bytes: int) -> bool:
        return True

    def next_record(self, offset: int, below: int) -> int | None:
        raise AssertionError(NO_BROKER)

    def move(self, end: int) -> None:
        """The positions after the data has changed."""
        for position in (self.wrote, self.committed):
            if end >= position.value:
                position.advance(end)
            else:
                position.retreat(end)
        if self.flushed.value > end:
            self.flushed.retreat(end)


class FakeEpochs:
    """The epoch table; every change is durable."""

    note = ""

    def __init__(self, disk: FakeDisk) -> None:
        self._disk = disk

    @property
    def table(self) -> EpochTable:
        return self._disk.epochs

    def append(self, entry: EpochEntry) -> None:
        self._disk.epochs = self._disk.epochs.append(entry.epoch, entry.start_offset)

    def replace(self, table: EpochTable) -> None:
        self._disk.epochs = table


class FakeIntake:
    """Everything is right as it comes."""

    def __init__(self, store: "FakeStore") -> None:
        self._store = store

    def take(self, offset: int, data: Buffer, damaged_until: int = 0) -> None:
        self._store.append_raw(offset, data)


class FakeStore:
    """See the module. `before` is called ahead of every change and may raise."""

    def __init__(
        self,
        disk: FakeDisk,
        before: Callable[[str], None] = lambda call: None,
        flush: FlushMode = FlushMode.ASYNC,
    ) -> None:
        disk.cut_torn_tail()
        self.disk = disk
        self.before = before
        self.log = FakeLog(disk)
        self.epochs = FakeEpochs(disk)
        self.confirmed = Position("confirmed", min(disk.confirmed, disk.end))
        self.reputed = Position("reputed", self.confirmed.value)
        self.topics, self.groups, self.consumer_offsets = FakeTable(), FakeGroups(), FakeOffsets()
        self.group_members = FakeTable()
        self.log_identity = FakeTable()
        self.config = StoreConfig(directory=Path("/fake"), flush=flush)
        self.master = self.counts = False
        disk.counts_unflushed &= disk.durable < disk.end

    @property
    def doubt(self) -> str:
        return self.disk.doubt

    def count_unflushed(self) -> None:
        self.before("count_unflushed")
        self.disk.counts_unflushed = self.counts = True

    def count_flushed(self) -> bool:
        self.before("count_flushed")
        if self.disk.durable < self.disk.end:
            return False
        self.disk.counts_unflushed = False
        return True

    def forget_doubt(self) -> None:
        self.before("forget_doubt")
        self.disk.doubt = ""

    def append(self, payload: bytes) -> tuple[int, int]:
        """A master's put: a record at the log's end; its start and end."""
        if not self.master:
            raise StoreReadOnlyError("this node is a slave")
        if self.counts and not self.disk.counts_unflushed:
            self.count_unflushed()
        data = record(payload)
        left = self.disk.file_size - self.disk.end % self.disk.file_size
        if len(data) + 4 > left:
            filler = _LENGTH.pack(_FILLER | left) + b"\0" * (left - 4)
            self._write(filler)
        start = self.disk.end
        self._write(data)
        return start, self.disk.end

    @property
    def needs_prologue(self) -> bool:
        return not self.disk.data

    def prologue(self, offset: int) -> bytes:
        return self.disk.prologue

    def take_prologue(self, data: bytes) -> None:
        self.before("take_prologue")
        self.disk.prologue = data

    def append_raw(self, offset: int, data: Buffer) -> None:
        self.before("append_raw")
        if self.log.flushed.failure is not None:
            raise StoreReadOnlyError("an fsync failed")
        if not self.disk.data and self.disk.end != offset:
            raise StoreError(f"the empty log starts at {self.disk.end}, not at {offset}")
        if offset != self.disk.end:
            raise StoreError(f"raw bytes at {offset}, the log ends at {self.disk.end}")
        self._write(bytes(data))

    def raw_intake(self) -> "FakeIntake":
        return FakeIntake(self)

    def pass_over(self, start: int, end: int) -> None:
        raise AssertionError("a fake log is never damaged")

    def damage_end(self, offset: int) -> int:
        return 0

    def flush(self) -> int:
        self.before("flush")
        if self.disk.fsync_fails:
            self.log.flushed.fail(FlushFailedError("fdatasync: EIO"))
        if self.log.flushed.failure is not None:
            raise self.log.flushed.failure
        self.disk.durable = self.disk.end
        self.disk.confirmed = self.confirmed.value
        self.log.flushed.advance(self.disk.end)
        return self.log.flushed.value

    def advance_confirmed(self, offset: int) -> None:
        self.confirmed.advance(min(offset, self.log.wrote.value))
        self.reputed.advance(self.confirmed.value)

    def truncate(self, offset: int) -> None:
        self.before("truncate")
        disk = self.disk
        del disk.data[offset - disk.start :]
        disk.durable = min(disk.durable, offset)
        disk.epochs = disk.epochs.truncate_suffix(offset)
        disk.confirmed = min(disk.confirmed, offset)
        self.log.move(offset)
        if self.confirmed.value > offset:
            self.confirmed.retreat(offset)
            self.reputed.retreat(offset)

    def reset(self, offset: int) -> None:
        self.before("reset")
        disk = self.disk
        if disk.data:
            disk.aside.append(bytes(disk.data))
        disk.data, disk.start, disk.durable, disk.confirmed = bytearray(), offset, offset, offset
        disk.epochs = EpochTable()
        for position in (self.log.wrote, self.log.committed, self.log.flushed):
            position.retreat(offset)
        self.confirmed.retreat(offset)
        self.reputed.retreat(offset)

    @property
    def faults(self) -> list[str]:
        return []

    def drop_set_aside(self) -> int:
        return 0

    def adopt_commit_log_file_size(self, size: int) -> None:
        if self.disk.data:
            raise StoreError("the log is not empty")
        self.disk.file_size = size

    def become_master(self, epoch: int) -> None:
        self.before("become_master")
        self.epochs.append(EpochEntry(epoch, self.log.wrote.value))
        self.master = True

    def become_relay(self, epoch: int) -> None:
        raise AssertionError(NO_BROKER)

    def become_slave(self) -> None:
        self.master = self.counts = False

    def copy_aside(self, start: int, end: int) -> Path:
        raise AssertionError(NO_BROKER)

    def drop_before(self, offset: int) -> None:
        """Retention: whole files below `offset` go."""
        start = offset - offset % self.disk.file_size
        if start > self.disk.start:
            del self.disk.data[: start - self.disk.start]
            self.disk.start = start
            self.disk.epochs = self.disk.epochs.truncate_prefix(start)

    def _write(self, data: bytes) -> None:
        self.disk.data += data
        self.log.move(self.disk.end)
