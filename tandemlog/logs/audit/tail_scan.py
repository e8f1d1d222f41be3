"""Whole records after the end of a log, left over from an earlier use of its files.

end of the log
| 0 0 0 0 [r at 4711] 0 0 0     says that it lies somewhere else: stale bytes, and a danger,
                                since RocketMQ does not look at that and takes them for its log
| torn .. [r][r][r]             lies where it says: left over from before a truncation
| garbage [r at 4711] garbage   part of what a broker that writes without a map (writeWithoutMmap)
                                leaves behind every end; no record begins at the end itself
"""

from dataclasses import dataclass

from tandemlog.format.columns.resync import HEAD_SIZE, MAGICS, magic_positions
from tandemlog.format.record.record import Record

from ..reading.damaged_record import record_text
from ..reading.find_record import SEARCH_STEP, record_at
from ..reading.log_bytes import LogBytes, read
from ..reading.log_end import LogEnd, Tail
from ..reading.log_source import LocalLogSource, LogSource
from ..reading.log_spans import Span, grouped, split
from .audit_span import MAX_FINDINGS, Finding

_FIRST_OF_MAGICS = MAGICS[0][:1]


@dataclass(frozen=True, slots=True)
class TailTask:
    """Spans behind the log's end; `garbage`: what stands at the end itself is no whole record, but
    not nothing either."""

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
        log = source.connect()
        try:
            garbage = record_at(log, end.offset, file.end, in_place=False) is None
        finally:
            log.close()
    spans = split(files, end.offset, files.files[-1].end, target_bytes)
    return [TailTask(source, tuple(group), garbage) for group in grouped(spans, count)]


def scan_tail(task: TailTask) -> list[Finding]:
    """What whole records stand there, the first MAX_FINDINGS. Raises OSError."""
    log = task.source.connect()
    findings: list[Finding] = []
    try:
        for span in task.spans:
            for offset, record in _records(log, span, MAX_FINDINGS - len(findings)):
                file = task.source.files.path_of(offset)
                findings.append(_finding(file, offset, record, garbage=task.garbage))
    finally:
        log.close()
    return findings


def _records(log: LogBytes, span: Span, most: int) -> list[tuple[int, Record]]:
    found: list[tuple[int, Record]] = []
    offset, behind = span.start, span.start
    while (offset := log.next_data(offset)) < span.end and len(found) < most:
        wanted = min(SEARCH_STEP, span.end - offset)
        piece = read(log, offset, wanted + HEAD_SIZE - 1)
        if _FIRST_OF_MAGICS in piece:
            for position in magic_positions(piece):
                at = offset + position
                if position >= wanted or len(found) >= most:
                    break
                if at < behind:
                    continue  # inside the record before
                record = record_at(log, at, span.file_end, in_place=False)
                if record is not None:
                    found.append((at, record))
                    behind = at + record.size
        offset += wanted
    return found


def _finding(file: str, offset: int, record: Record, *, garbage: bool) -> Finding:
    elsewhere = record.physical_offset != offset
    stale = elsewhere and not garbage
    what = (
        f"a whole record behind the log's end that says it lies at {record.physical_offset}"
        if elsewhere
        else "a whole record behind the log's end, left over from before a truncation"
    )
    return Finding(
        kind="stale" if stale else "left_over",
        file=file,
        offset=offset,
        end=offset + record.size,
        detail=f"{record_text(record)}: {what}",
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        fault=stale,
    )
