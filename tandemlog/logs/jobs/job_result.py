"""What a job returns: its figures in one row, details in rows, findings with their places."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..audit.audit_span import Finding
from ..audit.log_figures import LogFigures, TimeCounts
from ..executors import TaskProgress
from ..reading.log_files import LogFiles

JobProgress = Callable[[str, int, int], None]
"""What is being done; steps done, steps in all."""


def no_progress(what: str, done: int, total: int) -> None:
    """For callers who do not watch."""


@dataclass(slots=True)
class Drawn:
    """What a report draws beside the table; empty where a job does not know it.

    log       offsets where the log begins and ends
    files     path, first offset and end offset of each file of it
    of_log    messages by time, by size, and bytes by topic
    queues    rows: topic, queue_id, records, bytes; first and end as queue offsets, end exclusive
    groups    rows: group, topic, queue_id, committed, end, lag
    due       waiting messages by the time at which they are due
    """

    log: tuple[int, int] = (0, 0)
    files: list[tuple[str, int, int]] = field(default_factory=list)
    of_log: LogFigures = field(default_factory=LogFigures)
    queues: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    due: TimeCounts = field(default_factory=TimeCounts)


@dataclass(slots=True)
class JobResult:
    """`summary` is one row of figures, `rows` the table, `notes` in words. Times in seconds.
    `drawn` is in no output but a report."""

    job: str
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    drawn: Drawn = field(default_factory=Drawn)

    @property
    def holds(self) -> bool:
        """No finding is a fault."""
        return not any(finding.fault for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        return {
            "job": self.job,
            "holds": self.holds,
            **self.summary,
            "rows": self.rows,
            "findings": [finding.row() for finding in self.findings],
            "notes": self.notes,
        }


def log_files(files: LogFiles) -> list[tuple[str, int, int]]:
    """The files of a log as Drawn has them."""
    return [(file.path, file.base, file.end) for file in files.files]


def topic_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of the messages by topic, in the order of the topics."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def within(progress: JobProgress, what: str) -> TaskProgress:
    """`progress` for one step of a job."""
    return lambda done, total: progress(what, done, total)
