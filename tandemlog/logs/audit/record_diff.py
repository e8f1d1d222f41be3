"""Compares two copies of a log record by record, in the blocks that differ.

    copy 1   | r r r r r |        for the first byte that differs, in both copies:
    copy 2   | r r x r r |        which record is it in, which fields differ, whose CRC is right

Bytes in no record of either copy (after a BLANK, where they are undefined) are counted separately:
they may differ between equal copies.
"""

from contextlib import closing
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.record.record import Record

from ..reading.damaged_record import lenient_record, record_text
from ..reading.find_record import next_record, record_at, record_size_at
from ..reading.log_bytes import LogBytes, read
from ..reading.log_source import LogSource
from ..reading.log_spans import Span
from .audit_span import MAX_FINDINGS, Finding

_STEP = 1 << 20
_FIRST_LOOK_BACK = 64 << 10
_MOST_FIELDS = 4


@dataclass(frozen=True, slots=True)
class DiffTask:
    """A range of both logs, inside one file."""

    sources: tuple[LogSource, LogSource]
    span: Span


@dataclass(slots=True)
class DiffOutcome:
    """`differing` bytes in all, those outside records too; findings for the first records."""

    findings: list[Finding]
    differing: int = 0
    outside: int = 0


def find_differences(task: DiffTask) -> DiffOutcome:
    """Compare. Raises OSError, FetchError."""
    first, second = task.sources
    with closing(first.connect()) as one, closing(second.connect()) as other:
        return _Comparison(task, one, other).run()


class _Comparison:
    def __init__(self, task: DiffTask, first: LogBytes, second: LogBytes) -> None:
        self._task = task
        self._logs = (first, second)
        self._outcome = DiffOutcome([])

    def run(self) -> DiffOutcome:
        """Record by record; after MAX_FINDINGS bytes are only counted."""
        outcome, span = self._outcome, self._task.span
        behind = span.start
        for start in range(span.start, span.end, _STEP):
            places = self._differing(start, min(_STEP, span.end - start))
            outcome.differing += len(places)
            while len(places) and len(outcome.findings) < MAX_FINDINGS:
                offset = int(places[0])
                if offset >= behind:
                    behind = self._record_at_difference(offset)
                places = places[np.searchsorted(places, behind) :]
        return outcome

    def _differing(self, start: int, wanted: int) -> NDArray[np.int64]:
        """Log offsets of the bytes that differ."""
        pair = [
            np.frombuffer(read(log, start, wanted).ljust(wanted, b"\0"), np.uint8)
            for log in self._logs
        ]
        places: NDArray[np.int64] = (pair[0] != pair[1]).nonzero()[0] + start
        return places

    def _record_at_difference(self, offset: int) -> int:
        """Add a finding for the record that the differing byte is in; returns where it ends."""
        places = [self._record_around(log, offset) for log in self._logs]
        ends = [place.end for place in places if place is not None]
        if not ends:
            self._outcome.outside += 1
            return offset + 1
        self._outcome.findings.append(self._finding(offset, places[0], places[1]))
        return max(ends)

    def _record_around(self, log: LogBytes, offset: int) -> "_Place | None":
        """The record in which the offset lies, or bytes where one should be."""
        span, back = self._task.span, _FIRST_LOOK_BACK
        while (begin := offset - back) > span.base:
            record = next_record(log, begin, offset + 1, span.file_end)
            if record is not None:
                return self._walk_to(log, record.physical_offset, offset)
            back *= 8
        return self._walk_to(log, span.base, offset)

    def _walk_to(self, log: LogBytes, at: int, offset: int) -> "_Place | None":
        file_end = self._task.span.file_end
        while at <= offset:
            size = record_size_at(log, at, file_end)
            if size is None:
                following = next_record(log, at + 1, file_end, file_end)
                if following is None:
                    return None
                if following.physical_offset > offset:
                    return _Place(at, following.physical_offset, None)
                at = following.physical_offset
                continue
            if at + size > offset:
                return _Place(at, at + size, lenient_record(log, at, file_end))
            at += size
        return None

    def _finding(self, offset: int, first: "_Place | None", second: "_Place | None") -> Finding:
        file_end = self._task.span.file_end
        places = [place for place in (first, second) if place is not None]
        begin = min(place.start for place in places)
        whole = [record_at(log, begin, file_end) for log in self._logs]
        record = next((each for each in (*whole, *(p.record for p in places)) if each), None)
        paths = [source.files.path_of(begin) for source in self._task.sources]
        states = [
            f"{'whole' if each is not None else 'damaged'} in {path}"
            for each, path in zip(whole, paths, strict=True)
        ]
        damaged = [path for each, path in zip(whole, paths, strict=True) if each is None]
        what = _changed(first.record if first else None, second.record if second else None)
        return Finding.of_record(
            "differs",
            damaged[0] if damaged else paths[1],
            begin,
            max(place.end for place in places),
            f"{record_text(record)}: {what}, first at byte {offset}; {', '.join(states)}",
            record,
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """Log offsets of a record, or of bytes between two records; `record` if it decodes."""

    start: int
    end: int
    record: Record | None


def _changed(first: Record | None, second: Record | None) -> str:
    """Which fields of two records differ, in words."""
    names = [
        each.name
        for each in fields(Record)
        if first is not None
        and second is not None
        and not each.name.startswith("_")
        and getattr(first, each.name) != getattr(second, each.name)
    ]
    if not names:
        return "its bytes differ"
    more = " and more" if len(names) > _MOST_FIELDS else ""
    return f"{', '.join(names[:_MOST_FIELDS])}{more} differ"
