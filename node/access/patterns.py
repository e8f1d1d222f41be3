"""Names that a right covers: `*` and `?` as in file names, everything else as it is written.

    orders-*    orders-eu, orders-       not: orders
    v?          v1, v2                   not: v10

A name that was looked up is remembered: one look at a dict for each topic of a request. Callers
choose the names, so what is remembered is bounded, and thrown away as a whole when it is full.
"""

import re
from collections.abc import Iterable

REMEMBERED = 4_096


class Patterns:
    """See the module. `everything` says that there is no name that they do not cover."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.texts = tuple(patterns)
        self.everything = "*" in self.texts
        self._match = re.compile("|".join(map(_expression, self.texts)), re.DOTALL).fullmatch
        self._known: dict[str | bytes, bool] = {}

    def __bool__(self) -> bool:
        return bool(self.texts)

    def cover(self, name: str) -> bool:
        """Whether one of the patterns fits the whole of `name`."""
        known = self._known.get(name)
        return self._look(name, name) if known is None else known

    def cover_bytes(self, name: bytes) -> bool:
        """The same for a name in UTF-8; what is not is covered by `*` alone."""
        known = self._known.get(name)
        if known is not None:
            return known
        try:
            return self._look(name, name.decode())
        except UnicodeDecodeError:
            return self.everything

    def _look(self, key: str | bytes, name: str) -> bool:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        covered = bool(self.texts) and (self.everything or self._match(name) is not None)
        self._known[key] = covered
        return covered


def _expression(pattern: str) -> str:
    parts = {"*": ".*", "?": "."}
    return "".join(parts.get(char) or re.escape(char) for char in pattern)
