"""Checks a log: every record, its files, its end, and its queues' numbers.

    files      none missing between two others, none cut off
    records    see audit_span.py; from the first to the end without a byte between two
    end        a torn record is a note; a damaged one, a stale one, or an end before what the
               store's queues point to is a fault
    queues     the queue offsets of each queue are consecutive through the whole log

Each fault names what it has cost: the messages that are missing from the queues at that place.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tandemlog.format.words import counted

from ..audit.audit_span import Finding, QueueBreak, SpanAudit, audit_span
from ..audit.span_gaps import Gap, faults_between
from ..audit.tail_scan import TailTask, scan_tail, tail_tasks
from ..executors import Executor, parallelism, run_tasks
from ..reading.damaged_record import record_text
from ..reading.log_end import LogEnd, Tail
from ..reading.log_files import LogFiles
from ..reading.log_source import LocalLogSource, LogSource, open_store
from ..reading.log_spans import TARGET_BYTES, Span, spans_for_tasks
from ..tasks.store_settings import batch_topics, committed_offsets
from .job_result import (
    Drawn,
    JobProgress,
    JobResult,
    log_files,
    no_progress,
    topic_counts,
    within,
)
from .missing_files import cut_off_file, lost_end

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class AuditTask:
    """Spans to audit, in order."""

    source: LogSource
    spans: tuple[Span, ...]
    verify_crc: bool


def audit_part(task: AuditTask | TailTask) -> list[SpanAudit] | list[Finding]:
    """What an executor does. Raises OSError, FetchError."""
    if isinstance(task, TailTask):
        return scan_tail(task)
    files = task.source.files
    with closing(task.source.connect()) as log:
        return [audit_span(log, files, span, check_crc=task.verify_crc) for span in task.spans]


def audit(
    spark: Executor,
    store: str | Path,
    *,
    records: bool = True,
    verify_crc: bool = True,
    target_bytes: int = TARGET_BYTES,
    progress: JobProgress = no_progress,
) -> JobResult:
    """Check the log of `store` (log_source.open_store). Changes nothing. `records` False: only its
    files, its end, and what is behind that; for a caller that has read the records.

    Raises StoreMissingError, StoreLayoutError, FetchError before anything runs.
    """
    started = time.monotonic()
    source = open_store(store)
    start, end = source.start(), source.end()
    cores = parallelism(spark)
    tasks: list[AuditTask | TailTask] = []
    if records:
        groups = spans_for_tasks(source.files, start, end.offset, target_bytes, cores)
        tasks += [AuditTask(source, tuple(group), verify_crc) for group in groups]
    if isinstance(source, LocalLogSource):
        tasks += tail_tasks(source, end, target_bytes, cores)
    outcomes = run_tasks(spark, audit_part, tasks, within(progress, "reading the log"))
    audits = [each for outcome in outcomes for each in outcome if isinstance(each, SpanAudit)]
    behind_end = [each for outcome in outcomes for each in outcome if isinstance(each, Finding)]
    judged_from = start if records else end.offset
    result = _Judgement(source, start, end, audits, behind_end, judged_from).result()
    result.summary["seconds"] = round(time.monotonic() - started, 3)
    return result


@dataclass(slots=True)
class _Judgement:
    """The result of the audits of all spans; `behind` are the findings behind the log's end."""

    source: LogSource
    start: int
    end: LogEnd
    audits: Sequence[SpanAudit]
    behind: Sequence[Finding]
    judged_from: int
    notes: list[str] = field(default_factory=list)

    def result(self) -> JobResult:
        physical = [finding for audit in self.audits for finding in audit.findings]
        physical += self._gaps(physical)
        physical = self._with_short_files(physical)
        physical += self._end_findings()
        physical.sort(key=lambda finding: (finding.offset, finding.end))
        findings, unexplained = _explain(physical, self._breaks())
        findings += [each.finding(self.source.files.path_of(each.at)) for each in unexplained]
        findings += self.behind
        findings.sort(key=lambda finding: (not finding.fault, finding.offset))
        self._note_begin()
        result = JobResult("audit", rows=self._rows(), findings=findings, notes=self.notes)
        records = sum(audit.records for audit in self.audits)
        result.summary = {
            "log": self.source.files.directory,
            "start": self.start,
            "end": self.end.offset,
            "tail": self.end.tail.name.lower(),
            "records": records,
            "bytes": self.end.offset - self.start,
            "topics": topic_counts(audit.topics for audit in self.audits),
        }
        result.drawn = self._drawn()
        return result

    def _drawn(self) -> Drawn:
        files = self.source.files
        drawn = Drawn((self.start, self.end.offset), log_files(files))
        queues: dict[tuple[str, int], dict[str, Any]] = {}
        for audit in self.audits:
            drawn.of_log.merge(audit.figures)
            for part in audit.queues:
                queue = part.topic, part.queue_id
                row = queues.setdefault(
                    queue,
                    {"topic": part.topic, "queue_id": part.queue_id, "records": 0, "bytes": 0,
                     "first": part.first},
                )  # fmt: skip
                row["records"] += part.count
                row["bytes"] += part.size
                row["end"] = part.last + 1
        drawn.queues = [queues[queue] for queue in sorted(queues)]
        batch = batch_topics(self.source)
        for (group, topic, queue_id), committed in sorted(committed_offsets(self.source).items()):
            # the records do not say where a batch queue ends, or one that retention has emptied
            if (topic, queue_id) in queues and topic not in batch:
                end = queues[topic, queue_id]["end"]
                drawn.groups.append(
                    {"group": group, "topic": topic, "queue_id": queue_id, "committed": committed,
                     "end": end, "lag": max(end - committed, 0)}
                )  # fmt: skip
        return drawn

    def _gaps(self, damage: Sequence[Finding]) -> list[Finding]:
        """Ranges in no span: missing and cut-off files, and damage across a span's border."""
        files, gaps = self.source.files, []
        missing = files.missing()
        for fault in faults_between(self.audits, self.judged_from, self.end.offset):
            if not isinstance(fault, Gap):
                self.notes.append(f"offset {fault.start}: records behind the BLANK of the file")
                continue
            for start, end in missing:
                if start < fault.end and end > fault.start:
                    size = files.file_size
                    gaps += [
                        Finding(
                            "missing_file",
                            files.path_of(at),
                            at,
                            min(at + size, end),
                            "missing file",
                        )
                        for at in range(start, end, size)
                    ]
            gaps += [
                Finding("gap", files.path_of(first), first, last, "bytes that are no record")
                for first, last in _without(fault.start, fault.end, missing)
                if not any(each.offset <= first and last <= each.end for each in damage)
                and not _is_cut_off(files, first)
            ]
        return gaps

    def _with_short_files(self, findings: list[Finding]) -> list[Finding]:
        """A finding for each file that is cut off, in place of the record cut off by that."""
        files = self.source.files
        for file in files.short():
            cut = [each for each in findings if file.base <= each.offset < each.end == file.end]
            findings = [each for each in findings if each not in cut]
            findings.append(cut_off_file(files, file, cut[0].offset if cut else file.end))
        return findings

    def _end_findings(self) -> list[Finding]:
        """What is at the end of the log, and whether it ends too early."""
        end, findings = self.end, []
        reported = any(each.offset == end.offset for each in self.behind)
        place = end.file, end.offset, end.offset
        if end.tail is Tail.TORN:
            findings.append(Finding("torn", *place, end.reason, fault=False))
        elif end.tail is Tail.CORRUPT:
            detail = f"{record_text(end.record)}: {end.reason}" if end.record else end.reason
            findings.append(Finding.of_record("corrupt", *place, detail, end.record))
        elif end.tail is Tail.STALE and not reported:
            findings.append(Finding("left_over", *place, end.reason, fault=False))
        lost = lost_end(self.source, end)
        return findings if lost is None else [*findings, lost]

    def _breaks(self) -> list[QueueBreak]:
        """Where a queue's numbers are not consecutive, inside spans and from one to the next."""
        last: dict[tuple[str, int], tuple[int, int]] = {}
        breaks: list[QueueBreak] = []
        for audit in self.audits:
            breaks += audit.breaks
            for part in audit.queues:
                queue = part.topic, part.queue_id
                before = last.get(queue)
                if before is not None and part.first != before[0] + 1:
                    breaks.append(QueueBreak(*queue, *before, part.first, part.first_at))
                last[queue] = part.last, part.last_at
        # a record of a batch queue takes as many numbers as it has messages
        batch = batch_topics(self.source)
        breaks = [each for each in breaks if each.topic not in batch]
        # where another break follows at once; no record follows the last one
        ends = {(each.topic, each.queue_id, each.before_at) for each in breaks}
        ends |= {(*queue, at) for queue, (_, at) in last.items()}
        marked = [
            replace(each, begins_again=True)
            if each.number <= each.before and (each.topic, each.queue_id, each.at) not in ends
            else each
            for each in breaks
        ]
        return sorted(marked, key=lambda each: each.at)

    def _note_begin(self) -> None:
        if isinstance(self.source, LocalLogSource):
            begin = self.source.queues.log_begin
            if 0 <= begin < self.start:
                first = self.source.files.path_of(begin)
                self.notes.append(
                    f"the queues begin at offset {begin}, in {first}, the log at {self.start}: "
                    "the messages between were deleted after their retention, or are lost"
                )

    def _rows(self) -> list[dict[str, Any]]:
        """A row a file."""
        rows: dict[str, dict[str, Any]] = {}
        for audit in self.audits:
            row = rows.setdefault(
                audit.file,
                {"file": audit.file, "records": 0, "bytes": 0, "first": None, "last": None},
            )
            row["records"] += audit.records
            row["bytes"] += audit.size
            if audit.records:
                row["first"] = row["first"] or audit.min_timestamp
                row["last"] = audit.max_timestamp
        return list(rows.values())


