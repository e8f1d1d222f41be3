"""The files of one consume queue, written front to back from its units in log order.

    first file                     next file
    | B B B u3 u4 u5 u6 |          | u7 u8 0 0 0 0 0 |     B: pre-blank, up to the first number

The rules are those of the store's own reput when it rebuilds a queue: if a broker began the queue
again, the later record of a number counts (queue_numbers.py); if the log has a number twice for
another reason, the first one counts; missing numbers become pre-blank units, so that every unit is
at its number.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.queue_numbers import begins_again, continues
from tandemlog.format.files.names import offset_file_name
from tandemlog.format.files.queue_unit import PRE_BLANK, PRE_BLANK_SIZE, UNIT_DTYPE, UNIT_SIZE

from ..job_errors import PipelineError
from ..reading.queue_collector import joined

MOST_LACKING = 1 << 22
"""If more numbers than this seem to be missing in one place, a number is wrong instead."""
MAX_OFFSET = (1 << 63) - 1
_NO_FILE = -1


@dataclass(slots=True)
class WrittenQueue:
    """`units` written, numbers first .. end-1; `repeated` records skipped, `lacking` numbers filled
    in, `deleted` units removed since the queue began again after them."""

    topic: str
    queue_id: int
    units: int = 0
    first: int = 0
    end: int = 0
    repeated: int = 0
    lacking: int = 0
    deleted: int = 0


class QueueWriter:
    """One queue; `directory` is its own. From the log offset `own_from` on, masters of tandemlog
    wrote the log, so that a single record with a lower number is damaged. Raises OSError."""

    def __init__(
        self, directory: Path, topic: str, queue_id: int, file_size: int, own_from: int = MAX_OFFSET
    ) -> None:
        self._own_from = own_from
        self._newest = -1  # log offset of the last record
        self._waiting: tuple[NDArray[np.int64], NDArray[np.void]] | None = None
        self.written = WrittenQueue(topic, queue_id)
        self._directory = directory
        self._file_size = file_size
        self._handle = _NO_FILE
        self._base = _NO_FILE

    def put(self, numbers: NDArray[np.int64], units: NDArray[np.void]) -> None:
        """Units (UNIT_DTYPE[n]) and their numbers in the queue (i8[n]), behind those before."""
        if self._waiting is not None:
            numbers = np.concatenate((self._waiting[0], numbers))
            units = joined((self._waiting[1], units))
        self._write_runs(numbers, units, more=True)

    def close(self) -> WrittenQueue:
        """What was written."""
        if self._waiting is not None:
            self._write_runs(*self._waiting, more=False)
        self._close()
        return self.written

    def _write_runs(
        self, numbers: NDArray[np.int64], units: NDArray[np.void], *, more: bool
    ) -> None:
        """Write them up to a number that is not above the one before, decide what that means, and
        so on. `more`: others may follow, without which it may not be known."""
        self._waiting = None
        while len(numbers):
            if self._base == _NO_FILE:
                self._begin(int(numbers[0]))
            steps = np.diff(numbers, prepend=self.written.end - 1)
            rising = int(np.argmax(steps < 1)) if (steps < 1).any() else len(numbers)
            self._put_rising(numbers[:rising], units[:rising])
            numbers, units = numbers[rising:], units[rising:]
            if not len(numbers):
                return
            place = int(units["physical_offset"][0])
            behind = place > self._newest
            again = behind and begins_again(numbers, self.written.end, more=more)
            if again is None:
                self._waiting = numbers, units
                return
            if again and (continues(numbers) or place < self._own_from):
                self._begin_again(int(numbers[0]))
            else:
                self.written.repeated += 1
                numbers, units = numbers[1:], units[1:]

    def _put_rising(self, numbers: NDArray[np.int64], units: NDArray[np.void]) -> None:
        written = self.written
        if not len(numbers):
            return
        written.units += len(numbers)
        self._newest = max(self._newest, int(units["physical_offset"][-1]))
        if int(numbers[-1]) != written.end + len(numbers) - 1:
            units = self._filled(numbers, units)
        self._write(written.end, np.ascontiguousarray(units).view(np.uint8).data)
        written.end += len(units)

    def _begin_again(self, number: int) -> None:
        """Remove the units from that number on."""
        written = self.written
        deleted = self._units_from(number)
        written.deleted += deleted
        written.units -= deleted
        self._close()
        if number < written.first:
            shutil.rmtree(self._directory)
            self._begin(number)
            return
        position = number * UNIT_SIZE
        for path in sorted(self._directory.iterdir(), reverse=True):
            base = int(path.name)
            if base >= position and base > written.first * UNIT_SIZE:
                path.unlink()
            elif base + self._file_size > position:
                os.truncate(path, max(position - base, 0))
                self._open(base)
        written.end = number

    def _units_from(self, number: int) -> int:
        """How many units there are from that number on; pre-blank ones do not count."""
        count = 0
        for path in self._directory.iterdir():
            base = int(path.name) // UNIT_SIZE
            units = np.memmap(path, UNIT_DTYPE, "r")
            real = (units["size"] != PRE_BLANK_SIZE) & (units["size"] > 0)
            count += int(np.count_nonzero(real[max(number - base, 0) :]))
        return count

    def _close(self) -> None:
        if self._handle != _NO_FILE:
            os.close(self._handle)
            self._handle = _NO_FILE

    def _begin(self, number: int) -> None:
        """Start with the file of unit `number`, pre-blank up to it."""
        position = number * UNIT_SIZE
        base = position - position % self._file_size
        self._directory.mkdir(parents=True)
        self._open(base)
        os.pwrite(self._handle, PRE_BLANK * ((position - base) // UNIT_SIZE), 0)
        self.written.first = self.written.end = number

    def _filled(self, numbers: NDArray[np.int64], units: NDArray[np.void]) -> NDArray[np.void]:
        """The units, whose numbers rise, with pre-blank units for the missing numbers."""
        written = self.written
        if int(numbers[-1]) - written.end > MOST_LACKING + len(numbers):
            jump = int(np.argmax(np.diff(numbers, prepend=written.end - 1)))
            raise PipelineError(
                f"{written.topic}/{written.queue_id}: the record at "
                f"{int(units['physical_offset'][jump])} says that it is message "
                f"{int(numbers[jump])}, far behind {written.end}, which is next: it is damaged"
            )
        count = int(numbers[-1]) + 1 - written.end
        whole = np.frombuffer(bytearray(PRE_BLANK * count), units.dtype)
        whole[numbers - written.end] = units
        written.lacking += count - len(numbers)
        return whole

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
        self._close()
        path = self._directory / offset_file_name(base)
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._handle, self._file_size)
        self._base = base
