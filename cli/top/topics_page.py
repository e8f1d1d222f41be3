"""The page of the topics: a row a topic, the busiest first.

A node counts its first `limits.metric_topics` topics one by one and the others together
(docs/monitoring.md). Those others have a row, but their rates are unknown: the row `other` has the
sum.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tandemlog_server.node.pulls.group_activity import OTHER

from ..cluster.traffic import readable, summed
from ..output.tables import cell_text
from .recent import ALL, Recent
from .view import SORTS, View

NAME = SORTS[-1]
WIDTHS = {"queues": 6, "in/s": 9, "out/s": 9, "MB in/s": 9, "MB out/s": 9, "total in": 12}
"""Of the columns beside the name, which do not change while the rows move."""
HEAD = 1
"""Lines above the rows."""
LEAST_NAME = 12
SORTED = "▾"

Row = dict[str, Any]


def topic_rows(recent: Recent, view: View) -> list[Row]:
    """The topics that `view` shows, in its order; equal ones by name, unknown rates last."""
    rows: dict[str, Row] = {}
    known = {row[NAME]: row for row in summed(recent.rows, NAME)}
    # a topic that no node has counted had no traffic, if each has a counter of its own
    is_counted = OTHER not in known and recent.newest(ALL) is not None
    for topic in recent.details.topics:
        rows[topic.name] = {NAME: topic.name, "queues": topic.write_queues}
        if is_counted:
            rows[topic.name] |= readable({}) | {"total in": 0}
    for name, row in known.items():
        counted = readable(row) | {"total in": row["messages_in_total"]}
        rows[name] = {NAME: name} | rows.get(name, {}) | counted
    words = view.words.casefold()
    chosen = sorted(
        (row for row in rows.values() if words in row[NAME].casefold()),
        key=lambda row: row[NAME],
    )
    if view.sort != NAME:
        chosen.sort(key=lambda row: row.get(view.sort, -1), reverse=True)
    return chosen


def table(rows: Sequence[Row], longest: int, view: View, console: Console) -> Table:
    """These rows; the column by which they are sorted is marked. `longest`: characters of the
    longest name, so that columns stay where they are while rows move."""
    room = max(LEAST_NAME, console.width - sum(WIDTHS.values()) - len(WIDTHS))
    name_width = min(room, max(LEAST_NAME, longest))
    found = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for column, width in {NAME: name_width, **WIDTHS}.items():
        is_sorted = column == view.sort
        found.add_column(
            Text(f"{column}{SORTED}" if is_sorted else column, "reverse" if is_sorted else ""),
            justify="left" if column == NAME else "right",
            width=width,
            no_wrap=True,
        )
    for row in rows:
        found.add_row(*(Text(_cell(row.get(column), name_width)) for column in (NAME, *WIDTHS)))
    return found


def _cell(value: Any, limit: int) -> str:
    return f"{value:,}" if isinstance(value, int) else cell_text(value, limit)
