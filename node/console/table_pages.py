"""One page of a table: what all lists of the console answer alike.

`text` filters by name, `first` is where the page begins; behind the last page it is the last page,
since rows may have gone since the page before was looked at.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from tandemlog.errors import InvalidArgumentError

from .visit import Json, Visit

ROWS = 100
MAX_TEXT = 255
Row = TypeVar("Row")


def page_of(visit: Visit, rows: Sequence[Row], size: int = ROWS) -> tuple[Sequence[Row], Json]:
    """The rows of the page that is asked for, and where it lies among all rows. Raises
    InvalidArgumentError."""
    last = max(0, len(rows) - 1) // size * size
    first = min(visit.number("first", 0), last)
    return rows[first : first + size], {"first": first, "rows": size, "total": len(rows)}


def named(visit: Visit, names: Iterable[str]) -> list[str]:
    """Those that contain `text`, in either case. Raises InvalidArgumentError."""
    text = visit.text("text").strip().lower()
    if len(text) > MAX_TEXT:
        raise InvalidArgumentError(f"text: give at most {MAX_TEXT} characters", field="text")
    return [name for name in names if text in name.lower()]


def choice(visit: Visit, name: str, *choices: str, required: bool = False) -> str:
    """A parameter that is one of `choices`, by default the first, or `required`. Raises
    InvalidArgumentError."""
    found = visit.text(name) or ("" if required else choices[0])
    if found not in choices:
        text = f"{name}: {found[:40]!r} is unknown, give one of {', '.join(choices)}"
        raise InvalidArgumentError(text, field=name)
    return found


def needed(visit: Visit, name: str) -> str:
    """A text of the address that has to be there. Raises InvalidArgumentError."""
    if not (found := visit.text(name)):
        raise InvalidArgumentError(f"{name}: it is missing", field=name)
    return found
