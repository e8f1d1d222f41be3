"""The units of all consume queues: where each queue ends, what is in memory, what on disk.

    queue q    first ......... spilled ............ end
               |  in its files  |  in its tail row   |        tail rows: queue_tails.py

This is the mechanism; consume_queue_store.py decides when a unit may be taken. The caller holds the
store's lock around every change except `spill`: that needs only `file_lock`, which guards a queue's
files and is held for one queue at a time, so a flush of thousands of queues hardly delays dispatch.
`read` takes no lock: it copies the units first and checks afterwards whether the numbers that it
relied on have changed. So units are in place before `ends` covers them, and in their file before
`spilled` does. Any other change is made inside `Change`, which readers wait for.
"""

import threading
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import all_true
from tandemlog.format.files.queue_unit import PRE_BLANK, PRE_BLANK_SIZE, UNIT_DTYPE, UNIT_SIZE

from ..disk.disk_space import RoomForUnits
from ..disk.file_pool import FilePool
from ..disk.file_system import Buffer
from ..disk_errors import is_full
from ..errors import CorruptStoreError, DiskFullError, StoreError
from .consume_queue import ConsumeQueue
from .queue_runs import QueueRuns
from .queue_table import MAX_QUEUES, QueueTable
from .queue_tails import MEMORY_BYTES, rows_for

NO_UNITS = np.zeros(0, dtype=UNIT_DTYPE)
_WINDOW = 256
_MOST_AT_ONCE = 1 << 16
_NEIGHBOURS = 3


