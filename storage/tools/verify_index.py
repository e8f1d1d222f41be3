"""The index files of a store against its log, for verify.

    log       r0        r1        r2        r3       each record: the hashes of its keys, and of its
    file 1    r0.key r0.tag r1.key r1.tag            tags where the file indexes those
    file 2                        r2.key   r3.key

Whether tags are indexed is decided for each file: RocketMQ indexes them since 5.4, and an older
broker may have recreated the newest files without them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import DispatchColumns, dispatch_columns
from tandemlog.format.files.index_chains import time_diffs
from tandemlog.format.files.index_layout import IndexHeader
from tandemlog.format.files.queue_unit import DelayLevels

from ..disk.file_system import FileSystem
from ..inspect.geometry import Geometry
from ..inspect.index_files import IndexEntries, read_index_file
from ..log.log_scanner import ScanPart
from .faults import VerifyReport


@dataclass(slots=True)
class _IndexFile:
    """One index file's n entries by the log offset they point to: `physical` i8[n] ascending,
    `hashes` i8[n], `seconds` i4[n] after the begin in `header`, `numbers` i8[n] of the entries.
    `tags`: whether it has entries of tags, None if no record so far has told."""

    path: str
    header: IndexHeader
    physical: NDArray[np.int64]
    hashes: NDArray[np.int64]
    seconds: NDArray[np.int32]
    numbers: NDArray[np.int64]
    tags: bool | None = None


class IndexCheck:
    """The index files against the log, stretch by stretch."""

    def __init__(self, geometry: Geometry, files: FileSystem, report: VerifyReport) -> None:
        self._report = report
        self._files = files
        self._config = geometry.config
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
        self._filled = [file for file in self._sorted if len(file.physical)]
        report.index_files = len(self._sorted)
        if not self._sorted:
            report.notes.append("the store has no index")

    def _load(self, entries: IndexEntries) -> None:
        for fault in (entries.header_fault(), entries.chain_fault()):
            if fault is not None:
                self._report.add(entries.path, 0, fault)
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

    def check(
        self, columns: DispatchColumns, part: ScanPart, dispatched: int, delay_levels: DelayLevels
    ) -> None:
        """Compare a stretch of the log, `columns` with its tags, with its entries."""
        if not self._filled:
            return
        pairs, where = self._pairs(columns, part)
        wanted = _pairs_of(columns)
        for pair in np.setdiff1d(pairs, wanted)[:1].tolist():
            file, number = where[int(np.flatnonzero(pairs == pair)[0])]
            physical = int(columns.physical_offset[pair >> 31])
            self._report.add(
                file,
                number,
                f"entry {number} has hash {pair & 0x7FFFFFFF} for offset {physical}, "
                "whose record has no such key",
            )
        wanted = self._without_unkept_tags(wanted, pairs, columns, part, delay_levels)
        missing = np.setdiff1d(wanted, pairs)
        missing = missing[columns.physical_offset[missing >> 31] < dispatched]
        for pair in missing[:1].tolist():
            physical = int(columns.physical_offset[pair >> 31])
            self._report.add(
                self._file_for(physical).path,
                -1,
                f"there is no entry with hash {pair & 0x7FFFFFFF} for the record at offset "
                f"{physical}",
            )
        self._check_times(columns, part)

    def _without_unkept_tags(
        self,
        wanted: NDArray[np.int64],
        pairs: NDArray[np.int64],
        columns: DispatchColumns,
        part: ScanPart,
        delay_levels: DelayLevels,
    ) -> NDArray[np.int64]:
        """The wanted pairs but those of tags for files that index none. The first stretch with
        records of a file that have tags decides about it."""
        if all(file.tags for file in self._filled):
            return wanted
        plain = dispatch_columns(
            part.data, part.walk.positions, part.walk.sizes, part.base,
            delay_levels=delay_levels, index_tags=False, headers=part.headers,
        )  # fmt: skip
        of_tags = np.setdiff1d(wanted, _pairs_of(plain))
        owners = self._owners(columns.physical_offset[of_tags >> 31].astype(np.int64))
        unkept = np.zeros(len(of_tags), np.bool_)
        for number in np.unique(owners).tolist():
            file, mine = self._filled[number], owners == number
            if file.tags is None:
                file.tags = bool(np.isin(of_tags[mine], pairs).any())
                self._report.indexes_tags = file.tags
            # the record that a file ends with may continue in the next one, of the other kind
            last = columns.physical_offset[of_tags >> 31] == file.physical[-1]
            following = self._filled[number + 1 : number + 2]
            if not file.tags:
                unkept |= mine
            elif following and not following[0].tags:
                unkept |= mine & last
        return np.setdiff1d(wanted, of_tags[unkept])

    def _owners(self, physical: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which file takes the entries of the record at each offset."""
        ends = np.array([file.physical[-1] for file in self._filled[:-1]], np.int64)
        return np.searchsorted(ends, physical, side="left").astype(np.int64)

    def _file_for(self, physical: int) -> _IndexFile:
        return self._filled[int(self._owners(np.array([physical]))[0])]

    def _check_times(self, columns: DispatchColumns, part: ScanPart) -> None:
        """Entries of this stretch against their records' store times. A file's first entry is not
        looked at: its time counts from the end of the file before, which may have expired."""
        starts = columns.physical_offset.astype(np.int64)
        for file in self._sorted:
            begin, end = np.searchsorted(file.physical, (starts[0], part.end_offset))
            records = np.searchsorted(starts, file.physical[begin:end], side="right") - 1
            times = columns.store_timestamp[records]
            exact = starts[records] == file.physical[begin:end]
            self._check_header_mss(file, file.numbers[begin:end][exact], times[exact])
            wanted = time_diffs(file.header.begin_timestamp, times)
            wrong = (file.seconds[begin:end] != wanted) & (file.numbers[begin:end] > 1) & exact
            for row in np.flatnonzero(wrong)[:1].tolist():
                number = int(file.numbers[begin + row])
                self._report.add(
                    file.path,
                    number,
                    f"entry {number} says {int(file.seconds[begin + row])} s after the file's "
                    f"begin; the record at offset {int(starts[records[row]])} was stored "
                    f"{int(wanted[row])} s after it",
                )

    def _check_header_mss(
        self, file: _IndexFile, numbers: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        """The times in the header, by which queries skip files, against those of the first and the
        last entry: `times` (ms) are those of the records of the entries `numbers`."""
        for name, number, header_ms in (
            ("begin", 1, file.header.begin_timestamp),
            ("end", len(file.numbers), file.header.end_timestamp),
        ):
            for time in times[(numbers == number) & (times != header_ms)].tolist():
                self._report.add(
                    file.path,
                    0,
                    f"its header says that its entries {name} at {header_ms}; the record of "
                    f"entry {number} was stored at {time}",
                )

    def _pairs(
        self, columns: DispatchColumns, part: ScanPart
    ) -> tuple[NDArray[np.int64], list[tuple[str, int]]]:
        """record << 31 | hash of every entry that points into this stretch, and where it is.

        Entries that point between records are reported here.
        """
        starts = columns.physical_offset.astype(np.int64)
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
                    file.path,
                    number,
                    f"entry {number} points to offset {offset}, where no record starts",
                )
            pairs.append(records[exact] << 31 | file.hashes[begin:end][exact])
            where += [(file.path, each) for each in file.numbers[begin:end][exact].tolist()]
        return np.concatenate(pairs) if pairs else np.zeros(0, np.int64), where

    def finish(self, log_end: int) -> None:
        """Report entries that point beyond the log."""
        for file in self._sorted:
            beyond = int(np.searchsorted(file.physical, log_end))
            if beyond < len(file.physical):
                number = int(file.numbers[beyond])
                self._report.add(
                    file.path,
                    number,
                    f"entry {number} points to offset {int(file.physical[beyond])}, "
                    f"the log ends at {log_end}",
                )


def _pairs_of(columns: DispatchColumns) -> NDArray[np.int64]:
    """record << 31 | hash of every wanted entry."""
    pairs: NDArray[np.int64] = columns.entry_record.astype(np.int64) << 31 | columns.key_hash
    return pairs
