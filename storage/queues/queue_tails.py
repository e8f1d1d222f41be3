"""The newest units of all consume queues, in memory: one row of cells a queue, used as a ring.

                  width W (a power of two)
    queue 0   | u8 u9 .. .. u4 u5 u6 u7 |     unit n of a queue is in cell n % W of its row
    queue 1   | .. .. .. .. .. .. .. .. |
    queue 2   | .. u1 u2 .. .. .. .. .. |

Why: a batch from reput touches thousands of queues with a few units each. Here that is one
scatter into one array, whatever the number of queues; a queue costs a system call only when its
row is full, that is once in W units.

Invariant: a cell is written again only after its unit was written to the queue's file. A reader
copies first and then checks whether the units it copied have been spilled meanwhile; only then can
they have been overwritten. So readers need no lock.
"""

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.queue_unit import UNIT_DTYPE, UNIT_SIZE

from ..disk.file_system import Buffer

# Copying opaque cells is three times as fast as copying their three fields.
CELL = np.dtype(f"V{UNIT_SIZE}")

MEMORY_BYTES = 128 << 20
MAX_WIDTH = 1024
MIN_WIDTH = 16
MIN_ROWS = 256


class TailRows:
    """Rows for `rows` queues of `width` cells; a fixed shape, replaced as a whole to grow."""

    __slots__ = ("_bytes", "_cells", "rows", "width")

    def __init__(self, rows: int, width: int) -> None:
        self.rows = rows
        self.width = width
        self._cells: NDArray[np.void] = np.zeros(rows * width, dtype=CELL)
        self._bytes = self._cells.view(np.uint8).data

    def scatter(
        self, dense: NDArray[np.integer], queue_offsets: NDArray[np.int64], units: NDArray[np.void]
    ) -> None:
        """Put units[i] as unit queue_offsets[i] of queue dense[i]; `units` is CELL[n]."""
        cells = queue_offsets & (self.width - 1)
        cells += np.multiply(dense, self.width, dtype=np.int64)
        self._cells[cells] = units

    def bytes_of(self, dense: int, first: int, last: int) -> Buffer:
        """The bytes of units first .. last-1 of a queue, for one write: a row that begins at its
        start is not copied, so write before its cells are used again."""
        row = dense * self.width
        start = row + (first & (self.width - 1))
        end, beyond = start + last - first, row + self.width
        if end <= beyond:
            return self._bytes[start * UNIT_SIZE : end * UNIT_SIZE]
        head = self._bytes[start * UNIT_SIZE : beyond * UNIT_SIZE]
        return b"".join((head, self._bytes[row * UNIT_SIZE : (end - self.width) * UNIT_SIZE]))

    def copy(self, dense: int, first: int, last: int) -> NDArray[np.void]:
        """Units first .. last-1 of a queue, as UNIT_DTYPE; at most `width` of them."""
        row = dense * self.width
        start = row + (first & (self.width - 1))
        count = last - first
        ahead = min(count, row + self.width - start)
        cells = np.empty(count, dtype=CELL)
        cells[:ahead] = self._cells[start : start + ahead]
        if ahead < count:
            cells[ahead:] = self._cells[row : row + count - ahead]
        return cells.view(UNIT_DTYPE)


def rows_for(queues: int, memory_bytes: int = MEMORY_BYTES) -> TailRows:
    """Rows for at least `queues` queues, as wide as `memory_bytes` allows for that many."""
    rows = max(MIN_ROWS, 1 << (queues - 1).bit_length()) if queues > 1 else MIN_ROWS
    fitting = max(1, memory_bytes // (rows * UNIT_SIZE))
    width = 1 << (fitting.bit_length() - 1)
    return TailRows(rows, min(max(width, MIN_WIDTH), MAX_WIDTH))
