"""Is a store on disk whole: every record, queue unit and index entry, one against the other.

    log      each record: magic, lengths, body CRC, its own position; no hole below what was durable
    queues   the log says which units there must be: they are there, and no others
    index    every entry points to a record that has such a key, and tells its store time; every
             key of every record is there; every chain is as the hashes say

The log is walked once, by columns, and the queues and the index are held against each stretch of
it. A store that stopped before everything was dispatched says how far it came (its recovery
point): beyond that nothing need be in the queues yet. Nothing is written, and no page dropped.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.dispatch import (
    DispatchColumns,
    dispatch_columns,
    group_by_queue,
    unit_columns,
)
from tandemlog.format.index_chains import time_diffs
from tandemlog.format.index_layout import IndexHeader
from tandemlog.format.light_queues import LIGHT_PREFIX
from tandemlog.format.queue_unit import PRE_BLANK_SIZE, DelayLevels, is_extended_address
from tandemlog.format.words import counted

from ..config import StoreConfig
from ..errors import UnreadableError
from ..files import FileSystem, RealFileSystem
from ..geometry import ROCKSDB_MARK, Geometry
from ..index_entries import IndexEntries, read_index_file
from ..log_scan import LogScanner, ScanPart
from ..mapped_file_queue import MappedFileQueue
from ..queue_files import QueueFiles, open_queues
from ..recovery_point import RecoveryPointFile
from ..store_paths import StorePaths
from .cautions import Caution, page_cache_caution, set_aside_caution

if TYPE_CHECKING:
    from ..errors import MissingFileError

MAX_FAULTS = 100
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it must be: in `file`, about the log offset or the queue offset
    or the entry number `position`."""

    file: str
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(slots=True)
class VerifyReport:
    """What was looked at and what was found; `faults` are the first ones, the log's before those
    of what is derived from it. `light_queues` are those that the log names in a store that has
    none: its broker did not keep them."""

    log_start: int = 0
    log_end: int = 0
    records: int = 0
    units: int = 0
    index_entries: int = 0
    index_files: int = 0
    indexes_tags: bool = True
    light_queues: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.faults

    def add(self, fault: Fault) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)


