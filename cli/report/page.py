"""A report as a page: what ran, the verdict first, then parts with plots and tables. No I/O.

One file that asks for nothing: its policy forbids scripts and requests, and allows the one style
sheet that is in it. It stays small, whatever it reports: a table has MOST_ROWS rows, says which
ones those are, and how many it leaves out.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from xml.etree.ElementTree import Element

from ..output.tables import TIMES, cell_text
from .markup import Content, element, html_text, short
from .style import STYLE

MOST_ROWS: Final = 100
_CELL: Final = 160
_REASON: Final = 400
_LONG: Final = {"detail": _REASON, "reason": _REASON}
"""Letters of a cell, by column."""
_WIDE: Final = 24
"""A column with longer cells gets more room, and lines that break."""
_MOST_NOTES: Final = 50
_PLOTS: Final = "plots"
_WHOLE: Final = 1 << 20
_COUNTS: Final = frozenset(
    {"records", "bytes", "body_bytes", "units", "late", "lag", "min", "p50", "p90", "p99", "max"}
)
"""Columns of amounts: their thousands are set apart. Offsets are not: they are for copying."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`headline` in a few words, `sentence` what was looked at, `ways_out` what to do now."""

    good: bool
    headline: str
    sentence: str
    ways_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """`largest_by`: which rows to show of many, else the first ones. `times`: columns of
    milliseconds since 1970."""

    caption: str
    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[str] = ()
    largest_by: str = ""
    times: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with the words above it."""

    caption: str
    plot: Element


Block = Table | Figure


@dataclass(slots=True)
class Part:
    """Under one heading: sentences, then plots and tables."""

    heading: str
    notes: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """`facts` are what ran: command, store, where, when, how long, which version."""

    title: str
    facts: list[tuple[str, str]]
    verdict: Verdict
    parts: list[Part] = field(default_factory=list)


def page(report: Report) -> str:
    """The HTML file."""
    body = element(
        "body",
        element(
            "main",
            element("h1", short(report.title)),
            _verdict(report.verdict),
            _facts(report.facts),
            *(_part(each) for each in report.parts if each.notes or each.blocks),
        ),
    )
    for number, plot in enumerate(body.iter("svg")):
        _name(plot, number)
    return html_text(element("html", _head(report.title), body, lang="en"))


def policy() -> str:
    """What the page may do: use this style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _head(title: str) -> Element:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy()),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", short(title)),
        element("style", STYLE),
    )


def _verdict(verdict: Verdict) -> Element:
    ways: list[Element] = []
    if verdict.ways_out:
        items = (element("li", *_with_code(each)) for each in verdict.ways_out)
        ways = [element("p", "What to do:"), element("ul", *items)]
    return element(
        "div",
        element("p", verdict.headline),
        element("p", short(verdict.sentence)),
        *ways,
        class_=f"verdict {'good' if verdict.good else 'bad'}",
    )


def _with_code(text: str) -> list[Content]:
    """A text that tandemlog wrote itself: words in backticks are shown as code."""
    parts = text.split("`")
    return [element("code", each) if number % 2 else each for number, each in enumerate(parts)]


def _facts(facts: Sequence[tuple[str, str]]) -> Element:
    pairs: list[Element] = []
    for name, value in facts:
        pairs += [element("dt", name), element("dd", short(value))]
    return element("dl", *pairs)


def _part(part: Part) -> Element:
    notes = [element("p", short(each)) for each in part.notes[:_MOST_NOTES]]
    more = len(part.notes) - len(notes)
    if more:
        notes.append(element("p", f"… and {more:,} more notes"))
    blocks: list[Element] = []
    for block in part.blocks:
        if isinstance(block, Table):
            blocks.append(_table(block))
            continue
        if not blocks or blocks[-1].get("class") != _PLOTS:
            blocks.append(element("div", class_=_PLOTS))
        blocks[-1].append(_figure(block))
    return element("section", element("h2", short(part.heading)), *notes, *blocks)


def _figure(figure: Figure) -> Element:
    return element("figure", element("figcaption", short(figure.caption)), figure.plot)


def _name(plot: Element, number: int) -> None:
    """Let a screen reader read the plot's title and description."""
    for name in ("title", "desc"):
        for each in plot.findall(name):
            each.set("id", f"plot{number}-{name}")
    plot.set("aria-labelledby", f"plot{number}-title")
    plot.set("aria-describedby", f"plot{number}-desc")


def _table(table: Table) -> Element:
    rows = list(table.rows)
    caption = table.caption
    if len(rows) > MOST_ROWS:
        which = f"the first {MOST_ROWS}"
        if table.largest_by:
            rows.sort(key=lambda row: -(row.get(table.largest_by) or 0))
            which = f"the {MOST_ROWS} with the most {table.largest_by}"
        caption += f": {which}, and {len(rows) - MOST_ROWS:,} more that are not shown"
        rows = rows[:MOST_ROWS]
    names = list(table.columns) or list(dict.fromkeys(name for row in rows for name in row))
    cells = {name: [_cell(table, name, row) for row in rows] for name in names}
    classes = {name: _class(table, name, rows, cells[name]) for name in names}
    head = (element("th", short(name), scope="col", class_=classes[name]) for name in names)
    body = (
        element("tr", *(element("td", cells[name][n], class_=classes[name]) for name in names))
        for n in range(len(rows))
    )
    return element(
        "div",
        element(
            "table",
            element("caption", element("span", short(caption))),
            element("thead", element("tr", *head)),
            element("tbody", *body),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=short(caption),
    )


def _class(table: Table, name: str, rows: Sequence[Mapping[str, Any]], cells: Sequence[str]) -> str:
    """How a column looks: numbers to the right, room for what is long."""
    values = [row[name] for row in rows if row.get(name) is not None]
    if values and name not in table.times and all(map(_is_number, values)):
        return "number"
    widest = max(map(len, cells), default=0)
    if widest > _CELL // 2:
        return "longer"
    return "long" if widest > _WIDE else "short"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(table: Table, name: str, row: Mapping[str, Any]) -> str:
    value = row.get(name)
    if isinstance(value, int) and (name in table.times or name.endswith(TIMES)):
        return time_text(value)
    if name in _COUNTS and _is_number(value):
        return f"{value:,}"
    # cut in the middle, so all of it first
    return short(cell_text(value, _WHOLE), _LONG.get(name, _CELL))


def time_text(time_ms: int) -> str:
    """In UTC: who reads a report may be elsewhere. Empty if there is no time."""
    if time_ms < 0:
        return ""
    try:
        when = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_ms)
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")
