"""Checks a store on disk: every record, queue unit and index entry against each other.

    log      each record: magic, lengths, body CRC, its own position; no hole below what was durable
    queues   the log says which units there must be: they are there, and no others; where a broker's
             queue began again (queue_mender.py), those of the records behind that
    index    every entry points to a record with that key, and has its store time; every key of
             every record is there; every chain follows the hashes

    folds    each snapshot says what a fold says that is made from the log (verify_folds.py)
    small    checksums and plausible values (verify_small.py)

The log is walked once, by columns, and the queues and the index are checked against each stretch of
it. If a store stopped before everything was dispatched, its recovery point has the position: later
records need not be in the queues yet. verify writes nothing and drops no page.
"""

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import (
    DispatchColumns,
    dispatch_columns,
    group_by_queue,
    unit_columns,
    without_units,
)
from tandemlog.format.columns.light_queues import LIGHT_PREFIX
from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE, DelayLevels, is_extended_address
from tandemlog.format.words import counted

from ..config import StoreConfig
from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import MappedFileQueue
from ..disk.real_file_system import RealFileSystem
from ..errors import CorruptStoreError, UnreadableError
from ..inspect.broker_files import (
    LEAST_RESERVED_MS,
    records_before,
    says_of_beginning,
    unread_tables,
)
from ..inspect.geometry import ROCKSDB_MARK, Geometry
from ..inspect.queue_files import QueueFiles, open_queues
from ..log.log_scanner import LogScanner, ScanPart
from ..metadata.topics import TopicTable
from ..progress import Progress
from ..state_files.recovery_point import RecoveryPointFile
from ..store_paths import StorePaths
from .faults import (
    Fault,
    VerifyReport,
    fault_of,
    page_cache_caution,
    set_aside_caution,
    unreadable_fault,
)
from .verify_folds import FoldCheck
from .verify_index import IndexCheck
from .verify_small import small_faults

if TYPE_CHECKING:
    from ..errors import MissingFileError

EXTENDED_QUEUES = "consumequeue_ext"


