"""Rows for people or for programs: a rich table, or one JSON object a line.

A table needs all its rows to know its widths; it is printed in pages of PAGE rows, so that a dump
of millions of records starts at once and takes no memory. JSON lines are written as they come.

A time is a date in a table, in the form that --offset and --at take, and milliseconds in JSON. On a
terminal long cells are cut; a pipe gets all of them.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tandemlog.format.words import visible

PAGE = 200
MAX_CELL = 60
NO_LIMIT = 1 << 30
"""Characters of a line that has room for everything."""
TIMES = "_timestamp"
"""How the name of a column ends that has milliseconds since 1970, or -1."""

# Control characters (C0, DEL, C1) and the two Unicode ends of a line, as Python writes them; what
# else a terminal obeys, as marks of direction, is that of `visible`.
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}


class Format(StrEnum):
    TABLE = "table"
    JSONL = "jsonl"


Row = Mapping[str, Any]


def error_console() -> Console:
    """For progress and notes: stdout carries rows only."""
    return Console(stderr=True, highlight=False)


def write_note(text: str) -> None:
    """A sentence beside the rows."""
    error_console().print(text, markup=False, soft_wrap=True)


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


def write_texts(lines: Iterable[str]) -> None:
    """Sentences for people, each in a line."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def write_table(
    rows: Iterable[Row],
    columns: Sequence[str] | None = None,
    titles: Mapping[str, str] | None = None,
) -> int:
    """Pages of a table, each with its head."""
    console = _Console(highlight=False)
    if not console.is_terminal:
        # a pipe has no width: let no column be cut
        console = _Console(highlight=False, width=NO_LIMIT)
    iterator = iter(rows)
    count = 0
    while page := list(islice(iterator, PAGE)):
        names = columns or list(page[0])
        table = table_of(page, names, titles, MAX_CELL if console.is_terminal else NO_LIMIT)
        if fits(table, console):
            console.print(table)
        else:
            for number, row in enumerate(page, start=count):
                _write_block(console, row, names, titles or {}, first=number == 0)
        count += len(page)
    if not count and columns:
        console.print(table_of([], columns, titles))
    return count


class _Console(Console):
    """Leaves it to `one_line_errors` that the reader has gone: rich would end with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def fits(table: Table, console: Console) -> bool:
    """Whether no column would be cut."""
    unbounded = console.options.update(max_width=NO_LIMIT)
    return Measurement.get(console, unbounded, table).maximum <= console.width


def _write_block(
    console: Console, row: Row, names: Sequence[str], titles: Mapping[str, str], *, first: bool
) -> None:
    """A row of a table that is too wide, as a line a column."""
    if not first:
        console.print()
    widest = max(len(titles.get(name, name)) for name in names)
    for name in names:
        if value := shown(name, row.get(name)):
            title = Text(titles.get(name, name).ljust(widest + 2), "bold")
            console.print(title + Text(value), soft_wrap=True)


def table_of(
    rows: Iterable[Row],
    columns: Sequence[str],
    titles: Mapping[str, str] | None = None,
    limit: int = MAX_CELL,
) -> Table:
    """A rich table; numbers to the right, what is missing left empty. `titles` are heads that are
    not the columns' names, `limit` the characters of a cell."""
    rows = list(rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        values = [row[name] for row in rows if row.get(name) is not None]
        numeric = bool(values) and all(_is_number(value) for value in values)
        title = (titles or {}).get(name, name)
        table.add_column(title, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(shown(name, row.get(name), limit)) for name in columns))
    return table


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
        limit = MAX_CELL if sys.stdout.isatty() else NO_LIMIT
        cells = (
            shown(name, row.get(name), limit).ljust(width) for name, width in self._columns.items()
        )
        return "  ".join(cells).rstrip()


def shown(name: str, value: Any, limit: int = MAX_CELL) -> str:
    """The cell of the column `name`: as cell_text, and a time as a date."""
    if name.endswith(TIMES) and isinstance(value, int):
        return date_text(value)
    return cell_text(value, limit)


def date_text(time_ms: int) -> str:
    """Local time in ISO 8601, as --offset and --at take it; empty if there is no time."""
    if time_ms < 0:
        return ""
    try:
        return datetime.fromtimestamp(time_ms / 1000).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(time_ms)  # a foreign store may have anything


def cell_text(value: Any, limit: int = MAX_CELL) -> str:
    """One cell: short, in one line, and without control characters for the terminal: bodies, keys
    and properties come from outside."""
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
    if not text.isprintable():
        text = visible(text.translate(_ESCAPES))
    return text if len(text) <= limit else text[: limit - 1] + "…"
