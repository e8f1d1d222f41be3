"""The screen: a function of what is known, what was chosen, and how large the terminal is.

    title      cluster, pages, how it is, when
    page       as many lines as there is room for, from View.first on
    keys       what the keys do, and which rows are shown

It has as many lines as the terminal, so that nothing ever scrolls away.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from ..output.tables import cell_text
from . import cluster_page, topics_page
from .recent import Recent
from .view import Page, Room, View

KEYS = {
    Page.CLUSTER: "q quit  t topics  j k scroll",
    Page.TOPICS: "q quit  c cluster  j k scroll  s sort  / filter",
}
FRAME = 2
"""Lines of title and keys."""
LEAST_WIDTH, LEAST_HEIGHT = 20, 4
"""A smaller terminal shows a part of this."""

Line = list[Segment]


@dataclass(frozen=True, slots=True)
class Screen:
    """A terminal's content, line by line; `room` is how the page's rows fit."""

    lines: Sequence[Line]
    room: Room

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, line in enumerate(self.lines):
            if number:
                yield Segment.line()
            yield from line


def screen(recent: Recent, view: View, width: int, height: int) -> Screen:
    """The screen of `width` columns and `height` lines."""
    console = _console(max(width, LEAST_WIDTH))
    height = max(height, LEAST_HEIGHT)
    body, room = _page(recent, view, console, height - FRAME)
    body = (body + [[]] * height)[: height - FRAME]
    title = _lines([_title(recent, view)], console)[:1]
    keys = _lines([_keys(view, room)], console)[:1]
    lines = [Segment.adjust_line_length(line, width) for line in (*title, *body, *keys)]
    return Screen(lines, room)


def snapshot(recent: Recent, view: View, width: int) -> Screen:
    """All of the page, for a reader who cannot scroll."""
    console = _console(width)
    body, room = _page(recent, view, console, None)
    return Screen([*_lines([_title(recent, view)], console), *body], room)


def _page(
    recent: Recent, view: View, console: Console, height: int | None
) -> tuple[list[Line], Room]:
    if view.page is Page.CLUSTER:
        lines = _lines(cluster_page.parts(recent, console), console)
        room = Room(len(lines), len(lines) if height is None else height)
        first = min(view.first, room.most)
        return lines[first : first + room.shown], room
    rows = topics_page.topic_rows(recent, view)
    room = Room(len(rows), len(rows) if height is None else height - topics_page.HEAD)
    first = min(view.first, room.most)
    longest = max((len(row[topics_page.NAME]) for row in rows), default=0)
    shown = rows[first : first + room.shown]
    return _lines([topics_page.table(shown, longest, view, console)], console), room


def _console(width: int) -> Console:
    """Only lays out; what it would print goes nowhere."""
    return Console(file=io.StringIO(), width=width, height=LEAST_HEIGHT, highlight=False)


def _lines(parts: Sequence[RenderableType], console: Console) -> list[Line]:
    options = console.options.update(height=None)
    return [line for part in parts for line in console.render_lines(part, options, pad=False)]


def _title(recent: Recent, view: View) -> Text:
    at = datetime.fromtimestamp(recent.now_ms / 1000).strftime("%H:%M:%S")
    level = cluster_page.level(recent)
    text = Text("tandemlog top  ", style="bold", no_wrap=True, overflow="crop")
    for page in Page:
        text.append(f" {page} ", style="reverse" if page is view.page else "dim")
    text.append(f"  {level.name}", style=cluster_page.STYLES[level])
    return text.append(f"  {at}  {cell_text(recent.topology.cluster_id)}", style="not bold")


def _keys(view: View, room: Room) -> Text:
    first = min(view.first, room.most)
    last = min(first + room.shown, room.rows)
    rows = f"{min(first + 1, last):,}-{last:,} of {room.rows:,}"
    what = "topics" if view.page is Page.TOPICS else "lines"
    if view.words and view.page is Page.TOPICS:
        what += f" with {view.words!r}"
    help_text = KEYS[view.page]
    if view.typing:
        help_text = f"/{view.words}_  Enter keeps it, Escape shows all"
    text = f"{rows} {what}   {help_text}"
    return Text(text, style="reverse", no_wrap=True, overflow="crop")
