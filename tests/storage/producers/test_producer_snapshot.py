"""Whatever a table has been through, its snapshot is the table."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from fakes.producer_logs import SIZE, Bench, Log, Row, check, mark, taken
from tandemlog.format.errors import FormatError
from tandemlog.format.fast_crc import crc32
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import BatchRefusedError, StoreBusyError
from tandemlog_server.storage.producers.producer_requests import (
    Extent,
)
from tandemlog_server.storage.producers.producer_table import GRACE_S, ProducerTable

NAMES = "pqrs"
KEPT, LIMIT = 3, 3


class Life:
    """Two tables that are told the same; one of them is thrown away and restored all the time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 10_000.0
        self.time = 100
        self.durable = 0
        self.rows: list[Row] = []
        self.dispatched = 0
        self.table = self.empty()

    def empty(self) -> ProducerTable:
        return ProducerTable(
            kept=KEPT, limit=LIMIT, safe_offset=lambda: self.durable, monotonic=lambda: self.now
        )

    def step(self) -> None:
        random = self.random
        step = random.choice(
            ["put"] * 5 + ["torn", "bare", "take", "cut", "forget", "wait", "sync"]
        )
        if step in ("put", "torn"):
            self.put(torn=step == "torn")
        elif step == "bare":
            self.rows += [(self.tick(), None)] * random.randrange(1, 4)
        elif step == "take":
            self.take(random.randrange(self.dispatched, len(self.rows) + 1))
        elif step == "cut":
            self.take(len(self.rows))
            keep = random.randrange(self.durable // SIZE, len(self.rows) + 1)
            self.table.truncate(SIZE * keep, self.count)
            del self.rows[keep:]
            self.dispatched = keep
        elif step == "forget":
            self.table.forget(random.choice([0, 20, 1_000]))
        elif step == "wait":
            self.now += random.choice([1, GRACE_S])
        else:
            self.durable = SIZE * random.randrange(self.durable // SIZE, len(self.rows) + 1)

    def tick(self) -> int:
        self.time += self.random.randrange(1, 9)
        return self.time

    def put(self, *, torn: bool) -> None:
        """What a master does: the next request, or the rest of one that is torn."""
        self.take(len(self.rows))
        name, count = self.random.choice(NAMES), self.random.randrange(1, 5)
        known = self.table.describe(name)
        epoch, sequence = (known.epoch, known.last_sequence + 1) if known is not None else (0, 0)
        if self.random.random() < 0.1:
            epoch, sequence = epoch + 1, 0
        mark = ProducerMark(name, epoch, sequence, 0, count, self.random.choice([None, 7]))
        try:
            self.table.check(mark, count)
        except (BatchRefusedError, StoreBusyError):
            return
        stored = self.random.randrange(1, count + 1) if torn else count
        first, time = len(self.rows), self.tick()
        self.rows += [(time, mark.encode() if not number else None) for number in range(stored)]
        if stored == count and self.random.random() < 0.7:
            offset = SIZE * first
            self.table.record(mark, [Extent(offset, count, offset + SIZE * count)], time)
            self.dispatched = len(self.rows)

    def take(self, last: int) -> None:
        rows, first = self.rows[self.dispatched : last], self.dispatched
        marks = [(row, mark.encode()) for row, (_, mark) in enumerate(rows) if mark is not None]
        self.table.replay(
            np.array([SIZE * (first + row) for row in range(len(rows))], np.int64),
            np.full(len(rows), SIZE, np.int32),
            np.array([time for time, _ in rows], np.int64),
            marks,
            SIZE * last,
        )
        self.dispatched = last

    def count(self, start: int, end: int) -> tuple[int, int]:
        rows = self.rows[start // SIZE : end // SIZE]
        return len(rows), rows[-1][0] if rows else 0


@pytest.mark.parametrize("seed", range(60))
def test_a_table_is_what_its_snapshot_says(seed: int) -> None:
    life = Life(seed)
    for _ in range(80):
        life.step()
        data = life.table.snapshot().encode()
        restored = life.empty()
        restored.restore(data)
        assert restored.snapshot().encode() == data
        assert restored.next_offset == life.table.next_offset
        if life.random.random() < 0.3:
            # who is silent is not in it: as after a restart
            restored._newest_time = life.table._newest_time
            for name, producer in restored._producers.items():
                producer.seen = life.table._producers[name].seen
            life.table = restored


def test_a_snapshot_without_its_open_request_can_be_restored() -> None:
    """The producer of the request that goes on may be forgotten."""
    bench = Bench()
    bench.log.put(mark(0, 3), 2, 100)
    bench.log.take(bench.table)
    bench.now += GRACE_S
    bench.table._newest_time = 10_000
    assert bench.table.forget(50) == 1
    restored = ProducerTable()
    restored.restore(bench.table.snapshot().encode())
    assert len(restored) == 0


@pytest.mark.parametrize("rows", [3, 5, 7])
def test_a_snapshot_goes_on_where_it_was_taken(rows: int) -> None:
    log, table, restored = Log(), ProducerTable(kept=2), ProducerTable(kept=2)
    for sequence in range(3):
        log.put(mark(sequence, 3), 3, 100)
    log.take(table, 0, rows)
    restored.restore(table.snapshot().encode())
    assert restored.next_offset == table.next_offset == 10 * rows
    log.take(table, rows)
    log.take(restored, rows)
    assert restored.snapshot().encode() == table.snapshot().encode()
    assert check(restored, 2, 3) == check(table, 2, 3)


def damaged(data: bytes) -> Sequence[bytes]:
    def summed(text: bytes) -> bytes:
        return text + b"\n%08x\n" % crc32(text)

    text = data[:-10]
    line, rows = text.split(b"\n", 1)
    return (
        b"",
        data[:-2],
        data.replace(b"\x01p", b"\x01r"),
        summed(b"{}\n"),
        summed(b"[]\n"),
        summed(text.replace(b'"version":2', b'"version":1')),
        summed(text[:-1]),
        summed(text + b"\0"),
        summed(line.replace(b'"producers":1', b'"producers":2') + b"\n" + rows),
        summed(line.replace(b'"open":null', b'"open":"nobody"') + b"\n" + rows),
        summed(line.replace(b'"open":null', b'"open":"p"') + b"\n" + rows),
    )


def test_a_damaged_snapshot_is_refused() -> None:
    table, _ = taken((mark(0, 1), 1, 100))
    before = table.snapshot().encode()
    for data in damaged(before):
        with pytest.raises(FormatError, match="producer table"):
            table.restore(data)
    assert table.snapshot().encode() == before
