"""Rebuild consume queues and index files from the commit log alone.

    log ──spans──▶ parts (units by queue, index entries in order)
                     ├─ buckets of queues ──▶ OUT/consumequeue/<topic>/<queue>/<file>
                     └─ N-1 entries each  ──▶ OUT/index/<time of the first entry>

The result equals what the store's reput writes, byte for byte. All files are written to a work
folder inside OUT and renamed at the end: OUT gets either all of them or none.
"""

import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from tandemlog.format.files.index_layout import DEFAULT_ENTRIES, DEFAULT_SLOTS
from tandemlog.format.files.names import index_file_name
from tandemlog.format.files.queue_unit import DEFAULT_QUEUE_FILE_SIZE, UNIT_SIZE, DelayLevels
from tandemlog.format.words import counted

from ..audit.span_gaps import Gap, faults_between
from ..executors import Executor, parallelism, run_tasks
from ..job_errors import CorruptLogError, OnCorruption, OptionError, StoreLayoutError
from ..reading.log_end import LogEnd, Tail
from ..reading.log_source import LocalLogSource, LogSource, open_store
from ..reading.log_spans import TARGET_BYTES, spans_for_tasks
from ..reading.queue_ends import CONSUME_QUEUE
from ..tasks.index_writer import plan_index
from ..tasks.queue_writer import WrittenQueue
from ..tasks.rebuild_tasks import (
    DerivedTask,
    IndexTask,
    PartOutcome,
    PartTask,
    QueueTask,
    WrittenIndex,
    make_derived,
    make_part,
)
from ..tasks.store_settings import (
    INDEX,
    batch_topics,
    check_index_sizes,
    indexes_tags,
    own_log_begin,
    stored_delay_levels,
)
from .job_result import JobProgress, JobResult, no_progress, topic_counts, within
from .missing_files import with_missing_files

_RECORDS_A_TASK = 1 << 16


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """Sizes in bytes; `queue_file_size` None: those of the store's own queue files, else
    RocketMQ's default. `index_tags` None: as the store's own index has it, else yes.
    `delay_levels` None: what the store's own schedule queues say, else RocketMQ's."""

    queues: bool = True
    index: bool = True
    index_slots: int = DEFAULT_SLOTS
    index_entries: int = DEFAULT_ENTRIES
    queue_file_size: int | None = None
    index_tags: bool | None = None
    delay_levels: str | None = None
    target_bytes: int = TARGET_BYTES
    on_corruption: OnCorruption = OnCorruption.FAIL


def rebuild(
    spark: Executor,
    store: str | Path,
    out: str | Path,
    options: RebuildOptions | None = None,
    *,
    progress: JobProgress = no_progress,
) -> JobResult:
    """Write consume queues and index files of `store` (log_source.open_store) below `out`.

    Raises PipelineError: StoreMissingError, OptionError and StoreLayoutError before anything runs;
    CorruptLogError if the log is damaged and on_corruption is FAIL.
    """
    chosen = options if options is not None else RebuildOptions()
    source = open_store(store)
    return _Rebuild(spark, source, Path(out), chosen, progress).run()


def check_queue_file_size(size: int) -> None:
    """Raises StoreLayoutError for files that units do not fill."""
    if size % UNIT_SIZE:
        raise StoreLayoutError(f"queue files of {size} bytes: not a multiple of {UNIT_SIZE}")


