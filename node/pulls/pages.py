"""Lists that are too long for one response: which rows a page has, and how a caller asks for the
next.

    rows, sorted by a key    a b c | d e f | g
    asked with page          ""      "c"     "f"     the key of the last row before
    answered next_page       "c"     "f"     ""      empty: this was the last

A page is named by a key and not by a number, so rows that are added or deleted meanwhile do not
shift the others: each row that stays is in exactly one page. A page ends at MAX_ROWS rows or
MAX_BYTES.
"""

import heapq
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tandemlog.format.calls import MAX_ROWS
from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2

from ..error_status import RequestRefusedError

MAX_BYTES = 1 << 20
_SORTED_AT_ONCE = 8_192
_LONGEST_PAGE = 512

Key = TypeVar("Key", str, tuple[str, int])
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class PageNames(Generic[Key]):
    """How a key is written as the name of a page, and read."""

    write: Callable[[Key], str]
    read: Callable[[str], Key]


def _read_queue(text: str) -> tuple[str, int]:
    if len(text) > _LONGEST_PAGE:
        raise ValueError(text)
    match json.loads(text):
        case [str(topic), int(queue_id)]:
            return topic, queue_id
    raise ValueError(text)


NAME_PAGES: PageNames[str] = PageNames(str, str)
OFFSET_PAGES: PageNames[tuple[str, int]] = PageNames(json.dumps, _read_queue)


def rows_after(
    page: str,
    keys: Sequence[Key],
    row_of: Callable[[Key], Row],
    size_of: Callable[[Row], int],
    names: PageNames[Key],
) -> tuple[list[Row], str]:
    """The rows of `page`, of the sorted `keys` of all rows; and the name of the next page."""
    first = bisect_right(keys, _key_of(page, names)) if page else 0
    rows: list[Row] = []
    size = 0
    for key in keys[first : first + MAX_ROWS]:
        row = row_of(key)
        size += size_of(row)
        if rows and size > MAX_BYTES:
            break
        rows.append(row)
    following = first + len(rows)
    return rows, names.write(keys[following - 1]) if following < len(keys) else ""


def number_of_page(page: str) -> int:
    """The number that a page is named by; 0 for the first."""
    if not page:
        return 0
    if not (page.isascii() and page.isdecimal() and len(page) < 20):
        raise bad_page(page)
    return int(page)


def bad_page(page: str) -> RequestRefusedError:
    return RequestRefusedError(
        common_pb2.INVALID_ARGUMENT,
        f"page must be empty or the next_page of the previous response, not {quoted(page)}",
        field="page",
    )


def _key_of(page: str, names: PageNames[Key]) -> Key:
    try:
        return names.read(page)
    except ValueError:
        raise bad_page(page) from None


def sorted_names(names: Iterable[str]) -> Sequence[str]:
    """As sorted(), which for a million names would hold the interpreter for half a second."""
    every = list(names)
    if len(every) <= _SORTED_AT_ONCE:
        return sorted(every)
    parts = [
        sorted(every[first : first + _SORTED_AT_ONCE])
        for first in range(0, len(every), _SORTED_AT_ONCE)
    ]
    return list(heapq.merge(*parts))
