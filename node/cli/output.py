"""Rows for people or for programs: a rich table, or one JSON object a line.

A table needs all its rows to know its widths; it is printed in pages of PAGE rows, so that a dump
of millions of records starts at once and takes no memory. JSON lines are written as they come.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

PAGE = 200
MAX_CELL = 60


class Format(StrEnum):
    TABLE = "table"
    JSONL = "jsonl"


Row = Mapping[str, Any]


def error_console() -> Console:
    """For progress and notes: stdout carries rows only."""
    return Console(stderr=True, highlight=False)


def write_rows(
    rows: Iterable[Row],
    form: Format,
    columns: Sequence[str] | None = None,
    titles: Mapping[str, str] | None = None,
) -> int:
    """Write every row, answer how many. `columns` picks and orders those of the table."""
    if form is Format.JSONL:
        return write_lines(rows)
    return write_table(rows, columns, titles)


def write_lines(rows: Iterable[Row]) -> int:
    """One JSON object a line."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    write = sys.stdout.write
    count = 0
    for row in rows:
        write(encode(row) + "\n")
        count += 1
    sys.stdout.flush()
    return count


def write_table(
    rows: Iterable[Row],
    columns: Sequence[str] | None = None,
    titles: Mapping[str, str] | None = None,
) -> int:
    """Pages of a table, each with its head."""
    console = Console(highlight=False)
    if not console.is_terminal:
        # a pipe has no width: let no column be cut
        console = Console(highlight=False, width=10_000)
    iterator = iter(rows)
    count = 0
    while page := list(islice(iterator, PAGE)):
        names = columns or list(page[0])
        console.print(table_of(page, names, titles))
        count += len(page)
    if not count and columns:
        console.print(table_of([], columns, titles))
    return count


def table_of(
    rows: Iterable[Row], columns: Sequence[str], titles: Mapping[str, str] | None = None
) -> Table:
    """A rich table; numbers to the right, what is missing left empty. `titles` are heads that are
    not the columns' names."""
    rows = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        numeric = bool(rows) and all(isinstance(row.get(name), int | float) for row in rows)
        title = (titles or {}).get(name, name)
        table.add_column(title, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell_text(row.get(name))) for name in columns))
    return table


class StreamedTable:
    """A table whose rows are not known beforehand: a head, then lines of fixed widths.

    `columns`: name -> width in characters; 0 is the last one, as wide as it is.
    """

    def __init__(self, columns: Mapping[str, int]) -> None:
        self._columns = columns
        self._headed = False

    def write(self, rows: Iterable[Row]) -> None:
        lines = [] if self._headed else [self._line({name: name for name in self._columns})]
        self._headed = True
        lines += [self._line(row) for row in rows]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    def _line(self, row: Row) -> str:
        cells = (cell_text(row.get(name)).ljust(width) for name, width in self._columns.items())
        return "  ".join(cells).rstrip()


def cell_text(value: Any) -> str:
    """One cell: short, in one line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, Mapping):
        text = " ".join(f"{key}={each}" for key, each in value.items())
    else:
        text = str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
