"""All consume queues of a store: which units they accept, what is durable, what is cut.

A batch from reput goes into the tail rows of all its queues with a handful of array operations
(queue_units.py). A queue is written to its file when its row is full, or by `flush`, which then
also fsyncs and returns a checkpoint: the ends of all queues at one position of the log.

The log is the truth. A unit whose number is not the next of its queue means that the queue is
damaged, that the log was dispatched here before (the same unit again is skipped), or that a broker
began the queue again (queue_mender.py). A damaged queue takes no more units and serves no reads
until it is rebuilt from the log.

Who does what: one dispatcher calls append, truncate and the rebuild; one thread at a time flushes;
any thread reads, without a lock.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import all_true
from tandemlog.format.files.queue_unit import UNIT_SIZE

from ..disk.file_pool import FilePool
from ..disk.file_system import FileSystem
from ..disk_errors import refusal
from ..errors import CorruptStoreError, StoreBusyError, StoreError
from ..traffic import QueueTraffic
from .consume_queue import ConsumeQueue
from .queue_checkpoint import DAMAGED_END, QueueCheckpoint
from .queue_mender import QueueMender
from .queue_names import NamedEnds, named
from .queue_runs import regroup
from .queue_search import Boundary, search_by_time
from .queue_table import QueueTable
from .queue_tails import MEMORY_BYTES
from .queue_units import Change, QueueUnits

logger = logging.getLogger(__name__)


class ConsumeQueueStore:
    """See the module. Queues are named by their dense index of `table`."""

    def __init__(
        self,
        directory: Path,
        files: FileSystem,
        table: QueueTable,
        *,
        file_size: int,
        open_files: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
        workshop: Path | None = None,
    ) -> None:
        """`workshop`: where files are created before they get their names."""
        self.directory, self.file_size = directory, file_size
        # every unit of the log below this position is in the queues
        self.next_offset = 0
        # called when a reader has found a queue damaged
        self.on_damage: Callable[[], None] = lambda: None
        self.traffic = QueueTraffic()
        self._table = table
        self._disk = FilePool(directory, files, open_files=open_files, workshop=workshop)
        self._units = QueueUnits(directory, self._disk, table, file_size, memory_bytes)
        self.mender = QueueMender(self._units, table)
        self.floors = self.mender.floors
        self._minimum: dict[int, tuple[int, int]] = {}
        self._log_minimum = 0
        self._lock = threading.RLock()
        self._flushing = threading.Lock()
        self._named_ends = NamedEnds(table)

    # ---- what the queues hold

    @property
    def count(self) -> int:
        """Queues that have units."""
        return int(np.count_nonzero(self._units.ends[: self._table.count]))

    @property
    def log_minimum(self) -> int:
        """Where the log began when queue files were last dropped."""
        return self._log_minimum

    @property
    def damaged(self) -> dict[int, str]:
        """Queues that have to be rebuilt from the log, and why."""
        return dict(self.mender.damaged)

    def ends(self) -> NDArray[np.int64]:
        """i8[table.count]: the queue offset after the newest unit of every queue, a copy."""
        return self._units.ends[: self._table.count].copy()

    def next_offsets(self) -> NDArray[np.int64]:
        """i8[table.count]: the number that the next record of every queue gets at least, by what is
        dispatched: the queue's end, or for a damaged one its floor."""
        following = self.ends()
        for dense in self.mender.damaged:
            following[dense] = max(int(following[dense]), self.floors.of(dense))
        return following

    def idle(self, log_offset: int) -> dict[int, int]:
        """dense -> end of the queues that have no record at or after `log_offset`; for a damaged
        queue its floor, since its end is unknown."""
        with self._lock:
            ends = self.next_offsets()
            without = self._units.last_physical[: len(ends)] < log_offset
            without[list(self.mender.damaged)] = True
            return {
                dense: int(ends[dense]) for dense in np.flatnonzero(without & (ends > 0)).tolist()
            }

    def set_empty_ends(self, numbers: Mapping[int, int]) -> None:
        """Set the ends of queues without units (dense -> queue offset), which the log no longer
        tells. For queues that have units, or are damaged, they are floors."""
        with self._lock, Change(self._units):
            self.floors.begins.update(numbers)
            for dense, number in numbers.items():
                if dense not in self.mender.damaged and not int(self._units.ends[dense]):
                    self._units.set_end(dense, number)

    def newest_physical(self) -> int:
        """Log offset of the newest record in a queue that is not damaged; -1 if there is none."""
        ends = self.ends()
        ends[list(self.mender.damaged)] = 0
        offsets = self._units.last_physical[: len(ends)][ends > 0]
        return int(offsets.max(initial=-1))

    def max_offset(self, dense: int) -> int:
        """The queue offset after the newest unit. Raises StoreBusyError for a damaged queue."""
        self.mender.check_whole(dense)
        return int(self._units.ends[dense])

    def ends_of(self, queues: Sequence[int]) -> list[int]:
        """The `max_offset` of many queues; DAMAGED_END for a damaged one, 0 for no queue (-1)."""
        ends: list[int] = self._units.ends[np.array(queues, np.int64)].tolist()
        damaged = self.mender.damaged
        return [
            0 if dense < 0 else DAMAGED_END if dense in damaged else end
            for dense, end in zip(queues, ends, strict=True)
        ]

    def min_offset(self, dense: int) -> int:
        """The first unit whose record the log still holds; max_offset where none has one."""
        self.mender.check_whole(dense)
        log_minimum = self._log_minimum
        log_start, minimum = self._minimum.get(dense, (-1, 0))
        if log_start != log_minimum or minimum > int(self._units.ends[dense]):
            minimum = self._find_minimum(dense, log_minimum)
        return minimum

    def first_at_or_after(self, dense: int, log_offset: int) -> int:
        """The first unit whose record begins at or after `log_offset` and is still in the log;
        max_offset where there is none. Raises StoreBusyError for a damaged queue."""
        while True:
            generation = self._units.generation
            self.mender.check_whole(dense)
            try:
                unit = self._units.first_at_or_after(dense, log_offset)
            except CorruptStoreError as error:
                raise self._found_damaged(dense, error) from error
            if generation == self._units.generation:
                return max(unit, self.min_offset(dense))

    def read(self, dense: int, queue_offset: int, count: int) -> NDArray[np.void]:
        """UNIT_DTYPE: units from `queue_offset` on, at most `count`; none beyond the end, and none
        if their file is deleted. Raises StoreBusyError for a damaged queue; a missing or short file
        makes it one."""
        self.mender.check_whole(dense)
        try:
            return self._units.read(dense, queue_offset, count)
        except CorruptStoreError as error:
            raise self._found_damaged(dense, error) from error

    def in_memory(self, dense: int, queue_offset: int, count: int) -> bool:
        """Whether `read` of these units would not wait for the disk."""
        return self._units.in_memory(dense, queue_offset, count)

    def file_of(self, dense: int, queue_offset: int) -> str:
        """The file that holds a unit, or will."""
        position = queue_offset * UNIT_SIZE
        return self._units.queue(dense).file(position - position % self.file_size)

    def search(
        self,
        dense: int,
        timestamp: int,
        boundary: Boundary,
        time_of: Callable[[int, int], int],
        steps: Sequence[int] = (),
    ) -> int:
        """The queue offset for a store time (ms); `time_of(physical_offset, size)` returns the
        record's, negative if it cannot be read. Times go back at the log offsets `steps`."""

        def time_at(queue_offset: int) -> int:
            unit = self.read(dense, queue_offset, 1)
            if not len(unit):
                return -1
            return time_of(int(unit["physical_offset"][0]), int(unit["size"][0]))

        minimum, maximum = self.min_offset(dense), self.max_offset(dense)
        return search_by_time(
            minimum,
            maximum,
            timestamp,
            boundary,
            time_at,
            [self._first_from(dense, minimum, maximum, each) for each in steps],
        )

    def _first_from(self, dense: int, low: int, high: int, log_offset: int) -> int:
        """The first unit in low .. high-1 whose record lies at or behind `log_offset`; else
        `high`."""
        while low < high:
            middle = (low + high) // 2
            unit = self.read(dense, middle, 1)
            if len(unit) and int(unit["physical_offset"][0]) < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    # ---- dispatch

    def append(
        self,
        dense: NDArray[np.int64],
        queue_offsets: NDArray[np.int64],
        units: NDArray[np.void],
        end_offset: int,
    ) -> NDArray[np.int64]:
        """Take the units of the records between `next_offset` and `end_offset`.

        dense, queue_offsets i8[n], units UNIT_DTYPE[n], in log order. Returns the queues that
        grew. Units that are there already are skipped; a queue into which they do not fit
        becomes damaged. Raises DiskFullError or StoreError if a queue file cannot be written:
        the same batch may be appended again.
        """
        with self._lock:
            touched = self._append(dense, queue_offsets, units, frozenset())
            self.next_offset = max(self.next_offset, end_offset)
            return touched

    def keep_number(self, dense: int, queue_offset: int) -> None:
        """The record of that number is damaged: skip the number if it is the queue's next one.
        Otherwise later records tell. Raises as `append` does."""
        with self._lock:
            whole = dense >= 0 and dense not in self.mender.damaged
            if whole and int(self._units.ends[dense]) == queue_offset:
                self.mender.raise_to(dense, queue_offset + 1)

    def contradict(self, dense: int, reason: str) -> None:
        """A reader found a unit that does not fit its record: mark the queue damaged. The numbers
        that it had tell the rebuild which records to doubt."""
        with self._lock:
            self.mender.contradict(dense, reason, self.next_offset)

    def mark_damaged(self, dense: int, reason: str, end: int = 0) -> None:
        """Accept no units for this queue and refuse reads until it is rebuilt; it will not end
        below where it does now, nor below `end`."""
        with self._lock:
            self.mender.mark_damaged(dense, reason, end)

    def rebuild_begin(self, queues: Iterable[int]) -> None:
        """Drop all units of these queues; they stay unreadable until rebuild_end.

        Raises the first fault as a StoreError if files could not be deleted, after all the
        others: their units would reappear among the new ones.
        """
        with self._lock, Change(self._units):
            self.mender.rebuild_begin(listed := list(queues))
            self._minimum.clear()  # of what there was before
            self._forget(listed)

    def rebuild_append(
        self,
        queues: frozenset[int],
        dense: NDArray[np.int64],
        queue_offsets: NDArray[np.int64],
        units: NDArray[np.void],
    ) -> None:
        """As append, for queues being rebuilt and nothing else. What the log itself has twice is
        taken once, and numbers that it does not have become pre-blank units."""
        with self._lock:
            self._append(dense, queue_offsets, units, queues)

    def rebuild_end(self, queues: Iterable[int]) -> None:
        """These queues are whole again. One whose last records are damaged or expired ends where it
        did before. Raises as `append` does."""
        with self._lock:
            self.mender.healed(queues)

    # ---- durability

    def flush(self) -> QueueCheckpoint:
        """Write and fsync everything; returns what is durable now.

        Raises DiskFullError or StoreError if a file cannot be written, FlushFailedError if
        the fsync failed.
        """
        with self._flushing:
            while True:
                with self._lock:
                    generation, offset = self._units.generation, self.next_offset
                    ends, damaged = self.ends(), self.mender.damaged
                    # now: a queue that is whole again meanwhile has no floor any more
                    least = {each: floor for each in damaged if (floor := self.floors.of(each))}
                pending = np.flatnonzero(self._units.spilled[: len(ends)] < ends)
                for dense in pending.tolist():
                    self._units.spill(dense)
                try:
                    self._disk.sync()
                except OSError as error:
                    raise refusal("the consume queues cannot be made durable", error) from error
                if generation == self._units.generation:
                    break
            ends[list(damaged)] = DAMAGED_END
            return QueueCheckpoint(offset, self._named_ends.of(ends), named(self._table, least))

    def named(self, numbers: Mapping[int, int]) -> dict[str, dict[int, int]]:
        """{topic: {queue id: number}} of dense -> number."""
        return named(self._table, numbers)

    def close(self) -> None:
        """Close all files; what was not flushed is dispatched again at the next open."""
        self._disk.close()

    # ---- cutting

    def truncate(self, log_offset: int) -> None:
        """Remove every unit whose record begins at or after `log_offset`; durable with flush. A
        queue of which a file is missing is damaged.

        Raises the first fault as a StoreError if files could not be cut, after all the others;
        their queues are damaged then too.
        """
        faults: list[StoreError] = []
        with self._lock, Change(self._units):
            units, ends = self._units, self.ends()
            beyond = (ends > 0) & (units.last_physical[: len(ends)] >= log_offset)
            for dense in np.flatnonzero(beyond).tolist():
                if dense in self.mender.damaged:
                    continue
                try:
                    units.cut(dense, units.first_at_or_after(dense, log_offset))
                except (CorruptStoreError, FileNotFoundError) as error:
                    self.mark_damaged(dense, str(error))
                except OSError as error:
                    # it is unknown which part of it the disk still has
                    self.mark_damaged(dense, f"it could not be cut: {error}")
                    name = self.mender.name(dense)
                    faults.append(StoreError(f"consume queue {name} could not be cut: {error}"))
            if log_offset < self.next_offset:
                self.floors.cut()
            self.next_offset = min(self.next_offset, log_offset)
        if faults:
            raise faults[0]

    def set_log_minimum(self, log_offset: int) -> int:
        """The log begins at `log_offset` now: delete the queue files that point below it alone,
        never a queue's last one. Returns how many files were deleted.

        A queue of which a file is missing is damaged. Raises the first OSError if files could
        not be deleted, after all the others.
        """
        deleted, faults = 0, []
        with self._lock, self._units.file_lock, Change(self._units):
            self._log_minimum = log_offset
            for dense in list(self._units.queues):
                try:
                    deleted += self._drop_below(dense, log_offset)
                except OSError as error:
                    faults.append(error)
        if faults:
            raise faults[0]
        return deleted

    def _drop_below(self, dense: int, log_offset: int) -> int:
        queue, deleted = self._units.queues[dense], 0
        while dense not in self.mender.damaged and 0 <= queue.first < queue.last:
            try:
                newest = queue.read((queue.first + self.file_size) // UNIT_SIZE - 1, 1)
            except CorruptStoreError as error:
                self.mark_damaged(dense, str(error))
                break
            if int(newest["physical_offset"][0]) >= log_offset:
                break
            queue.drop_first()
            deleted += 1
        return deleted

    def delete(self, queues: Iterable[int]) -> None:
        """Remove these queues with their files, for a topic that is deleted. Raises as
        `rebuild_begin` does."""
        deleted = list(queues)
        with self._lock, Change(self._units):
            self._forget(deleted)
            self.floors.forget(deleted)
            damaged = self.mender.damaged
            self.mender.damaged = {q: why for q, why in damaged.items() if q not in set(deleted)}

    def reset(self, log_offset: int) -> None:
        """Forget all queues, whose files are no longer there; the log begins at `log_offset`."""
        with self._lock, Change(self._units):
            self._disk.close()
            self._units.queues.clear()
            self._minimum.clear()
            self.mender.damaged = {}
            self.floors.clear()
            self._forget(range(self._table.count))
            self.next_offset = self._log_minimum = log_offset
            self.mender.from_log_start = True

    # ---- for the loader

    def queue(self, dense: int) -> ConsumeQueue:
        """The files of a queue, which need not exist yet."""
        return self._units.queue(dense)

    def adopt(self, dense: int, end: int) -> None:
        """Take what the queue's files hold below `end` as its units."""
        with self._lock, Change(self._units):
            self._units.ends[dense] = self._units.spilled[dense] = end
            self._units.cut(dense, end)
            self.mender.note_loaded(dense)

    def drop_deleted(self, is_deleted: Callable[[str], bool]) -> list[str]:
        """Remove queues of topics that a broker has deleted, as far as its files tell: the queue
        had no files, and its topic `is_deleted`, or the topic's other queues began again and all
        records of this one are older. Returns their names. Raises as `rebuild_begin` does."""
        with self._lock:
            self.delete(deleted := self.mender.deleted_queues(is_deleted))
        return [self.mender.name(dense) for dense in deleted]

    # ---- inner parts; the caller holds the lock

    def _forget(self, queues: Iterable[int]) -> None:
        faults = []
        for dense in queues:
            try:
                self._units.forget(dense)
            except OSError as error:
                faults.append(
                    StoreError(
                        f"consume queue {self.mender.name(dense)} could not be removed: {error}; "
                        "make its files deletable, or delete them, then restart the node"
                    )
                )
        if faults:
            raise faults[0]

    def _append(
        self,
        dense: NDArray[np.int64],
        queue_offsets: NDArray[np.int64],
        units: NDArray[np.void],
        remake: frozenset[int],
    ) -> NDArray[np.int64]:
        if not len(dense):
            return np.zeros(0, dtype=np.int64)
        runs = regroup(dense, queue_offsets, units)
        next_in_queue = runs.contiguous & (runs.first == self._units.ends[runs.queues])
        if self.next_offset <= self.mender.loaded_to:
            next_in_queue &= self.mender.are_behind(runs)
        generation = self._units.generation
        if self.mender.damaged:
            next_in_queue &= ~self.mender.needs_append(runs.queues, remake)
        grown = next_in_queue
        if not all_true(next_in_queue):
            grown = next_in_queue.copy()
            for run in np.flatnonzero(~next_in_queue).tolist():
                grown[run] = self.mender.append(runs, run, remake)
            if self._units.generation != generation:
                self._minimum.clear()  # a queue may have begun again
        self._units.scatter(runs, self._units.make_room(runs, next_in_queue))
        if self.traffic.counts_puts and not remake:
            self.traffic.count_put(runs.queues, runs.counts, runs.sizes, runs.record_sizes)
        return runs.queues if all_true(grown) else runs.queues[grown]

    def _find_minimum(self, dense: int, log_minimum: int) -> int:
        while True:
            generation = self._units.generation
            try:
                minimum = self._units.first_at_or_after(dense, log_minimum)
            except CorruptStoreError as error:
                raise self._found_damaged(dense, error) from error
            if generation == self._units.generation:
                self._minimum[dense] = (log_minimum, minimum)
                return minimum

    def _found_damaged(self, dense: int, fault: CorruptStoreError) -> StoreBusyError:
        """A reader has come to a file that is missing or too short."""
        self.mark_damaged(dense, str(fault))
        self.on_damage()
        return self.mender.busy(dense, str(fault))
