"""One figure, its reference from the same run, its goal, and the table of all figures.

Machines differ and drift, so a figure is a ratio where possible: the reference is measured beside
the value, in the same run, and the goal is for the ratio. Goals in absolute numbers are for the
machine that the README names.
"""

import json
import math
import mmap
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
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


def median_of(runs: int, measure: Callable[[], float]) -> float:
    """The median of several runs."""
    return statistics.median(measure() for _ in range(runs))


def medians_in_turns(runs: int, measures: Sequence[Callable[[], float]]) -> list[float]:
    """The median of each measure, all run in turns, so that other load of the machine affects all
    of them, and not one side of a ratio."""
    rounds = [[measure() for measure in measures] for _ in range(runs)]
    return [statistics.median(values) for values in zip(*rounds, strict=True)]


def bring_in_memory(folder: Path, size: int) -> None:
    """Have `size` bytes of free memory that this machine really has.

    A virtual machine gives memory that was free for some seconds back to its host, and the first
    access to a page then costs four times what the page cache costs by itself: 0.7 s a GB. That
    would be measured of a program that fills the page cache.
    """
    scratch = folder / "scratch"
    piece = bytes(1 << 20)
    with scratch.open("wb", buffering=0) as file:
        for _ in range(size // len(piece)):
            file.write(piece)
    scratch.unlink()


class MemoryAtHand:
    """`size` bytes that this machine really has (see bring_in_memory), kept until `release`: for a
    program that fills the page cache only some seconds from now."""

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # in large pages, which are released quickly
        self._pages.madvise(mmap.MADV_HUGEPAGE)
        for start in range(0, size, mmap.PAGESIZE):
            self._pages[start] = 1

    def release(self) -> None:
        self._pages.close()


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
