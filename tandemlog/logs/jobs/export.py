"""A store as Parquet: messages by topic and day for queries, and byte for byte for restore.

parquet_folder.py describes the folder. Tasks write their own files under names that do not depend
on the attempt; then small ones are merged. The manifest is written last: a folder without one is
not an export.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tandemlog.format.files.index_layout import DEFAULT_ENTRIES, DEFAULT_SLOTS

from ..audit.audit_span import Finding
from ..executors import Executor, parallelism, run_tasks
from ..job_errors import OnCorruption, OptionError, StoreLayoutError
from ..reading.log_source import LocalLogSource, LogSource, open_store
from ..reading.log_spans import TARGET_BYTES, Span, pieces_wanted, spans_for_tasks, split
from ..tasks.export_tasks import ExportOutcome, ExportTask, export_part, rest_of
from ..tasks.parquet_folder import FILES, MANIFEST, MESSAGES, RAW, Manifest
from ..tasks.parquet_merge import groups_of, merge_parts, merge_tasks
from ..tasks.store_settings import check_index_sizes, indexes_tags, stored_delay_levels
from .job_result import JobProgress, JobResult, no_progress, topic_counts, within
from .missing_files import with_missing_files

COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")
_SMALL_FILES = ("checkpoint", "abort", "epochFileCheckpoint", "config/*", "config/**/*")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Which forms are written, and how. The index sizes are only to find out whether the store's
    index has tags, which a restore then follows."""

    messages: bool = True
    raw: bool = True
    compression: str = "snappy"
    target_bytes: int = TARGET_BYTES
    on_corruption: OnCorruption = OnCorruption.FAIL
    index_slots: int = DEFAULT_SLOTS
    index_entries: int = DEFAULT_ENTRIES


def export(
    spark: Executor,
    store: str | Path,
    out: str | Path,
    options: ExportOptions | None = None,
    *,
    progress: JobProgress = no_progress,
) -> JobResult:
    """Write the log of `store` (log_source.open_store) as Parquet below `out`.

    Raises StoreMissingError, StoreLayoutError, OptionError before anything runs; CorruptLogError
    if the log is damaged and on_corruption is FAIL (the raw form of a damaged log is exact too,
    with another setting).
    """
    chosen = options if options is not None else ExportOptions()
    started = time.monotonic()
    target, source = Path(out), open_store(store)
    _check(target, source, chosen)
    start, end = source.start(), source.end().offset
    tasks = _tasks(source, target, chosen, start, end, parallelism(spark))
    target.mkdir(parents=True, exist_ok=True)
    try:
        outcomes = run_tasks(spark, export_part, tasks, within(progress, "writing Parquet"))
        damage = (finding for outcome in outcomes for finding in outcome.findings)
        findings = with_missing_files(source, damage, chosen.on_corruption)
        fewer = _merged(spark, target, chosen, outcomes, progress)
    except BaseException:
        for name in (MESSAGES, RAW):
            shutil.rmtree(target / name, ignore_errors=True)
        raise
    manifest = _manifest(source, chosen, start, end, outcomes)
    if isinstance(source, LocalLogSource) and source.files.store is not None:
        manifest.small_files = _copy_small_files(Path(source.files.store), target / FILES)
    manifest.write(target)
    seconds = time.monotonic() - started
    files = sum(outcome.files for outcome in outcomes) - fewer
    return _result(manifest, files, findings, target, chosen, seconds)


def _check(target: Path, source: LogSource, options: ExportOptions) -> None:
    if options.compression not in COMPRESSIONS:
        raise OptionError(
            f"compression {options.compression!r} is none of {', '.join(COMPRESSIONS)}"
        )
    if not (options.messages or options.raw):
        raise OptionError("nothing to write: neither messages nor raw")
    for name in (MANIFEST, MESSAGES, RAW, FILES):
        if (target / name).exists():
            raise OptionError(f"{target / name} exists already: give an empty folder")
    if options.on_corruption is OnCorruption.FAIL:
        source.check_complete()


def _tasks(
    source: LogSource, target: Path, options: ExportOptions, start: int, end: int, cores: int
) -> list[ExportTask]:
    def task(spans: Sequence[Span], rest: Sequence[Span]) -> ExportTask:
        return ExportTask(
            source=source,
            spans=tuple(spans),
            rest=tuple(rest),
            out=str(target),
            messages=options.messages,
            raw=options.raw,
            compression=options.compression,
        )

    groups = spans_for_tasks(source.files, start, end, options.target_bytes, cores)
    tasks = [task(group, ()) for group in groups]
    if options.raw and isinstance(source, LocalLogSource) and source.files.files:
        files = source.files
        whole = split(files, files.start, files.files[-1].end, files.file_size)
        rest = rest_of(start, end, whole)
        # The task with the records of the same offset has the same name for its part.
        tasks += [task((), (span,)) for span in rest if span.start != start or span.start == end]
    return tasks


def _merged(
    spark: Executor,
    target: Path,
    options: ExportOptions,
    outcomes: Sequence[ExportOutcome],
    progress: JobProgress,
) -> int:
    """Merge the many small files of a topic's day; returns how many fewer there are then."""
    parts = [part for outcome in outcomes for part in outcome.parts]
    groups = list(groups_of(parts, options.target_bytes))
    size = sum(part.size for group in groups for part in group)
    count = pieces_wanted(size, options.target_bytes, parallelism(spark))
    tasks = merge_tasks(target / MESSAGES, groups, count, options.compression)
    return sum(run_tasks(spark, merge_parts, tasks, within(progress, "merging small files")))


def _manifest(
    source: LogSource,
    options: ExportOptions,
    start: int,
    end: int,
    outcomes: Sequence[ExportOutcome],
) -> Manifest:
    return Manifest(
        file_size=source.files.file_size,
        start=start,
        end=end,
        files=[[file.base, file.length] for file in source.files.files],
        index_tags=_tags(source, options),
        queue_file_size=source.queues.file_size if isinstance(source, LocalLogSource) else None,
        delay_levels=stored_delay_levels(source),
        records=sum(outcome.records for outcome in outcomes),
        topics=topic_counts(outcome.topics for outcome in outcomes),
        parts=[asdict(outcome.raw) for outcome in outcomes if outcome.raw is not None],
    )


def _tags(source: LogSource, options: ExportOptions) -> bool | None:
    """Whether the store's index has tags, if its files have the sizes that were given."""
    try:
        check_index_sizes(source.files.store, options.index_slots, options.index_entries)
    except StoreLayoutError:
        return None
    return indexes_tags(source, options.index_slots, options.index_entries)


def _copy_small_files(store: Path, target: Path) -> list[str]:
    """The files of a store beside its log and what is derived from that; returns their names."""
    copied = []
    for pattern in _SMALL_FILES:
        for path in sorted(store.glob(pattern)):
            name = str(path.relative_to(store))
            if path.is_file() and name not in copied:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target / name)
                copied.append(name)
    return copied


def _result(
    manifest: Manifest,
    files: int,
    findings: list[Finding],
    target: Path,
    options: ExportOptions,
    seconds: float,
) -> JobResult:
    result = JobResult("export", findings=findings)
    result.summary = {
        "out": str(target),
        "records": manifest.records,
        "bytes": manifest.end - manifest.start,
        "files": files,
        "messages": options.messages,
        "raw": options.raw,
        "topics": manifest.topics,
        "seconds": round(seconds, 3),
    }
    result.rows = [{"topic": topic, "records": count} for topic, count in manifest.topics.items()]
    return result
