"""Are two stores the same: logs byte by byte, queues unit by unit, index entries as a set.

    store A   |-------------------------- confirmed A ....|
    store B        |------------ confirmed B ...|
    compared       |=============|
                 later start   earlier confirm offset

Beyond the confirm offset replicas may differ, below the later start one has dropped its files.
Queue files are compared over the records in that stretch. Index files have times for names and are
cut where each node cut them, so of them the pairs (hash, log offset) are compared.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE

from ..config import StoreConfig
from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import MappedFileQueue
from ..disk.real_file_system import RealFileSystem
from ..errors import UnreadableError
from ..inspect.geometry import Geometry
from ..inspect.index_files import read_index_file
from ..inspect.queue_files import QueueFiles, open_queues
from ..progress import Progress
from ..recovery.analysis import analyze
from ..store_paths import StorePaths
from .faults import FaultReport, cautions, fault_of, unreadable_fault

STEP = 1 << 20

PAIR = np.dtype([("physical_offset", "i8"), ("key_hash", "i8")])


@dataclass(slots=True)
class CompareReport(FaultReport):
    """What was compared, offsets in the log; `faults` name what differs, the log's first.
    `log_differs`: it is the logs that do."""

    log_differs: bool = False
    start: int = 0
    end: int = 0
    units: int = 0
    index_entries: int = 0


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two stores: its log holds start..confirmed."""

    geometry: Geometry
    log: MappedFileQueue
    start: int
    confirmed: int

    @classmethod
    def open(cls, config: StoreConfig, files: FileSystem) -> "_Side":
        geometry = Geometry.of(config, files)
        if config.index_enabled:
            geometry.check_index()
        analysis = analyze(geometry, files)
        end = (
            analysis.log_end
            if analysis.point is None
            else min(analysis.point.confirmed, analysis.log_end)
        )
        log = MappedFileQueue(
            files, StorePaths(config.directory).commit_log, geometry.log_file_size, read_only=True
        )
        return cls(geometry, log, analysis.log_start, end)

    @property
    def name(self) -> str:
        return str(self.geometry.config.directory)

    def file_of(self, offset: int) -> str:
        file = self.log.find(offset)
        return str(file.path if file is not None else self.log.directory)


def confirmed_end(config: StoreConfig, files: FileSystem | None = None) -> int:
    """Up to which log offset the replicas of this store must be the same. Raises StoreError."""
    return _Side.open(config, files if files is not None else RealFileSystem()).confirmed


def compare(
    config: StoreConfig,
    other: StoreConfig,
    files: FileSystem | None = None,
    progress: Progress | None = None,
) -> CompareReport:
    """Compare two stores that no node has open; `progress(bytes done, bytes in all)`.

    If one store cannot be judged (faults.py), or its disk cannot read a part, that is a fault; a
    log that was being set aside is not examined. Raises StoreLayoutError if files of one do not
    fit together, or not the index sizes given.
    """
    files = files if files is not None else RealFileSystem()
    doubts = [
        (each, fault_of(each))
        for side in (config, other)
        for each in cautions(side.directory, files)
    ]
    if any(each.in_parts for each, _ in doubts):
        return CompareReport(faults=[fault for _, fault in doubts])
    report = CompareReport(faults=[fault for _, fault in doubts])
    try:
        _compare(_Side.open(config, files), _Side.open(other, files), report, files, progress)
    except UnreadableError as error:
        report.faults.insert(0, unreadable_fault(error))
    return report


def _compare(
    mine: _Side, theirs: _Side, report: CompareReport, files: FileSystem, progress: Progress | None
) -> None:
    report.start = max(mine.start, theirs.start)
    report.end = min(mine.confirmed, theirs.confirmed)
    if report.start >= report.end:
        report.end = report.start
        report.notes.append(
            f"nothing to compare: {mine.name} holds {mine.start}..{mine.confirmed}, "
            f"{theirs.name} {theirs.start}..{theirs.confirmed}"
        )
        return
    _compare_logs(mine, theirs, report, progress)
    _compare_queues(mine, theirs, report, files)
    _compare_indexes(mine, theirs, report, files)


