"""The executors' part of a rebuild, in two steps with files between them.

    step 1   spans ──▶ a part file: units by queue, index entries in order
    step 2   a bucket of queues: slices of all parts ──▶ consume queue files
             an index file:      slices of some parts ──▶ the file

Every file is written under a temporary name and renamed, and every attempt writes the same bytes:
a task may run twice.
"""

import resource
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import unit_columns, without_units
from tandemlog.format.files.names import names_a_folder
from tandemlog.format.files.queue_unit import DelayLevels

from ..audit.audit_span import Finding, damage_finding
from ..job_errors import PipelineError
from ..reading.log_source import LogSource
from ..reading.log_spans import Span
from ..reading.queue_collector import Queue, QueueCollector, joined
from ..reading.span_scan import DamagedPiece, Ending, SpanScan
from ..reading.window_dispatch import INDEX_ITEM, dispatched, index_items
from .index_writer import write_index_file
from .queue_writer import QueueWriter, WrittenQueue
from .rebuild_parts import PartFile, QueueRows, write_part

_WINDOW_RECORDS = 1 << 14
_CHUNK_ITEMS = 1 << 18


@dataclass(frozen=True, slots=True)
class PartTask:
    """Step 1 for some spans, in order; `index` False leaves out the index entries; records of the
    topics `without_queues` are in no queue."""

    source: LogSource
    spans: tuple[Span, ...]
    path: str
    buckets: int
    queues: bool
    index: bool
    index_tags: bool
    delay_levels: str
    without_queues: frozenset[str] = frozenset()


@dataclass(slots=True)
class SpanOutcome:
    """How far a span's records go; see SpanScan."""

    span: Span
    first: int
    end: int
    ending: Ending
    records: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class PartOutcome:
    """A part, the results of its spans, and how many messages each topic has in it."""

    path: str
    items: int
    spans: list[SpanOutcome]
    topics: dict[str, int]


def make_part(task: PartTask) -> PartOutcome:
    """Step 1. Raises OSError, FetchError."""
    collector = QueueCollector()
    items: list[NDArray[np.void]] = []
    outcomes = []
    counts: Counter[str] = Counter()
    with closing(task.source.connect()) as log:
        for span in task.spans:
            outcome = SpanOutcome(span, -1, span.start, Ending.NOTHING)
            scan = SpanScan(log, span, check_crc=False, window_records=_WINDOW_RECORDS)
            for part in scan:
                if isinstance(part, DamagedPiece):
                    finding = damage_finding(log, task.source.files, span, part)
                    outcome.findings.append(finding)
                    continue
                outcome.records += part.count
                columns = dispatched(
                    part,
                    index=task.index,
                    index_tags=task.index_tags,
                    delay_levels=DelayLevels(task.delay_levels),
                )
                of_topics = np.bincount(columns.topic_index).tolist()
                for topic, count in zip(columns.topics, of_topics, strict=True):
                    counts[topic] += count
                if task.queues:
                    rows = unit_columns(without_units(columns, task.without_queues))
                    collector.add(
                        rows.topics, rows.topic_index, rows.queue_id, rows.queue_offset, rows.units
                    )
                if task.index:
                    items.append(index_items(columns))
            outcome.first, outcome.end, outcome.ending = scan.first, scan.end, scan.ending
            outcomes.append(outcome)
    entries = joined(items) if items else np.zeros(0, INDEX_ITEM)
    write_part(Path(task.path), collector.collected(), entries, task.buckets)
    return PartOutcome(task.path, len(entries), outcomes, counts)


@dataclass(frozen=True, slots=True)
class QueueTask:
    """Step 2 for the queues of a bucket; `parts` in log order; `own_from` as QueueWriter has it."""

    parts: tuple[str, ...]
    bucket: int
    directory: str
    file_size: int
    own_from: int


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Step 2 for an index file: (part, first entry, entries) in log order, and the entry before
    the first of them."""

    path: str
    slices: tuple[tuple[str, int, int], ...]
    before: tuple[str, int] | None
    slots: int
    entries: int


@dataclass(frozen=True, slots=True)
class WrittenIndex:
    """An index file: its first entry's store time (ms), and how many entries it has."""

    path: str
    begin_timestamp: int
    entries: int
    used_slots: int


DerivedTask = QueueTask | IndexTask


def make_derived(tasks: tuple[DerivedTask, ...]) -> tuple[list[WrittenQueue], list[WrittenIndex]]:
    """Step 2. Raises OSError, and PipelineError for a topic that cannot be a folder."""
    queues: list[WrittenQueue] = []
    files: list[WrittenIndex] = []
    for task in tasks:
        if isinstance(task, QueueTask):
            queues += _make_queues(task)
        else:
            files.append(_make_index(task))
    return queues, files


def _make_queues(task: QueueTask) -> list[WrittenQueue]:
    # One descriptor a part: a log of some hundred gigabytes has more than the usual limit of 1,024.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rows_of: dict[Queue, list[tuple[PartFile, QueueRows]]] = {}
    with ExitStack() as stack:
        for path in task.parts:
            part = stack.enter_context(closing(PartFile(path)))
            for rows in part.queues(task.bucket):
                rows_of.setdefault(rows.queue, []).append((part, rows))
        return [_make_queue(task, queue, pieces) for queue, pieces in rows_of.items()]


def _make_queue(
    task: QueueTask, queue: Queue, pieces: list[tuple[PartFile, QueueRows]]
) -> WrittenQueue:
    directory = Path(task.directory)
    topic, queue_id = queue
    if not names_a_folder(topic):
        raise PipelineError(
            f"the log has a message of topic {topic!r}, which is not a valid folder name"
        )
    target = directory / topic / str(queue_id)
    aside = directory / topic / f"{queue_id}.{uuid.uuid4().hex}"
    shutil.rmtree(aside, ignore_errors=True)
    writer = QueueWriter(aside, topic, queue_id, task.file_size, task.own_from)
    try:
        for part, rows in pieces:
            writer.put(part.numbers(rows), part.units(rows))
    finally:
        written = writer.close()
    try:
        aside.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(aside)  # another attempt has written the same files
    return written


def _make_index(task: IndexTask) -> WrittenIndex:
    before = None
    if task.before is not None:
        path, number = task.before
        before = _items(path, number, 1)
    aside = Path(f"{task.path}.{uuid.uuid4().hex}")
    header = write_index_file(aside, _chunks(task), before, task.slots, task.entries)
    aside.replace(task.path)
    return WrittenIndex(task.path, header.begin_timestamp, header.next_entry - 1, header.used_slots)


def _chunks(task: IndexTask) -> Iterator[NDArray[np.void]]:
    for path, first, count in task.slices:
        for start in range(first, first + count, _CHUNK_ITEMS):
            yield _items(path, start, min(_CHUNK_ITEMS, first + count - start))


def _items(path: str, first: int, count: int) -> NDArray[np.void]:
    with closing(PartFile(path)) as part:
        return part.items(first, count)
