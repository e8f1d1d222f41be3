"""Compares two copies of a log: CRCs of blocks first, then the records where they differ.

    copy 1   start |=================| end        blocks over what both have
    copy 2      start |===========| end

A copy is not equal if it begins later, ends earlier (than the other, or than its own queues say),
lacks a file or has one cut off, and the first message that it lacks is named. Bytes outside records
(behind a BLANK or the end) may differ.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tandemlog.format.record.record import Record

from ..audit.audit_span import Finding
from ..audit.block_sums import BLOCK_BYTES, BlockSums, BlockTask, sum_blocks
from ..audit.record_diff import DiffOutcome, DiffTask, find_differences
from ..audit.tail_scan import TailTask, scan_tail, tail_tasks
from ..executors import Executor, parallelism, run_tasks
from ..job_errors import StoreLayoutError
from ..reading.damaged_record import lenient_record, record_text
from ..reading.log_end import LogEnd, Tail
from ..reading.log_source import LocalLogSource, LogSource, open_store
from ..reading.log_spans import TARGET_BYTES, Span, grouped, pieces_wanted
from .job_result import Drawn, JobProgress, JobResult, log_files, no_progress, within
from .missing_files import lost_end

_MERGED_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Copy:
    """One of the two: where it is, and what its log covers."""

    source: LogSource
    start: int
    end: LogEnd

    @property
    def name(self) -> str:
        return self.source.files.directory


_Task = BlockTask | TailTask | DiffTask
_Outcome = BlockSums | list[Finding] | DiffOutcome


def compare_part(task: _Task) -> _Outcome:
    """What an executor does. Raises OSError, FetchError."""
    if isinstance(task, BlockTask):
        return sum_blocks(task)
    if isinstance(task, TailTask):
        return scan_tail(task)
    return find_differences(task)


def compare(
    spark: Executor,
    first: str | Path,
    second: str | Path,
    *,
    until: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    target_bytes: int = TARGET_BYTES,
    progress: JobProgress = no_progress,
) -> JobResult:
    """Compare the logs of two stores (log_source.open_store). Changes nothing.

    `until` is for two replicas: neither has to hold what lies above this offset or below its own
    first file, so only what both have below it is compared.

    Raises StoreMissingError, StoreLayoutError, FetchError before anything runs.
    """
    started = time.monotonic()
    copies = []
    for store in (first, second):
        source = open_store(store)
        copies.append(_Copy(source, source.start(), source.end()))
    sizes = [copy.source.files.file_size for copy in copies]
    if all(sizes) and sizes[0] != sizes[1]:
        raise StoreLayoutError(
            f"{copies[0].name} has log files of {sizes[0]} bytes, {copies[1].name} of {sizes[1]}"
        )
    result = _Compare(spark, copies[0], copies[1], until, block_bytes, target_bytes, progress).run()
    result.summary["seconds"] = round(time.monotonic() - started, 3)
    return result


class _Compare:
    def __init__(
        self,
        spark: Executor,
        first: _Copy,
        second: _Copy,
        until: int | None,
        block_bytes: int,
        target_bytes: int,
        progress: JobProgress,
    ) -> None:
        self._spark = spark
        self._copies = (first, second)
        self._block_bytes = block_bytes
        self._target_bytes = target_bytes
        self._progress = progress
        self._start = max(first.start, second.start)
        self._replicas = until is not None
        end = min(first.end.offset, second.end.offset)
        self._end = max(end if until is None else min(end, until), self._start)
        self._result = JobResult("compare")

    def run(self) -> JobResult:
        findings = [*self._file_findings(), *self._range_findings()]
        sums, behind = self._sums()
        differing = self._differing(sums)
        outcomes = self._differences(differing)
        findings += [finding for outcome in outcomes for finding in outcome.findings]
        findings += behind
        result = self._result
        result.findings = _without_covered(sorted(findings, key=lambda each: each.offset))
        outside = sum(outcome.outside for outcome in outcomes)
        if outside:
            result.notes.append(f"{outside} bytes outside records differ, which means nothing")
        result.summary = {
            "first": self._copies[0].name,
            "second": self._copies[1].name,
            "start": self._start,
            "end": self._end,
            "equal": not any(finding.fault for finding in result.findings),
            "bytes": self._end - self._start,
            "blocks": sum(len(each.sums) for each in sums) // 2,
            "differing_blocks": len(differing),
        }
        result.drawn = Drawn((self._start, self._end), log_files(self._copies[0].source.files))
        result.rows = [
            {"copy": copy.name, "start": copy.start, "end": copy.end.offset,
             "tail": copy.end.tail.name.lower()}
            for copy in self._copies
        ]  # fmt: skip
        return result

    def _file_findings(self) -> Iterable[Finding]:
        for copy, other in (self._copies, self._copies[::-1]):
            files = copy.source.files
            for start, end in files.missing():
                for at in range(start, end, files.file_size):
                    yield self._lacking("missing_file", copy, other, at, at + files.file_size)
            for file in files.short():
                until = file.base + files.file_size
                begin = min(copy.end.offset, file.end) if file.end > copy.end.offset else file.end
                lacking = self._lacking("truncated_file", copy, other, begin, until)
                detail = f"the file has {file.length} bytes, not {files.file_size}"
                yield replace(lacking, file=file.path, detail=f"{detail}; {lacking.detail}")

    def _range_findings(self) -> Iterable[Finding]:
        for copy, other in (self._copies, self._copies[::-1]):
            if copy.start > other.start and not self._replicas:
                yield self._lacking("begins_later", copy, other, other.start, copy.start)
            if copy.end.offset < other.end.offset and not self._replicas:
                yield self._lacking("ends_earlier", copy, other, copy.end.offset, other.end.offset)
            else:
                lost = lost_end(copy.source, copy.end)
                if lost is not None:
                    yield replace(lost, detail=f"{copy.name}: {lost.detail}")

    def _lacking(self, kind: str, copy: _Copy, other: _Copy, start: int, end: int) -> Finding:
        """What `copy` does not have of `other`."""
        record = _record_from(other.source, start)
        detail = f"{copy.name} does not have offsets {start}..{end}"
        if record is not None:
            detail += f", from {record_text(record)} on"
        if kind == "ends_earlier" and copy.end.tail not in (Tail.ZEROS, Tail.FULL):
            detail += f" ({copy.end.tail.value}: {copy.end.reason})"
        return Finding.of_record(kind, copy.source.files.path_of(start), start, end, detail, record)

    def _sums(self) -> tuple[list[BlockSums], list[Finding]]:
        """Block CRCs of what both copies have; whole records behind the end of either."""
        cores = parallelism(self._spark)
        total = 2 * (self._end - self._start)
        count = pieces_wanted(total, self._target_bytes, cores)
        tasks: list[_Task] = []
        for number, copy in enumerate(self._copies):
            piece = max(-(-total // count), self._block_bytes)
            piece = -(-piece // self._block_bytes) * self._block_bytes
            spans = _on_grid(copy.source, self._start, self._end, piece, self._block_bytes)
            tasks += [
                BlockTask(copy.source, tuple(group), number, self._block_bytes)
                for group in grouped(spans, max(count // 2, 1))
            ]
            if isinstance(copy.source, LocalLogSource) and not self._replicas:
                tasks += tail_tasks(copy.source, copy.end, self._target_bytes, cores)
        outcomes = self._run(tasks, "comparing blocks")
        sums = [each for each in outcomes if isinstance(each, BlockSums)]
        behind_end = [each for found in outcomes if isinstance(found, list) for each in found]
        return sums, behind_end

    def _run(self, tasks: "list[_Task]", doing: str) -> "list[_Outcome]":
        return run_tasks(self._spark, compare_part, tasks, within(self._progress, doing))

    def _differing(self, sums: Sequence[BlockSums]) -> list[tuple[int, int]]:
        """Offset and length of the blocks that differ, or that only one copy has."""
        blocks: list[dict[int, tuple[int, int]]] = [{}, {}]
        for each in sums:
            rows = zip(
                each.offsets.tolist(), each.lengths.tolist(), each.sums.tolist(), strict=True
            )
            blocks[each.copy].update({offset: (length, crc) for offset, length, crc in rows})
        first, second = blocks
        return [
            (offset, max(first.get(offset, (0, 0))[0], second.get(offset, (0, 0))[0]))
            for offset in sorted(first.keys() | second.keys())
            if first.get(offset) != second.get(offset)
        ]

    def _differences(self, differing: Sequence[tuple[int, int]]) -> list[DiffOutcome]:
        first, second = (copy.source for copy in self._copies)
        tasks: list[_Task] = []
        for start, end in _merged(differing):
            file = first.files.find(start)
            if file is not None and second.files.find(start) is not None:
                span = Span(file.base, file.base + first.files.file_size, start, end)
                tasks.append(DiffTask((first, second), span))
        outcomes = self._run(tasks, "comparing records")
        return [each for each in outcomes if isinstance(each, DiffOutcome)]


def _on_grid(source: LogSource, start: int, end: int, piece: int, block: int) -> list[Span]:
    """Spans whose borders inside files lie on the grid of blocks, so that none is summed in two
    parts."""
    spans = []
    for file in source.files.files:
        first, last = max(start, file.base), min(end, file.end)
        while first < last:
            until = file.base + (first - file.base) // block * block + piece
            spans.append(Span(file.base, file.end, first, min(until, last)))
            first = until
    return spans


def _merged(blocks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring blocks as one range, up to a size."""
    merged: list[tuple[int, int]] = []
    for start, length in blocks:
        if merged and merged[-1][1] == start and start + length - merged[-1][0] <= _MERGED_BYTES:
            merged[-1] = (merged[-1][0], start + length)
        else:
            merged.append((start, start + length))
    return merged


def _record_from(source: LogSource, offset: int) -> Record | None:
    """The record of a log at an offset, if one can be read there."""
    file = source.files.find(offset)
    if file is None:
        return None
    with closing(source.connect()) as log:
        return lenient_record(log, offset, file.end)


def _without_covered(findings: Sequence[Finding]) -> list[Finding]:
    """Without records that differ only because a file is missing or cut off there."""
    covering = [each for each in findings if each.kind in ("missing_file", "truncated_file")]
    return [
        each
        for each in findings
        if each.kind != "differs"
        or not any(one.offset <= each.offset < one.end for one in covering)
    ]
