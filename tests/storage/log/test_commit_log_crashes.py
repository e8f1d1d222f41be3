"""Power cuts at random moments: what was flushed is there, and nothing is there that was cut.

A seeded run appends, flushes, cuts, rolls and loses power; the disk keeps any part of what was not
fsynced. After each cut the log is opened again and its records are held against the model: a plain
list of what was appended and where.
"""

import errno
import random
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.clock import FakeClock
from fakes.small_log import append
from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.walk import StopReason
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import DiskFullError, StoreError
from tandemlog_server.storage.log.commit_log import CommitLog
from tandemlog_server.storage.queues.queue_table import QueueTable

FILE_SIZE = 16384
STEPS = 60


class Run:
    """The log, the disk below it, and what it ought to hold."""

    def __init__(self, seed: int, *, buffered: bool) -> None:
        self.rng = random.Random(seed)
        self.files = MemoryFiles()
        self.config = StoreConfig(
            directory=Path("/store"),
            commit_log_file_size=FILE_SIZE,
            buffered=buffered,
            busy_timeout_ms=0,
        )
        self.expected: list[tuple[int, bytes]] = []  # (physical offset, body)
        self.durable = 0
        self.bodies = 0
        self.open()

    def open(self) -> None:
        self.table = QueueTable()
        self.log = CommitLog(self.config, self.files, FakeClock())

    def append(self) -> None:
        puts = []
        for _ in range(self.rng.randint(1, 6)):
            self.bodies += 1
            # few different lengths: an old record often ends where a new one begins
            size = self.rng.choice([100, 100, 500, 3000])
            puts.append(Put(body=self.bodies.to_bytes(4, "big") * (size // 4)))
        batch = batch_of(puts)
        for segment in append(self.log, self.table, batch, self.bodies):
            offset = segment.physical_offset
            for put in puts[segment.first_index : segment.first_index + segment.count]:
                self.expected.append((offset, put.body))
                offset += len(put.record())

    def refused_append(self) -> None:
        self.files.fail("pwrite", errno.ENOSPC, times=1, took=self.rng.randint(0, 4000))
        try:
            self.append()
        except DiskFullError:
            pass
        finally:
            self.files.heal()

    def flush(self) -> None:
        self.durable = self.log.flush()

    def cut(self) -> None:
        choices = [offset for offset, _ in self.expected] + [self.log.wrote.value]
        offset = self.rng.choice(choices[-20:])
        self.log.truncate(offset)
        self.expected = [each for each in self.expected if each[0] < offset]
        self.durable = min(self.durable, offset)

    def crash(self) -> None:
        self.files.crash(self.rng if self.rng.random() < 0.8 else None)
        self.open()
        found = self.recover()
        certain = [each for each in self.expected if each[0] < self.durable]
        assert found[: len(certain)] == certain
        assert found == self.expected[: len(found)]
        self.expected = found
        self.durable = self.log.flushed.value

    def recover(self) -> list[tuple[int, bytes]]:
        """The records up to the first that is none, and the log cut there."""
        found: list[tuple[int, bytes]] = []
        end = self.log.min_offset
        for file in self.log.files:
            data = file.view(0, FILE_SIZE)
            walk, headers = walk_strict(data, base_offset=file.base, limit=FILE_SIZE)
            for position, start, length in zip(
                walk.positions.tolist(),
                headers.body_start.tolist(),
                headers.body_length.tolist(),
                strict=True,
            ):
                found.append((file.base + position, bytes(data[start : start + length])))
            end = file.base + walk.end
            if walk.stop is not StopReason.BLANK:
                break
            end = file.end
        if self.log.files:
            self.log.truncate(end)
        return found


@pytest.mark.parametrize("buffered", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_power_cuts(seed: int, buffered: bool) -> None:
    run = Run(seed, buffered=buffered)
    steps = [run.append] * 8 + [run.flush] * 3 + [run.refused_append, run.cut, run.crash]
    for _ in range(STEPS):
        run.rng.choice(steps)()
        assert run.log.failure is None
    run.crash()


@pytest.mark.parametrize("seed", range(10))
def test_a_failed_fsync_never_lies(seed: int) -> None:
    """Whatever a flush once answered is there after the crash, even if a later one failed."""
    run = Run(seed, buffered=False)
    for step in range(STEPS):
        run.append()
        if step == STEPS - 5:
            run.files.fail("fdatasync", errno.EIO, times=1, name="commitlog")
        if run.rng.random() < 0.5 or step > STEPS - 5:
            try:
                run.flush()
            except StoreError:
                break
    else:
        pytest.fail("no flush failed")
    assert run.log.flushed.value == run.durable
    run.crash()
