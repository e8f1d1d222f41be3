"""Where in an archive the messages of a queue are: by queue offset, and by store time.

    segments     ├── s0 ──┼── s1 ──┼── s2 ──┼── s3 ──┤      in the order of the log
    queue t/0      0..9              10..30    31..34        each has the numbers of its index
    queue t/1                0..3

Numbers of a queue rise along the log, so the segment of one is found by bisection: a segment
without the queue is passed to the next one that has it. For that, of each index that was looked at,
a queue's first number and end are kept, 24 bytes; the index is read again when these have left the
cache. A queue that is in few segments takes as many reads as there are segments, the first time.

All of an archive that is looked at is one `ArchivedLog`: the segments of a manifest up to where the
log of the reader was cut. An index is of its object, whose name says its content, so nothing that
is kept here becomes wrong by a truncation; only other segments are looked at.
"""

import hashlib
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..format.archive.manifest import Manifest, SegmentEntry
from ..format.archive.segment_index import BLOCK_BYTES, SegmentIndex
from ..format.constants import IPV6_EXTRA
from ..format.record.sys_flag import BORN_HOST_IPV6
from .archived_segments import ArchivedSegments
from .segment_cache import SegmentCache

HEAD_BYTES: Final = 76
"""The beginning of a record that has its store time, whatever its born host is."""

