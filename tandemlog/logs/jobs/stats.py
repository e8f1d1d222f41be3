"""Messages, bytes and sizes per topic and hour, as a table and a plot.

    OUT/stats.parquet   topic, hour, records, bytes, body_bytes, min, p50, p90, p99, max, mean
    OUT/stats.png       messages per hour of the largest topics, and how large messages are

Quantiles are exact: a task counts how often each size occurs, and counts can be added.
"""

import importlib
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandemlog.arrow.dates import EPOCH, HOUR_MS, NO_DATE, counted_in
from tandemlog.format.columns.topics import topics_of

from ..audit.audit_span import Finding, damage_finding
from ..audit.log_figures import LogFigures
from ..executors import Executor, parallelism, run_tasks
from ..job_errors import OnCorruption, OptionError
from ..reading.log_source import LogSource, open_store
from ..reading.log_spans import TARGET_BYTES, Span, spans_for_tasks
from ..reading.queue_collector import QueueCollector
from ..reading.span_scan import DamagedPiece, SpanScan
from .job_result import Drawn, JobProgress, JobResult, log_files, no_progress, within
from .missing_files import with_missing_files

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_TABLE = "stats.parquet"
_PLOT = "stats.png"


@dataclass(frozen=True, slots=True)
class StatsTask:
    """Spans to count."""

    source: LogSource
    spans: tuple[Span, ...]


@dataclass(slots=True)
class Sizes:
    """How often each size (bytes of a record) occurs, sizes ascending; body bytes in all."""

    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    body_bytes: int

    def with_others(self, other: "Sizes") -> "Sizes":
        sizes, places = np.unique(np.concatenate((self.sizes, other.sizes)), return_inverse=True)
        counts = np.zeros(len(sizes), np.int64)
        np.add.at(counts, places, np.concatenate((self.counts, other.counts)))
        return Sizes(sizes, counts, self.body_bytes + other.body_bytes)

    def quantile(self, share: float) -> int:
        """The least size that at least this share of the records does not exceed."""
        ends = np.cumsum(self.counts)
        return int(self.sizes[np.searchsorted(ends, share * float(ends[-1]))])


@dataclass(slots=True)
class StatsOutcome:
    """Sizes by (topic, hours since 1970, or dates.NO_DATE)."""

    groups: dict[tuple[str, int], Sizes]
    findings: list[Finding] = field(default_factory=list)
    figures: LogFigures = field(default_factory=LogFigures)


def count_sizes(task: StatsTask) -> StatsOutcome:
    """What an executor does. Raises OSError, FetchError."""
    collector = QueueCollector()
    findings, figures = [], LogFigures()
    with closing(task.source.connect()) as log:
        for span in task.spans:
            for part in SpanScan(log, span, check_crc=False):
                if isinstance(part, DamagedPiece):
                    findings.append(damage_finding(log, task.source.files, span, part))
                    continue
                headers = part.headers
                topics, numbers = topics_of(part.data, headers)
                figures.add(topics, numbers, headers.sizes, headers.store_timestamp)
                hours = counted_in(HOUR_MS, headers.store_timestamp).astype(np.int32)
                collector.add(topics, numbers, hours, headers.sizes, headers.body_length)
    collected = collector.collected()
    groups = {}
    for number, group in enumerate(collected.queues):
        rows = collected.order[collected.bounds[number] : collected.bounds[number + 1]]
        record_sizes, body_lengths = (column[rows] for column in collected.columns)
        sizes, counts = np.unique(record_sizes, return_counts=True)
        groups[group] = Sizes(sizes, counts.astype(np.int64), int(body_lengths.sum()))
    return StatsOutcome(groups, findings, figures)