class QueueUnits:
    """See the module. Queues are named by their dense index of `table`."""

    def __init__(
        self, directory: Path, disk: FilePool, table: QueueTable, file_size: int,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:  # fmt: skip
        # as long as they can get: untouched pages take no memory, so they never move
        self.ends = np.zeros(MAX_QUEUES, dtype=np.int64)
        self.spilled = np.zeros(MAX_QUEUES, dtype=np.int64)
        self.last_physical = np.zeros(MAX_QUEUES, dtype=np.int64)
        # odd while a Change is under way
        self.generation = 0
        self.changing = threading.Lock()
        self.changer = 0
        self.queues: dict[int, ConsumeQueue] = {}
        self._directory = directory
        self._disk = disk
        self._table = table
        self._file_size = file_size
        self._memory_bytes = memory_bytes
        self._rows = rows_for(0, memory_bytes)
        self._room = RoomForUnits(directory, disk.files)
        self.file_lock = threading.RLock()

    def queue(self, dense: int) -> ConsumeQueue:
        """The files of a queue, which need not exist yet."""
        queue = self.queues.get(dense)
        if queue is None:
            topic, queue_id = self._table.name(dense)
            path = self._directory / topic / str(queue_id)
            queue = self.queues[dense] = ConsumeQueue(path, self._disk, self._file_size)
        return queue

    def has_no_files(self, dense: int) -> bool:
        """Whether the queue has no unit, on disk or in memory, whatever its end."""
        queue = self.queues.get(dense)
        return (queue is None or queue.first < 0) and self.spilled[dense] == self.ends[dense]

    def first_physical(self, dense: int) -> int:
        """Log offset of the record of the queue's first unit; 0 if it has no unit."""
        first = self.first_at_or_after(dense, 1)
        unit = self.read(dense, first, 1)
        return int(unit["physical_offset"][0]) if len(unit) else 0

    def is_blank_from(self, dense: int, queue_offset: int) -> bool:
        """Whether all units from there on are pre-blank."""
        last = self.read(dense, int(self.ends[dense]) - 1, 1)
        if not _pre_blank(last).all():
            return False
        units = self.read(dense, queue_offset, int(self.ends[dense]) - queue_offset)
        return bool(_pre_blank(units).all())

    def first(self, dense: int) -> int:
        """The first unit that has a place, in a file or in memory."""
        queue = self.queues.get(dense)
        if queue is not None and queue.first >= 0:
            return queue.first_unit
        return int(self.spilled[dense])

    def read(self, dense: int, queue_offset: int, count: int) -> NDArray[np.void]:
        """UNIT_DTYPE: units queue_offset .. queue_offset+count-1, fewer at the end of the queue;
        none if the first of them has no place any more."""
        while True:
            generation, rows = self.generation, self._rows
            if generation & 1 and self.changer != threading.get_ident():
                with self.changing:
                    continue
            end = min(queue_offset + count, int(self.ends[dense]))
            spilled = int(self.spilled[dense])
            in_memory = max(queue_offset, spilled)
            if queue_offset >= end or queue_offset < self.first(dense):
                if generation == self.generation:
                    return NO_UNITS
                continue
            if end - in_memory > rows.width:
                continue  # the numbers are of two moments
            pieces = []
            if queue_offset < spilled:
                try:
                    last = min(end, spilled)
                    pieces.append(self.queues[dense].read(queue_offset, last - queue_offset))
                except (CorruptStoreError, KeyError):
                    if generation == self.generation:
                        raise
                    continue
            if end > in_memory:
                pieces.append(rows.copy(dense, in_memory, end))
            if (
                generation == self.generation
                and rows is self._rows
                and (end <= in_memory or int(self.spilled[dense]) <= in_memory)
            ):
                return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, dtype=UNIT_DTYPE)

    def in_memory(self, dense: int, queue_offset: int, count: int) -> bool:
        """Whether `read` of these units would not wait for the disk."""
        in_files = int(self.spilled[dense]) - queue_offset
        if in_files <= 0:
            return True
        queue = self.queues.get(dense)
        return queue is not None and queue.is_cached(queue_offset, min(count, in_files))

    def first_at_or_after(self, dense: int, log_offset: int, low: int = 0) -> int:
        """The first unit from `low` on whose record begins at or after `log_offset`, pre-blank ones
        left out, else the end of the queue. Raises CorruptStoreError if the units around it do not
        point upwards: then one of them has misled the search."""
        high = int(self.ends[dense])
        low = max(low, self.first(dense))
        if not _before(self.read(dense, low, 1), log_offset).any():
            return low
        window = self.read(dense, max(low, high - _WINDOW), _WINDOW)
        if 0 < int(window["physical_offset"][:1].sum()) < log_offset:
            self._check_upwards(dense, high - len(window), window)
            after = ~_before(window, log_offset)
            return high - len(window) + int(after.argmax()) if after.any() else high
        first = high
        while low < high:
            middle = (low + high) // 2
            place, physical = self._next_of_a_record(dense, middle, high)
            if place < high and physical < log_offset:
                low = place + 1
            else:
                first, high = (place if place < high else first), middle
        begin = max(first - _NEIGHBOURS, self.first(dense))
        self._check_upwards(dense, begin, self.read(dense, begin, first + _NEIGHBOURS - begin))
        return first

    def _next_of_a_record(self, dense: int, start: int, stop: int) -> tuple[int, int]:
        """The first unit in start .. stop-1 that is not pre-blank, and its log offset; `stop` and
        0 if all of them are. Pre-blank units say nothing about those around them."""
        while start < stop:
            units = self.read(dense, start, min(stop - start, _WINDOW))
            if not len(units):
                break
            of_records = ~_pre_blank(units)
            if of_records.any():
                place = int(of_records.argmax())
                return start + place, int(units["physical_offset"][place])
            start += len(units)
        return stop, 0

    def _check_upwards(self, dense: int, queue_offset: int, units: NDArray[np.void]) -> None:
        physical = units["physical_offset"].astype(np.int64)
        physical = physical[units["size"] != PRE_BLANK_SIZE]
        if len(physical) and (int(physical.min()) < 0 or bool((np.diff(physical) <= 0).any())):
            queue = self.queue(dense)
            base = queue_offset * UNIT_SIZE // self._file_size * self._file_size
            raise CorruptStoreError(
                queue.file(base),
                queue_offset * UNIT_SIZE - base,
                f"units {queue_offset}..{queue_offset + len(units) - 1} do not point upwards in "
                "the log",
            )

    # ---- growing; all raise DiskFullError or StoreError if a file could not be written

    def make_room(self, runs: QueueRuns, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Spill so that the chosen runs, which continue their queues, fit into the tail rows.

        Runs that are longer than a row go to their file at once. Returns those that are left.
        """
        if int(runs.queues[-1]) >= self._rows.rows:
            self._widen(int(runs.queues[-1]) + 1)
        after = runs.first + runs.counts
        full = chosen & (after - self.spilled[runs.queues] > self._rows.width)
        fitting = chosen
        for run in full.nonzero()[0].tolist():
            if int(runs.counts[run]) <= self._rows.width:
                self.spill(int(runs.queues[run]))
            else:
                start, count = int(runs.starts[run]), int(runs.counts[run])
                self.extend(int(runs.queues[run]), runs.cells[start : start + count])
                fitting = fitting & (np.arange(len(fitting)) != run)
        return fitting

    def scatter(self, runs: QueueRuns, chosen: NDArray[np.bool_]) -> None:
        """Append the chosen runs in memory; make_room came before."""
        if all_true(chosen):
            self._rows.scatter(runs.dense, runs.offsets, runs.cells)
            queues, starts, counts, first = runs.queues, runs.starts, runs.counts, runs.first
        else:
            units = np.repeat(chosen, runs.counts)
            self._rows.scatter(runs.dense[units], runs.offsets[units], runs.cells[units])
            queues, starts = runs.queues[chosen], runs.starts[chosen]
            counts, first = runs.counts[chosen], runs.first[chosen]
        newest = runs.cells.view(UNIT_DTYPE)["physical_offset"][starts + counts - 1]
        self.last_physical[queues] = newest
        self.ends[queues] = first + counts

    def extend(self, dense: int, cells: NDArray[np.void]) -> None:
        """Append units to one queue, straight into its file."""
        end = int(self.ends[dense]) + len(cells)
        with self.file_lock:
            self.spill(dense)
            self._write(dense, end - len(cells), cells.view(np.uint8).data)
            self.spilled[dense] = end
        self.last_physical[dense] = int(cells[-1:].view(UNIT_DTYPE)["physical_offset"][0])
        self.ends[dense] = end

    def set_end(self, dense: int, queue_offset: int) -> None:
        """A queue without units gets `queue_offset` for its first record; inside a Change."""
        self.spilled[dense] = self.ends[dense] = queue_offset

    def create_at(self, dense: int, queue_offset: int) -> None:
        """Let an empty queue begin at `queue_offset`, with pre-blank units before it."""
        with self.file_lock:
            queue = self.queue(dense)
            try:
                queue.destroy()
                queue.create_at(queue_offset)
            except OSError as error:
                raise _write_fault(queue, queue_offset, error) from error
            self.spilled[dense] = queue_offset
        self.ends[dense] = queue_offset

    def fill(self, dense: int, queue_offset: int) -> None:
        """Pre-blank units from the end of the queue up to `queue_offset`."""
        with self.file_lock:
            self.spill(dense)
            end = int(self.ends[dense])
            self._write(dense, end, PRE_BLANK * (queue_offset - end))
            self.spilled[dense] = queue_offset
        self.ends[dense] = queue_offset

    def spill(self, dense: int) -> None:
        """Write a queue's units that are in memory only to its file."""
        with self.file_lock:
            first, end = int(self.spilled[dense]), int(self.ends[dense])
            if first < end:
                self._write(dense, first, self._rows.bytes_of(dense, first, end))
                self.spilled[dense] = end

    # ---- shrinking, inside a Change

    def cut(self, dense: int, end: int) -> None:
        """Remove unit `end` and all after it."""
        with self.file_lock:
            if end < int(self.spilled[dense]):
                self.queue(dense).cut(end)
                self.spilled[dense] = end
            self.ends[dense] = end
        self.last_physical[dense] = self._last_before(dense, end)

    def _last_before(self, dense: int, end: int) -> int:
        """Log offset of the newest record before unit `end`, 0 if there is none: pre-blank units
        keep the numbers of damaged records, however many."""
        first, count = self.first(dense), 1
        while end > first:
            begin = max(end - count, first)
            units = self.read(dense, begin, end - begin)
            units = units[~_pre_blank(units)]
            if len(units):
                return int(units["physical_offset"][-1])
            end, count = begin, min(_WINDOW * count, _MOST_AT_ONCE)
        return 0

    def forget(self, dense: int) -> None:
        """Remove a queue with its files. Raises OSError if one cannot be deleted: its units
        are gone in memory, and a second call tries the rest again."""
        with self.file_lock:
            for column in (self.ends, self.spilled, self.last_physical):
                column[dense] = 0
            queue = self.queues.get(dense)
            if queue is not None:
                queue.destroy()
                del self.queues[dense]

    def _widen(self, queues: int) -> None:
        """Rows for more queues: with everything spilled, the new ones may start empty."""
        count = self._table.count
        with self.file_lock:
            for dense in np.flatnonzero(self.spilled[:count] < self.ends[:count]).tolist():
                self.spill(dense)
            self._rows = rows_for(queues, self._memory_bytes)

    def _write(self, dense: int, queue_offset: int, data: Buffer) -> None:
        queue = self.queue(dense)
        try:
            self._room.claim(len(data))
            queue.write(queue_offset, data)
        except OSError as error:
            raise _write_fault(queue, queue_offset, error) from error


class Change:
    """Around a change that is not mere growth; not to be nested."""

    def __init__(self, units: QueueUnits) -> None:
        self._units = units

    def __enter__(self) -> None:
        self._units.changing.acquire()
        self._units.changer = threading.get_ident()
        self._units.generation += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._units.changer = 0
        self._units.generation += 1
        self._units.changing.release()


def _before(units: NDArray[np.void], log_offset: int) -> NDArray[np.bool_]:
    before: NDArray[np.bool_] = (units["physical_offset"] < log_offset) | _pre_blank(units)
    return before


def _pre_blank(units: NDArray[np.void]) -> NDArray[np.bool_]:
    blank: NDArray[np.bool_] = (units["physical_offset"] == 0) & (units["size"] == PRE_BLANK_SIZE)
    return blank


def _write_fault(queue: ConsumeQueue, queue_offset: int, fault: OSError) -> StoreError:
    where = f"unit {queue_offset} of {queue.file(max(queue.last, 0))}"
    if is_full(fault):
        return DiskFullError(f"no space to write {where}")
    return StoreError(f"{where} could not be written: {fault}")
