"""What a job returns: its figures in one row, details in rows, findings with their places."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..audit.audit_span import Finding
from ..executors import TaskProgress

JobProgress = Callable[[str, int, int], None]
"""What is being done; steps done, steps in all."""


def no_progress(what: str, done: int, total: int) -> None:
    """For callers who do not watch."""


@dataclass(slots=True)
class JobResult:
    """`summary` is one row of figures, `rows` the table, `notes` in words. Times in seconds."""

    job: str
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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


def topic_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of the messages by topic, in the order of the topics."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))


def within(progress: JobProgress, what: str) -> TaskProgress:
    """`progress` for one step of a job."""
    return lambda done, total: progress(what, done, total)
