"""Names that a right covers: `*` and `?` as in file names, everything else as it is written.

    orders-*    orders-eu, orders-       not: orders
    v?          v1, v2                   not: v10

A name that was looked up is remembered: one look at a dict for each topic of a request. Callers
choose the names, before anything has checked them. So the memory of names is bounded, and cleared
when it is full; a name longer than any topic's or group's is covered by `*` alone, without a match;
and a match takes at most the length of the name times that of the pattern, since a star never tries
a second text for the letters that follow it.
"""

import re
from collections.abc import Iterable

from tandemlog.format.constants import MAX_TOPIC

REMEMBERED = 4_096


class Patterns:
    """See the module. `everything` says that they cover every name."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.texts = tuple(patterns)
        self.everything = "*" in self.texts
        self._match = re.compile("|".join(map(_expression, self.texts)), re.DOTALL).fullmatch
        self._covered: dict[str | bytes, bool] = {}

    def __bool__(self) -> bool:
        return bool(self.texts)

    def cover(self, name: str) -> bool:
        """Whether one of the patterns fits the whole of `name`."""
        if len(name) > MAX_TOPIC:
            return self.everything
        covered = self._covered.get(name)
        return self._match_new(name, name) if covered is None else covered

    def cover_bytes(self, name: bytes) -> bool:
        """The same for a name in UTF-8; other bytes are covered by `*` alone."""
        if len(name) > MAX_TOPIC:
            return self.everything
        covered = self._covered.get(name)
        if covered is not None:
            return covered
        try:
            return self._match_new(name, name.decode())
        except UnicodeDecodeError:
            return self.everything

    def _match_new(self, key: str | bytes, name: str) -> bool:
        if len(self._covered) >= REMEMBERED:
            self._covered.clear()
        covered = bool(self.texts) and (self.everything or self._match(name) is not None)
        self._covered[key] = covered
        return covered


def _expression(pattern: str) -> str:
    """The shortest text between two stars is the right one, so it is never taken back (`?>`)."""
    first, *others = (_letters(part) for part in pattern.split("*"))
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{part})" for part in middle if part) + ".*" + last


def _letters(part: str) -> str:
    return "".join("." if char == "?" else re.escape(char) for char in part)