def _compare_logs(
    mine: _Side, theirs: _Side, report: CompareReport, progress: Progress | None
) -> None:
    offset = report.start
    while offset < report.end:
        size = min(STEP, report.end - offset)
        ours = np.frombuffer(mine.log.view(offset, size), dtype=np.uint8)
        other = np.frombuffer(theirs.log.view(offset, len(ours)), dtype=np.uint8)
        ours = ours[: len(other)]
        if not len(ours):
            report.log_differs = True
            report.add(mine.file_of(offset), offset, f"no byte at offset {offset}")
            return
        different = np.flatnonzero(ours != other)
        if len(different):
            at = offset + int(different[0])
            report.log_differs = True
            report.add(
                mine.file_of(at),
                at,
                f"offset {at}: byte 0x{int(ours[at - offset]):02x}, "
                f"{theirs.file_of(at)} has 0x{int(other[at - offset]):02x}",
            )
            return
        offset += len(ours)
        if progress is not None:
            progress(offset - report.start, report.end - report.start)


def _compare_queues(mine: _Side, theirs: _Side, report: CompareReport, files: FileSystem) -> None:
    others = {(each.topic, each.queue_id): each for each in open_queues(theirs.geometry, files)}
    for queue in open_queues(mine.geometry, files):
        twin = others.pop((queue.topic, queue.queue_id), None)
        first, units = _units(queue, report)
        report.units += len(units)
        twin_first, twin_units = _units(twin, report) if twin is not None else (first, units[:0])
        if first == twin_first and units.tobytes() == twin_units.tobytes():
            continue
        offset = first + _first_difference(units, twin_units) if first == twin_first else first
        where = twin.file_of(offset) if twin is not None else f"{theirs.name}: no such queue"
        report.add(
            queue.file_of(offset),
            offset,
            f"queue {queue.topic}/{queue.queue_id}: unit {offset} is not that of {where}",
        )
    for twin in others.values():
        first, units = _units(twin, report)
        if len(units):
            report.add(
                twin.file_of(first),
                first,
                f"queue {twin.topic}/{twin.queue_id}: unit {first} is not in {mine.name}",
            )


def _units(queue: QueueFiles, report: CompareReport) -> tuple[int, NDArray[np.void]]:
    """The units of the records that lie in the compared stretch, and the number of the first."""
    units = queue.read(queue.first, queue.end - queue.first)
    physical = units["physical_offset"].astype(np.int64)
    inside = (physical >= report.start) & (units["size"] != PRE_BLANK_SIZE)
    inside &= physical + units["size"] <= report.end
    rows = np.flatnonzero(inside)
    if not len(rows):
        return 0, units[:0]
    return queue.first + int(rows[0]), units[rows]


def _first_difference(one: NDArray[np.void], two: NDArray[np.void]) -> int:
    count = min(len(one), len(two))
    different = np.flatnonzero(one[:count] != two[:count])
    return int(different[0]) if len(different) else count


def _compare_indexes(mine: _Side, theirs: _Side, report: CompareReport, files: FileSystem) -> None:
    if not (mine.geometry.config.index_enabled and theirs.geometry.config.index_enabled):
        return
    ours, other = _pairs(mine, report, files), _pairs(theirs, report, files)
    report.index_entries = len(ours)
    for side, missing in ((theirs, np.setdiff1d(ours, other)), (mine, np.setdiff1d(other, ours))):
        if len(missing):
            physical, key_hash = missing[0].item()
            report.add(
                StorePaths(side.geometry.config.directory).index,
                physical,
                f"there is no entry with hash {key_hash} for the record at offset {physical}, "
                f"the other store has one ({len(missing)} such entries)",
            )


def _pairs(side: _Side, report: CompareReport, files: FileSystem) -> NDArray[np.void]:
    """PAIR, sorted and once each: the entries of records in the compared stretch."""
    pieces = [np.zeros(0, dtype=PAIR)]
    config = side.geometry.config
    for path in side.geometry.index_files():
        status = files.status(path)
        if status is None or not status.size:
            continue
        entries = read_index_file(files, path, config.index_slots, config.index_entries).entries
        physical = entries["physical_offset"].astype(np.int64)
        inside = (physical >= report.start) & (physical < report.end)
        pairs = np.empty(int(inside.sum()), dtype=PAIR)
        pairs["physical_offset"] = physical[inside]
        pairs["key_hash"] = entries["key_hash"][inside]
        pieces.append(pairs)
    return np.unique(np.concatenate(pieces))
