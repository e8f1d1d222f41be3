"""One figure, its reference from the same run, its goal, and the table they end in.

Machines differ and drift, so what can be a ratio is one: the reference is measured beside the
value, in the same run, and the goal is for the ratio. Goals in absolute numbers are for the machine
that the README names.
"""

import json
import math
import os
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` in `unit`; `ratio` is value / reference where there is a reference.

    `goal` is a bound for the ratio where there is a reference, else for the value; `at_most` turns
    it from the smallest into the largest that is good enough.
    """

    name: str
    value: float
    unit: str
    goal: float
    reference: float | None = None
    at_most: bool = False

    @property
    def ratio(self) -> float | None:
        if self.reference is None or not self.reference:
            return None
        return self.value / self.reference

    @property
    def holds(self) -> bool:
        measured = self.value if self.reference is None else (self.ratio or math.nan)
        return measured <= self.goal if self.at_most else measured >= self.goal

    def row(self) -> dict[str, object]:
        return {**asdict(self), "ratio": self.ratio, "holds": self.holds}


def best_of(runs: int, measure: Callable[[], float]) -> float:
    """The median of several runs: other processes only ever make one slower, or faster by luck."""
    return statistics.median(measure() for _ in range(runs))


def number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def report(figures: Iterable[Figure], output: Path) -> bool:
    """Print the table, write it as JSON to `output`; True where every goal holds."""
    rows = list(figures)
    table = Table(title=f"{os.cpu_count()} cores", title_justify="left")
    for column in ("figure", "value", "unit", "reference", "ratio", "goal", "holds"):
        table.add_column(column, justify="left" if column in ("figure", "unit") else "right")
    for figure in rows:
        table.add_row(
            figure.name,
            number(figure.value),
            figure.unit,
            number(figure.reference),
            number(figure.ratio),
            ("≤ " if figure.at_most else "≥ ") + number(figure.goal),
            "yes" if figure.holds else "NO",
        )
    Console(width=140).print(table)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([figure.row() for figure in rows], indent=2) + "\n")
    return all(figure.holds for figure in rows)
