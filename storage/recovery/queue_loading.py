"""Taking over the consume queues that a store has on disk.

File lengths say nothing, so the end of every queue must be searched. The known facts decide how:

    own checkpoint at log offset C     a queue has at least the checkpoint's units, and they point
    (log reaches C)                    below C: one look at the last of them. What lies beyond is
                                       cut, and dispatched again from C. Less than that, or
                                       something else there: the queue is damaged.
    own checkpoint, log shorter        the units that point below the log's end are kept, the rest
                                       cut (binary search)
    a foreign store, stopped cleanly   the valid units at the start of the last file (binary search)
    a foreign store, crashed           valid units that point upwards, scanned from the third-last
                                       file on as RocketMQ does; the rest is cut

So the work is bounded by the number of queues, not by what they hold. A damaged queue is rebuilt
from the log (reput.py); so is one that the checkpoint has and the disk has not. A queue without a
record since the begin of this log has no files; its number comes from queue_begins.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE, UNIT_SIZE, valid_units
from tandemlog.format.words import counted

from ..errors import CorruptStoreError, MissingFileError, StoreLayoutError
from ..queues.consume_queue import ConsumeQueue
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.queue_checkpoint import QueueCheckpoint
from ..queues.queue_table import QueueTable
from ..state_files.queue_begins import Numbers

SCANNED_FILES = 3


@dataclass(slots=True)
class QueueFindings:
    """What was on disk: queues with units, queues whose units were cut, and queues to rebuild, with
    the reason."""

    queues: int = 0
    units: int = 0
    cut: list[str] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadContext:
    """What is known of the store: the log holds log_start .. log_end; the caller dispatches again
    from `dispatched`, everything below is in the queues; `checkpoint` is None for a store that
    we did not write; `clean` whether it was stopped cleanly; `begins` the numbers that queues had
    before the log begins (queue_begins.py)."""

    log_start: int
    log_end: int
    dispatched: int
    checkpoint: QueueCheckpoint | None
    clean: bool
    begins: Numbers = field(default_factory=dict)


def load_queues(
    store: ConsumeQueueStore,
    table: QueueTable,
    directories: Iterable[tuple[str, int, Path]],
    context: LoadContext,
) -> QueueFindings:
    """Register and take over every queue of `directories`, (topic, queue id, path) each.

    Raises StoreLayoutError if the files of a foreign store do not fit together.
    """
    store.next_offset = context.dispatched
    store.mender.from_log_start = context.dispatched <= context.log_start
    store.set_log_minimum(context.log_start)
    loader = _Loader(store, table, context)
    for topic, queue_id, _ in directories:
        loader.load(topic, queue_id)
    loader.report_missing()
    loader.set_empty_ends()
    return loader.findings


class _Loader:
    def __init__(self, store: ConsumeQueueStore, table: QueueTable, context: LoadContext) -> None:
        self.findings = QueueFindings()
        self._store = store
        self._table = table
        self._context = context
        checkpoint = context.checkpoint
        self._expected = {
            (topic, queue_id): end
            for topic, ends in (checkpoint.ends if checkpoint is not None else {}).items()
            for queue_id, end in ends.items()
            if end != 0
        }
        self._begins = {
            table.register(topic, queue_id): number
            for topic, numbers in context.begins.items()
            for queue_id, number in numbers.items()
        }
        store.floors.begins.update(self._begins)

    def load(self, topic: str, queue_id: int) -> None:
        expected = self._expected.pop((topic, queue_id), 0)
        dense = self._table.register(topic, queue_id)
        queue = self._store.queue(dense)
        try:
            there = queue.open()
        except StoreLayoutError as error:
            # In a foreign store other lengths may mean a wrong setting; a missing file does not.
            if self._context.checkpoint is None and not isinstance(error, MissingFileError):
                raise
            self._damaged(dense, str(error), expected)
            return
        if not there:
            if expected and expected != self._begins.get(dense):
                self._damaged(dense, "its files are missing", expected)
            return
        if self._context.checkpoint is not None and expected == 0:
            # Made after the checkpoint: dispatch makes it again.
            self.findings.cut.append(f"{topic}/{queue_id} at 0")
            queue.destroy()
            return
        if queue.first > 0 and self._context.log_start == 0:
            self._damaged(dense, f"its files before {queue.first} are missing", expected)
            return
        try:
            end = self._adopted(dense, queue, expected)
        except CorruptStoreError as error:
            end = str(error)
        if not isinstance(end, str) and self._is_torn(dense, queue, end):
            end = f"its files end at {end}, it began at {self._begins[dense]}"
        if isinstance(end, str):
            self._damaged(dense, end, expected)
            return
        self.findings.queues += 1
        self.findings.units += end - queue.first_unit

    def _is_torn(self, dense: int, queue: ConsumeQueue, end: int) -> bool:
        """Whether the pre-blank units before the queue's first record are not all there."""
        if end >= self._begins.get(dense, 0):
            return False
        last = queue.read(end - 1, 1) if end > queue.first_unit else None
        return last is None or int(last["size"][0]) == PRE_BLANK_SIZE

    def _adopted(self, dense: int, queue: ConsumeQueue, expected: int) -> int | str:
        """Where the queue ends now, or what is wrong with it. Raises CorruptStoreError if a
        file is too short."""
        end = self._end(queue, expected)
        if isinstance(end, str):
            return end
        if _goes_on(queue, end):
            topic, queue_id = self._table.name(dense)
            self.findings.cut.append(f"{topic}/{queue_id} at {end}")
            queue.cut(end)
        elif not self._context.clean:
            # The unit is zero, but a crash may have lost it and kept what follows.
            queue.cut(end)
        self._store.adopt(dense, end)
        return end

    def report_missing(self) -> None:
        """Queues that the checkpoint has and the disk has not."""
        for (topic, queue_id), expected in self._expected.items():
            dense = self._table.register(topic, queue_id)
            if expected != self._begins.get(dense):
                self._damaged(dense, "its directory is missing", expected)

    def set_empty_ends(self) -> None:
        """Set the ends of queues that have neither records in the log nor units."""
        self._store.set_empty_ends(self._begins)

    def _end(self, queue: ConsumeQueue, expected: int) -> int | str:
        """Where the queue ends, or what is wrong with it."""
        context, checkpoint = self._context, self._context.checkpoint
        if checkpoint is None:
            return _scanned_end(queue, context.log_end, thorough=not context.clean)
        if expected < 0:
            return "it was damaged before the last stop"
        if not queue.first_unit <= expected <= queue.capacity:
            range_there = f"{queue.first_unit}..{queue.capacity}"
            return f"its files hold {range_there}, it had {counted(expected, 'unit')}"
        if expected > queue.first_unit and not _points_below(
            queue.read(expected - 1, 1), checkpoint.log_offset
        ):
            return f"unit {expected - 1} does not point below {checkpoint.log_offset} of the log"
        if checkpoint.log_offset <= context.log_end:
            return expected
        return _bisect(queue, queue.first_unit, expected, context.log_end)

    def _damaged(self, dense: int, reason: str, expected: int) -> None:
        topic, queue_id = self._table.name(dense)
        self.findings.damaged[f"{topic}/{queue_id}"] = reason
        checkpoint = self._context.checkpoint
        if checkpoint is None or checkpoint.log_offset > self._context.log_end:
            expected = 0  # some of its units may be cut
        elif expected < 0:
            expected = checkpoint.least.get(topic, {}).get(queue_id, 0)
        self._store.mark_damaged(dense, reason, expected)


