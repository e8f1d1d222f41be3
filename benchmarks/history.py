"""The ratios of earlier runs: a file in the tree, a picture, and what has fallen since.

    make bench ─▶ history.jsonl   one line a run: date, commit, processors, ratio of each figure
               ─▶ docs/benchmarks.svg   a row a figure, its ratios from the oldest run to this one
               ─▶ "fallen": figures that are a tenth worse than the median of the LAST runs before

Only ratios to something measured in the same run are kept: they can be compared between machines,
and absolute numbers cannot. A single run moves by a fifth on a machine that does other things, so a
fallen figure is a question, which the change that brings the line answers.
"""

import json
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

from benchmarks.harness.figures import Figure, number
from tandemlog_server.cli.report.markup import element

FILE = Path(__file__).with_name("history.jsonl")
PICTURE = Path("docs") / "benchmarks.svg"
LAST = 5
FALLEN = 0.10
WIDTH, ROW, LABEL, PLOT = 860, 26, 470, 250
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1c2024 } .quiet { fill: #565d66 }
.line { fill: none; stroke: #1f5f9f; stroke-width: 1.5 }
.goal { stroke: #b9701c; stroke-dasharray: 3 3 }
.dot { fill: #1f5f9f } .missed { fill: #b3261e }
@media (prefers-color-scheme: dark) {
  text { fill: #e8eaed } .quiet { fill: #a6aeb8 } .line { stroke: #7db8f0 } .dot { fill: #7db8f0 }
  .goal { stroke: #f0a860 } .missed { fill: #ff9c94 }
}
"""


@dataclass(frozen=True, slots=True)
class Ratio:
    """`at_most`: smaller is better."""

    value: float
    goal: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def worse_than(self, before: float) -> float:
        """By which part of `before`; negative if it is better."""
        change = (self.value - before) / before
        return change if self.at_most else -change


@dataclass(frozen=True, slots=True)
class Run:
    """`date` is a day as YYYY-MM-DD; `commit` ends in + where files had changed since."""

    date: str
    commit: str
    cores: int
    ratios: Mapping[str, Ratio]


def run_of(figures: Iterable[Figure], *, date: str, commit: str, cores: int) -> Run:
    ratios = {
        each.name: Ratio(round(each.ratio, 4), each.goal, each.at_most)
        for each in figures
        if each.ratio is not None
    }
    return Run(date, commit, cores, ratios)


def read_runs(file: Path = FILE) -> list[Run]:
    """The oldest first. Raises ValueError, which names the line, for one that is no run."""
    if not file.exists():
        return []
    runs = []
    for line_number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            ratios = {name: Ratio(**each) for name, each in row.pop("ratios").items()}
            runs.append(Run(**row, ratios=ratios))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{file}, line {line_number}: {error}") from error
    return runs


def add_run(run: Run, file: Path = FILE) -> None:
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(asdict(run), ensure_ascii=False) + "\n")


def fallen(before: Sequence[Run], now: Run) -> list[str]:
    """One line for each figure that has fallen, the worst first."""
    found = []
    for name, ratio in now.ratios.items():
        earlier = [run.ratios[name].value for run in before if name in run.ratios][-LAST:]
        if not earlier or not (usual := statistics.median(earlier)):
            continue
        worse = ratio.worse_than(usual)
        if worse > FALLEN:
            text = f"{name}: {number(ratio.value)}, was {number(usual)} (median of {len(earlier)})"
            found.append((worse, text))
    return [text for _, text in sorted(found, reverse=True)]


def drawn(runs: Sequence[Run]) -> str:
    """The picture as SVG, with the figures of the newest runs that have them."""
    newest: dict[str, Ratio] = {}
    for run in runs:
        newest |= run.ratios
    rows: list[Element] = []
    for index, (name, last) in enumerate(sorted(newest.items())):
        rows += _row(runs, name, last, 30 + index * ROW)
    height = 40 + len(newest) * ROW
    span = f"{runs[0].date} to {runs[-1].date}" if runs else "none yet"
    title = f"{len(runs)} runs, {span}: ratios, and their goals as broken lines"
    svg = element(
        "svg",
        element("title", title),
        element("style", STYLE),
        element("text", title, x=0, y=14, class_="quiet"),
        *rows,
        role="img",
        width=WIDTH,
        height=height,
    )
    svg.set("viewBox", f"0 0 {WIDTH} {height}")
    svg.set("xmlns", "http://www.w3.org/2000/svg")
    return tostring(svg, encoding="unicode") + "\n"


def _row(runs: Sequence[Run], name: str, last: Ratio, y: int) -> list[Element]:
    known = [
        (index, run.ratios[name].value) for index, run in enumerate(runs) if name in run.ratios
    ]
    most = max(last.goal, *(value for _, value in known)) * 1.1

    def place(index: int, value: float) -> tuple[str, str]:
        x = LABEL + (index / max(1, len(runs) - 1)) * PLOT
        return f"{x:.1f}", f"{y + ROW - 6 - value / most * (ROW - 8):.1f}"

    points = [place(*each) for each in known]
    goal = place(0, last.goal)[1]
    kind = "dot" if last.holds else "missed"
    sign = "≤" if last.at_most else "≥"
    return [
        element("text", name, x=0, y=y + 16),
        element("line", x1=LABEL, x2=LABEL + PLOT, y1=goal, y2=goal, class_="goal"),
        element("polyline", points=" ".join(f"{x},{y_}" for x, y_ in points), class_="line"),
        *(element("circle", cx=x, cy=y_, r=2, class_=kind) for x, y_ in points[-1:]),
        element(
            "text",
            f"{number(last.value)} ({sign} {number(last.goal)})",
            x=LABEL + PLOT + 14,
            y=y + 16,
            class_="quiet" if last.holds else "missed",
        ),
    ]


def record(figures: Iterable[Figure], cores: int) -> list[str]:
    """Add this run and draw the picture again; what has fallen, as lines."""
    today = datetime.now(UTC).date().isoformat()
    now = run_of(figures, date=today, commit=_commit(), cores=cores)
    before = read_runs()
    add_run(now)
    PICTURE.write_text(drawn([*before, now]), encoding="utf-8")
    return fallen(before, now)


def _commit() -> str:
    """Of the tree that is measured."""
    name = _git("rev-parse", "--short", "HEAD")
    return f"{name}+" if _git("status", "--porcelain") else name


def _git(*arguments: str) -> str:
    folder = Path(__file__).parent
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