class _Rebuild:
    def __init__(
        self,
        spark: Executor,
        source: LogSource,
        out: Path,
        options: RebuildOptions,
        progress: JobProgress,
    ) -> None:
        self._spark = spark
        self._source = source
        self._out = out
        self._options = options
        self._progress = progress
        self._result = JobResult("rebuild")
        self._buckets = 2 * parallelism(spark)
        self._work = out / f".rebuild-{uuid.uuid4().hex}"

    def run(self) -> JobResult:
        started = time.monotonic()
        queue_file_size, tags = self._check()
        start, end = self._source.start(), self._source.end()
        self._note_end(end)
        self._work.mkdir(parents=True)
        try:
            parts = self._make_parts(start, end.offset, tags)
            self._check_chain(parts, start, end.offset)
            queues, files = self._make_derived(parts, queue_file_size)
            self._publish(files)
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
        self._summarize(parts, queues, files, end.offset - start, time.monotonic() - started)
        self._result.summary["index_tags"] = tags
        return self._result

    def _check(self) -> tuple[int, bool]:
        """Everything that can be checked before a task runs; returns the queue file size, and
        whether tags are indexed."""
        options, source = self._options, self._source
        DelayLevels(options.delay_levels or "")
        for wanted, name in ((options.queues, CONSUME_QUEUE), (options.index, INDEX)):
            if wanted and (self._out / name).exists():
                raise OptionError(f"{self._out / name} exists already: give an empty folder")
        size = options.queue_file_size
        own_size = source.queues.file_size if isinstance(source, LocalLogSource) else None
        if own_size and size and own_size != size:
            self._result.notes.append(
                f"queue files of the store have {own_size} bytes, not {size}: {own_size} is used"
            )
        size = own_size or size or DEFAULT_QUEUE_FILE_SIZE
        check_queue_file_size(size)
        tags = options.index_tags
        if options.index:
            check_index_sizes(source.files.store, options.index_slots, options.index_entries)
            if tags is None:
                tags = indexes_tags(source, options.index_slots, options.index_entries)
        if options.on_corruption is OnCorruption.FAIL:
            source.check_complete()
        return size, True if tags is None else tags

    def _note_end(self, end: LogEnd) -> None:
        if end.tail not in (Tail.ZEROS, Tail.FULL):
            self._result.notes.append(
                f"{end.file}: the log ends at {end.offset}: {end.tail.value}: {end.reason}"
            )

    def _make_parts(self, start: int, end: int, tags: bool) -> list[PartOutcome]:
        options, cores = self._options, parallelism(self._spark)
        levels = options.delay_levels
        if levels is None:
            levels = stored_delay_levels(self._source)
        files = self._source.files
        groups = spans_for_tasks(files, start, end, options.target_bytes, cores)
        batch = batch_topics(self._source)
        tasks = [
            PartTask(
                source=self._source,
                spans=tuple(group),
                path=str(self._work / f"part-{number:06d}"),
                buckets=self._buckets,
                queues=options.queues,
                index=options.index,
                index_tags=tags,
                delay_levels=levels,
                without_queues=batch,
            )
            for number, group in enumerate(groups)
        ]
        return run_tasks(self._spark, make_part, tasks, within(self._progress, "reading the log"))

    def _check_chain(self, parts: Sequence[PartOutcome], start: int, end: int) -> None:
        """Note the damage inside spans and between them. Raises CorruptLogError for any with
        OnCorruption.FAIL."""
        spans = [span for part in parts for span in part.spans]
        damage = [finding for span in spans for finding in span.findings]
        on_corruption = self._options.on_corruption
        self._result.findings += with_missing_files(self._source, damage, on_corruption)
        covered = [(finding.offset, finding.end) for finding in damage]
        for fault in faults_between(spans, start, end):
            where = self._source.files.path_of(fault.start)
            if not isinstance(fault, Gap):
                raise CorruptLogError(
                    where, fault.start, "records behind a BLANK: give a larger target size"
                )
            if any(first <= fault.start and fault.end <= last for first, last in covered):
                continue
            if on_corruption is OnCorruption.FAIL:
                raise CorruptLogError(where, fault.start, f"no records up to {fault.end}")

    def _make_derived(
        self, parts: Sequence[PartOutcome], queue_file_size: int
    ) -> tuple[list[WrittenQueue], list[WrittenIndex]]:
        options = self._options
        tasks: list[DerivedTask] = []
        if options.index:
            tasks += self._index_tasks(parts)
            (self._work / INDEX).mkdir()
        if options.queues:
            paths = tuple(part.path for part in parts)
            directory = self._work / CONSUME_QUEUE
            directory.mkdir()
            own_from = own_log_begin(self._source.files.store)
            tasks += [
                QueueTask(paths, bucket, str(directory), queue_file_size, own_from)
                for bucket in range(self._buckets)
            ]
        # To start a task for each file would cost more than to write a small file.
        records = sum(span.records for part in parts for span in part.spans)
        groups = max(min(2 * parallelism(self._spark), records // _RECORDS_A_TASK), 1)
        outcomes = run_tasks(
            self._spark,
            make_derived,
            [tuple(tasks[number::groups]) for number in range(min(groups, len(tasks)))],
            within(self._progress, "writing queues and index"),
        )
        queues = [queue for of_task, _ in outcomes for queue in of_task]
        files = [file for _, of_task in outcomes for file in of_task]
        return queues, sorted(files, key=lambda file: file.path)

    def _index_tasks(self, parts: Sequence[PartOutcome]) -> list[DerivedTask]:
        """A task for each index file, with the entries of the parts that belong into it."""
        options = self._options
        ends = list(accumulate(part.items for part in parts))
        begins = [end - part.items for end, part in zip(ends, parts, strict=True)]

        def place(entry: int) -> tuple[str, int]:
            number = next(i for i, end in enumerate(ends) if entry < end)
            return parts[number].path, entry - begins[number]

        tasks: list[DerivedTask] = []
        for plan in plan_index(ends[-1] if ends else 0, options.index_entries):
            slices = []
            for part, begin, end in zip(parts, begins, ends, strict=True):
                first, last = max(plan.first, begin), min(plan.last, end)
                if first < last:
                    slices.append((part.path, first - begin, last - first))
            tasks.append(
                IndexTask(
                    path=str(self._work / INDEX / f"{plan.number:09d}"),
                    slices=tuple(slices),
                    before=place(plan.first - 1) if plan.first else None,
                    slots=options.index_slots,
                    entries=options.index_entries,
                )
            )
        return tasks

    def _publish(self, files: Sequence[WrittenIndex]) -> None:
        """Give the index files their names, and move everything from the work folder to OUT."""
        created = 0
        for file in files:
            created = max(file.begin_timestamp, created + 1)
            Path(file.path).rename(self._work / INDEX / index_file_name(created))
        for wanted, name in (
            (self._options.queues, CONSUME_QUEUE),
            (self._options.index, INDEX),
        ):
            if wanted:
                (self._work / name).rename(self._out / name)

    def _summarize(
        self,
        parts: Sequence[PartOutcome],
        queues: Sequence[WrittenQueue],
        files: Sequence[WrittenIndex],
        size: int,
        seconds: float,
    ) -> None:
        result = self._result
        records = sum(span.records for part in parts for span in part.spans)
        result.summary = {
            "out": str(self._out),
            "records": records,
            "bytes": size,
            "queues": len(queues),
            "units": sum(queue.units for queue in queues),
            "index_files": len(files),
            "index_entries": sum(file.entries for file in files),
            "topics": topic_counts(part.topics for part in parts),
            "seconds": round(seconds, 3),
        }
        for queue in sorted(queues, key=lambda each: (each.topic, each.queue_id)):
            columns = ("topic", "queue_id", "first", "end", "units")
            result.rows.append({name: getattr(queue, name) for name in columns})
            if queue.deleted:
                result.notes.append(
                    f"{queue.topic}/{queue.queue_id} began again, since its topic was deleted and "
                    f"created again: {counted(queue.deleted, 'record')} before that left out"
                )
            if queue.repeated or queue.lacking:
                result.notes.append(
                    f"{queue.topic}/{queue.queue_id}: the log has {queue.repeated} numbers twice "
                    f"and {queue.lacking} are missing"
                )