def verify(
    config: StoreConfig, files: FileSystem | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Check the whole store; `progress(bytes done, bytes in all)` is called now and then.

    A failed fsync is a separate fault, because then it is unknown what is on the disk. A log that
    was being set aside is one too, and so are unreadable bytes; then nothing else is checked.
    Raises StoreLayoutError if files do not fit together at all, or not the index sizes given.
    """
    files = files if files is not None else RealFileSystem()
    try:
        return _verify(config, files, progress)
    except UnreadableError as error:
        return VerifyReport(finished=False, faults=[unreadable_fault(error)])
    except OSError as error:
        # a FIFO in place of a file, links that lead in a circle
        name = str(error.filename or config.directory)
        fault = Fault(name, 0, f"it cannot be read: {error.strerror}")
        return VerifyReport(finished=False, faults=[fault])


def _verify(config: StoreConfig, files: FileSystem, progress: Progress | None) -> VerifyReport:
    paths = StorePaths(config.directory)
    broken_off = set_aside_caution(paths, files)
    if broken_off is not None:
        return VerifyReport(finished=False, faults=[fault_of(broken_off)])
    report = _Verification(config, files).run(progress)
    unknown = page_cache_caution(paths, files)
    if unknown is not None:
        report.faults.insert(0, fault_of(unknown))
    return report


class _Verification:
    def __init__(self, config: StoreConfig, files: FileSystem) -> None:
        self._geometry = Geometry.of(config, files)
        self._config = self._geometry.adopted()
        self._files = files
        self._paths = paths = StorePaths(config.directory)
        self._log = MappedFileQueue(
            files, paths.commit_log, self._config.commit_log_file_size, read_only=True
        )
        self._gaps: list[MissingFileError] = []
        self._first_time = self._newest_time = 0
        self._queues = {
            (queue.topic, queue.queue_id): queue
            for queue in open_queues(self._geometry, files, self._gaps)
        }
        self._extended = 0
        self._has_extended = files.status(config.directory / EXTENDED_QUEUES) is not None
        status = files.status(paths.queues / ROCKSDB_MARK)
        self._in_rocksdb = status is not None and not self._queues
        self._keeps_light = any(topic.startswith(LIGHT_PREFIX) for topic, _ in self._queues)
        self._point = RecoveryPointFile(paths.recovery_point, files).load()
        self._delay_levels = DelayLevels(self._config.delay_levels)
        self._topics = TopicTable(paths.topics, files)
        with contextlib.suppress(CorruptStoreError):  # small_faults names it
            self._topics.load()
        self._next: dict[tuple[str, int], int] = {}
        # the number of the first record of each stretch whose unit is missing or differs, and the
        # fault, unless the queue begins again at or below it
        self._unmatched: dict[tuple[str, int], list[tuple[int, Fault]]] = {}
        # where queues began again
        self._begun_again: dict[tuple[str, int], int] = {}
        self._report = VerifyReport(notes=[*self._geometry.notes, *unread_tables(files, paths)])
        self._index = IndexCheck(self._geometry, files, self._report)
        self._folds = FoldCheck(self._config, files, self._point, self._log.start, self._report)

    def run(self, progress: Progress | None) -> VerifyReport:
        report = self._report
        durable = max((queue.log_end for queue in self._queues.values()), default=0)
        if self._point is not None:
            durable = max(durable, self._point.flushed)
        report.log_start = self._log.start
        scanner = LogScanner(
            self._log, self._log.start, durable=min(durable, self._log.end), check_property_crc=True
        )
        for part in scanner:
            self._part(part)
            if progress is not None:
                progress(scanner.end - report.log_start, max(durable - report.log_start, 1))
        report.records, report.log_end = scanner.records, scanner.end
        if scanner.damages or not scanner.at_zeros or self._begun_again:
            report.log_is_whole = False
        self._judge_unmatched()
        report.faults += [Fault("consumequeue", 0, str(gap)) for gap in self._gaps]
        report.faults[:0] = [
            Fault(damage.file, damage.start, f"offset {damage.start}: {damage.reason}")
            for damage in scanner.damages
        ]
        if not scanner.at_zeros and not scanner.damages:
            report.notes.append(f"the log ends at {scanner.end}: {scanner.reason}")
        batch = sorted(self._topics.in_batch_queues)
        if batch:
            names = counted(len(batch), "topic")
            report.notes.append(
                f"{names} with batch queues (queue.type BatchCQ: {', '.join(batch[:5])}): their "
                "records are checked, their queues are not read"
            )
            report.faults += [
                Fault(str(paths), 0, "a broker does not start with it: opening the store (recover) "
                      "removes it, since the topic has batch queues")
                for topic in batch
                if self._files.status(paths := self._paths.queues / topic) is not None
            ]  # fmt: skip
        self._check_ends()
        self._check_beginning()
        self._index.finish(scanner.end)
        self._folds.finish(scanner.end, scanner.damages)
        times = {"newest_time": self._newest_time, "log_end": scanner.end}
        report.add_faults(small_faults(self._paths, self._files, **times))
        if self._extended:
            report.notes.append(
                f"{counted(self._extended, 'queue unit')} with the tags code in consumequeue_ext, "
                "which is not read; recovery writes the codes themselves"
            )
        if self._in_rocksdb:
            report.faults.append(
                Fault(
                    str(self._geometry.config.directory / "consumequeue"), 0,
                    "the queues are in a RocksDB, which is not read: recover or rebuild the store, "
                    "which makes them from the log, as files",
                )
            )  # fmt: skip
        if report.light_queues:
            names = counted(len(report.light_queues), "light queue")
            first = min(report.light_queues)
            report.notes.append(f"the log names {names} ({first}, …); the store has none")
        return report

    def _dispatched(self) -> int:
        """Below this offset every record must be in the queues."""
        return self._point.dispatched if self._point is not None else (1 << 63) - 1

    def _part(self, part: ScanPart) -> None:
        # not that of the last record: times step back once a wrong clock is set right
        self._first_time = self._first_time or int(part.headers.store_timestamp[0])
        self._newest_time = max(self._newest_time, int(part.headers.store_timestamp.max()))
        columns = dispatch_columns(
            part.data,
            part.walk.positions,
            part.walk.sizes,
            part.base,
            delay_levels=self._delay_levels,
            headers=part.headers,
        )
        if not self._in_rocksdb:
            self._check_units(columns)
        self._index.check(columns, part, self._dispatched(), self._delay_levels)
        self._folds.take(columns, part)

    # ---- queues

    def _check_units(self, columns: DispatchColumns) -> None:
        if not self._topics.in_batch_queues.isdisjoint(columns.topics):
            columns = without_units(columns, self._topics.in_batch_queues)
        units = unit_columns(columns)
        groups = group_by_queue(units)
        for number in range(groups.count):
            begin, end = int(groups.bounds[number]), int(groups.bounds[number + 1])
            topic = units.topics[int(groups.topic_index[number])]
            rows = groups.order[begin:end]
            self._check_queue(
                topic, int(groups.queue_id[number]), units.queue_offset[rows], units.units[rows]
            )

    def _check_queue(
        self, topic: str, queue_id: int, offsets: NDArray[np.int64], wanted_units: NDArray[np.void]
    ) -> None:
        queue = self._queues.get((topic, queue_id))
        if queue is None and topic.startswith(LIGHT_PREFIX) and not self._keeps_light:
            self._report.light_queues.add(topic)
            return
        before = self._next.get((topic, queue_id), int(offsets[0])) - 1
        backwards = np.flatnonzero(np.diff(offsets, prepend=before) < 1).tolist()
        for begin, end in pairwise(sorted({0, *backwards, len(offsets)})):
            if begin in backwards and queue is not None:
                self._check_begun_again(queue, int(offsets[begin]), wanted_units[begin])
            rows = slice(begin, end)
            self._check_run(topic, queue_id, queue, offsets[rows], wanted_units[rows])

    def _check_begun_again(self, queue: QueueFiles, offset: int, wanted: np.void) -> None:
        """If the queue, too, began again with this record, as a broker's does after its topic was
        deleted and created again, forget its earlier units."""
        unit, log_offset = queue.read(offset, 1), int(wanted["physical_offset"])
        if not len(unit) or int(unit["physical_offset"][0]) != log_offset:
            return
        key = queue.topic, queue.queue_id
        self._begun_again[key], self._next[key] = log_offset, offset
        unmatched = self._unmatched.get(key, [])
        self._unmatched[key] = [each for each in unmatched if each[0] < offset]

    def _check_run(
        self,
        topic: str,
        queue_id: int,
        queue: QueueFiles | None,
        offsets: NDArray[np.int64],
        wanted_units: NDArray[np.void],
    ) -> None:
        name = f"{topic}/{queue_id}"
        first, count = int(offsets[0]), len(offsets)
        expected = self._next.get((topic, queue_id), first)
        steps = np.flatnonzero(np.diff(offsets, prepend=expected - 1) != 1)
        if len(steps):
            step = int(steps[0])
            wanted = expected if step == 0 else int(offsets[step - 1]) + 1
            physical = int(wanted_units["physical_offset"][step])
            self._report.log_is_whole = False
            self._report.add(
                self._log_file(physical),
                physical,
                f"offset {physical}: the record is number {int(offsets[step])} of queue "
                f"{name}, {wanted} is next",
            )
        self._next[topic, queue_id] = int(offsets[-1]) + 1
        units = queue.read(first, count) if queue is not None else wanted_units[:0]
        self._report.units += len(units)
        units = self._with_plain_codes(units, wanted_units)
        if len(steps) == 0 and units.tobytes() == wanted_units.tobytes():
            return
        unmatched = self._first_unmatched(name, queue, offsets, wanted_units, units)
        if unmatched is not None:
            self._unmatched.setdefault((topic, queue_id), []).append(unmatched)

    def _with_plain_codes(
        self, units: NDArray[np.void], wanted: NDArray[np.void]
    ) -> NDArray[np.void]:
        """The units; those whose tags codes are in `consumequeue_ext`, which is not read, get the
        wanted codes."""
        rows = np.flatnonzero(is_extended_address(units["tags_code"][: len(wanted)]))
        if len(rows) and self._has_extended:
            self._extended += len(rows)
            units = units.copy()
            units["tags_code"][rows] = wanted["tags_code"][rows]
        return units

    def _log_file(self, offset: int) -> Path:
        file = self._log.find(offset)
        return file.path if file is not None else self._log.directory

    def _first_unmatched(
        self,
        name: str,
        queue: QueueFiles | None,
        offsets: NDArray[np.int64],
        wanted: NDArray[np.void],
        units: NDArray[np.void],
    ) -> tuple[int, Fault] | None:
        """The number of the first record whose unit is missing or differs, and the fault."""
        stored = {int(offsets[0]) + number: unit.tobytes() for number, unit in enumerate(units)}
        for number, offset in enumerate(offsets.tolist()):
            expected = wanted[number].tobytes()
            physical = int(wanted["physical_offset"][number])
            unit = stored.get(offset)
            if unit == expected:
                continue
            if unit is None and physical >= self._dispatched():
                return None
            file = queue.file_of(offset) if queue is not None else f"consumequeue/{name}"
            what = "is missing" if unit is None else f"says {_unit_text(unit, wanted.dtype)}"
            return offset, Fault(
                file,
                offset,
                f"queue {name}: unit {offset} {what}; the record is at offset {physical}, "
                f"{_unit_text(expected, wanted.dtype)}",
            )
        return None

    def _judge_unmatched(self) -> None:
        """Report records without a unit, once the whole log is known."""
        deleted: set[tuple[str, int]] = set()
        begun_topics = {topic for topic, _ in self._begun_again}
        faults: list[Fault] = []
        for (topic, queue_id), unmatched in self._unmatched.items():
            if not unmatched:
                continue
            if (topic, queue_id) not in self._queues and (
                self._topics.is_deleted(topic) or topic in begun_topics
            ):
                deleted.add((topic, queue_id))
                continue
            faults += [fault for _, fault in unmatched]
        of_index, self._report.faults = self._report.faults, []
        self._report.add_faults((*faults, *of_index))
        for (topic, queue_id), offset in sorted(self._begun_again.items()):
            self._report.notes.append(
                f"queue {topic}/{queue_id} began again at offset {offset} of the log: its topic "
                "was deleted and created again, and the records before are not served"
            )
        if deleted:
            topic, queue_id = min(deleted)
            self._report.notes.append(
                f"the log has records of {counted(len(deleted), 'queue')} of deleted topics "
                f"({topic}/{queue_id}, …), which are not served"
            )

    def _check_ends(self) -> None:
        """Report units behind the last record of their queue, which point to no record."""
        for key, queue in self._queues.items():
            if key[0] in self._topics.in_batch_queues:
                continue
            following = self._next.get(key)
            start = queue.first if following is None else max(following, queue.first)
            for offset, unit in self._units_from(queue, start):
                physical, size = int(unit["physical_offset"]), int(unit["size"])
                if size == PRE_BLANK_SIZE or physical < self._report.log_start:
                    continue
                self._report.add(
                    queue.file_of(offset),
                    offset,
                    f"queue {key[0]}/{key[1]}: unit {offset} points to offset {physical}, "
                    "where the log has no such record",
                )
                break

    def _check_beginning(self) -> None:
        """Of a broker's store: whether the files before the log's only one were in another folder
        (broker_files.py)."""
        missing = records_before(self._log, self._queues.values()) if self._point is None else 0
        if not missing:
            return
        reason = says_of_beginning(self._log, missing)
        if self._newest_time - self._first_time >= LEAST_RESERVED_MS:
            self._report.notes.append(reason)
            return
        self._report.faults.insert(0, Fault(str(self._log.directory), 0, reason))

    def _units_from(self, queue: QueueFiles, start: int) -> Iterator[tuple[int, np.void]]:
        for offset in range(start, queue.end, 1 << 12):
            for number, unit in enumerate(queue.read(offset, 1 << 12)):
                yield offset + number, unit


def _unit_text(unit: bytes, dtype: np.dtype[np.void]) -> str:
    physical, size, code = np.frombuffer(unit, dtype=dtype)[0].item()
    return f"offset {physical}, size {size}, tags code {code}"
