"""Restores a store from what `export` wrote: log files byte for byte, then queues and index.

DIR/raw ──▶ OUT/commitlog      every record checked, every byte of the log covered
DIR/files ─▶ OUT/config, checkpoint, epochs
OUT/commitlog ──rebuild──▶ OUT/consumequeue, OUT/index
"""

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from tandemlog.format.files.names import offset_file_name
from tandemlog.format.files.queue_unit import DEFAULT_QUEUE_FILE_SIZE, DelayLevels

from ..executors import Executor, run_tasks
from ..job_errors import (
    OnCorruption,
    OptionError,
    PipelineError,
    StoreLayoutError,
    StoreMissingError,
)
from ..reading.log_files import COMMIT_LOG
from ..tasks.parquet_folder import FILES, RAW, Manifest, read_manifest
from ..tasks.restore_tasks import RestoreOutcome, RestoreTask, restore_part
from .job_result import JobProgress, JobResult, no_progress, within
from .rebuild import RebuildOptions, check_queue_file_size, rebuild


def restore(
    spark: Executor,
    archive: str | Path,
    out: str | Path,
    options: RebuildOptions | None = None,
    *,
    progress: JobProgress = no_progress,
) -> JobResult:
    """Write the store at `out`, which must be empty or not exist, from the export in `archive`.

    `options` say how queues and index are rebuilt, if they are. Raises StoreMissingError,
    StoreLayoutError, OptionError before anything runs; CorruptLogError if bytes have changed,
    PipelineError if queues cannot be rebuilt from the log. After an error `out` is empty again, and
    the restore can be repeated.
    """
    started = time.monotonic()
    source, target = Path(archive), Path(out)
    manifest = read_manifest(source)
    derived = _rebuild_options(manifest, options)
    tasks = _tasks(source, target, manifest)
    log = target / COMMIT_LOG
    try:
        log.mkdir(parents=True)
        for base, length in manifest.files:
            with (log / offset_file_name(base)).open("wb") as file:
                os.ftruncate(file.fileno(), length)
        outcomes = run_tasks(spark, restore_part, tasks, within(progress, "writing the log"))
        _check_covered(source, manifest, outcomes)
        _copy_small_files(source, target, manifest)
        result = JobResult("restore")
        result.summary = {
            "out": str(target),
            "records": sum(outcome.records for outcome in outcomes),
            "bytes": sum(outcome.size for outcome in outcomes),
            "log_files": len(manifest.files),
            "topics": manifest.topics,
        }
        _rebuild(spark, target, derived, progress, result)
    except BaseException:
        _clear(target)
        raise
    result.summary["seconds"] = round(time.monotonic() - started, 3)
    return result


def _tasks(source: Path, target: Path, manifest: Manifest) -> list[RestoreTask]:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise OptionError(f"{target} is not an empty folder")
    if not manifest.parts:
        raise StoreMissingError(f"{source} was exported without its raw form")
    tasks = []
    for part in manifest.parts:
        path = source / RAW / part["name"]
        if not path.is_file():
            raise StoreMissingError(f"{path}: the part is missing")
        files = tuple((base, length) for base, length in manifest.files)
        tasks.append(
            RestoreTask(str(path), str(target / COMMIT_LOG), files, part["records"], part["size"])
        )
    return tasks


def _check_covered(source: Path, manifest: Manifest, outcomes: Sequence[RestoreOutcome]) -> None:
    """Check that every record was restored, and once. Raises StoreLayoutError."""
    records = sum(outcome.records for outcome in outcomes)
    if records != manifest.records:
        raise StoreLayoutError(
            f"{source}: {records} records in its raw parts, the manifest says {manifest.records}"
        )
    ranges = sorted(each for outcome in outcomes for each in outcome.covered)
    for before, after in pairwise(ranges):
        if after[0] < before[1]:
            raise StoreLayoutError(f"{source}: two parts have records at offset {after[0]}")


def _copy_small_files(source: Path, target: Path, manifest: Manifest) -> None:
    for name in manifest.small_files:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / FILES / name, path)


def _clear(target: Path) -> None:
    """Remove what was written: the folder was empty."""
    if not target.is_dir():
        return
    for path in target.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _rebuild_options(manifest: Manifest, options: RebuildOptions | None) -> RebuildOptions | None:
    """How queues and index are rebuilt: as the manifest describes the old ones, unless the options
    say otherwise. None: not at all.

    Raises StoreLayoutError, FormatError for what the rebuild would refuse after the whole log is
    written.
    """
    chosen = options if options is not None else RebuildOptions()
    if not (chosen.queues or chosen.index):
        return None
    for name in ("index_tags", "queue_file_size", "delay_levels"):
        if getattr(chosen, name) is None:
            chosen = replace(chosen, **{name: getattr(manifest, name)})
    DelayLevels(chosen.delay_levels or "")
    check_queue_file_size(chosen.queue_file_size or DEFAULT_QUEUE_FILE_SIZE)
    # Damage that was exported is in the same place again.
    return replace(chosen, on_corruption=OnCorruption.SKIP)


def _rebuild(
    spark: Executor,
    target: Path,
    options: RebuildOptions | None,
    progress: JobProgress,
    result: JobResult,
) -> None:
    """Queues and index of the restored store."""
    if options is None:
        return
    try:
        rebuilt = rebuild(spark, target, target, options, progress=progress)
    except PipelineError as error:
        raise PipelineError(f"{error} (--log-only restores the log alone)") from error
    result.rows, result.findings = rebuilt.rows, rebuilt.findings
    result.notes += rebuilt.notes
    for name in ("queues", "units", "index_files", "index_entries"):
        result.summary[name] = rebuilt.summary[name]
