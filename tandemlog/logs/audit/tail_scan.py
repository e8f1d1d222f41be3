"""Whole records after the end of a log, left over from an earlier use of its files.

end of the log
| 0 0 0 0 [r at 4711] 0 0 0     its own offset is another: stale bytes, and a danger, since RocketMQ
                                does not check it and takes them for its log
| torn .. [r][r][r]             its own offset is right: left over from before a truncation
| garbage [r at 4711] garbage   part of what a broker that writes without a map (writeWithoutMmap)
                                leaves behind every end; no record begins at the end itself
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from tandemlog.format.record.record import Record

from ..reading.damaged_record import record_text
from ..reading.find_record import candidates, record_at
from ..reading.log_bytes import LogBytes
from ..reading.log_end import LogEnd, Tail
from ..reading.log_source import LocalLogSource, LogSource
from ..reading.log_spans import Span, grouped, split
from .audit_span import MAX_FINDINGS, Finding


@dataclass(frozen=True, slots=True)
class TailTask:
    """Spans behind the log's end; `garbage`: there are bytes at the end itself that are not a whole
    record."""

    source: LogSource
    spans: tuple[Span, ...]
    garbage: bool


def tail_tasks(
    source: LocalLogSource, end: LogEnd, target_bytes: int, count: int
) -> list[TailTask]:
    """The tasks that look behind the end of a log, at most `count`. Raises OSError."""
    files = source.files
    if not files.files:
        return []
    garbage, file = False, files.find(end.offset)
    if end.tail is Tail.STALE and file is not None:
        with closing(source.connect()) as log:
            garbage = record_at(log, end.offset, file.end, in_place=False) is None
    spans = split(files, end.offset, files.files[-1].end, target_bytes)
    return [TailTask(source, tuple(group), garbage) for group in grouped(spans, count)]


def scan_tail(task: TailTask) -> list[Finding]:
    """The whole records there, the first MAX_FINDINGS. Raises OSError."""
    files = task.source.files
    with closing(task.source.connect()) as log:
        records = (each for span in task.spans for each in _records(log, span))
        return [
            _finding(files.path_of(offset), offset, record, garbage=task.garbage)
            for offset, record in islice(records, MAX_FINDINGS)
        ]


def _records(log: LogBytes, span: Span) -> Iterator[tuple[int, Record]]:
    """The records and where they begin."""
    behind = span.start
    for offset in candidates(log, span.start, span.end, in_place=False):
        if offset < behind:
            continue  # inside the record before
        record = record_at(log, offset, span.file_end, in_place=False)
        if record is not None:
            yield offset, record
            behind = offset + record.size


def _finding(file: str, offset: int, record: Record, *, garbage: bool) -> Finding:
    elsewhere = record.physical_offset != offset
    stale = elsewhere and not garbage
    what = (
        f"a whole record behind the log's end that says it lies at {record.physical_offset}"
        if elsewhere
        else "a whole record behind the log's end, left over from before a truncation"
    )
    detail = f"{record_text(record)}: {what}"
    return Finding.of_record(
        "stale" if stale else "left_over",
        file,
        offset,
        offset + record.size,
        detail,
        record,
        fault=stale,
    )
