"""What the reader has chosen, and what a key changes of it: a pure fold.

bytes of the terminal ──decoded──▶ keys ──pressed──▶ View{page, sort, first, filter}
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

SORTS = ("in/s", "out/s", "MB in/s", "MB out/s", "total in", "topic")
"""The columns by which topics are sorted, in the order in which `s` takes them."""
MAX_FILTER = 60
"""Characters of a filter."""

_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])|.", re.DOTALL)
_NAMES = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x1b[7~": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end", "\x1b[8~": "end",
    "\t": "tab", "\x1b[Z": "tab",
    "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace",
    "\x15": "clear", "\x1b": "escape",
}  # fmt: skip


class Page(StrEnum):
    CLUSTER = "cluster"
    TOPICS = "topics"


@dataclass(frozen=True, slots=True)
class View:
    """`first` is the first row that is shown; `words`: topics whose name has them are shown, all
    without; `typing`: keys are their characters; `ended`: the view is to end."""

    page: Page = Page.CLUSTER
    sort: str = SORTS[0]
    first: int = 0
    words: str = ""
    typing: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows the page has, and how many are shown at once."""

    rows: int = 0
    shown: int = 1

    @property
    def most(self) -> int:
        """Of View.first: the last row is at the end of the page then."""
        return max(0, self.rows - self.shown)


def decoded(text: str) -> Iterator[str]:
    """The keys of what the terminal sent: a name, or the character itself. Keys that have no name
    here are left out."""
    for found in _SEQUENCE.findall(text):
        if name := _NAMES.get(found):
            yield name
        elif found.isprintable():
            yield found


def pressed(view: View, key: str, room: Room) -> View:
    """The view after `key`; `room` is that of the page as it is shown now."""
    if view.typing:
        return _typed(view, key)
    first = min(view.first, room.most)
    match key:
        case "q":
            return replace(view, ended=True)
        case "c":
            return _turned(view, Page.CLUSTER)
        case "t":
            return _turned(view, Page.TOPICS)
        case "tab":
            return _turned(view, Page.TOPICS if view.page is Page.CLUSTER else Page.CLUSTER)
        case "s" if view.page is Page.TOPICS:
            after = SORTS[(SORTS.index(view.sort) + 1) % len(SORTS)]
            return replace(view, sort=after, first=0)
        case "/" if view.page is Page.TOPICS:
            return replace(view, typing=True)
        case "escape":
            return replace(view, words="", first=0) if view.words else view
        case "up" | "k":
            first -= 1
        case "down" | "j":
            first += 1
        case "page up" | "b":
            first -= room.shown
        case "page down" | " ":
            first += room.shown
        case "home" | "g":
            first = 0
        case "end" | "G":
            first = room.most
        case _:
            return view
    return replace(view, first=min(max(0, first), room.most))


def _turned(view: View, page: Page) -> View:
    return view if view.page is page else replace(view, page=page, first=0)


def _typed(view: View, key: str) -> View:
    match key:
        case "enter":
            return replace(view, typing=False)
        case "escape":
            return replace(view, typing=False, words="", first=0)
        case "backspace":
            return replace(view, words=view.words[:-1], first=0)
        case "clear":
            return replace(view, words="", first=0)
        case _ if len(key) == 1 and len(view.words) < MAX_FILTER:
            return replace(view, words=view.words + key, first=0)
    return view