def _points_below(units: NDArray[np.void], log_offset: int) -> bool:
    """Whether the first of `units` is valid and points below `log_offset`; pre-blank ones do."""
    return bool(valid_units(units[:1])[0]) and int(units["physical_offset"][0]) < log_offset


def _goes_on(queue: ConsumeQueue, end: int) -> bool:
    """Whether there is a valid unit, or a further file, at `end`."""
    if end >= queue.capacity:
        return False
    return end * UNIT_SIZE < queue.last or bool(valid_units(queue.read(end, 1))[0])


def _bisect(queue: ConsumeQueue, low: int, high: int, log_offset: int) -> int:
    """The first unit in low..high that is not valid or does not point below `log_offset`; those
    that do come first."""
    while low < high:
        middle = (low + high) // 2
        if _points_below(queue.read(middle, 1), log_offset):
            low = middle + 1
        else:
            high = middle
    return low


def _scanned_end(queue: ConsumeQueue, log_end: int, *, thorough: bool) -> int | str:
    """The end of a queue that no checkpoint knows."""
    last_file = queue.last // UNIT_SIZE
    if not thorough:
        end = _bisect(queue, last_file, queue.capacity, log_end)
        # An empty last file may follow one that the log's end leaves half used.
        return end if end > last_file else _bisect(queue, queue.first_unit, last_file, log_end)
    low = max(queue.first, queue.last - (SCANNED_FILES - 1) * queue.file_size) // UNIT_SIZE
    if low > queue.first_unit and not _points_below(queue.read(low - 1, 1), log_end):
        low = queue.first_unit
    units = queue.read(low, queue.capacity - low)
    valid = valid_units(units) & (units["physical_offset"] < log_end)
    count = len(units) if valid.all() else int(np.argmin(valid))
    physical = units["physical_offset"][:count].astype(np.int64)
    real = physical[units["size"][:count] != PRE_BLANK_SIZE]
    if (np.diff(real) <= 0).any():
        return "its units do not point upwards in the log"
    return low + count