QueueName: TypeAlias = tuple[str, int]
_NUMBERS: Final = np.dtype([("queue", "<u8"), ("first", "<i8"), ("end", "<i8")])
_FLAG_AT: Final = 36
_TIME_AT: Final = 56
"""Where a record has its store time, behind a born host of 8 bytes; one of 20 has IPV6_EXTRA."""


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """The part of an archive that belongs to a log: see the module."""

    entries: tuple[SegmentEntry, ...]

    @classmethod
    def of(cls, manifest: Manifest, cut: int) -> "ArchivedLog":
        """What of `manifest` is below the log offset `cut`."""
        return cls(manifest.segments if cut >= manifest.end else manifest.cut_at(cut).segments)

    @property
    def begin(self) -> int:
        return self.entries[0].start if self.entries else 0

    @property
    def end(self) -> int:
        return self.entries[-1].end if self.entries else 0

    def holding(self, log_offset: int) -> SegmentEntry | None:
        """The segment with that byte of the log."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].end <= log_offset:
                low = middle + 1
            else:
                high = middle
        if low == len(self.entries) or self.entries[low].start > log_offset:
            return None
        return self.entries[low]


@dataclass(frozen=True, slots=True)
class ArchivedUnits:
    """Units UNIT_DTYPE[n] of a queue with the queue offsets from `first` on, all in `entry`."""

    first: int
    units: NDArray[np.void]
    entry: SegmentEntry


class ArchivedQueues:
    """See the module. Safe to use from several threads. Every call may raise an ArchiveError."""

    def __init__(self, segments: ArchivedSegments, numbers_bytes: int) -> None:
        self.segments = segments
        self._kept_numbers = SegmentCache(numbers_bytes)

    # --- by queue offset

    def units(
        self, log: ArchivedLog, queue: QueueName, number: int, most: int
    ) -> ArchivedUnits | None:
        """At most `most` units of the queue from `number` on, or from the first one above that is
        archived; None if there is none."""
        at = self._first_with(log, queue, number)
        if at is None:
            return None
        entry = log.entries[at]
        index = self.segments.index(entry)
        runs = [run for run in index.runs_of(*queue) if run.first + run.count > number]
        # a broker's log may have a number twice: its queue has the later one
        within = [run for run in runs if run.first <= number]
        chosen = within[-1] if within else min(runs, key=lambda run: run.first)
        start = max(number, chosen.first)
        units = index.units_of(chosen)[start - chosen.first :][:most]
        return ArchivedUnits(start, units, entry)

    def _first_with(self, log: ArchivedLog, queue: QueueName, number: int) -> int | None:
        """Which segment is the first with a unit of the queue at or above `number`."""
        low, high, found = 0, len(log.entries), None
        while low < high:
            middle = at = (low + high) // 2
            while at < high and (numbers := self._numbers(log.entries[at], queue)) is None:
                at += 1
            if at == high:
                high = middle
            elif numbers is not None and numbers[1] > number:
                found, high = at, middle
            else:
                low = at + 1
        return found

    def _numbers(self, entry: SegmentEntry, queue: QueueName) -> tuple[int, int] | None:
        """The queue's first number in that segment, and the end of its last."""
        table = self._kept_numbers.get(
            (entry.name, entry.end),
            lambda: _numbers_of(self.segments.index(entry)),
            lambda each: each.nbytes,
        )
        name = _hash_of(queue)
        row = int(np.searchsorted(table["queue"], name))
        if row == len(table) or table["queue"][row] != name:
            return None
        return int(table["first"][row]), int(table["end"][row])

    # --- by time

    def last_older(
        self, log: ArchivedLog, queue: QueueName, time_ms: int, below: int
    ) -> int | None:
        """The number of the last message of the queue whose store time is below `time_ms`, among
        those with numbers below `below`; None if there is none."""
        for entry in reversed(log.entries):
            if entry.first_ms >= time_ms or not entry.records:
                continue
            numbers = self._numbers(entry, queue)
            if numbers is None or numbers[0] >= below:
                continue
            number = self._last_older_in(entry, queue, time_ms, below)
            if number is not None:
                return number
        return None

    def _last_older_in(
        self, entry: SegmentEntry, queue: QueueName, time_ms: int, below: int
    ) -> int | None:
        index = self.segments.index(entry)
        for run in reversed(index.runs_of(*queue)):
            offsets = index.units_of(run)["physical_offset"].astype(np.int64) - entry.start
            offsets = offsets[: max(0, below - run.first)]
            blocks = offsets // BLOCK_BYTES
            for block in np.unique(blocks)[::-1].tolist():
                if int(index.blocks["first_ms"][block]) >= time_ms:
                    continue
                rows = np.flatnonzero(blocks == block)
                times = self._times(entry, offsets[rows])
                older = np.flatnonzero(times < time_ms)
                if len(older):
                    return run.first + int(rows[older[-1]])
        return None

    def store_times(self, found: ArchivedUnits) -> NDArray[np.int64]:
        """i8[n], in ms."""
        offsets = found.units["physical_offset"].astype(np.int64) - found.entry.start
        return self._times(found.entry, offsets)

    def _times(self, entry: SegmentEntry, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of the records that begin there in the segment; of the first ones, if these are in many
        blocks."""
        sizes = np.full(len(offsets), HEAD_BYTES, np.int64)
        heads, count = self.segments.records(entry, offsets, sizes)
        rows = np.frombuffer(heads, np.uint8).reshape(count, HEAD_BYTES)
        has_ipv6 = (_column(rows, _FLAG_AT, ">i4") & BORN_HOST_IPV6) != 0
        near, far = (_column(rows, at, ">i8") for at in (_TIME_AT, _TIME_AT + IPV6_EXTRA))
        return np.where(has_ipv6, far, near)


def _column(rows: NDArray[np.uint8], at: int, dtype: str) -> NDArray[np.int64]:
    size = np.dtype(dtype).itemsize
    return np.ascontiguousarray(rows[:, at : at + size]).view(dtype)[:, 0].astype(np.int64)


def _numbers_of(index: SegmentIndex) -> NDArray[np.void]:
    """_NUMBERS[n], by queue."""
    found: dict[QueueName, tuple[int, int]] = {}
    for run in index.runs:
        queue = run.topic, run.queue_id
        first, end = found.get(queue, (run.first, 0))
        found[queue] = min(first, run.first), max(end, run.first + run.count)
    rows = [(_hash_of(queue), first, end) for queue, (first, end) in found.items()]
    return np.sort(np.array(rows, _NUMBERS), order="queue")


def _hash_of(queue: QueueName) -> int:
    text = f"{queue[1]}/{queue[0]}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