def _is_cut_off(files: LogFiles, offset: int) -> bool:
    """Whether the offset lies behind the end of a file that should hold it."""
    return any(file.end <= offset < file.base + files.file_size for file in files.short())


def _without(start: int, end: int, cut: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """start .. end without the ranges of `cut`, which ascend."""
    rest = []
    for first, last in cut:
        if last <= start or first >= end:
            continue
        if first > start:
            rest.append((start, first))
        start = max(start, last)
    if start < end:
        rest.append((start, end))
    return rest


def _explain(
    physical: Sequence[Finding], breaks: Sequence[QueueBreak]
) -> tuple[list[Finding], list[QueueBreak]]:
    """The findings with the messages that are missing because of them; the breaks that no finding
    explains."""
    caused: list[list[QueueBreak]] = [[] for _ in physical]
    unexplained = []
    for each in breaks:
        between = [
            number
            for number, finding in enumerate(physical)
            if each.before_at < finding.end
            and finding.offset < each.at
            and each.number > each.before
        ]
        for number in between:
            caused[number].append(each)
        if not between:
            unexplained.append(each)
    return list(map(_with_loss, physical, caused)), unexplained


def _with_loss(finding: Finding, lost: Sequence[QueueBreak]) -> Finding:
    if not lost:
        return finding
    names = [each.missing_messages() for each in lost[:_MOST_NAMED]]
    others = len(lost) - _MOST_NAMED
    more = f" and {counted(others, 'more queue')}" if others > 0 else ""
    detail = f"{finding.detail}; the queues lack {', '.join(names)}{more}"
    if finding.topic is not None:
        return replace(finding, detail=detail)
    topic, queue_id, number = lost[0].topic, lost[0].queue_id, lost[0].before + 1
    return replace(finding, detail=detail, topic=topic, queue_id=queue_id, queue_offset=number)
