"""Checks a log: every record, its files, its end, and its queues' numbers.

    files      none missing between two others, none cut off
    records    see audit_span.py; from the first to the end without a byte between two
    end        a torn record is a note; a damaged one, a stale one, or an end below what the
               store's queues know of is a fault
    queues     the numbers of each queue run on through the whole log

Each fault names what it has cost: the numbers that the queues lack at that place.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandemlog.format.words import counted

from ..audit.audit_span import Finding, QueueBreak, SpanAudit, audit_span
from ..audit.span_gaps import Gap, chain_faults
from ..audit.tail_scan import TailTask, scan_tail, tail_tasks
from ..executors import Executor, parallelism, run_tasks
from ..reading.log_end import LogEnd, Tail
from ..reading.log_files import LogFiles
from ..reading.log_source import LocalLogSource, LogSource, open_store
from ..reading.log_spans import TARGET_BYTES, Span, grouped, pieces_wanted, split
from ..tasks.store_settings import batch_topics
from .job_result import JobProgress, JobResult, no_progress, within
from .missing_files import lost_end

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class AuditTask:
    """Spans to look at, in order."""

    source: LogSource
    spans: tuple[Span, ...]
    verify_crc: bool


def look(task: AuditTask | TailTask) -> list[SpanAudit] | list[Finding]:
    """What an executor does. Raises OSError, FetchError."""
    if isinstance(task, TailTask):
        return scan_tail(task)
    log = task.source.connect()
    try:
        files = task.source.files
        return [audit_span(log, files, span, check_crc=task.verify_crc) for span in task.spans]
    finally:
        log.close()


def audit(
    spark: Executor,
    store: str | Path,
    *,
    records: bool = True,
    verify_crc: bool = True,
    target_bytes: int = TARGET_BYTES,
    progress: JobProgress = no_progress,
) -> JobResult:
    """Look at the log of `store` (log_source.open_store). Changes nothing. `records` False: look
    only at its files, its end, and what lies behind that; for a caller that has read the records.

    Raises StoreMissingError, StoreLayoutError, FetchError before anything runs.
    """
    started = time.monotonic()
    source = open_store(store)
    start, end = source.start(), source.end()
    cores = parallelism(spark)
    count = pieces_wanted(end.offset - start, target_bytes, cores)
    piece = max(-(-(end.offset - start) // count), 1)
    spans = split(source.files, start, end.offset, piece) if records else []
    tasks: list[AuditTask | TailTask] = [
        AuditTask(source, tuple(group), verify_crc) for group in grouped(spans, count)
    ]
    if isinstance(source, LocalLogSource):
        tasks += tail_tasks(source, end, target_bytes, cores)
    answers = run_tasks(spark, look, tasks, within(progress, "reading the log"))
    audits = [each for answer in answers for each in answer if isinstance(each, SpanAudit)]
    behind_end = [each for answer in answers for each in answer if isinstance(each, Finding)]
    judged_from = start if records else end.offset
    result = _Judgement(source, start, end, audits, behind_end, judged_from).result()
    result.summary["seconds"] = round(time.monotonic() - started, 3)
    return result


class _Judgement:
    """From what each span saw to what is to be said."""

    def __init__(
        self,
        source: LogSource,
        start: int,
        end: LogEnd,
        audits: Sequence[SpanAudit],
        behind: Sequence[Finding],
        judged_from: int,
    ) -> None:
        self._source = source
        self._start = start
        self._end = end
        self._audits = audits
        self._behind = behind
        self._judged_from = judged_from
        self._notes: list[str] = []

    def result(self) -> JobResult:
        physical = [finding for audit in self._audits for finding in audit.findings]
        physical += self._gaps(physical)
        physical = self._with_short_files(physical)
        physical += self._end_findings()
        physical.sort(key=lambda finding: (finding.offset, finding.end))
        explained, breaks = _explain(physical, self._breaks())
        findings = explained + [
            each.finding(self._source.files.path_of(each.at)) for each in breaks
        ]
        findings += self._behind
        findings.sort(key=lambda finding: (not finding.fault, finding.offset))
        self._note_begin()
        result = JobResult("audit", rows=self._rows(), findings=findings, notes=self._notes)
        records = sum(audit.records for audit in self._audits)
        result.summary = {
            "log": self._source.files.directory,
            "start": self._start,
            "end": self._end.offset,
            "tail": self._end.tail.name.lower(),
            "records": records,
            "bytes": self._end.offset - self._start,
            "topics": self._topics(),
        }
        return result

    # ---- what is wrong

    def _gaps(self, known: Sequence[Finding]) -> list[Finding]:
        """Stretches in no span: missing and cut-off files, and damage over a span's border."""
        files, found = self._source.files, []
        missing = files.missing()
        for fault in chain_faults(self._audits, self._judged_from, self._end.offset):
            if not isinstance(fault, Gap):
                self._notes.append(f"offset {fault.start}: records behind the BLANK of the file")
                continue
            for start, end in missing:
                if start < fault.end and end > fault.start:
                    size = files.file_size
                    names = [files.path_of(at) for at in range(start, end, size)]
                    found += [
                        Finding("missing_file", name, at, min(at + size, end), "missing file")
                        for name, at in zip(names, range(start, end, size), strict=True)
                    ]
            rest = [
                (first, last)
                for first, last in _without(fault.start, fault.end, missing)
                if not any(each.offset <= first and last <= each.end for each in known)
                and not _is_cut_off(files, first)
            ]
            found += [
                Finding("gap", files.path_of(first), first, last, "bytes that are no record")
                for first, last in rest
            ]
        return found

    def _with_short_files(self, known: Sequence[Finding]) -> list[Finding]:
        """A finding for each file that is cut off, in the place of the record cut off by that."""
        files, found = self._source.files, list(known)
        for file in files.short():
            cut = [each for each in found if file.base <= each.offset < each.end == file.end]
            found = [each for each in found if each not in cut]
            offset = cut[0].offset if cut else file.end
            detail = f"the file is cut off: it has {file.length} bytes, not {files.file_size}"
            found.append(
                Finding("truncated_file", file.path, offset, file.base + files.file_size, detail)
            )
        return found

    def _end_findings(self) -> list[Finding]:
        """What stands at the end of the log, and whether it ends too early."""
        end, found = self._end, []
        known = [each for each in self._behind if each.offset == end.offset]
        if end.tail is Tail.TORN:
            found.append(Finding("torn", end.file, end.offset, end.offset, end.reason, fault=False))
        elif end.tail is Tail.CORRUPT:
            found.append(self._damaged_end())
        elif end.tail is Tail.STALE and not known:
            found.append(
                Finding("left_over", end.file, end.offset, end.offset, end.reason, fault=False)
            )
        lost = lost_end(self._source, end)
        return found if lost is None else [*found, lost]

    def _damaged_end(self) -> Finding:
        end = self._end
        damage = Finding("corrupt", end.file, end.offset, end.offset, end.reason)
        if end.record is None:
            return damage
        record = end.record
        return replace(
            damage,
            topic=record.topic,
            queue_id=record.queue_id,
            queue_offset=record.queue_offset,
            detail=f"message {record.queue_offset} of {record.topic}/{record.queue_id}: "
            f"{end.reason}",
        )

    def _breaks(self) -> list[QueueBreak]:
        """Where a queue's numbers do not run on, inside spans and from one to the next."""
        last: dict[tuple[str, int], tuple[int, int]] = {}
        found: list[QueueBreak] = []
        for audit in self._audits:
            found += audit.breaks
            for part in audit.queues:
                queue = part.topic, part.queue_id
                before = last.get(queue)
                if before is not None and part.first != before[0] + 1:
                    found.append(QueueBreak(*queue, *before, part.first, part.first_at))
                last[queue] = part.last, part.last_at
        # a record of a batch queue takes as many numbers as it has messages
        batch = batch_topics(self._source.files.store)
        found = [each for each in found if each.topic not in batch]
        # where the number after a break does not run on either; the last record has none after it
        ends = {(each.topic, each.queue_id, each.before_at) for each in found}
        ends |= {(*queue, at) for queue, (_, at) in last.items()}
        marked = [
            replace(each, begins_again=True)
            if each.number <= each.before and (each.topic, each.queue_id, each.at) not in ends
            else each
            for each in found
        ]
        return sorted(marked, key=lambda each: each.at)

    def _note_begin(self) -> None:
        if isinstance(self._source, LocalLogSource):
            begin = self._source.queues.log_begin
            if 0 <= begin < self._start:
                first = self._source.files.path_of(begin)
                self._notes.append(
                    f"the queues begin at offset {begin}, in {first}, the log at {self._start}: "
                    "what lies between was deleted after its retention, or is lost"
                )

    # ---- what there is

    def _rows(self) -> list[dict[str, object]]:
        """A row a file."""
        rows: dict[str, dict[str, object]] = {}
        for audit in self._audits:
            row = rows.setdefault(
                audit.file,
                {"file": audit.file, "records": 0, "bytes": 0, "first": None, "last": None},
            )
            row["records"] = int(str(row["records"])) + audit.records
            row["bytes"] = int(str(row["bytes"])) + audit.size
            if audit.records:
                row["first"] = row["first"] or audit.min_timestamp
                row["last"] = audit.max_timestamp
        return list(rows.values())

    def _topics(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for audit in self._audits:
            for topic, count in audit.topics.items():
                counts[topic] = counts.get(topic, 0) + count
        return dict(sorted(counts.items()))


def _is_cut_off(files: LogFiles, offset: int) -> bool:
    """Whether the offset lies behind the end of a file that should hold it."""
    return any(file.end <= offset < file.base + files.file_size for file in files.short())


def _without(start: int, end: int, cut: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """start .. end without the stretches of `cut`, which ascend."""
    left = []
    for first, last in cut:
        if last <= start or first >= end:
            continue
        if first > start:
            left.append((start, first))
        start = max(start, last)
    if start < end:
        left.append((start, end))
    return left


def _explain(
    physical: Sequence[Finding], breaks: Sequence[QueueBreak]
) -> tuple[list[Finding], list[QueueBreak]]:
    """The findings with the numbers that the queues lack because of them; the breaks that none
    of them explains."""
    lacking: list[list[QueueBreak]] = [[] for _ in physical]
    left = []
    for each in breaks:
        between = [
            number
            for number, finding in enumerate(physical)
            if each.before_at < finding.end
            and finding.offset < each.at
            and each.number > each.before
        ]
        for number in between:
            lacking[number].append(each)
        if not between:
            left.append(each)
    return [
        _with_loss(finding, lost) for finding, lost in zip(physical, lacking, strict=True)
    ], left


def _with_loss(finding: Finding, lost: Sequence[QueueBreak]) -> Finding:
    if not lost:
        return finding
    names = [each.lacks() for each in lost[:_MOST_NAMED]]
    left = len(lost) - _MOST_NAMED
    more = f" and {counted(left, 'more queue')}" if left > 0 else ""
    named = finding
    if finding.topic is None:
        first = lost[0]
        named = replace(
            finding, topic=first.topic, queue_id=first.queue_id, queue_offset=first.before + 1
        )
    return replace(named, detail=f"{finding.detail}; the queues lack {', '.join(names)}{more}")