def stats(
    spark: Executor,
    store: str | Path,
    out: str | Path,
    *,
    target_bytes: int = TARGET_BYTES,
    on_corruption: OnCorruption = OnCorruption.FAIL,
    progress: JobProgress = no_progress,
) -> JobResult:
    """Count the log of `store` (log_source.open_store) into `out`.

    Raises StoreMissingError, StoreLayoutError, OptionError before anything runs; CorruptLogError
    if the log is damaged and on_corruption is FAIL.
    """
    started = time.monotonic()
    source, target = open_store(store), Path(out)
    for name in (_TABLE, _PLOT):
        if (target / name).exists():
            raise OptionError(f"{target / name} exists already: give another folder")
    if on_corruption is OnCorruption.FAIL:
        source.check_complete()
    start, end = source.start(), source.end().offset
    groups_of_spans = spans_for_tasks(source.files, start, end, target_bytes, parallelism(spark))
    tasks = [StatsTask(source, tuple(spans)) for spans in groups_of_spans]
    outcomes = run_tasks(spark, count_sizes, tasks, within(progress, "counting"))
    damage = (finding for outcome in outcomes for finding in outcome.findings)
    findings = with_missing_files(source, damage, on_corruption)
    groups = _merged(outcomes)
    rows = [_row(topic, hour, sizes) for (topic, hour), sizes in sorted(groups.items())]
    target.mkdir(parents=True, exist_ok=True)
    _write_table(target / _TABLE, rows)
    drawn = Drawn((start, end), log_files(source.files))
    for outcome in outcomes:
        drawn.of_log.merge(outcome.figures)
    result = JobResult("stats", findings=findings, drawn=drawn)
    result.notes += _plot(target / _PLOT, rows, groups)
    topics: Counter[str] = Counter()
    for row in rows:
        topics[row["topic"]] += row["records"]
    result.rows = [{**row, "hour": _hour_text(row["hour"])} for row in rows]
    result.summary = {
        "out": str(target),
        "records": sum(topics.values()),
        "bytes": end - start,
        "topics": dict(topics),
        "seconds": round(time.monotonic() - started, 3),
    }
    return result


def _merged(outcomes: Sequence[StatsOutcome]) -> dict[tuple[str, int], Sizes]:
    groups: dict[tuple[str, int], Sizes] = {}
    for outcome in outcomes:
        for group, sizes in outcome.groups.items():
            others = groups.get(group)
            groups[group] = sizes if others is None else others.with_others(sizes)
    return groups


def _row(topic: str, hour: int, sizes: Sizes) -> dict[str, Any]:
    records = int(sizes.counts.sum())
    total = int((sizes.sizes * sizes.counts).sum())
    return {
        "topic": topic,
        "hour": EPOCH + timedelta(hours=hour) if hour != NO_DATE else None,
        "records": records,
        "bytes": total,
        "body_bytes": sizes.body_bytes,
        "min": int(sizes.sizes[0]),
        **{name: sizes.quantile(share) for name, share in QUANTILES.items()},
        "max": int(sizes.sizes[-1]),
        "mean": round(total / records, 1),
    }


def _hour_text(hour: datetime | None) -> str | None:
    return hour.strftime("%Y-%m-%dT%H:00Z") if hour is not None else None


def _write_table(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    numbers = ("records", "bytes", "body_bytes", "min", *QUANTILES, "max")
    schema = pa.schema(
        [
            pa.field("topic", pa.string()),
            pa.field("hour", pa.timestamp("us", tz="UTC")),
            *(pa.field(name, pa.int64()) for name in numbers),
            pa.field("mean", pa.float64()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)


def _plot(
    path: Path, rows: Sequence[dict[str, Any]], groups: dict[tuple[str, int], Sizes]
) -> list[str]:
    """Draw it if matplotlib is installed; else returns a note."""
    # The one late import: only this job draws, and a minimal installation has no matplotlib.
    try:
        plotting = importlib.import_module("tandemlog.logs.jobs.stats_plot")
    except ModuleNotFoundError as missing:
        return [f"no plot: {missing.name} is not installed (pip install 'tandemlog[spark]')"]
    sizes = [(each.sizes, each.counts) for each in groups.values()]
    plotting.draw(path, [row for row in rows if row["hour"] is not None], sizes)
    return []