def verify(
    config: StoreConfig,
    files: FileSystem | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check the whole store; `progress(bytes done, bytes in all)` is called now and then.

    A failed fsync is a fault of its own: nobody can say then what is on the disk. A log that was
    being set aside is one too, and what the disk does not give: nothing else is looked at. Raises
    StoreLayoutError where files do not fit together at all, or not the index sizes given.
    """
    files = files if files is not None else RealFileSystem()
    paths = StorePaths(config.directory)
    broken_off = set_aside_caution(paths, files)
    if broken_off is not None:
        return VerifyReport(faults=[fault_of(broken_off)])
    try:
        report = _Verification(config, files).run(progress)
    except UnreadableError as fault:
        return VerifyReport(faults=[unreadable_fault(fault)])
    unknown = page_cache_caution(paths, files)
    if unknown is not None:
        report.faults.insert(0, fault_of(unknown))
    return report


def fault_of(caution: Caution) -> Fault:
    return Fault(str(caution.file), 0, caution.reason)


def unreadable_fault(fault: UnreadableError) -> Fault:
    return Fault(fault.file, fault.position, fault.reason)


class _Verification:
    def __init__(self, config: StoreConfig, files: FileSystem) -> None:
        self._geometry = Geometry.of(config, files)
        self._config = self._geometry.adopted()
        paths = StorePaths(config.directory)
        self._log = MappedFileQueue(
            files, paths.commit_log, self._config.commit_log_file_size, read_only=True
        )
        self._gaps: list[MissingFileError] = []
        self._queues = {
            (queue.topic, queue.queue_id): queue
            for queue in open_queues(self._geometry, files, self._gaps)
        }
        self._extended = 0
        status = files.status(paths.queues / ROCKSDB_MARK)
        self._in_rocksdb = status is not None and not self._queues
        self._keeps_light = any(topic.startswith(LIGHT_PREFIX) for topic, _ in self._queues)
        self._point = RecoveryPointFile(paths.recovery_point, files).load()
        self._delay_levels = DelayLevels(self._config.delay_levels)
        self._next: dict[tuple[str, int], int] = {}
        self._report = VerifyReport(notes=list(self._geometry.notes))
        self._index = _IndexCheck(self._geometry, files, self._report)

    def run(self, progress: Progress | None) -> VerifyReport:
        report = self._report
        durable = max((queue.log_end for queue in self._queues.values()), default=0)
        if self._point is not None:
            durable = max(durable, self._point.flushed)
        report.log_start = self._log.start
        scanner = LogScanner(
            self._log,
            self._log.start,
            durable=min(durable, self._log.end),
            check_property_crc=True,
        )
        for part in scanner:
            self._part(part)
            if progress is not None:
                progress(scanner.end - report.log_start, max(durable - report.log_start, 1))
        report.records, report.log_end = scanner.records, scanner.end
        report.faults += [Fault("consumequeue", 0, str(gap)) for gap in self._gaps]
        report.faults[:0] = [
            Fault(damage.file, damage.start, f"offset {damage.start}: {damage.reason}")
            for damage in scanner.damages
        ]
        if not scanner.at_zeros and not scanner.damages:
            report.notes.append(f"the log ends at {scanner.end}: {scanner.reason}")
        self._check_ends()
        self._index.finish(scanner.end)
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
        found = dispatch_columns(
            part.data,
            part.walk.positions,
            part.walk.sizes,
            part.base,
            delay_levels=self._delay_levels,
            index_tags=self._index.tags,
            headers=part.headers,
        )
        if not self._in_rocksdb:
            self._check_units(found)
        if self._index.undecided:
            self._index.decide(found, part, self._delay_levels)
            if not self._index.tags:
                found = dispatch_columns(
                    part.data, part.walk.positions, part.walk.sizes, part.base,
                    delay_levels=self._delay_levels, index_tags=False, headers=part.headers,
                )  # fmt: skip
        self._index.check(found, part, self._dispatched())

    # ---- queues

    def _check_units(self, columns: DispatchColumns) -> None:
        found = unit_columns(columns)
        groups = group_by_queue(found)
        for number in range(groups.count):
            begin, end = int(groups.bounds[number]), int(groups.bounds[number + 1])
            topic = found.topics[int(groups.topic_index[number])]
            rows = groups.order[begin:end]
            self._check_queue(
                topic, int(groups.queue_id[number]), found.queue_offset[rows], found.units[rows]
            )

    def _check_queue(
        self,
        topic: str,
        queue_id: int,
        offsets: NDArray[np.int64],
        wanted_units: NDArray[np.void],
    ) -> None:
        name = f"{topic}/{queue_id}"
        queue = self._queues.get((topic, queue_id))
        if queue is None and topic.startswith(LIGHT_PREFIX) and not self._keeps_light:
            self._report.light_queues.add(topic)
            return
        first, count = int(offsets[0]), len(offsets)
        expected = self._next.get((topic, queue_id), first)
        steps = np.flatnonzero(np.diff(offsets, prepend=expected - 1) != 1)
        if len(steps):
            step = int(steps[0])
            wanted = expected if step == 0 else int(offsets[step - 1]) + 1
            physical = int(wanted_units["physical_offset"][step])
            self._report.add(
                Fault(
                    str(self._log_file(physical)),
                    physical,
                    f"offset {physical}: the record is number {int(offsets[step])} of queue "
                    f"{name}, {wanted} is next",
                )
            )
        self._next[topic, queue_id] = int(offsets[-1]) + 1
        units = queue.read(first, count) if queue is not None else wanted_units[:0]
        self._report.units += len(units)
        units = self._with_plain_codes(units, wanted_units)
        if len(steps) == 0 and units.tobytes() == wanted_units.tobytes():
            return
        self._name_unit(name, queue, offsets, wanted_units, units)

    def _with_plain_codes(
        self, units: NDArray[np.void], wanted: NDArray[np.void]
    ) -> NDArray[np.void]:
        """The units, those whose tags codes stand in `consumequeue_ext` with the right ones: what
        is in there is not looked at."""
        rows = np.flatnonzero(is_extended_address(units["tags_code"][: len(wanted)]))
        if len(rows):
            self._extended += len(rows)
            units = units.copy()
            units["tags_code"][rows] = wanted["tags_code"][rows]
        return units

    def _log_file(self, offset: int) -> Path:
        file = self._log.find(offset)
        return file.path if file is not None else self._log.directory

    def _name_unit(
        self,
        name: str,
        queue: QueueFiles | None,
        offsets: NDArray[np.int64],
        wanted: NDArray[np.void],
        units: NDArray[np.void],
    ) -> None:
        """Name the first record whose unit is not there or says something else."""
        held = {int(offsets[0]) + number: unit.tobytes() for number, unit in enumerate(units)}
        for number, offset in enumerate(offsets.tolist()):
            said = wanted[number].tobytes()
            physical = int(wanted["physical_offset"][number])
            unit = held.get(offset)
            if unit == said:
                continue
            if unit is None and physical >= self._dispatched():
                return
            file = queue.file_of(offset) if queue is not None else f"consumequeue/{name}"
            what = "is missing" if unit is None else f"says {_unit_text(unit, wanted.dtype)}"
            self._report.add(
                Fault(
                    file,
                    offset,
                    f"queue {name}: unit {offset} {what}; the record is at offset {physical}, "
                    f"{_unit_text(said, wanted.dtype)}",
                )
            )
            return

    def _check_ends(self) -> None:
        """Units behind the last record of their queue, which point to no record."""
        for key, queue in self._queues.items():
            known = self._next.get(key)
            start = queue.first if known is None else known
            for offset, unit in self._units_from(queue, start):
                physical, size = int(unit["physical_offset"]), int(unit["size"])
                if size == PRE_BLANK_SIZE or physical < self._report.log_start:
                    continue
                self._report.add(
                    Fault(
                        queue.file_of(offset),
                        offset,
                        f"queue {key[0]}/{key[1]}: unit {offset} points to offset {physical}, "
                        "where the log has no such record",
                    )
                )
                break

    def _units_from(self, queue: QueueFiles, start: int) -> Iterator[tuple[int, np.void]]:
        for offset in range(start, queue.end, 1 << 12):
            for number, unit in enumerate(queue.read(offset, 1 << 12)):
                yield offset + number, unit


def _unit_text(unit: bytes, dtype: np.dtype[np.void]) -> str:
    physical, size, code = np.frombuffer(unit, dtype=dtype)[0].item()
    return f"offset {physical}, size {size}, tags code {code}"


@dataclass(frozen=True, slots=True)
class _IndexFile:
    """One index file's n entries by the log offset they point to: `physical` i8[n] ascending,
    `hashes` i8[n], `seconds` i4[n] after the begin in `header`, `numbers` i8[n] of the entries."""

    path: str
    header: IndexHeader
    physical: NDArray[np.int64]
    hashes: NDArray[np.int64]
    seconds: NDArray[np.int32]
    numbers: NDArray[np.int64]


class _IndexCheck:
    """The index files against the log, stretch by stretch."""

    def __init__(self, geometry: Geometry, files: FileSystem, report: VerifyReport) -> None:
        self._report = report
        self._files = files
        self._config = geometry.config
        self.tags = True
        paths = geometry.index_files() if geometry.config.index_enabled else []
        if paths:
            geometry.check_index()
        self._sorted: list[_IndexFile] = []
        for path in paths:
            status = files.status(path)
            if status is not None and status.size:
                self._load(
                    read_index_file(
                        files, path, self._config.index_slots, self._config.index_entries
                    )
                )
        report.index_files = len(self._sorted)
        self.undecided = bool(self._sorted)
        if not self._sorted:
            report.notes.append("the store has no index")

    def _load(self, entries: IndexEntries) -> None:
        for fault in (entries.header_fault(), entries.chain_fault()):
            if fault is not None:
                self._report.add(Fault(str(entries.path), 0, fault))
        self._report.index_entries += entries.count
        physical = entries.entries["physical_offset"].astype(np.int64)
        order = np.argsort(physical, kind="stable")
        self._sorted.append(
            _IndexFile(
                str(entries.path),
                entries.header,
                physical[order],
                entries.entries["key_hash"].astype(np.int64)[order],
                entries.entries["time_diff"].astype(np.int32)[order],
                order + 1,
            )
        )

    def decide(self, found: DispatchColumns, part: ScanPart, delay_levels: DelayLevels) -> None:
        """Does this store index tags? Stores of RocketMQ before 5.4 do not."""
        plain = dispatch_columns(
            part.data, part.walk.positions, part.walk.sizes, part.base,
            delay_levels=delay_levels, index_tags=False, headers=part.headers,
        )  # fmt: skip
        if len(plain.key_hash) == len(found.key_hash):
            return  # no tags here: the next stretch may have some
        self.undecided = False
        wanted = set(zip(found.entry_record.tolist(), found.key_hash.tolist(), strict=True))
        wanted -= set(zip(plain.entry_record.tolist(), plain.key_hash.tolist(), strict=True))
        held = set(self._pairs(found, part)[0].tolist())
        self.tags = any(record << 31 | key_hash in held for record, key_hash in wanted)
        self._report.indexes_tags = self.tags

    def check(self, found: DispatchColumns, part: ScanPart, dispatched: int) -> None:
        if not self._sorted:
            return
        held, where = self._pairs(found, part)
        wanted = found.entry_record.astype(np.int64) << 31 | found.key_hash
        for pair in np.setdiff1d(held, wanted)[:1].tolist():
            file, number = where[int(np.flatnonzero(held == pair)[0])]
            physical = int(found.physical_offset[pair >> 31])
            self._report.add(
                Fault(
                    file,
                    number,
                    f"entry {number} has hash {pair & 0x7FFFFFFF} for offset {physical}, "
                    "whose record has no such key",
                )
            )
        missing = np.setdiff1d(wanted, held)
        missing = missing[found.physical_offset[missing >> 31] < dispatched]
        for pair in missing[:1].tolist():
            physical = int(found.physical_offset[pair >> 31])
            self._report.add(
                Fault(
                    self._sorted[-1].path,
                    -1,
                    f"there is no entry with hash {pair & 0x7FFFFFFF} for the record at offset "
                    f"{physical}",
                )
            )
        self._check_times(found, part)

    def _check_times(self, found: DispatchColumns, part: ScanPart) -> None:
        """Entries of this stretch against their records' store times. A file's first entry is not
        looked at: its time counts from the end of the file before, which may have expired."""
        starts = found.physical_offset.astype(np.int64)
        for file in self._sorted:
            begin, end = np.searchsorted(file.physical, (starts[0], part.end_offset))
            records = np.searchsorted(starts, file.physical[begin:end], side="right") - 1
            times = found.store_timestamp[records]
            exact = starts[records] == file.physical[begin:end]
            self._check_header_times(file, file.numbers[begin:end][exact], times[exact])
            wanted = time_diffs(file.header.begin_timestamp, times)
            wrong = (file.seconds[begin:end] != wanted) & (file.numbers[begin:end] > 1) & exact
            for row in np.flatnonzero(wrong)[:1].tolist():
                number = int(file.numbers[begin + row])
                self._report.add(
                    Fault(
                        file.path,
                        number,
                        f"entry {number} says {int(file.seconds[begin + row])} s after the file's "
                        f"begin; the record at offset {int(starts[records[row]])} was stored "
                        f"{int(wanted[row])} s after it",
                    )
                )

    def _check_header_times(
        self, file: _IndexFile, numbers: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        """A query by time passes over a file by what its header says of the first and the last
        entry: `times` (ms) are those of the records of the entries `numbers`."""
        for name, number, said in (
            ("begin", 1, file.header.begin_timestamp),
            ("end", len(file.numbers), file.header.end_timestamp),
        ):
            for time in times[(numbers == number) & (times != said)].tolist():
                self._report.add(
                    Fault(
                        file.path,
                        0,
                        f"its header says that its entries {name} at {said}; the record of entry "
                        f"{number} was stored at {time}",
                    )
                )

    def _pairs(
        self, found: DispatchColumns, part: ScanPart
    ) -> tuple[NDArray[np.int64], list[tuple[str, int]]]:
        """record << 31 | hash of every entry that points into this stretch, and where it is.

        Entries that point between records are reported here.
        """
        starts = found.physical_offset.astype(np.int64)
        low, high = int(starts[0]), part.end_offset
        pairs: list[NDArray[np.int64]] = []
        where: list[tuple[str, int]] = []
        for file in self._sorted:
            begin, end = np.searchsorted(file.physical, (low, high))
            if begin == end:
                continue
            records = np.searchsorted(starts, file.physical[begin:end], side="right") - 1
            exact = starts[records] == file.physical[begin:end]
            for stray in np.flatnonzero(~exact)[:1].tolist():
                number = int(file.numbers[begin + stray])
                offset = int(file.physical[begin + stray])
                self._report.add(
                    Fault(
                        file.path,
                        number,
                        f"entry {number} points to offset {offset}, where no record starts",
                    )
                )
            pairs.append(records[exact] << 31 | file.hashes[begin:end][exact])
            where += [(file.path, each) for each in file.numbers[begin:end][exact].tolist()]
        return np.concatenate(pairs) if pairs else np.zeros(0, np.int64), where

    def finish(self, log_end: int) -> None:
        """Entries that point beyond the log."""
        for file in self._sorted:
            beyond = int(np.searchsorted(file.physical, log_end))
            if beyond < len(file.physical):
                number = int(file.numbers[beyond])
                self._report.add(
                    Fault(
                        file.path,
                        number,
                        f"entry {number} points to offset {int(file.physical[beyond])}, "
                        f"the log ends at {log_end}",
                    )
                )
