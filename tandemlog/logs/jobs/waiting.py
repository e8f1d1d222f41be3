"""What waits in a log: messages that come later, and transactions without an outcome.

    rows                 by kind and topic: how many, since when, from when to when they are due
    OUT/waiting.parquet  one row a record, if OUT is given

A slave's files, a copy or a backup tell it as well as a master's: the log alone says what waits
(waiting_tasks.py). `late` messages are due before the newest store time of the log: on a node that
runs they come within a second, so they are those that no master delivered, as after the end of the
last master.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandemlog.arrow.plain_arrays import timestamps

from ..executors import Executor, parallelism, run_tasks
from ..job_errors import OnCorruption, OptionError
from ..reading.log_source import open_store
from ..reading.log_spans import TARGET_BYTES, spans_for_tasks
from ..tasks.store_settings import stored_delay_levels
from ..tasks.waiting_tasks import (
    DELAY,
    ROW,
    WaitingPart,
    WaitingTask,
    joined,
    scan_waiting,
    with_steps,
    without_taken_over,
)
from .job_result import Drawn, JobProgress, JobResult, log_files, no_progress, within
from .missing_files import with_missing_files

TABLE: Final = "waiting.parquet"
_KINDS: Final = ("delay", "transaction")
_TIME: Final = pa.timestamp("ms", tz="UTC")


def waiting(
    spark: Executor,
    store: str | Path,
    out: str | Path | None = None,
    *,
    target_bytes: int = TARGET_BYTES,
    on_corruption: OnCorruption = OnCorruption.FAIL,
    progress: JobProgress = no_progress,
) -> JobResult:
    """List what waits in the log of `store` (log_source.open_store), each record in `out` if given.

    Raises StoreMissingError, StoreLayoutError, OptionError before anything runs; CorruptLogError
    if the log is damaged and on_corruption is FAIL.
    """
    started = time.monotonic()
    source = open_store(store)
    target = None if out is None else Path(out) / TABLE
    if target is not None and target.exists():
        raise OptionError(f"{target} exists already: give another folder")
    if on_corruption is OnCorruption.FAIL:
        source.check_complete()
    levels = stored_delay_levels(source)
    start, end = source.start(), source.end().offset
    groups = spans_for_tasks(source.files, start, end, target_bytes, parallelism(spark))
    tasks = [WaitingTask(source, tuple(spans), levels) for spans in groups]
    parts = run_tasks(spark, scan_waiting, tasks, within(progress, "looking through the log"))
    damage = (finding for part in parts for finding in part.findings)
    findings = with_missing_files(source, damage, on_corruption)
    rows = _joined(parts)
    newest_ms = max((part.newest_ms for part in parts), default=0)
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_table(rows), target)
    drawn = Drawn((start, end), log_files(source.files))
    drawn.due.add(rows["due_ms"][rows["kind"] == DELAY])
    result = JobResult("waiting", rows=_by_topic(rows, newest_ms), findings=findings, drawn=drawn)
    result.summary = {
        "out": None if target is None else str(target),
        "began": sum(part.began for part in parts),
        "waiting": int((rows["kind"] == DELAY).sum()),
        "open_halves": int((rows["kind"] != DELAY).sum()),
        "late": int(_late(rows, newest_ms).sum()),
        "seconds": round(time.monotonic() - started, 3),
    }
    return result


def _joined(parts: Sequence[WaitingPart]) -> NDArray[np.void]:
    """What no task's endings end, in log order."""
    if not parts:
        return np.empty(0, ROW)
    rows = np.concatenate([part.rows for part in parts])
    rows, _ = joined(rows, np.concatenate([part.endings for part in parts]))
    rows = without_taken_over(rows, [each for part in parts for each in part.taken_over])
    rows = rows[np.argsort(rows["log_offset"], kind="stable")]
    return with_steps(rows, [step for part in parts for step in part.steps])


def _late(rows: NDArray[np.void], newest_ms: int) -> NDArray[np.bool_]:
    late: NDArray[np.bool_] = (rows["kind"] == DELAY) & (rows["due_ms"] < newest_ms)
    return late


def _by_topic(rows: NDArray[np.void], newest_ms: int) -> list[dict[str, Any]]:
    groups: dict[tuple[int, str], list[int]] = {}
    for number, group in enumerate(zip(rows["kind"].tolist(), rows["real_topic"], strict=True)):
        groups.setdefault(group, []).append(number)
    late = _late(rows, newest_ms)
    found = []
    for (kind, topic), numbers in sorted(groups.items()):
        mine = rows[numbers]
        due = mine["due_ms"] if kind == DELAY else None
        found.append(
            {
                "kind": _KINDS[kind],
                "topic": topic,
                "records": len(mine),
                "late": int(late[numbers].sum()),
                "since": _text(mine["store_timestamp"].min()),
                "first_due": None if due is None else _text(due.min()),
                "last_due": None if due is None else _text(due.max()),
            }
        )
    return found


def _text(milliseconds: np.int64) -> str | None:
    [time_of] = timestamps(np.array([milliseconds]), _TIME).to_pylist()
    return None if time_of is None else time_of.isoformat(timespec="milliseconds")


def _table(rows: NDArray[np.void]) -> pa.Table:
    delays = rows["kind"] == DELAY
    columns = {
        "kind": pa.array([_KINDS[kind] for kind in rows["kind"].tolist()], pa.string()),
        "topic": pa.array(rows["topic"], pa.string()),
        "queue_offset": pa.array(rows["queue_offset"]),
        "physical_offset": pa.array(rows["log_offset"]),
        "real_topic": pa.array(rows["real_topic"], pa.string()),
        "real_queue_id": pa.array(rows["real_queue_id"].astype(np.int32)),
        "deliver_at": timestamps(rows["due_ms"], _TIME, delays),
        "store_timestamp": timestamps(rows["store_timestamp"], _TIME),
        "uniq_key": pa.array(rows["uniq_key"], pa.string()),
        "producer_group": pa.array([each or None for each in rows["group"]], pa.string()),
        "transaction_id": pa.array([each or None for each in rows["transaction_id"]], pa.string()),
    }
    return pa.table(columns)
