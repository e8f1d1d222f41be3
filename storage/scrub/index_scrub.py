"""The index files against the log, block by block, as the scrub reads it.

    block of the log    r0: k0 t0 | r1: k1 | r2: k2 t2      hash, offset, time of each entry
    file, number n      k0 t0 k1 k2 t2                      the same, in the same order, from n on
    chains              0  0  n  ..                         follow from the hashes and the order
    slots, header       ..                                  follow from all entries of the file

Everything in an index file follows from the log, so what is wrong is written again in its place: a
few entries as their block is checked, slots and header when the scrub has come to the end of the
file. Until then a query may miss an entry, and never gives a wrong message, since it compares the
record. Where many entries differ, one is missing or too much: the index is cut there, and dispatch
fills it again. So it is with a file that cannot be read.

Chains and slots need all entries of a file from the first one on. Where the scrub begins later in a
file, after a restart, it reads those before, if they are not too many; else the next round looks at
that file.

A broker of RocketMQ may have written files with and without entries of tags into one store: a file
of the other kind is left alone. So is the index while it lacks records that the queues have.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import DispatchColumns
from tandemlog.format.files.index_chains import link, time_diffs

from ..dispatch.dispatch_source import DispatchSource
from ..errors import StoreError
from ..folds.dispatch_batch import DispatchBatch
from ..index.index_file import CHUNK_ENTRIES, IndexFile
from ..index.index_service import IndexService

logger = logging.getLogger(__name__)

MOST_OF_ONE: Final = 1 << 10
"""More keys than a record has."""
FEW: Final = 16
"""So many wrong entries of a block are written again; more of them are a shift."""
MOST_BEFORE: Final = 1 << 20
"""So many entries before the begin are read for the chains."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Entries: `hashes` i4[n], `physical` i8[n] log offsets, `times` i8[n] ms."""

    hashes: NDArray[np.int32]
    physical: NDArray[np.int64]
    times: NDArray[np.int64]

    @classmethod
    def of(cls, columns: DispatchColumns) -> "_Wanted":
        records = columns.entry_record
        return cls(
            columns.key_hash, columns.physical_offset[records], columns.store_timestamp[records]
        )

    def __len__(self) -> int:
        return len(self.hashes)

    def rows(self, begin: int, end: int | None = None) -> "_Wanted":
        part = slice(begin, end)
        return _Wanted(self.hashes[part], self.physical[part], self.times[part])


@dataclass(slots=True)
class _Place:
    """Entry `number` of `file` is the next one. `slots` i4[S] are what the slots hold after the
    entries before it, None where that is not known; `end_ms`: store time of the last one's
    record, 0 if it is not known."""

    file: IndexFile
    number: int
    slots: NDArray[np.int32] | None
    end_ms: int = 0


