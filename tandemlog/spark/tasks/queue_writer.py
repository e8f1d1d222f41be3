"""The files of one consume queue, written front to back from its units in log order.

    first file                     next file
    | B B B u3 u4 u5 u6 |          | u7 u8 0 0 0 0 0 |     B: pre-blank, up to the first number

The rules are those of the store's own reput when it rebuilds a queue: if the log has a number
twice, the first record counts, and missing numbers become pre-blank units, so that every unit is at
its number.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.names import offset_file_name
from tandemlog.format.files.queue_unit import PRE_BLANK, UNIT_SIZE

from ..errors import PipelineError

MOST_LACKING = 1 << 22
"""A log that lacks more numbers than this in one place does not lack them: one is wrong."""
_NO_FILE = -1


@dataclass(slots=True)
class WrittenQueue:
    """`units` taken, numbers first .. end-1; `repeated` records skipped, `lacking` numbers
    filled up."""

    topic: str
    queue_id: int
    units: int = 0
    first: int = 0
    end: int = 0
    repeated: int = 0
    lacking: int = 0


class QueueWriter:
    """One queue; `directory` is its own. Raises OSError if the disk does."""

    def __init__(self, directory: Path, topic: str, queue_id: int, file_size: int) -> None:
        self.written = WrittenQueue(topic, queue_id)
        self._directory = directory
        self._file_size = file_size
        self._handle = _NO_FILE
        self._base = _NO_FILE

    def put(self, numbers: NDArray[np.int64], units: NDArray[np.void]) -> None:
        """Units (UNIT_DTYPE[n]) and their numbers in the queue (i8[n]), behind those before."""
        written = self.written
        if not len(numbers):
            return
        if self._base == _NO_FILE:
            self._begin(int(numbers[0]))
        if int(numbers[0]) != written.end or not (np.diff(numbers) == 1).all():
            numbers, units = self._put_right(numbers, units)
        self._write(written.end, np.ascontiguousarray(units).view(np.uint8).data)
        written.units += int(np.count_nonzero(numbers >= 0))
        written.end += len(units)

    def close(self) -> WrittenQueue:
        """What was written."""
        if self._handle != _NO_FILE:
            os.close(self._handle)
            self._handle = _NO_FILE
        return self.written

    def _begin(self, number: int) -> None:
        """The file that holds unit `number`, pre-blank up to it."""
        position = number * UNIT_SIZE
        base = position - position % self._file_size
        self._directory.mkdir(parents=True)
        self._open(base)
        os.pwrite(self._handle, PRE_BLANK * ((position - base) // UNIT_SIZE), 0)
        self.written.first = self.written.end = number

    def _put_right(
        self, numbers: NDArray[np.int64], units: NDArray[np.void]
    ) -> tuple[NDArray[np.int64], NDArray[np.void]]:
        """The same without repeats and with what lacks filled in (number -1)."""
        written = self.written
        highest = np.maximum.accumulate(np.concatenate(([written.end - 1], numbers)))
        fresh = numbers > highest[:-1]
        written.repeated += int(np.count_nonzero(~fresh))
        numbers, units = numbers[fresh], units[fresh]
        if not len(numbers):
            return numbers, units
        if int(numbers[-1]) - written.end > MOST_LACKING + len(numbers):
            jump = int(np.argmax(np.diff(numbers, prepend=written.end - 1)))
            raise PipelineError(
                f"{written.topic}/{written.queue_id}: the record at "
                f"{int(units['physical_offset'][jump])} says that it is message "
                f"{int(numbers[jump])}, far behind {written.end}, which is next: it is damaged"
            )
        filled = np.full(int(numbers[-1]) + 1 - written.end, -1, np.int64)
        filled[numbers - written.end] = numbers
        whole = np.frombuffer(bytearray(PRE_BLANK * len(filled)), units.dtype)
        whole[numbers - written.end] = units
        written.lacking += int(np.count_nonzero(filled < 0))
        return filled, whole

    def _write(self, number: int, data: memoryview) -> None:
        position = number * UNIT_SIZE
        while data:
            base = position - position % self._file_size
            if base != self._base:
                self._open(base)
            room = base + self._file_size - position
            count = os.pwrite(self._handle, data[:room], position - base)
            position += count
            data = data[count:]

    def _open(self, base: int) -> None:
        self.close()
        path = self._directory / offset_file_name(base)
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._handle, self._file_size)
        self._base = base
