"""What came of each kind of fault: counts, and how long clients waited.

recovery  from the last acknowledgement before puts stood still to the next one, as the client
          sees it: the longest such pause from the fault's beginning until puts continue after
          its end. Where the fault itself holds puts up, the time that it lasted is part of it.
whole     from the fault's end until all nodes were in sync again
"""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.checks import Finding
from chaos.usage import Usage

KINDS = ("lost", "vanished", "duplicated", "skipped", "leaders", "archive")
AT_THE_END = "at-the-end"


@dataclass(frozen=True, slots=True)
class Played:
    """One fault. `elections` is by how much the epoch grew; `failed` puts have no known outcome or
    were refused: they promise nothing."""

    fault: str
    coordinator: str
    acknowledged: int
    failed: int
    elections: int
    recovery_s: float
    whole_s: float
    findings: tuple[Finding, ...] = ()

    def line(self) -> str:
        return (
            f"recovery {self.recovery_s:.1f} s, whole after {self.whole_s:.1f} s, "
            f"{self.elections} elections, {self.acknowledged} acknowledged, {self.failed} failed, "
            f"{len(self.findings)} findings"
        )


class Tally:
    """Of a whole run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.played: list[Played] = []
        self.findings: list[Finding] = []
        self.usage = Usage()
        self.archived_bytes = 0
        self.services: Counter[str] = Counter()
        self.error = ""
        self._at_the_end: list[Finding] = []

    def add(self, played: Played) -> None:
        self.played.append(played)
        self.findings += played.findings

    def end(self, findings: Iterable[Finding]) -> None:
        """Those that only the reading of everything has found."""
        self._at_the_end += findings
        self.findings += findings

    def count(self, services: Mapping[str, int]) -> None:
        """What the services of one cluster were asked for."""
        self.services.update(services)

    def rows(self) -> list[dict[str, object]]:
        """One for each kind of fault that was played, by name, and the sum of all."""
        names = sorted({each.fault for each in self.played})
        rows = [_row(name, [each for each in self.played if each.fault == name]) for name in names]
        end = Counter(finding.kind for finding in self._at_the_end)
        rows.append({"fault": AT_THE_END, **{kind: end[kind] for kind in KINDS}})
        return rows

    def report(self) -> dict[str, object]:
        found = Counter(finding.kind for finding in self.findings)
        return {
            "seed": self.seed,
            "faults": self.rows(),
            "runs": len(self.played),
            "acknowledged": sum(each.acknowledged for each in self.played),
            "failed": sum(each.failed for each in self.played),
            **{kind: found[kind] for kind in KINDS},
            "archived_bytes": self.archived_bytes,
            "services": dict(self.services),
            "usage": self.usage.report(),
            "error": self.error,
            "findings": [f"{finding.kind}: {finding.text}" for finding in self.findings[:100]],
        }

    def table(self) -> str:
        """The rows of the faults as Markdown, as docs/reliability.md has them."""
        lines = [
            "| fault | runs | acknowledged | broken promises | median recovery, s | worst, s |",
            "|---|---|---|---|---|---|",
        ]
        for name in sorted({each.fault for each in self.played}):
            row = _row(name, [each for each in self.played if each.fault == name])
            broken = sum(int(str(row[kind])) for kind in KINDS)
            acknowledged = f"{row['acknowledged']:,}"
            times = f"{row['median_recovery_s']} | {row['worst_recovery_s']}"
            lines.append(f"| {name} | {row['runs']} | {acknowledged} | {broken} | {times} |")
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(self.report(), indent=1) + "\n")


def _row(name: str, played: Sequence[Played]) -> dict[str, object]:
    found = Counter(finding.kind for each in played for finding in each.findings)
    recoveries = [each.recovery_s for each in played]
    return {
        "fault": name,
        "runs": len(played),
        "by_coordinator": dict(Counter(each.coordinator for each in played)),
        "acknowledged": sum(each.acknowledged for each in played),
        "failed": sum(each.failed for each in played),
        "elections": sum(each.elections for each in played),
        **{kind: found[kind] for kind in KINDS},
        "median_recovery_s": round(statistics.median(recoveries), 2),
        "worst_recovery_s": round(max(recoveries), 2),
        "worst_whole_s": round(max(each.whole_s for each in played), 2),
    }