class IndexScrub:
    """See the module. The caller lets nothing be dispatched meanwhile."""

    def __init__(self, index: IndexService) -> None:
        self._index = index
        self._place: _Place | None = None
        self._next_offset = -1
        self._others: set[str] = set()
        self.mended = 0
        """How many entries, slots and pages were wrong."""

    def check(self, source: DispatchSource, batch: DispatchBatch, log_start: int) -> None:
        """The entries of the records of a batch, which `source` has made with entries. Raises
        StoreError if a file cannot be written."""
        index, start, end = self._index, batch.start, batch.end

        def others() -> DispatchColumns:
            other = not source.index_tags
            return source.batch(start, end, index=True, index_tags=other).columns

        if index.stopped is not None or index.next_offset < end:
            self._place = None
            return
        try:
            place = self._find(start, log_start)
            self._next_offset = end
            if place is not None and place.file.name not in self._others:
                self._check(place, batch.columns, others, log_start)
        except OSError as error:
            place, self._place = self._place, None
            file = None if place is None else place.file
            if file is None or file not in index.files:
                return  # retention has dropped it
            self._say(file, f"cannot be used ({error}): it is made from the log again")
            try:
                index.remake_from(file, log_start)
            except OSError as again:
                raise StoreError(f"{file.path} cannot be replaced: {again}") from again

    def finish(self) -> None:
        """The log's end was reached: slots and header of the newest file. Raises StoreError."""
        place, self._place = self._place, None
        if place is not None and place.file in self._index.files:
            try:
                self._end(place)
            except OSError as error:
                raise StoreError(f"{place.file.path} cannot be written: {error}") from error

    # ---- where in which file

    def _find(self, start: int, log_start: int) -> _Place | None:
        place, files = self._place, self._index.files
        if place is not None and self._next_offset == start and place.file in files:
            return place
        self._place = None
        filled = [file for file in files if file.header.next_entry > 1]
        for number, file in enumerate(filled):
            # not by the header, which may be what is wrong
            self._place = _Place(file, 1, None)
            following = filled[number + 1 : number + 2]
            if not following or start <= int(following[0].read(1, 2)["physical_offset"][0]):
                is_first = number == 0 and start <= log_start
                self._place = _at(file, 1 if is_first else file.first_at_or_after(start))
                break
        return self._place

    def _check(
        self,
        place: _Place,
        columns: DispatchColumns,
        others: Callable[[], DispatchColumns],
        log_start: int,
    ) -> None:
        wanted = _Wanted.of(columns)
        files = self._index.files
        if place.file is files[0] and place.number == 1:
            wanted = wanted.rows(_before_index(place.file, wanted))
        while len(wanted):
            count = min(len(wanted), place.file.header.next_entry - place.number)
            if count > 0 and not self._compare(place, wanted.rows(0, count), log_start):
                if _is_of_other_kind(place, others()):
                    self._others.add(place.file.name)
                else:
                    self._cut(place, wanted.rows(0, count))
                self._place = None
                return
            wanted = wanted.rows(count)
            if len(wanted):
                self._end(place)
                at = files.index(place.file) + 1
                if at == len(files) or files[at].header.next_entry <= 1:
                    self._cut(place, wanted)
                    self._place = None
                    return
                self._place = place = _at(files[at], 1)

    # ---- what is wrong

    def _compare(self, place: _Place, wanted: _Wanted, log_start: int) -> bool:
        """Whether the file has these entries next, but for a few, which are written again."""
        file, number = place.file, place.number
        header = file.header
        begin = int(wanted.times[0]), int(wanted.physical[0])
        wrong_begin = number == 1 and begin != (
            header.begin_timestamp, header.begin_physical_offset
        )  # fmt: skip
        begin_ms = begin[0] if wrong_begin else header.begin_timestamp
        stored = file.read(number, number + len(wanted))
        right = stored.copy()
        right["key_hash"] = wanted.hashes
        right["physical_offset"] = wanted.physical
        right["time_diff"] = time_diffs(begin_ms, wanted.times)
        if number == 1:
            right["time_diff"][0] = self._first_diff(file, stored, wanted, log_start)
        links = None if place.slots is None else link(place.slots, wanted.hashes, number)
        if links is not None:
            right["previous"] = links.previous
        if right.tobytes() != stored.tobytes():
            wrong = np.flatnonzero(right != stored)
            if len(wrong) > FEW:
                return False
            self._say(file, f"had {len(wrong)} wrong entries from {number + int(wrong[0])} on")
            file.rewrite(number, right)
            self.mended += len(wrong)
        if wrong_begin:
            self._say(file, f"said that it begins at {header.begin_physical_offset}")
            file.correct_begin(*begin)
            self.mended += 1
        if links is not None and place.slots is not None:
            place.slots[links.slots] = links.newest
        place.number += len(wanted)
        place.end_ms = int(wanted.times[-1])
        return True

    def _first_diff(
        self, file: IndexFile, stored: NDArray[np.void], wanted: _Wanted, log_start: int
    ) -> int:
        """Of a file's first entry, whose time counts from the end of the file before."""
        files = self._index.files
        at = files.index(file)
        if at:
            return int(time_diffs(files[at - 1].header.end_timestamp, wanted.times[:1])[0])
        return 0 if log_start == 0 else int(stored["time_diff"][0])

    def _end(self, place: _Place) -> None:
        """All entries of the file are right: its slots and its header."""
        file, slots = place.file, place.slots
        if slots is None or place.number <= 1:
            return
        header = replace(file.header, next_entry=place.number)
        is_full = file is not self._index.newest
        if is_full:
            last = int(file.read(place.number - 1, place.number)["physical_offset"][0])
            header = replace(
                header,
                end_physical_offset=last,
                end_timestamp=place.end_ms or header.end_timestamp,
            )
        wrong = file.rewrite_head(slots, header)
        if wrong:
            self._say(file, f"had {wrong} wrong slots or pages of them")
            self.mended += wrong
        if is_full:
            file.release()

    def _cut(self, place: _Place, wanted: _Wanted) -> None:
        """Everything from these entries on comes from the log again."""
        at = int(wanted.physical[0])
        self._say(place.file, f"has other entries than the log from offset {at} on")
        self.mended += 1
        self._index.truncate(at)

    def _say(self, file: IndexFile, what: str) -> None:
        logger.warning("scrub: index file %s %s", file.name, what)


def _at(file: IndexFile, number: int) -> _Place:
    if number > MOST_BEFORE:
        return _Place(file, number, None)
    slots = np.zeros(file.slots, dtype=np.int32)
    for first in range(1, number, CHUNK_ENTRIES):
        hashes = file.read(first, min(first + CHUNK_ENTRIES, number))["key_hash"]
        links = link(slots, hashes, first)
        slots[links.slots] = links.newest
    return _Place(file, number, slots)


def _before_index(file: IndexFile, wanted: _Wanted) -> int:
    """How many entries come before the first one of the oldest file: the log may begin before the
    index does, which may begin inside a record."""
    stored = file.read(1, min(1 + MOST_OF_ONE, file.header.next_entry))
    count = min(len(wanted), len(stored))
    if int(np.count_nonzero(stored["physical_offset"][:count] != wanted.physical[:count])) <= FEW:
        return 0
    first = int(stored["physical_offset"][0])
    end = int(np.searchsorted(wanted.physical, first, side="right"))
    return max(end - int(np.count_nonzero(stored["physical_offset"] == first)), 0)


def _is_of_other_kind(place: _Place, columns: DispatchColumns) -> bool:
    """Whether the file has the entries of these columns next."""
    wanted = _Wanted.of(columns)
    file, number = place.file, place.number
    count = min(len(wanted), file.header.next_entry - number)
    stored = file.read(number, number + count)
    differ = (stored["key_hash"] != wanted.hashes[:count]) | (
        stored["physical_offset"] != wanted.physical[:count]
    )
    return count > FEW and int(np.count_nonzero(differ)) <= FEW
