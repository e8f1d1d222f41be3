import numpy as np
import pytest

from tandemlog.format.files.queue_unit import UNIT_DTYPE, UNIT_SIZE
from tandemlog_server.storage.queues.queue_tails import (
    CELL,
    MAX_WIDTH,
    MIN_ROWS,
    MIN_WIDTH,
    TailRows,
    rows_for,
)


def units(*physical: int) -> np.ndarray:
    made = np.zeros(len(physical), dtype=UNIT_DTYPE)
    made["physical_offset"] = physical
    return made


def test_rows_are_rings() -> None:
    rows = TailRows(4, 8)
    dense = np.array([2, 0, 2, 2], dtype=np.uint16)
    offsets = np.array([7, 5, 8, 9], dtype=np.int64)
    rows.scatter(dense, offsets, units(70, 5, 80, 90).view(CELL))
    assert rows.copy(2, 7, 10)["physical_offset"].tolist() == [70, 80, 90]
    assert rows.copy(0, 5, 6)["physical_offset"].tolist() == [5]
    assert rows.copy(1, 3, 3).tolist() == []


def test_a_row_holds_as_many_units_as_it_is_wide() -> None:
    rows = TailRows(2, 16)
    offsets = np.arange(100, 116, dtype=np.int64)
    rows.scatter(np.ones(16, dtype=np.int64), offsets, units(*offsets).view(CELL))
    assert rows.copy(1, 100, 116)["physical_offset"].tolist() == offsets.tolist()
    assert rows.copy(1, 103, 111)["physical_offset"].tolist() == offsets[3:11].tolist()


def test_the_bytes_of_a_row_are_one_piece_wherever_it_begins() -> None:
    """One write for each queue: thousands of them are written at each checkpoint."""
    rows = TailRows(3, 8)
    for first in range(40, 48):
        offsets = np.arange(first, first + 8, dtype=np.int64)
        rows.scatter(np.ones(8, dtype=np.int64), offsets, units(*offsets).view(CELL))
        for count in range(1, 9):
            for begin in range(first, first + 9 - count):
                expected = rows.copy(1, begin, begin + count).tobytes()
                assert bytes(rows.bytes_of(1, begin, begin + count)) == expected


@pytest.mark.parametrize("queues", [0, 1, 255, 256, 257, 4096, 100_000])
def test_rows_get_narrower_with_more_queues(queues: int) -> None:
    rows = rows_for(queues, 8 << 20)
    assert rows.rows >= max(queues, MIN_ROWS)
    assert MIN_WIDTH <= rows.width <= MAX_WIDTH
    assert rows.width & (rows.width - 1) == 0
    if rows.width > MIN_WIDTH:
        assert rows.rows * rows.width * UNIT_SIZE <= 8 << 20
