"""Producers' requests in a log of small records, and a table that learns of them."""

import numpy as np
import pytest

from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.producers.producer_requests import (
    Duplicate,
    New,
    Resume,
)
from tandemlog_server.storage.producers.producer_table import ProducerTable

SIZE = 10


Row = tuple[int, str | None]  # store time, mark of the record


class Log:
    """Records of SIZE bytes; `files` of that many records, a BLANK of SIZE at the end of each."""

    def __init__(self, records_a_file: int = 1 << 30) -> None:
        self.rows: list[Row] = []
        self._a_file = records_a_file

    def offset(self, row: int) -> int:
        return SIZE * (row + row // self._a_file)

    @property
    def end(self) -> int:
        return self.offset(len(self.rows) - 1) + SIZE if self.rows else 0

    def put(self, mark: str | None, count: int, time: int) -> None:
        """`count` records of one request, the first with the mark."""
        self.rows += [(time, mark if number == 0 else None) for number in range(count)]

    def count(self, start: int, end: int) -> tuple[int, int]:
        times = [time for row, (time, _) in enumerate(self.rows) if start <= self.offset(row) < end]
        return len(times), times[-1] if times else 0

    def take(self, table: ProducerTable, first: int = 0, last: int | None = None) -> list[str]:
        rows = self.rows[first:last]
        offsets = np.array([self.offset(first + n) for n in range(len(rows))], dtype=np.int64)
        marks = [(n, mark.encode()) for n, (_, mark) in enumerate(rows) if mark is not None]
        end = self.offset(first + len(rows) - 1) + SIZE if rows else table.next_offset
        times = np.array([time for time, _ in rows], dtype=np.int64)
        return table.replay(offsets, np.full(len(rows), SIZE, dtype=np.int32), times, marks, end)


def mark(sequence: int, count: int, *, epoch: int = 0, index: int = 0, who: str = "p") -> str:
    return ProducerMark(who, epoch, sequence, index, count).encode()


def check(
    table: ProducerTable, sequence: int, count: int, *, epoch: int = 0, who: str = "p"
) -> New | Resume | Duplicate:
    return table.check(ProducerMark(who, epoch, sequence, 0, count), count)


def refused(
    table: ProducerTable, sequence: int, count: int = 1, *, epoch: int = 0
) -> tuple[str, int, int]:
    with pytest.raises(BatchRefusedError) as caught:
        check(table, sequence, count, epoch=epoch)
    assert caught.value.field == "__TL_SEQ"
    assert "producer p" in str(caught.value)
    return caught.value.code, caught.value.limit, caught.value.actual


def taken(*rows: tuple[str | None, int, int], log: Log | None = None) -> tuple[ProducerTable, Log]:
    log = log if log is not None else Log()
    for each in rows:
        log.put(*each)
    table = ProducerTable()
    assert log.take(table) == []
    return table, log


class Bench:
    """A table whose own time is ours."""

    def __init__(self, kept: int = 64, limit: int = 3) -> None:
        self.now = 1_000.0
        self.log = Log()
        self.table = ProducerTable(kept=kept, limit=limit, monotonic=lambda: self.now)

    def put(self, who: str, sequence: int = 0, *, time: int = 100) -> None:
        first = len(self.log.rows)
        self.log.put(mark(sequence, 1, who=who), 1, time)
        assert self.log.take(self.table, first) == []

    def known(self) -> set[str]:
        return {who for who in "pqrstu" if self.table.describe(who) is not None}
