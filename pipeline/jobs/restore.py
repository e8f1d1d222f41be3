"""A store again, from what `export` wrote: log files byte for byte, then queues and index.

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

from tandemlog.format.file_names import queue_file_name

from ..archive import FILES, RAW, Manifest, read_manifest
from ..errors import OptionError, StoreLayoutError, StoreMissingError
from ..log_files import COMMIT_LOG
from ..options import OnCorruption
from ..restore_tasks import RestoreOutcome, RestoreTask, restore_part
from ..tasks import Executor, run_tasks
from .rebuild import RebuildOptions, rebuild
from .result import JobResult, Progress, no_progress, within


def restore(
    spark: Executor,
    archive: str | Path,
    out: str | Path,
    options: RebuildOptions | None = None,
    *,
    progress: Progress = no_progress,
) -> JobResult:
    """Make the store at `out`, which must be empty or not there, from the export in `archive`.

    `options` say how queues and index are made, or that they are not. Raises StoreMissingError,
    StoreLayoutError, OptionError before anything runs; CorruptLogError where bytes are not what
    they were. After an error `out` holds no log.
    """
    started = time.monotonic()
    source, target = Path(archive), Path(out)
    manifest = read_manifest(source)
    tasks = _tasks(source, target, manifest)
    log = target / COMMIT_LOG
    log.mkdir(parents=True)
    try:
        for base, length in manifest.files:
            with (log / queue_file_name(base)).open("wb") as file:
                os.ftruncate(file.fileno(), length)
        outcomes = run_tasks(spark, restore_part, tasks, within(progress, "writing the log"))
        _check_covered(source, manifest, outcomes)
        _copy_small_files(source, target, manifest)
    except BaseException:
        shutil.rmtree(log, ignore_errors=True)
        raise
    result = JobResult("restore")
    result.summary = {
        "out": str(target),
        "records": sum(outcome.records for outcome in outcomes),
        "bytes": sum(outcome.size for outcome in outcomes),
        "log_files": len(manifest.files),
        "topics": manifest.topics,
    }
    _rebuild(spark, target, manifest, options, progress, result)
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
    """Every record came back, none twice. Raises StoreLayoutError."""
    records = sum(outcome.records for outcome in outcomes)
    if records != manifest.records:
        raise StoreLayoutError(
            f"{source}: {records} records in its raw parts, the manifest says {manifest.records}"
        )
    stretches = sorted(each for outcome in outcomes for each in outcome.covered)
    for before, after in pairwise(stretches):
        if after[0] < before[1]:
            raise StoreLayoutError(f"{source}: two parts have records at offset {after[0]}")


def _copy_small_files(source: Path, target: Path, manifest: Manifest) -> None:
    for name in manifest.small_files:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / FILES / name, path)


def _rebuild(
    spark: Executor,
    target: Path,
    manifest: Manifest,
    options: RebuildOptions | None,
    progress: Progress,
    result: JobResult,
) -> None:
    """Queues and index of the restored store, with what the manifest knows of the old ones."""
    chosen = options if options is not None else RebuildOptions()
    if not (chosen.queues or chosen.index):
        return
    if chosen.index_tags is None:
        chosen = replace(chosen, index_tags=manifest.index_tags)
    if chosen.queue_file_size is None:
        chosen = replace(chosen, queue_file_size=manifest.queue_file_size)
    if chosen.delay_levels is None:
        chosen = replace(chosen, delay_levels=manifest.delay_levels)
    # What was damaged when it was exported is damaged in the same place again.
    chosen = replace(chosen, on_corruption=OnCorruption.SKIP)
    made = rebuild(spark, target, target, chosen, progress=progress)
    result.rows, result.findings = made.rows, made.findings
    result.notes += made.notes
    for name in ("queues", "units", "index_files", "index_entries"):
        result.summary[name] = made.summary[name]
